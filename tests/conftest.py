"""Fixtures for all tests, and a clean environment for each."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.fleet")

from telegram_connector.sandbox import Sandbox  # noqa: E402
from tests.fleet import Fleet  # noqa: E402
from tests.nats_server import NatsServer, running_server  # noqa: E402


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ambient variable may reach a test: a developer's shell may hold a production token."""
    for name in list(os.environ):
        if name.startswith(("TELEGRAM_", "NATS_", "TG_", "LOG_")) and name != "NATS_SERVER_BIN":
            monkeypatch.delenv(name)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def nats_server() -> Iterator[NatsServer]:
    """A real nats-server of this test's own, provisioned."""
    with running_server() as server:
        server.provision()
        yield server


@pytest.fixture
def fleet(nats_server: NatsServer) -> Iterator[Fleet]:
    """A server and a sandbox; the relays that a test starts on them are stopped."""
    with Sandbox() as sandbox:
        fleet = Fleet(nats_server, sandbox)
        yield fleet
        fleet.stop()
