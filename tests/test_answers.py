"""Every answer of the catalogue against the running relay: what was settled, how often it was sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telegram_connector import events
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.sandbox import Sandbox
from tests.fleet import PATIENCE_SECONDS, Fleet
from tests.nats_server import running_server

CATALOGUE = json.loads((Path(__file__).parent / "data" / "telegram_errors.json").read_text())
# What a class leads to: (settled, how often it is sent in all, delivered in the end).
EXPECTED = {
    "sent": ("ack", 1, True),
    "rate_limited": ("nak", 2, True),
    "retry_server": ("nak", 2, True),
    "ambiguous": ("nak", 2, True),
    "bot_fault": ("nak", 2, True),
    "migrate": ("kept", 2, True),
    "terminal_chat": ("term", 1, False),
    "terminal_message": ("term", 1, False),
}
# Rows without an HTTP status are faults of the wire, which the sandbox plays on real sockets.
WIRE = {
    "amb_read_timeout": "reset-after",
    "amb_conn_reset_after_write": "reset-after",
    "amb_stale_keepalive": "reset-before",
}

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with running_server() as server, Sandbox() as sandbox:
        server.provision()
        fleet = Fleet(server, sandbox)
        fleet.relay()
        yield fleet
        fleet.stop()


def rows() -> list[Any]:
    return [
        pytest.param(number, row, id=row["id"])
        for number, row in enumerate(CATALOGUE)
        if row["http_status"] is not None or row["id"] in WIRE
    ]


@pytest.mark.parametrize(("number", "row"), rows())
def test_each_answer(fleet: Fleet, number: int, row: dict[str, Any]) -> None:
    settled, sends, delivered = EXPECTED[row["class"]]
    chat, msg_id, text = 5000 + number, f"a{number}", f"answer {number}"
    wait = (row["parameters"] or {}).get("retry_after", 0)
    preset = WIRE.get(row["id"], row["id"])
    # A reset before the body is read cannot know the chat.
    where = {} if preset == "reset-before" else {"chat": chat}
    fault = fleet.sandbox.set_fault(preset, method="sendMessage", times=1, **where)

    def attempts() -> list[events.Attempted]:
        return [e for e in fleet.of(events.Attempted) if e.subject.nats_msg_id == msg_id]

    fleet.publish(TelegramOutbound(msg_id=msg_id, chat=str(chat), text=text))
    fleet.until(attempts)
    assert attempts()[0].settled == settled
    assert fault.fired == 1
    if wait > 2:
        # All of it is honoured by the hold, which the worker's tests pass by a hand-moved clock.
        (held,) = (e for e in fleet.of(events.ChatHeld) if e.chat == str(chat))
        assert held.seconds >= wait
        assert attempts()[0].delay_seconds == min(wait, 60)
    elif delivered:
        fleet.until(lambda: attempts()[-1].settled == "ack")
        assert len(attempts()) == sends
    # Something accepted in between, as in life: refusals of several chats in a row mean more than each.
    fleet.publish(TelegramOutbound(msg_id=f"ok{number}", chat="1", text=f"ok {number}"))
    fleet.sandbox.wait(count=1, text=f"ok {number}", timeout_seconds=PATIENCE_SECONDS)
    if not delivered:
        assert len(attempts()) == sends
        assert fleet.sandbox.count(text=text) == 0
