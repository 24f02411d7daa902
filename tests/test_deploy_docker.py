"""deploy/Dockerfile: built from this machine's Python, and run as a careful operator would run it."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from telegram_connector.settings import Settings, variables
from tests.engine import connector_image, docker, until_healthy
from tests.fleet import PATIENCE_SECONDS, Fleet, numbered, worker_env
from tests.nats_server import free_port

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
IGNORE = (ROOT / ".dockerignore").read_text()
STOP_SECONDS = 35
HARDENED = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


def test_only_what_the_image_is_made_of_gets_near_it() -> None:
    patterns = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("#", "")
    ]
    assert patterns[0] == "*"
    allowed = {pattern[1:] for pattern in patterns if pattern.startswith("!")}
    copied = {
        name
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
        for name in line.split()
    }
    assert allowed == copied == {"LICENSE", "README.md", "setup.cfg", "setup.py", "telegram_connector"}


def test_the_image_sets_known_settings_only() -> None:
    names = set(re.findall(r"\b((?:TG|TELEGRAM|NATS|LOG)_[A-Z_]+)=", DOCKERFILE))
    assert names == {"TG_METRICS_HOST", "TG_METRICS_PORT"}
    assert names <= set(variables(Settings))


@pytest.fixture(scope="module")
def image() -> str:
    return connector_image()


@pytest.fixture
def name() -> Iterator[str]:
    """A container's name; it is removed afterwards."""
    chosen = f"telegram-connector-test-{uuid.uuid4().hex[:12]}"
    yield chosen
    docker("rm", "--force", chosen, check=False)


def state(name: str) -> dict[str, object]:
    return dict(json.loads(docker("inspect", "--format", "{{json .State}}", name)))


@pytest.mark.integration
def test_the_image_is_as_orchestrators_want_it(image: str) -> None:
    config = json.loads(docker("inspect", "--format", "{{json .Config}}", image))
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", config["User"])
    assert (config["Entrypoint"], config["Cmd"]) == (
        ["telegram-connector"],
        ["run"],
    )  # no shell before signals
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"][0] == "CMD"
    # pip is not on board, and what was installed is compiled.
    looked = docker(
        *("run", "--rm", *HARDENED, "--entrypoint", "python", image, "-c"),
        "import glob, sys, telegram_connector as t\n"
        "print(glob.glob(f'{sys.prefix}/bin/pip*'), glob.glob(f'{sys.prefix}/lib/*/site-packages/pip'))\n"
        "print(t.__cached__ in glob.glob(f'{t.__path__[0]}/__pycache__/*'))",
    )
    assert looked.splitlines() == ["[] []", "True"]


@pytest.mark.integration
def test_hardened_it_relays_and_drains_within_the_grace(image: str, name: str, fleet: Fleet) -> None:
    env = {
        **worker_env(fleet),
        "TG_METRICS_HOST": "127.0.0.1",  # the test's own network is the machine's
        "TG_METRICS_PORT": str(free_port()),
    }
    docker(
        *("run", "--detach", "--name", name, "--network", "host", *HARDENED, "--memory", "384m"),
        *("--stop-timeout", str(STOP_SECONDS), "--health-interval", "1s"),
        *(part for key, value in env.items() for part in ("--env", f"{key}={value}")),
        image,
    )
    fleet.publish(*numbered(1, 1))
    fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
    until_healthy(name)
    # A send that is under way is finished: its message is acked, not sent again.
    fleet.sandbox.set_fault({"delay_seconds": 3})
    fleet.publish(*numbered(1, 1, start=1))
    fleet.sandbox.wait(count=2, timeout_seconds=PATIENCE_SECONDS)
    docker("stop", name)
    ended = state(name)
    assert (ended["ExitCode"], ended["OOMKilled"]) == (0, False), docker("logs", name)
    fleet.assert_nothing_left()
    assert fleet.texts() == ["text 0", "text 1"]
    assert "SIGTERM" in docker("logs", name)


@pytest.mark.integration
def test_without_token_and_nats_it_ends_well_and_with_wrong_ones_it_says_so(image: str) -> None:
    run = ("run", "--rm", *HARDENED)
    assert "dormant" in docker(*run, image)
    wrong = docker(*run, "--env", "TELEGRAM_BOT_TOKEN=x", "--env", "NATS_URL=nats://h", image, check=False)
    assert "TELEGRAM_BOT_TOKEN is not a bot token" in wrong
    assert "Traceback" not in wrong
