"""A module imports only from rows above its own, and each outside world has one door."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "telegram_connector"

# From the top down; a name may be a module or a whole package. Row neighbours do not know each other.
ROWS = (
    "errors checks clock disposition delivery gate pacing scrubber transport rates pauses web fence"
    " traceparent ages wording",
    "envelope settings events classify settled settlement marks markup",
    "sandbox topology lanes projection gathering telegram telemetry instruments state record alerts"
    " deadletter fitness",
    "links",
    "ledger resolution docket",
    "attempt bridge story",
    "settling pausing status tracing letters resolver",
    "upkeep metering reporter",
    "worker page",
    "relay publisher demo checkup overview operating",
    "handler console",
    "cli pytest_plugin",
    "__main__",
)
ROW_OF = {name: number for number, row in enumerate(ROWS) for name in row.split()}

# Who may import what from outside; the rest of the standard library and msgspec are anybody's.
DOORS = {
    "nats": {"bridge"},
    "nkeys": {"bridge"},
    "nacl": {"bridge"},
    "tenacity": {"bridge"},
    "asyncio": {"bridge"},
    "requests": {"telegram", "transport"},
    "urllib3": {"telegram", "transport"},
    "flask": {"sandbox", "console"},
    "werkzeug": {"sandbox", "console"},
    "click": {"cli"},
    "rich": {"demo", "cli"},
    "pythonjsonlogger": {"cli"},
    "opentelemetry": {"traceparent", "telemetry", "telegram", "tracing", "metering", "relay", "cli"},
    "prometheus_client": {"page"},
    "signal": {"cli"},
    "pytest": {"pytest_plugin"},
}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
LOGGING_SET_UP = {"basicConfig", "dictConfig", "fileConfig", "addHandler", "setLevel", "excepthook"}

MODULES = sorted(PACKAGE.rglob("*.py"))


def unit_of(path: Path) -> str:
    """The module's name in the rows: its package's for one in a package, "" for the root itself."""
    first = path.relative_to(PACKAGE).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def imports_of(path: Path, nodes: Iterator[ast.AST] | None = None) -> Iterator[str]:
    """Full dotted names of all that a module imports, anywhere in it."""
    package = ["telegram_connector", *path.relative_to(PACKAGE).parts[:-1]]
    for node in nodes or ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            # `from package import name` may name a module or something in the package itself.
            yield from (f"{source}.{alias.name}" for alias in node.names)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def inner_imports(path: Path) -> set[str]:
    """The units that a module imports from, its own left out."""
    names = (name.split(".") for name in imports_of(path))
    units = {name[1] for name in names if name[0] == "telegram_connector" and len(name) > 1}
    return (units & ROW_OF.keys()) - {unit_of(path)}


def each_module(*, but: str = "") -> list[pytest.ParameterSet]:
    return [pytest.param(path, id=str(path.relative_to(PACKAGE))) for path in MODULES if unit_of(path) != but]


def test_every_module_has_its_row_and_every_row_its_modules():
    units = {unit_of(path) for path in MODULES} - {""}
    assert units == set(ROW_OF)
    assert sum(len(row.split()) for row in ROWS) == len(ROW_OF), "a module in two rows"


@pytest.mark.parametrize("path", each_module())
def test_imports_go_upwards_only(path: Path):
    unit = unit_of(path)
    row = ROW_OF[unit] if unit else 0  # the root package is above everything
    wrong = {name for name in inner_imports(path) if ROW_OF[name] >= row}
    assert not wrong, f"{unit or 'the root package'} may not import {sorted(wrong)}"


@pytest.mark.parametrize("path", each_module())
def test_each_outside_world_has_one_door(path: Path):
    for name in imports_of(path):
        owners = DOORS.get(name.split(".")[0])
        assert owners is None or unit_of(path) in owners, f"only {sorted(owners)} may import {name}"


@pytest.mark.parametrize("path", each_module(but="cli"))
def test_only_the_commands_know_opentelemetrys_sdk(path: Path):
    """Elsewhere its API alone: whose providers there are is the host's business."""
    for name in imports_of(path):
        assert not name.startswith(("opentelemetry.sdk", "opentelemetry.exporter")), name


def test_the_sandbox_knows_nothing_of_the_rest_but_markup_web_and_errors():
    for path in MODULES:
        if unit_of(path) == "sandbox":
            assert inner_imports(path) <= {"errors", "markup", "web"}, path


def test_the_pytest_plugin_imports_nothing_of_ours_before_its_fixture_is_used():
    path = PACKAGE / "pytest_plugin.py"
    at_import = {name.split(".")[0] for name in imports_of(path, iter(parsed(path).body))}
    assert at_import <= {"__future__", "collections", "typing", "pytest"}
    assert inner_imports(path) == {"sandbox"}


@pytest.mark.parametrize("path", each_module(but="cli"))
def test_only_the_commands_touch_the_environment_and_set_up_logging(path: Path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            assert not (node.value.id == "os" and node.attr in ENVIRONMENT), name
            assert node.attr not in LOGGING_SET_UP, name
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "getLogger"
        ):
            assert node.args, "the root logger"
    for name in imports_of(path):
        last = name.split(".")[-1]
        assert not (name.startswith("os.") and last in ENVIRONMENT), name
        assert last not in LOGGING_SET_UP | {"getproxies", "getproxies_environment"}, name


@pytest.mark.parametrize("path", each_module())
def test_nothing_sleeps(path: Path):
    """A wait that a stop cannot end; threads wait on events, the loop has its own sleep."""
    assert "time.sleep" not in set(imports_of(path))
    for node in ast.walk(parsed(path)):
        is_sleep = isinstance(node, ast.Attribute) and node.attr == "sleep"
        assert not (is_sleep and isinstance(node.value, ast.Name) and node.value.id == "time")
