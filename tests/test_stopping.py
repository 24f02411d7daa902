"""SIGTERM in every state: exit code 0 within TG_DRAIN_SECS, signals repeated."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.fleet import TOKEN, Fleet, numbered, worker_env
from tests.nats_server import free_port
from tests.process import Process

DRAIN_SECONDS = 8.0

pytestmark = pytest.mark.integration


def unreachable(fleet: Fleet, stack: ExitStack) -> tuple[dict[str, str], str]:
    return {"NATS_URL": f"nats://127.0.0.1:{free_port()}"}, "cannot connect to NATS"


def silent(fleet: Fleet, stack: ExitStack) -> tuple[dict[str, str], str]:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    return {"NATS_URL": f"nats://127.0.0.1:{listener.getsockname()[1]}"}, "relaying from|IS NOT TELEGRAM"


def refused(fleet: Fleet, stack: ExitStack) -> tuple[dict[str, str], str]:
    return {"NATS_TELEGRAM_NKEY_SEED": fleet.server.publisher_seed}, "cannot bind"


def no_stream(fleet: Fleet, stack: ExitStack) -> tuple[dict[str, str], str]:
    env = {"TG_STREAM": "OTHER", "NATS_TELEGRAM_NKEY_SEED": fleet.server.root_seed}
    return env, "stream OTHER does not exist"


def idle(fleet: Fleet, stack: ExitStack) -> tuple[dict[str, str], str]:
    return {}, "consumer TELEGRAM_OUTBOUND/tg_outbound created"


def held(fleet: Fleet, stack: ExitStack) -> tuple[dict[str, str], str]:
    fleet.sandbox.set_fault("flood", retry_after=900)
    fleet.publish(*numbered(50, 2))
    return {}, "bot held|chat held for 90"


def paused(fleet: Fleet, stack: ExitStack) -> tuple[dict[str, str], str]:
    fleet.sandbox.revoke(TOKEN)
    fleet.publish(*numbered(50, 2))
    return {}, "BOT PAUSED"


def bot_api_down(fleet: Fleet, stack: ExitStack) -> tuple[dict[str, str], str]:
    fleet.sandbox.stop()
    fleet.publish(*numbered(50, 2))
    return {}, "bot held"


def endless_send(fleet: Fleet, stack: ExitStack) -> tuple[dict[str, str], str]:
    fleet.sandbox.set_fault({"silence": {}}, method="sendMessage")
    fleet.publish(*numbered(50, 2))
    return {"LOG_LEVEL": "DEBUG"}, "Starting new HTTP connection"


def frozen_server(fleet: Fleet, stack: ExitStack) -> tuple[dict[str, str], str]:
    fleet.sandbox.set_fault("flood", retry_after=900)
    fleet.publish(*numbered(50, 2))
    return {}, "FREEZE"


STATES = [
    *(unreachable, silent, refused, no_stream, idle, held, paused, bot_api_down, endless_send),
    frozen_server,
]
State = Callable[[Fleet, ExitStack], tuple[dict[str, str], str]]


@pytest.mark.parametrize("state", STATES, ids=lambda s: s.__name__)
def test_sigterm(fleet: Fleet, state: State, record_property: Callable[[str, object], None]) -> None:
    with ExitStack() as stack:
        more, words = state(fleet, stack)
        env = worker_env(fleet, TG_DRAIN_SECS=str(DRAIN_SECONDS), **more)
        worker = stack.enter_context(Process("run", env=env))
        if words == "FREEZE":
            worker.until("chat held for 90")
            fleet.server.signal(signal.SIGSTOP)
        else:
            worker.until_match(words)
        started = time.monotonic()
        for _ in range(3):
            worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        record_property("seconds", time.monotonic() - started)
        said = re.search(r"stopped in ([0-9.]+) s", worker.output)
        assert said is not None, worker.output
        assert float(said[1]) <= DRAIN_SECONDS
        assert "Traceback" not in worker.output
        assert "never retrieved" not in worker.output
