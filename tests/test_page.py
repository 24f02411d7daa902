"""The metrics page: scraped over HTTP and read by prometheus_client's own parsers."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

from telegram_connector import events
from telegram_connector.disposition import Sent, Transient
from telegram_connector.instruments import BACKLOG, SEND_DURATION, TABLE, Kind, Measure
from telegram_connector.metering import Metering
from telegram_connector.page import CLIENT_SECONDS, MAX_REQUESTS, Page, Reply
from telegram_connector.relay import Relay
from telegram_connector.sandbox import Sandbox
from telegram_connector.settings import Settings
from tests.fleet import PATIENCE_SECONDS, Fleet, numbered
from tests.nats_server import free_port
from tests.test_instruments import attempted

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def get(port: int, path: str, accept: str = "", host: str = "127.0.0.1") -> tuple[int, str, str]:
    """(status, content type, text)"""
    where = f"[{host}]" if ":" in host else host
    request = urllib.request.Request(f"http://{where}:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def scraped(port: int) -> dict[Any, float]:
    """Samples by name and labels, those without `durable`."""
    _, _, text = get(port, "/metrics")
    return {
        (s.name, *(value for label, value in sorted(s.labels.items()) if label != "durable")): s.value
        for family in parser.text_string_to_metric_families(text)
        for s in family.samples
    }


@contextmanager
def served(
    metering: Metering, alive: Reply | None = None, ready: Reply | None = None, host: str = "127.0.0.1"
) -> Iterator[int]:
    port = free_port()
    well = Reply(True, "well")
    page = Page((host, port), metering, lambda: alive or well, lambda: ready or well)
    page.start()
    try:
        yield port
    finally:
        page.stop()


@pytest.fixture
def metering() -> Metering:
    return Metering("d", MeterProvider(shutdown_on_exit=False))


# The page


def test_every_metric_of_the_table_is_on_the_page_and_no_other(metering: Metering):
    metering.show(lambda: [Measure(BACKLOG, 7)])
    with served(metering) as port:
        status, content_type, text = get(port, "/metrics")
    assert status == 200
    assert content_type.startswith("text/plain; version=")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert set(families) == {i.prometheus_name.removesuffix("_total") for i in TABLE}
    for instrument in TABLE:
        family = families[instrument.prometheus_name.removesuffix("_total")]
        assert (family.type, family.documentation) == (instrument.kind.value, instrument.help)
        assert all(set(s.labels) - {"le"} == {"durable", *instrument.labels} for s in family.samples)
        if instrument.kind is not Kind.GAUGE:  # from the first scrape on, all at 0
            assert len({tuple(s.labels[n] for n in instrument.labels) for s in family.samples}) == len(
                instrument.values
            )


def test_openmetrics_for_who_asks_for_it(metering: Metering):
    metering.observe(attempted(Sent(1), since_stored_seconds=3.0))
    with served(metering) as port:
        _, content_type, text = get(port, "/metrics", OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    families = {family.name: family for family in openmetrics.text_string_to_metric_families(text)}
    (sample,) = [
        s for s in families["telegram_connector_messages"].samples if s.labels["disposition"] == "sent"
    ]
    assert sample.value == 1


def test_histograms_are_cumulative(metering: Metering):
    for value in (0.02, 0.02, 0.3, 99.0):
        metering.add(Measure(SEND_DURATION, value, ("sent",)))
    with served(metering) as port:
        found = scraped(port)
    name = "telegram_connector_send_duration_seconds"
    assert [found[f"{name}_bucket", "sent", le] for le in ("0.01", "0.025", "0.5", "30.0", "+Inf")] == [
        0,
        2,
        3,
        3,
        4,
    ]
    assert found[f"{name}_count", "sent"] == 4
    assert found[f"{name}_sum", "sent"] == pytest.approx(99.34)


def test_the_answers_of_the_probes(metering: Metering):
    with served(metering, Reply(False, "stuck"), Reply(True, "active")) as port:
        assert get(port, "/healthz") == (503, "text/plain; charset=utf-8", "stuck\n")
        assert get(port, "/readyz?verbose") == (200, "text/plain; charset=utf-8", "active\n")
        assert get(port, "/")[0] == 404


def test_head_has_no_body_and_post_is_refused(metering: Metering):
    with served(metering) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        connection.request("HEAD", "/healthz")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Length"], answer.read()) == (200, "5", b"")
        connection.request("POST", "/metrics", b"x")
        assert connection.getresponse().status == 501
        connection.close()


def test_a_bug_over_a_page_is_the_askers(metering: Metering):
    metering.show(lambda: [Measure(BACKLOG, 1 / 0)])
    with served(metering) as port:
        assert get(port, "/metrics")[::2] == (500, "internal error: ZeroDivisionError\n")
        assert get(port, "/healthz")[0] == 200


def test_clients_that_say_nothing_take_no_more_than_their_share(metering: Metering):
    with served(metering) as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(MAX_REQUESTS)]
        # The last of them was accepted once one more is turned away.
        with pytest.raises((urllib.error.URLError, ConnectionError, http.client.HTTPException)):
            get(port, "/healthz")
        silent.pop().close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                assert get(port, "/healthz")[0] == 200
                break
            except (urllib.error.URLError, ConnectionError, http.client.HTTPException):
                assert time.monotonic() < deadline
        for connection in silent:
            connection.close()
    assert CLIENT_SECONDS < PATIENCE_SECONDS


def test_a_client_that_says_a_byte_now_and_then_does_not_stay(
    metering: Metering, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("telegram_connector.page.CLIENT_SECONDS", 0.2)
    deadline = time.monotonic() + PATIENCE_SECONDS
    with served(metering) as port, socket.create_connection(("127.0.0.1", port), 0.02) as connection:
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < deadline:
                connection.sendall(b"G")
                try:
                    assert connection.recv(1) == b""
                    break
                except TimeoutError:
                    continue
        assert time.monotonic() < deadline


def test_a_forked_child_does_not_keep_the_port(metering: Metering):
    port = free_port()
    page = Page(("127.0.0.1", port), metering, lambda: Reply(True, ""), lambda: Reply(True, ""))
    page.start()
    ours, childs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is what is tested
        child = os.fork()
    if child == 0:
        os.close(childs)
        os.read(ours, 1)  # until the parent closes its end
        os._exit(0)
    try:
        page.stop()
        page.start()
        assert get(port, "/healthz")[0] == 200
    finally:
        os.close(childs)
        os.waitpid(child, 0)
        os.close(ours)
        page.stop()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_it_listens_on_ipv6(metering: Metering):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with served(metering, host="::1") as port:
        assert get(port, "/healthz", host="::1")[0] == 200


# Settings


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"TG_METRICS_PORT": "0"}, "TG_METRICS_PORT must be a port: 1 to 65535"),
        ({"TG_METRICS_PORT": "65536"}, "TG_METRICS_PORT must be a port: 1 to 65535"),
        ({"TG_METRICS_PORT": "http"}, "TG_METRICS_PORT must be a whole number"),
        ({"TG_METRICS_HOST": "localhost"}, "TG_METRICS_HOST must be an IP address"),
        ({"TG_STATS_LOG_SECS": "-1"}, "TG_STATS_LOG_SECS must be at least 0"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, str], fault: str):
    from telegram_connector.errors import SettingsError

    env = {"TELEGRAM_BOT_TOKEN": f"1:{'a' * 35}", "TELEGRAM_CHAT_ID": "1", "NATS_URL": "nats://h"}
    with pytest.raises(SettingsError, match=fault):
        Settings.from_env({**env, "NATS_AUTH": "none", **changes})


def test_without_the_extra_the_setting_names_it(monkeypatch: pytest.MonkeyPatch):
    from telegram_connector import checks

    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(checks.ValueFaultError, match=r"telegram-connector\[prometheus\]"):
        checks.metrics_port(9464)


# A relay's


@pytest.mark.integration
def test_the_page_under_a_storm_of_429(fleet: Fleet) -> None:
    port = free_port()
    fleet.sandbox.set_fault("flood", retry_after=300)
    fleet.relay(metrics_port=port)
    fleet.publish(*numbered(30, 2))
    fleet.until(lambda: any(isinstance(e.disposition, Transient) for e in fleet.of(events.Attempted)))
    fleet.until_event(events.ChatHeld)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = scraped(port)
        name = "telegram_connector_"
        refused = found[f"{name}attempts_total", "transient", "rate_limited"]
        if found[f"{name}lanes_held",] == 2 and found[f"{name}connected",] == 1:
            break
        assert time.monotonic() < deadline, found
    assert refused == found[f"{name}retry_after_seconds_count",] >= 2
    assert 200 < found[f"{name}longest_hold_seconds",] <= 331
    assert found[f"{name}active",] == 1
    assert found[f"{name}lanes",] == 2
    out = sum(found[f"{name}outstanding_messages", s] for s in ("waiting", "in_flight", "awaited"))
    assert 2 <= out <= 30
    assert 0 <= found[f"{name}backlog_messages",] <= 30
    assert found[f"{name}last_round_trip_timestamp_seconds",] == pytest.approx(time.time(), abs=60)
    assert found[f"{name}send_duration_seconds_count", "transient"] == refused
    # Nothing of a message is on it.
    _, _, text = get(port, "/metrics")
    assert "100" not in {label for s in _labels(text) for label in s}
    assert "text " not in text.replace("text/", "")


def _labels(text: str) -> list[tuple[str, ...]]:
    return [
        tuple(v for k, v in s.labels.items() if k != "le")
        for f in parser.text_string_to_metric_families(text)
        for s in f.samples
    ]


@pytest.mark.integration
def test_ready_is_who_gets_answers_from_jetstream(fleet: Fleet) -> None:
    ports = [free_port(), free_port()]
    with Sandbox() as sandbox:
        settings = {"api_base_url": sandbox.url}
        fleet.relay(metrics_port=ports[0], **settings)
        fleet.publish(*numbered(1, 1))
        fleet.until_event(events.Attempted)
        fleet.relay(metrics_port=ports[1], **settings)
        fleet.until_event(events.Bound, 2)
        words = [until(port, 200) for port in ports]
        assert [w.partition(";")[0] for w in words] == ["active", "standby"]
        fleet.server.kill()
        fleet.until_event(events.ConnectionLost, 2)
        assert until(ports[0], 503) == "no connection to NATS with the consumer bound\n"
        assert get(ports[0], "/healthz")[::2] == (200, "the reader is at work\n")
        assert ("telegram_connector_backlog_messages",) not in scraped(ports[0])
        fleet.server.start()
        until(ports[0], 200)


def until(port: int, status: int) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = threading.Event()
    while True:
        found, _, words = get(port, "/readyz")
        if found == status:
            return words
        assert time.monotonic() < deadline, words
        pause.wait(0.05)


@pytest.mark.integration
def test_a_port_that_is_taken_is_said_and_messages_go_on(fleet: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        relay = fleet.relay(metrics_port=port)
        reason = fleet.until_event(events.MetricsUnserved).reason
        assert reason == f"127.0.0.1 port {port} (TG_METRICS_PORT): Address already in use"
        fleet.publish(*numbered(1, 1))
        fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
        relay.stop(10)


@pytest.mark.integration
def test_the_port_is_free_again_after_a_stop_and_the_page_comes_back(fleet: Fleet) -> None:
    port = free_port()
    relay = Relay(fleet.settings(metrics_port=port), fleet.observe)
    for round_ in (1, 2):
        relay.start()
        fleet.publish(*numbered(1, 1, start=round_))
        fleet.sandbox.wait(count=round_, timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()
        assert get(port, "/healthz")[0] == 200
        relay.stop(10)
        with pytest.raises(urllib.error.URLError):
            get(port, "/metrics")
        assert not [t for t in threading.enumerate() if t.name in ("metrics", "reporter")]
