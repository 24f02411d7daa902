"""A sandbox whose clock stands still, and a caller of its Bot API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import requests

from telegram_connector.sandbox import Clock, Sandbox

TOKEN = "123456:secret"


class Api(Protocol):
    def __call__(self, method: str, /, **params: Any) -> requests.Response: ...


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(clock=Clock.frozen()) as running:
        yield running


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as opened:
        yield opened


@pytest.fixture
def api(sandbox: Sandbox, session: requests.Session) -> Api:
    def call(method: str, /, **params: Any) -> requests.Response:
        return session.post(f"{sandbox.url}/bot{TOKEN}/{method}", json=params, timeout=10)

    return call


@pytest.fixture(scope="session")
def catalogue() -> dict[str, dict[str, Any]]:
    path = Path(__file__).parents[1] / "data" / "telegram_errors.json"
    return {row["id"]: row for row in json.loads(path.read_text())}
