"""Incidents end to end on a real nats-server: a token revoked, restored or changed, a group migrated."""

from __future__ import annotations

import json
import queue
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from telegram_connector import events
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.sandbox import Sandbox
from tests.fleet import PATIENCE_SECONDS, TOKEN, Fleet, numbered, worker_env
from tests.nats_server import NatsServer
from tests.process import Process
from tests.test_pause import command
from tests.test_status import until_answered

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[1]
OTHER_TOKEN = "654321:" + "Cd-_" * 9
GROUP, SUPERGROUP = -77, -1001557912345
CHATS = 4

Note = Callable[[str, object], None]


class IncidentFleet(Fleet):
    """A fleet that is asked afterwards what its Bot API saw."""

    def arrived(self, count: int, chat: int | None = None) -> None:
        self.sandbox.wait(count, chat, timeout_seconds=PATIENCE_SECONDS)

    def assert_all_once_in_order(self, envelopes: list[TelegramOutbound]) -> None:
        self.arrived(len(envelopes))
        self.assert_nothing_left()
        for chat in {e.chat for e in envelopes}:
            assert self.texts(int(chat or 1)) == [e.text for e in envelopes if e.chat == chat]
        assert self.sandbox.count() == len(envelopes)
        with self.server.client() as client:
            assert client.api("STREAM.INFO.TELEGRAM_DEAD")["state"]["messages"] == 0

    def calls(self, method: str, status: int, chat: int | None = None) -> int:
        return len(self.sandbox.requests(method=method, status=status, chat=chat))

    def refusals(self) -> list[events.BotHeld]:
        return [e for e in self.of(events.BotHeld) if e.fault]


@pytest.fixture
def fleet(nats_server: NatsServer) -> Iterator[IncidentFleet]:
    with Sandbox() as sandbox:
        fleet = IncidentFleet(nats_server, sandbox)
        yield fleet
        fleet.stop()


def alerts(heard: queue.SimpleQueue[bytes], count: int) -> list[dict[str, object]]:
    return [json.loads(heard.get(timeout=PATIENCE_SECONDS)) for _ in range(count)]


# The token


def test_a_token_revoked_in_the_middle_of_200_messages_and_restored(
    fleet: IncidentFleet, record_property: Note
) -> None:
    envelopes = numbered(200, CHATS)
    heard = fleet.server.listen("telegram.alerts")
    fleet.sandbox.set_fault({"delay_seconds": 0.01})  # so that there is a middle
    fleet.publish(*envelopes)
    fleet.relay()
    fleet.arrived(60)
    fleet.sandbox.revoke(TOKEN)
    fleet.until(lambda: len(fleet.refusals()) >= 4)
    sent = fleet.sandbox.count()
    fleet.sandbox.restore(TOKEN)
    restored = time.time()
    fleet.assert_all_once_in_order(envelopes)

    assert 60 <= sent < 200
    # One message met the 401; after that getMe was asked, and no message tried.
    sends, knocks = fleet.calls("sendMessage", 401), fleet.calls("getMe", 401)
    assert sends == 1
    assert knocks == len(fleet.refusals()) - 1
    waits = [e.seconds for e in fleet.refusals()]
    assert all(2**n - 0.01 <= wait <= 2**n * 1.1 for n, wait in enumerate(waits))
    assert all(e.attempt == 0 for e in fleet.of(events.Attempted))
    (over,) = fleet.of(events.BotReleased)
    assert over.seconds >= sum(waits) - 0.1 * len(waits)
    assert [a["type"] for a in alerts(heard, 2)] == ["bot_paused", "bot_resumed"]
    went_on = next(c.at for c in fleet.sandbox.requests(accepted=True) if c.at > restored)
    for name, figure in (
        ("refused sends", sends),
        ("refused getMe", knocks),
        ("bot paused, seconds", round(over.seconds, 2)),
        ("from restoring to sending, seconds", round(went_on - restored, 2)),
    ):
        record_property(name, figure)
        print(f"{name}: {figure}")


def test_a_token_changed_by_a_restart_goes_on_where_the_old_one_was_refused(fleet: IncidentFleet) -> None:
    envelopes = numbered(200, CHATS)
    fleet.sandbox.set_fault({"delay_seconds": 0.01})
    fleet.publish(*envelopes)
    with Process("run", env=worker_env(fleet)) as worker:
        fleet.arrived(60)
        fleet.sandbox.revoke(TOKEN)
        worker.until("BOT PAUSED")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    sent = fleet.sandbox.count()
    with Process("run", env=worker_env(fleet, TELEGRAM_BOT_TOKEN=OTHER_TOKEN)):
        fleet.assert_all_once_in_order(envelopes)
    old, new = int(TOKEN.partition(":")[0]), int(OTHER_TOKEN.partition(":")[0])
    assert [m.bot_id for m in fleet.sandbox.messages()] == [old] * sent + [new] * (200 - sent)
    # The new bot is not held for what the old one was refused.
    assert {c.status for c in fleet.sandbox.requests(method="sendMessage") if c.bot_id == new} == {200}


def test_with_a_ledger_too_a_changed_token_loses_and_doubles_nothing(fleet: IncidentFleet) -> None:
    envelopes = numbered(40, CHATS)
    fleet.sandbox.set_fault({"delay_seconds": 0.01})
    fleet.publish(*envelopes)
    first = fleet.relay(ledger="kv", on_ambiguous="park")
    fleet.arrived(10)
    fleet.sandbox.revoke(TOKEN)
    fleet.until(lambda: bool(fleet.refusals()))
    first.stop(10)
    fleet.relay(ledger="kv", on_ambiguous="park", bot_token=OTHER_TOKEN)
    fleet.assert_all_once_in_order(envelopes)


# A group that migrates


def waiting_for_the_group(count: int, start: int = 0) -> list[TelegramOutbound]:
    """Half of them by its id, half as the default chat's."""
    return [
        TelegramOutbound(msg_id=f"m{n}", chat=str(GROUP) if n % 2 else None, text=f"text {n}")
        for n in range(start, start + count)
    ]


def test_a_group_migrates_while_50_messages_for_it_wait(fleet: IncidentFleet) -> None:
    heard = fleet.server.listen("telegram.alerts")
    first = fleet.relay(chat_id=str(GROUP))
    fleet.publish(*waiting_for_the_group(10))
    fleet.arrived(10, GROUP)
    until_answered(fleet, 1)
    assert "heard by 1 connector" in command(fleet, "pause", "--chat", str(GROUP))
    fleet.publish(*waiting_for_the_group(50, start=10))
    fleet.until(lambda: len(fleet.of(events.Received)) >= 60)
    assert fleet.sandbox.count() == 10
    fleet.sandbox.set_chat(GROUP, state="migrated", migrated_to=SUPERGROUP)
    neighbour = TelegramOutbound(msg_id="n", chat="100", text="meanwhile")
    fleet.publish(neighbour)
    command(fleet, "resume", "--chat", str(GROUP))
    fleet.arrived(51, SUPERGROUP)  # and the alert
    fleet.assert_nothing_left()

    assert fleet.texts(GROUP) == [f"text {n}" for n in range(10)]
    said = [text for text in fleet.texts(SUPERGROUP) if not text.startswith("text ")]
    assert said == [f"group {GROUP} is now supergroup {SUPERGROUP}; its messages follow it"]
    assert [t for t in fleet.texts(SUPERGROUP) if t not in said] == [f"text {n}" for n in range(10, 60)]
    assert fleet.calls("sendMessage", 400) == 1  # asked once, then known
    assert fleet.texts(100) == ["meanwhile"]
    said_by_type = {a["type"]: a for a in alerts(heard, 3)}
    assert set(said_by_type) == {"paused", "resumed", "chat_migrated"}
    alert = said_by_type["chat_migrated"]
    assert (alert["old"], alert["new"]) == (str(GROUP), str(SUPERGROUP))

    # Another alert finds the chat as well, and so does the next process, without asking again.
    first.stop(10)
    fleet.sandbox.set_chat(100, state="blocked")
    fleet.relay(chat_id=str(GROUP))
    fleet.publish(TelegramOutbound(msg_id="d", chat="100", text="to nobody"))
    fleet.publish(*waiting_for_the_group(10, start=60))
    fleet.arrived(62, SUPERGROUP)
    fleet.assert_nothing_left()
    last = fleet.texts(SUPERGROUP)[51:]
    assert [t for t in last if t.startswith("text ")] == [f"text {n}" for n in range(60, 70)]
    assert sum(t.startswith("dropped msg_id=d error_code=403") for t in last) == 1
    assert fleet.calls("sendMessage", 400) == 1
    assert len(fleet.of(events.ChatMigrated)) == 1


def test_an_alert_is_what_finds_out_that_the_default_chat_has_migrated(fleet: IncidentFleet) -> None:
    fleet.sandbox.set_chat(GROUP, state="migrated", migrated_to=SUPERGROUP)
    fleet.sandbox.set_chat(100, state="blocked")
    fleet.relay(chat_id=str(GROUP))
    fleet.publish(TelegramOutbound(msg_id="d", chat="100", text="to nobody"))
    fleet.arrived(2, SUPERGROUP)
    assert [text.split()[0] for text in fleet.texts(SUPERGROUP)] == ["dropped", "group"]
    assert not fleet.of(events.AlertFailed)
    fleet.publish(*waiting_for_the_group(4))
    fleet.arrived(6, SUPERGROUP)
    assert fleet.calls("sendMessage", 400) == 1


# The incident that is written down


def typed(transcript: str) -> list[str]:
    """The commands of a transcript, numbers left out."""
    return [re.sub(r"\d+", "0", line) for line in transcript.splitlines() if line.startswith("$ ")]


def test_the_script_plays_the_incident_that_the_documents_show() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "incident.py", "--messages", "1", "--outages", "1"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = (ROOT / "docs" / "incident.md").read_text()
    assert typed(done.stdout) == typed(shown)
    assert "| 100 | 100 | 0 | yes | 100 |" in shown
    for secret in (TOKEN, "SUA", "SUB"):
        assert secret not in done.stdout
        assert secret not in shown
