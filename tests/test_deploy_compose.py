"""deploy/docker-compose.yml: as compose itself reads it, against the settings, and once for real."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml

from telegram_connector.settings import Settings, variables
from tests.engine import connector_image, docker, engine_answers, nats_image, unavailable, until_healthy
from tests.fleet import PATIENCE_SECONDS
from tests.nats_server import free_port

DEPLOY = Path(__file__).parents[1] / "deploy"
FILE = DEPLOY / "docker-compose.yml"
TEXT = FILE.read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
OURS = ("connector", "provision", "sandbox")
COMMAND_SECONDS = 120


def variables_of(name: str) -> dict[str, str]:
    lines = (DEPLOY / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_the_connector_is_given_known_settings_only() -> None:
    for name in OURS:
        given = set(SERVICES[name].get("environment", {}))
        assert {v for v in given if not v.startswith("OTEL_")} <= set(variables(Settings)), name


@pytest.mark.parametrize("name", ["env.example", "sandbox.env"])
def test_whatever_an_environment_file_sets_is_heeded(name: str) -> None:
    passed_on = set(SERVICES["connector"]["environment"])
    heeded = passed_on | set(re.findall(r"\$\{([A-Z_]+)", TEXT)) | {"COMPOSE_PROFILES"}
    assert set(variables_of(name)) <= heeded


def test_the_example_has_no_token_and_the_sandboxs_settings_are_sound() -> None:
    assert not any(variables_of("env.example").values())
    fixed = {key: value for key, value in SERVICES["connector"]["environment"].items() if value}
    settings = Settings.from_env({**fixed, **variables_of("sandbox.env")})
    assert not settings.dormant
    assert not settings.api_is_telegram


def test_every_file_that_is_mounted_is_there() -> None:
    sources = [mount.split(":")[0] for s in SERVICES.values() for mount in s.get("volumes", ())]
    files = [source for source in sources if source.startswith(".")]
    assert len(files) >= 6
    assert [source for source in files if not (DEPLOY / source).exists()] == []
    assert {source for source in sources if not source.startswith(".")} == set(
        yaml.safe_load(TEXT)["volumes"]
    )


def test_a_stop_has_more_time_than_the_connector_takes() -> None:
    grace = float(SERVICES["connector"]["stop_grace_period"].removesuffix("s"))
    assert grace >= Settings().drain_seconds + 5


def test_all_are_hardened_pinned_and_open_to_this_machine_alone() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert name in OURS or re.search(r":v?\d+\.\d+\.\d+", service["image"]), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name


def test_every_pipeline_of_the_collector_is_of_parts_that_it_has() -> None:
    config = yaml.safe_load((DEPLOY / "otel" / "collector.yml").read_text())
    for pipeline in config["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= set(config[kind])
    receiver = config["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    target = SERVICES["connector"]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert target == f"http://collector:{receiver.rpartition(':')[2]}"


@pytest.fixture
def compose() -> tuple[str, ...]:
    """Docker's compose: a plugin, or the command of its own that Debian has."""
    for command in (("docker", "compose"), ("docker-compose",)):
        found = shutil.which(command[0])
        if found and not subprocess.run([*command, "version"], capture_output=True).returncode:
            return command
    unavailable("no docker compose")
    raise AssertionError


def run(command: tuple[str, ...], *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, "--file", str(FILE), *arguments],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
    )


def test_compose_reads_it_and_asks_for_what_is_missing(compose: tuple[str, ...]) -> None:
    sandbox = run(compose, "--env-file", str(DEPLOY / "sandbox.env"), "config", "--services")
    assert set(sandbox.stdout.split()) == set(SERVICES), sandbox.stderr
    example = run(compose, "--env-file", str(DEPLOY / "env.example"), "config", "--services")
    assert example.returncode != 0
    assert "copy env.example to .env and fill it in" in example.stderr


@pytest.mark.integration
def test_with_the_sandbox_it_comes_up_relays_and_stops_well(compose: tuple[str, ...], tmp_path: Path) -> None:
    """Without the images of others: no Prometheus, no Grafana, and no collector, which costs no message."""
    if not engine_answers():
        unavailable("no Docker engine")
    image, nats = connector_image(), nats_image()
    probe = "import urllib.request as u; u.urlopen('http://127.0.0.1:8222/healthz')"
    override = tmp_path / "override.yml"
    override.write_text(
        yaml.safe_dump(
            {
                "services": {
                    **{name: {"image": image} for name in OURS},
                    "nats": {"image": nats, "healthcheck": {"test": ["CMD", "python", "-c", probe]}},
                }
            }
        )
    )
    port = free_port()
    ports = {"NATS_PORT": str(free_port()), "SANDBOX_PORT": str(port)}
    project = f"telegram-connector-test-{uuid.uuid4().hex[:12]}"
    common = ("--file", str(override), "--env-file", str(DEPLOY / "sandbox.env"), "--project-name", project)

    def do(*arguments: str) -> str:
        done = run(compose, *common, *arguments, **ports)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    try:
        do("up", "--detach", "--no-build", "nats", "provision", "sandbox", "connector")
        container = do("ps", "-q", "connector")
        stored = do("exec", "-T", "connector", "telegram-connector", "publish", "--chat", "5", "hello")
        url = f"http://127.0.0.1:{port}/_sandbox/wait?count=1&chat=5&timeout={PATIENCE_SECONDS}"
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS + 5) as answer:
            assert json.load(answer)["ok"] is True, stored
        until_healthy(container)
        do("stop", "connector")
        assert docker("inspect", "--format", "{{.State.ExitCode}}", container) == "0", docker(
            "logs", container
        )
    finally:
        run(compose, *common, "down", "--volumes", "--timeout", "1", **ports)
