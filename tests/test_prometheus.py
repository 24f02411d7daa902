"""The alert rules by promtool; every query of dashboard and alerts by a real Prometheus that scrapes relays.

Debian's package `prometheus` has both. Without it these tests skip, except where ``CI`` is set.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from telegram_connector import events
from telegram_connector.disposition import Terminal
from telegram_connector.envelope import TelegramOutbound
from tests.fleet import PATIENCE_SECONDS, TOKEN, Fleet, numbered
from tests.nats_server import free_port
from tests.test_dashboard import DASHBOARD, DEPLOY, RULES, TARGETS
from tests.test_page import scraped
from tests.test_pause import command

FOLDER = DEPLOY / "prometheus"


def tool(name: str) -> str:
    """The program's path; without it the test is skipped, or failed in CI, which has everything."""
    found = shutil.which(name)
    if found is None:
        words = f"there is no {name} on the search path; on Debian: apt-get install prometheus"
        if os.environ.get("CI") == "true":
            pytest.fail(words, pytrace=False)
        pytest.skip(words)
    return found


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        [tool("promtool"), *arguments], capture_output=True, text=True, cwd=FOLDER, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# promtool


def test_promtool_finds_no_fault_in_the_rules() -> None:
    assert "SUCCESS: 7 rules found" in promtool("check", "rules", "--lint-fatal", "rules.yml")


def test_promtool_finds_no_fault_in_the_configuration(tmp_path: Path) -> None:
    # The rules are looked for where the container has them.
    config = (FOLDER / "prometheus.yml").read_text()
    assert config.count("- /etc/prometheus/rules.yml") == 1
    (tmp_path / "prometheus.yml").write_text(
        config.replace("/etc/prometheus/rules.yml", str(FOLDER / "rules.yml"))
    )
    found = promtool("check", "config", "--lint-fatal", str(tmp_path / "prometheus.yml"))
    assert "SUCCESS: 7 rules found" in found


def test_every_alert_comes_when_it_must_and_not_when_it_must_not() -> None:
    promtool("test", "rules", "rules_test.yml")
    tested = (FOLDER / "rules_test.yml").read_text()
    for alert in re.findall(r"- alert: (\w+)", RULES):
        cases = re.findall(rf"alertname: {alert}\b[^\n]*(?:\n +eval_time: .*)?(\n +exp_alerts:)?", tested)
        assert any(cases), f"{alert} is never expected"
        assert not all(cases), f"{alert} is always expected"


# A real one


class Prometheus:
    """One that scrapes and evaluates twice a second, as asked over its HTTP API."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[float]:
        """The values of the series that an expression gives now; those that are no number are left out."""
        try:
            found = self.get("query", query=expression)
        except urllib.error.HTTPError as error:
            with error:
                pytest.fail(f"{expression}: {error.read().decode()}")
        if found["resultType"] == "matrix":
            return [float(series["values"][-1][1]) for series in found["result"]]
        return [v for series in found["result"] if not math.isnan(v := float(series["value"][1]))]

    def alerts(self) -> dict[str, str]:
        """State by name."""
        return {alert["labels"]["alertname"]: alert["state"] for alert in self.get("alerts")["alerts"]}

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=PATIENCE_SECONDS) as answer:
                return answer.status == 200
        except (urllib.error.URLError, ConnectionError):
            return False


def until(condition: Callable[[], Any], told: Callable[[], Any] = lambda: "") -> None:
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, told()
        pause.wait(0.1)


@contextmanager
def scraping(folder: Path, *ports: int) -> Iterator[Prometheus]:
    """A Prometheus with our rules that scrapes these ports."""
    program, port, config = tool("prometheus"), free_port(), folder / "prometheus.yml"
    targets = ", ".join(f'"127.0.0.1:{each}"' for each in ports)
    config.write_text(
        f"""
        global: {{ scrape_interval: 500ms, evaluation_interval: 500ms }}
        rule_files: ["{FOLDER / "rules.yml"}"]
        scrape_configs:
          - job_name: telegram_connector
            static_configs: [{{ targets: [{targets}] }}]
        """
    )
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
        prometheus = Prometheus(port)
        try:
            until(
                lambda: prometheus.ready() or process.poll() is not None,
                lambda: (folder / "prometheus.log").read_text()[-2000:],
            )
            assert process.poll() is None, (folder / "prometheus.log").read_text()[-2000:]
            yield prometheus
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def resolved(expression: str, durable: str) -> str:
    """As Grafana asks it, with its variables filled in."""
    found = expression.replace("$__rate_interval", "5m").replace("$durable", durable)
    assert "$" not in found
    return found


def vectors(rules: str) -> set[str]:
    """The selectors of series in the rules' expressions."""
    return set(re.findall(r"\btelegram_connector_\w+(?:\{[^}]*\})?(?:\[\w+\])?", rules))


@pytest.mark.integration
def test_every_query_of_dashboard_and_alerts_finds_something(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("telegram_connector.bridge.counting.COUNT_SECONDS", 0.2)
    fleet.sandbox.set_fault("flood", chat=100, retry_after=300)
    fleet.sandbox.set_fault("flood", chat=101, retry_after=1, times=5)
    fleet.sandbox.set_fault("chat_blocked", chat=102)
    fleet.sandbox.set_fault({"reset": "after_accept", "method": "sendMessage"}, chat=103)
    ports = (free_port(), free_port())
    relays = {port: fleet.relay(metrics_port=port, ledger="kv", on_ambiguous="park") for port in ports}
    with scraping(tmp_path, *ports) as prometheus:

        def counted(expression: str, least: float) -> Callable[[], bool]:
            return lambda: sum(prometheus.values(expression)) >= least

        # What had happened before the first scrape would show no growth.
        until(counted("sum(telegram_connector_connected)", 2))
        fleet.publish(*numbered(40, 5))
        fleet.until(lambda: len(set(dropped(fleet))) == 2)
        until(counted('sum(telegram_connector_messages_total{disposition="sent"})', 16))
        until(counted("max(telegram_connector_in_doubt_messages)", 8))
        until(counted('sum(telegram_connector_attempts_total{reason="rate_limited"})', 2))

        # The dashboard, its variables as Grafana fills them in.
        _, variable = DASHBOARD["templating"]["list"]
        asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
        assert asked is not None
        durables = prometheus.get(f"label/{asked[2]}/values", **{"match[]": asked[1]})
        assert durables == ["tg_outbound"]
        for durable in (*durables, variable["allValue"]):
            for title, target in TARGETS:
                expression = resolved(target["expr"], durable)
                until(
                    lambda: prometheus.values(expression),  # noqa: B023
                    lambda: f"{title}: {expression}",  # noqa: B023
                )

        # The alerts.
        for rule in prometheus.get("rules")["groups"][0]["rules"]:
            assert rule["health"] in ("ok", "unknown"), rule
        for vector in vectors(RULES):
            until(lambda: prometheus.values(vector), lambda: vector)  # noqa: B023
        until(lambda: prometheus.alerts() == {"TelegramDeadLetters": "firing", "TelegramInDoubt": "pending"})

        command(fleet, "pause")
        until(lambda: prometheus.alerts().get("TelegramBotPaused") == "pending")
        command(fleet, "resume")
        fleet.sandbox.revoke(TOKEN)
        fleet.publish(TelegramOutbound(msg_id="refused", chat="200", text="x"))
        until(lambda: prometheus.alerts().get("TelegramBotRefused") == "pending")
        assert {"TelegramBotPaused", "TelegramNoActiveConnector"}.isdisjoint(prometheus.alerts())

        # A hand-over leaves one active; without the last there is none.
        fleet.sandbox.restore(TOKEN)
        until(lambda: "TelegramBotRefused" not in prometheus.alerts())
        active, standby = sorted(ports, key=lambda port: -scraped(port)[("telegram_connector_active",)])
        relays[active].stop(10)
        fleet.publish(TelegramOutbound(msg_id="after", chat="200", text="x"))
        until(
            lambda: prometheus.values(f'telegram_connector_active{{instance="127.0.0.1:{standby}"}}') == [1]
        )
        assert "TelegramNoActiveConnector" not in prometheus.alerts()
        relays[standby].stop(10)
        until(lambda: prometheus.alerts().get("TelegramNoActiveConnector") == "pending")


def dropped(fleet: Fleet) -> list[str]:
    """Why messages became dead letters."""
    tried = [event.disposition for event in fleet.of(events.Attempted)]
    return [found.reason for found in tried if isinstance(found, Terminal)]
