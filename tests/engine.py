"""A Docker engine for tests, and the connector's image on it, of this machine's Python: nothing is pulled.

What is made stays on the engine, under names that begin with ``telegram-connector-test``, to be used again.
"""

from __future__ import annotations

import configparser
import fcntl
import hashlib
import io
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.nats_server import binary

ROOT = Path(__file__).parents[1]
_LABEL = "telegram-connector-test"  # inherited by all that is made from the base
EXTRAS = "otel,prometheus,socks,sandbox"
_BUILD_SECONDS = 300
_HEALTH_SECONDS = 60
# What manylinux wheels may take for granted.
_WHEELS_NEED = (
    "libdl.so.2",
    "libgcc_s.so.1",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
    "libstdc++.so.6",
)
_LEFT_OUT = ("__pycache__", "config-", "idlelib", "lib2to3", "site-packages", "test", "tkinter", "turtledemo")


def unavailable(reason: str) -> None:
    """Skip the test, but fail it in CI, which has everything."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def engine_answers() -> bool:
    """Looked at without the client, which leaves its sockets to the collector when nobody answers."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not host.startswith("unix://"):
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(host.removeprefix("unix://")) == 0


def docker(*arguments: str, check: bool = True, stdin: bytes | None = None) -> str:
    """What ``docker`` prints on both streams."""
    done = subprocess.run(
        ["docker", *arguments],
        input=stdin if stdin is not None else b"",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_BUILD_SECONDS,
    )
    output = done.stdout.decode(errors="replace").strip()
    assert done.returncode == 0 or not check, f"docker {' '.join(arguments)}: {output[-2000:]}"
    return output


def connector_image() -> str:
    """The image that deploy/Dockerfile makes of this work tree, on a base of this machine's Python.

    Skips without an engine on this machine.
    """
    _want_engine()
    with _alone():
        base = _base()
        # What earlier versions left; what is younger saves a second test the building.
        docker("image", "prune", "--force", "--filter", f"label={_LABEL}", "--filter", "until=24h")
        docker(
            *("build", "-f", str(ROOT / "deploy" / "Dockerfile"), "-t", "telegram-connector-test"),
            *("--build-arg", f"BASE={base}", "--build-arg", f"EXTRAS={EXTRAS}", str(ROOT)),
        )
        return "telegram-connector-test"


def nats_image() -> str:
    """The nats-server that other tests run, in an image that has a shell and Python besides."""
    _want_engine()
    with _alone(), tempfile.TemporaryDirectory() as folder:
        shutil.copy(binary(), Path(folder) / "nats-server")
        recipe = Path(folder) / "Dockerfile"
        recipe.write_text(f"FROM {_base()}\nCOPY nats-server /bin/nats-server\nVOLUME /data\n")
        docker("build", "-t", "telegram-connector-test-nats", folder)
        return "telegram-connector-test-nats"


def until_healthy(container: str) -> None:
    """Wait for the container's own health check."""
    deadline = time.monotonic() + _HEALTH_SECONDS
    pause = threading.Event()
    while docker("inspect", "--format", "{{.State.Health.Status}}", container) != "healthy":
        assert time.monotonic() < deadline, docker("inspect", "--format", "{{json .State}}", container)
        pause.wait(0.2)


def _want_engine() -> None:
    if shutil.which("docker") is None or not engine_answers():
        unavailable("no Docker engine")
    if not sys.platform.startswith("linux"):
        unavailable("the image's base is made of this machine's Python, which must be Linux's")


@contextmanager
def _alone() -> Iterator[None]:
    """Tests run in several processes; one of them builds."""
    with (Path(tempfile.gettempdir()) / "telegram-connector-test.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _base() -> str:
    """What stands in for ``python:<version>-slim``: Python, its libraries, a shell, wheels to install."""
    requirements = _requirements()
    parts = (Path(__file__).read_text(), sys.version, *requirements)
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    name = f"telegram-connector-test-base:{key[:12]}"
    if docker("images", "-q", name):
        return name
    with tempfile.TemporaryDirectory() as folder:
        wheels = Path(folder) / "wheels"
        pip = (sys.executable, "-m", "pip", "wheel", "-q", "-w", str(wheels))
        fetched = subprocess.run(
            [*pip, *requirements, "pip", "setuptools"],
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
        )
        if fetched.returncode:
            unavailable(f"the wheels of the image cannot be had: {fetched.stderr[-500:]}")
        system = Path(folder) / "system.tar"
        with tarfile.open(system, "w") as tar:
            _add_system(tar, wheels)
        path = f"{_python().parent}:/bin"
        changes = (
            f"ENV PATH={path}",
            "ENV PIP_NO_INDEX=1",
            "ENV PIP_FIND_LINKS=/wheels",
            f"LABEL {_LABEL}=yes",
        )
        docker("import", *(part for change in changes for part in ("--change", change)), str(system), name)
    return name


def _requirements() -> list[str]:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lists = [config["options"]["install_requires"]]
    lists += [config["options.extras_require"][extra] for extra in EXTRAS.split(",")]
    return [line for text in lists for line in text.splitlines() if line and not line.startswith("#")]


def _python() -> Path:
    """The interpreter itself, not a virtual environment's."""
    return Path(sys._base_executable).resolve()  # type: ignore[attr-defined]


def _add_system(tar: tarfile.TarFile, wheels: Path) -> None:
    python = _python()
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix}))
    files = [python, Path("/bin/sh")]
    for found in sorted(library.rglob("*")):
        inner = found.relative_to(library).parts
        if found.is_file() and not any(part.startswith(name) for part in inner for name in _LEFT_OUT):
            files.append(found)
    shared = {python, Path("/bin/sh"), *library.glob("lib-dynload/*.so")}
    listed = subprocess.run(["ldd", *map(str, sorted(shared))], capture_output=True, text=True).stdout
    needed = {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listed, re.MULTILINE)}
    beside = next(path.parent for path in needed if path.name.startswith("libc.so"))
    needed |= {found for name in _WHEELS_NEED for found in beside.glob(name)}
    files += sorted(needed)
    for path in files:
        tar.add(path.resolve(), str(path), filter=_anybodys)
    if python.name != "python":
        link = tarfile.TarInfo(str(python.with_name("python")))
        link.type, link.linkname = tarfile.SYMTYPE, python.name
        tar.addfile(link)
    tar.add(wheels, "/wheels", filter=_anybodys)
    # pip runs from its wheel; this is how every Python of the image finds it.
    site = subprocess.run(
        [str(python), "-c", "import site; print(site.getsitepackages()[0])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    line = f"/wheels/{next(wheels.glob('pip-*.whl')).name}\n".encode()
    info = tarfile.TarInfo(f"{site}/pip.pth")
    info.size, info.mode = len(line), 0o644
    tar.addfile(info, io.BytesIO(line))
    temporary = tarfile.TarInfo("/tmp")
    temporary.type, temporary.mode = tarfile.DIRTYPE, 0o1777
    tar.addfile(temporary)


def _anybodys(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Readable by the image's user, whoever it is; Python may be in root's home."""
    info.mode |= 0o555 if info.isdir() or info.mode & 0o100 else 0o444
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info
