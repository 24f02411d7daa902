"""``ledger`` against a real nats-server: what is in doubt is listed, resolved once, explained, forgotten."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from telegram_connector import links
from telegram_connector.bridge.archive import Archive
from telegram_connector.bridge.kv import KeyValue
from telegram_connector.cli import main
from telegram_connector.cli.ledger import keep, settle
from telegram_connector.deadletter import dead_letter
from telegram_connector.delivery import DeliveryId
from telegram_connector.disposition import Terminal
from telegram_connector.envelope import TelegramOutbound, decode, encode
from telegram_connector.errors import Disconnected, Unanswered
from telegram_connector.links import Link, by_message, by_msg_id
from telegram_connector.overview import Observatory
from telegram_connector.record import (
    AMBIGUOUS,
    CANCELLED,
    IN_FLIGHT,
    PENDING,
    RATE_LIMITED,
    RETRYABLE,
    SENT,
    TERMINAL,
    Record,
    fresh,
    shown,
    timestamp,
)
from telegram_connector.record import decode as read_record
from telegram_connector.record import encode as write_record
from tests.fakes import make_delivery
from tests.fleet import PATIENCE_SECONDS, TOKEN, Fleet
from tests.nats_server import NatsServer
from tests.process import Process

pytestmark = pytest.mark.integration

BOT = "123456"
CHAT = "-100200"
SECRET = "the text that nobody may see"
NEVER = "never sent again?"


class Desk:
    """An operator's desk: records and messages to put in, the commands, and what came out."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server

    # To put in

    def message(self, msg_id: str = "m1", *, headers: dict[str, str] | None = None, **more: Any) -> int:
        """Publish a message as a publisher does; its sequence."""
        payload = encode(envelope(msg_id, **more))
        with self.server.client() as client:
            return client.publish(
                "telegram.outbound", payload, {"Nats-Msg-Id": msg_id, **(headers or {})}
            ).seq

    def bury(self, msg_id: str, stream_seq: int, reason: str = "ambiguous", **more: Any) -> None:
        """Put in a dead letter as the relay does."""
        delivery = make_delivery(
            stream_seq,
            id=DeliveryId("TELEGRAM_OUTBOUND", stream_seq, time.time_ns()),
            envelope=envelope(msg_id, **more),
            headers={"Nats-Msg-Id": msg_id, "traceparent": "00-1-2-03"},
        )
        letter = dead_letter(delivery, Terminal(504, "Gateway Timeout", reason), 1)
        with self.server.client() as client:
            client.publish("telegram.dead", letter.payload, letter.headers)

    def put(self, *records: Record) -> None:
        with self.server.client() as client:
            for record in records:
                client.publish(f"$KV.telegram_ledger.{record.key}", write_record(record))

    def put_raw(self, key: str, value: bytes) -> None:
        with self.server.client() as client:
            client.publish(f"$KV.telegram_ledger.{key}", value)

    def link(self, chat: str, message_id: int, msg_id: str, route_id: str | None = None) -> None:
        """Both links of a message."""
        value = links.encode(
            Link(bot=BOT, message_id=message_id, msg_id=msg_id, route_id=route_id, sent_at=timestamp(0))
        )
        with self.server.client() as client:
            for key in (by_message(BOT, chat, message_id), by_msg_id(BOT, chat, msg_id)):
                client.publish(f"$KV.telegram_links.{key}", value)

    # To run

    def run(self, *arguments: str, seed: str | None = None, stdin: str | None = None, **env: str) -> Result:
        env = {
            "NATS_URL": self.server.url,
            "NATS_TELEGRAM_NKEY_SEED": seed or self.server.operator_seed,
            **env,
        }
        result = CliRunner().invoke(main, ["ledger", *arguments], env=env, input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert SECRET not in result.output
        return result

    def ok(self, *arguments: str, **more: Any) -> str:
        result = self.run(*arguments, **more)
        assert result.exit_code == 0, result.output
        return result.stdout

    def fails(self, *arguments: str, code: int = 1, **more: Any) -> str:
        """What is said of it: one line without a traceback."""
        result = self.run(*arguments, **more)
        assert result.exit_code == code, result.output
        return result.stderr

    def listed(self, *arguments: str, **more: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ok("list", "--json", *arguments, **more))
        return found

    def ids(self, *arguments: str, **more: Any) -> list[str]:
        return [item["msg_id"] for item in self.listed(*arguments, **more)]

    # What came out

    def record(self, record: Record) -> Record:
        """As it is stored now."""
        with self.server.client() as client:
            found = client.read("telegram_ledger", record.key).result(PATIENCE_SECONDS)
        assert found is not None
        return read_record(found.value)

    def kept(self, bucket: str) -> int:
        """How many keys of a bucket have a value."""
        with self.server.client() as client:
            found = client.api(f"STREAM.INFO.KV_{bucket}", {"subjects_filter": ">"})["state"]
            subjects = [s.removeprefix(f"$KV.{bucket}.") for s in found.get("subjects") or {}]
            values = [client.read(bucket, key).result(PATIENCE_SECONDS) for key in subjects]
        return sum(bool(value and value.value) for value in values)

    def outbound(self) -> list[tuple[TelegramOutbound, str]]:
        """Envelopes and header blocks of what is in the outbound stream, in its order."""
        found = []
        with self.server.client() as client:
            state = client.api("STREAM.INFO.TELEGRAM_OUTBOUND")["state"]
            for seq in range(max(1, state["first_seq"]), state["last_seq"] + 1):
                message = client.api("STREAM.MSG.GET.TELEGRAM_OUTBOUND", {"seq": seq})["message"]
                headers = base64.b64decode(message.get("hdrs", "")).decode()
                found.append((decode(base64.b64decode(message["data"])), headers))
        return found

    def purge(self, stream: str = "TELEGRAM_OUTBOUND") -> None:
        with self.server.client() as client:
            client.api(f"STREAM.PURGE.{stream}")


def envelope(msg_id: str, **more: Any) -> TelegramOutbound:
    return TelegramOutbound(**{"msg_id": msg_id, "chat": CHAT, "text": SECRET, **more})


def made(
    msg_id: str = "m1",
    status: str = AMBIGUOUS,
    *,
    age_seconds: float = 600,
    stream_seq: int = 1,
    message: dict[str, Any] | None = None,
    **changes: Any,
) -> Record:
    """A record as the connector leaves it."""
    said = envelope(msg_id, **(message or {}))
    now = time.time() - age_seconds
    record = fresh(BOT, said, said.chat or "1", now, stream_seq=stream_seq)
    if status == AMBIGUOUS:
        changes = {"ambiguous_since": record.updated_at, "last_error": "read timeout", **changes}
    return msgspec.structs.replace(record, status=status, **changes)


@pytest.fixture
def desk(nats_server: NatsServer) -> Desk:
    return Desk(nats_server)


# list and show


def test_a_record_is_listed_by_the_fields_of_the_design(desk: Desk) -> None:
    assert desk.listed() == []
    record = made("m1", route_id="alpha", attempts=2, nonce="n1")
    desk.put(record)
    (item,) = desk.listed()
    assert item == shown(record)
    assert {"key", "provider", "chat_hash", "ambiguous_since", "resolved_by", "stream_seq"} <= item.keys()
    assert "nonce" not in item
    result = desk.run("list")
    heading, line = result.stdout.splitlines()
    assert heading.split() == ["KEY", "AGE", "STATUS", "TRIES", "MESSAGE", "ROUTE", "MSG_ID", "ERROR"]
    assert line.split() == [record.key[:12], "10m", AMBIGUOUS, "2", "alpha", "m1", "read", "timeout"]
    assert result.stderr == "1 record: 1 send_ambiguous\n"


def test_what_is_listed_is_what_all_filters_hold_for(desk: Desk) -> None:
    desk.put(
        made("old", SENT, age_seconds=7200, route_id="alpha"),
        made("new", SENT, age_seconds=5, route_id="beta"),
        made("other", TERMINAL, message={"chat": "@alerts"}, route_id="alpha"),
        made("bot2", SENT, bot="99"),  # whose hash of the chat is another's
    )
    assert desk.ids() == ["old", "other", "bot2", "new"]  # the oldest first
    assert desk.ids("--status", "sent") == ["old", "bot2", "new"]
    assert desk.ids("--status", "sent", "--status", "failed_terminal", "--route", "alpha") == ["old", "other"]
    assert desk.ids("--older-than", "1h") == ["old"]
    assert desk.ids("--newer-than", "1h", "--older-than", "5m") == ["other", "bot2"]
    assert desk.ids("--chat", CHAT) == ["old", "new"]
    assert desk.ids("--chat", "@alerts") == ["other"]
    assert desk.ids("--route", "nowhere") == []
    assert "neither a decimal chat id nor @name" in desk.fails("list", "--chat", "ops", code=2)
    desk.fails("list", "--status", "lost", code=2)


def test_in_doubt_is_what_is_ambiguous_or_in_flight_for_too_long(desk: Desk) -> None:
    desk.put(
        made("parked"),
        made("fresh", IN_FLIGHT, age_seconds=30),
        made("dead", IN_FLIGHT, age_seconds=130),
        made("sent", SENT),
        made("pending", PENDING),
    )
    assert desk.ids("--in-doubt") == ["parked", "dead"]
    assert desk.ids("--in-doubt", TG_ACK_WAIT_SECS="10") == ["parked", "dead", "fresh"]
    assert desk.ids("--in-doubt", TG_ACK_WAIT_SECS="600") == ["parked"]


def test_thousands_are_listed(desk: Desk) -> None:
    records = [made(f"m{n}", SENT, age_seconds=9000 - n) for n in range(3000)]
    with desk.server.client() as client:
        for record in records[:-1]:
            client.announce(f"$KV.telegram_ledger.{record.key}", write_record(record))
    desk.put(records[-1])  # whose receipt comes after all of them are stored
    assert desk.ids() == [f"m{n}" for n in range(3000)]
    result = desk.run("list", "--older-than", "140m")
    assert result.stderr == f"{len(result.stdout.splitlines()) - 1} records: {_sent(result)} sent\n"
    assert 600 <= _sent(result) < 3000


def _sent(result: Result) -> int:
    return result.stdout.count(" sent ")


def test_what_cannot_be_read_is_said_and_keeps_nothing_else_from_being_listed(desk: Desk) -> None:
    good = made("good", SENT)
    desk.put(good)
    stored = json.loads(write_record(made("bad", SENT)))
    garbage = {
        "1" * 64: b"\xff\x00 no JSON",
        "2" * 64: b"[" * 5000,
        "3" * 64: json.dumps({**stored, "key": "3" * 64, "status": "lost"}).encode(),
        "4" * 64: json.dumps(stored).encode(),  # which has another key
        "5" * 64: json.dumps({**stored, "key": "5" * 64, "updated_at": "yesterday"}).encode(),
        "6" * 64: json.dumps({**stored, "key": "6" * 64, "updated_at": "2026-01-01T00:00:00"}).encode(),
        "not.a.key": b"{}",
    }
    for key, value in garbage.items():
        desk.put_raw(key, value)
    result = desk.run("list", "--json")
    assert result.exit_code == 1
    assert [item["msg_id"] for item in json.loads(result.stdout)] == ["good"]
    assert result.stderr.startswith(
        "telegram-connector ledger list: 7 of what is stored cannot be read by this version, "
        f"and is left out: {'1' * 64}, "
    )
    assert "Sent" in desk.run("why", "good").stdout
    for command in (("show", "33"), ("resolve", "33", "--cancel", "--yes")):
        assert f"the record {'3' * 64} cannot be read by this version; ledger forget" in desk.fails(*command)
    for key in list(garbage)[:6]:
        assert desk.ok("forget", key, "--yes") == "1 record and 0 links forgotten\n"
    assert desk.run("list", "--json").stderr.count("not.a.key") == 1


def test_show_takes_the_beginning_of_a_key(desk: Desk) -> None:
    one = made("m1", SENT, message_id=77, sent_at=timestamp(0))
    desk.put(one)
    desk.put_raw(f"{one.key[:20]}{'f' * 44}", b"another")
    assert json.loads(desk.ok("show", "--json", one.key[:21])) == [shown(one)]
    assert json.loads(desk.ok("show", "--json", one.key)) == [shown(one)]
    lines = desk.ok("show", one.key.upper()).splitlines()
    assert lines[:2] == [one.key, "  Sent as 77 at 1970-01-01T00:00:00.000Z."]
    assert f"  {'status':<22}  sent" in lines
    assert f"2 keys begin with {one.key[:20]}: " in desk.fails("show", one.key[:20])
    other = "0" if one.key[0] != "0" else "1"
    assert f"no record has a key that begins with {other}" in desk.fails("show", other)
    for wrong in ("*", ">", "m1.x", "a" * 65, ""):
        assert "is no key" in desk.fails("show", wrong, code=2)
    assert "say which ones" in desk.fails("show", code=2)


def test_ids_from_strangers_do_nothing_to_a_terminal(desk: Desk) -> None:
    record = made("m\x1b[31m\nx", TERMINAL, last_error="no\u202e\x07", route_id="\x9b2J")
    desk.put(record)
    for command in (("list",), ("show", record.key[:8]), ("why", record.msg_id), ("list", "--json")):
        output = desk.ok(*command)
        assert not set("\x1b\u202e\x07\x9b") & set(output), command


# why


def test_why_says_in_sentences_what_became_of_it(desk: Desk) -> None:
    at = "2026-07-01T10:00:00.000Z"
    words = {
        SENT: (
            {"message_id": 5, "sent_at": at, "attempts": 3, "link_missing": True},
            f"Sent as 5 at {at} after 3 tries. Its link is not stored.",
        ),
        CANCELLED: (
            {"reason": "member is private", "visibility_decision_id": "d7"},
            "Withheld because member is private (decision d7).",
        ),
        AMBIGUOUS: (
            {"ambiguous_since": at, "last_error": "read timeout"},
            f"In doubt since {at}: read timeout. Nobody knows whether Telegram has it; settle it with: "
            "telegram-connector ledger resolve ",
        ),
        IN_FLIGHT: ({}, "In doubt since "),
        TERMINAL: (
            {"updated_at": at, "reason": "refused", "last_error": "chat not found", "last_error_code": 400},
            f"Dropped at {at} because Telegram refused it: chat not found (400).",
        ),
        RATE_LIMITED: (
            {"next_attempt_at": at, "last_error": "Too Many Requests"},
            f"Waits until {at}: Telegram asked to (Too Many Requests).",
        ),
        RETRYABLE: (
            {"last_error": "no connection"},
            "Waits for another try: it did not reach Telegram (no connection).",
        ),
        PENDING: (
            {"resolution": "send-again", "resolved_by": "ops@desk", "resolved_at": at},
            f"Waits to be sent again; no connector has begun yet. (ops@desk said send-again at {at}.)",
        ),
    }
    for status, (fields, expected) in words.items():
        desk.put(made(f"of-{status}", status, **fields))
        assert f"of-{status}: {expected}" in desk.ok("why", f"of-{status}")
    desk.put(made("young", IN_FLIGHT, age_seconds=3))
    assert "young: On its way to Telegram since " in desk.ok("why", "young")


def test_why_finds_a_message_in_all_its_places(desk: Desk) -> None:
    desk.put(
        made("m1", SENT, age_seconds=20, sent_at=timestamp(0), route_id="alpha"),
        made("m1", TERMINAL, reason="expired", last_error="too late", message={"chat": "7"}, part=1, parts=2),
    )
    first, second = desk.ok("why", "m1").splitlines()
    assert "m1 (part 1/2): Dropped at " in first
    assert "because it was too old: too late." in first
    assert "m1 (route alpha): Sent at 1970" in second
    assert [item["status"] for item in json.loads(desk.ok("why", "m1", "--json"))] == [TERMINAL, SENT]
    assert "no record of m9: " in desk.fails("why", "m9")
    assert json.loads(desk.run("why", "m9", "--json").stdout) == []


# resolve


def test_sent_is_final_and_says_who_and_when(desk: Desk) -> None:
    record = made("m1", last_error_code=504)
    desk.put(record)
    heard = desk.server.listen("telegram.alerts")
    before = datetime.now(timezone.utc) - timedelta(milliseconds=1)
    assert desk.ok("resolve", record.key[:10], "--sent", "--yes") == "m1: taken as sent\n"
    now = desk.record(record)
    assert (now.status, now.resolution, now.message_id) == (SENT, "sent", None)
    assert (now.sent_at, now.ambiguous_since, now.last_error) == (record.ambiguous_since, None, None)
    assert now.resolved_by is not None
    assert "@" in now.resolved_by
    assert before <= datetime.fromisoformat(str(now.resolved_at).replace("Z", "+00:00"))
    assert now.nonce != record.nonce
    event = json.loads(heard.get(timeout=PATIENCE_SECONDS))
    schema = json.loads((Path(__file__).parents[1] / "docs" / "alerts.schema.json").read_text())
    assert event.keys() <= schema["properties"].keys()
    assert event["type"] in schema["properties"]["type"]["enum"]
    facts = {"key": record.key, "msg_id": "m1", "resolution": "sent", "by": now.resolved_by}
    assert facts.items() <= event.items()
    assert "nothing is in doubt. Sent at " in desk.fails("resolve", record.key, "--cancel", "--yes")
    assert "nothing is in doubt. Sent at " in desk.fails("resolve", record.key, "--sent", "--yes")
    assert desk.record(record) == now


def test_cancelled_is_never_sent_and_keeps_why_it_was_in_doubt(desk: Desk) -> None:
    record = made("m1")
    desk.put(record)
    assert desk.ok("resolve", record.key, "--cancel", "--yes") == "m1: cancelled\n"
    now = desk.record(record)
    assert (now.status, now.resolution, now.last_error) == (CANCELLED, "cancel", "read timeout")
    assert "m1: Cancelled: not sent any more. (" in desk.ok("why", "m1")


@pytest.mark.parametrize("status", [PENDING, SENT, RATE_LIMITED, RETRYABLE, TERMINAL, CANCELLED])
def test_only_what_is_in_doubt_is_resolved(desk: Desk, status: str) -> None:
    record = made("m1", status, stream_seq=desk.message("m1"))
    desk.put(record)
    for how in ("--sent", "--send-again", "--cancel"):
        assert "nothing is in doubt. " in desk.fails("resolve", record.key, how, "--yes")
    assert desk.record(record) == record
    assert len(desk.outbound()) == 1


def test_a_send_in_flight_is_a_connectors_until_it_is_surely_gone(desk: Desk) -> None:
    young, old = made("young", IN_FLIGHT, age_seconds=60), made("old", IN_FLIGHT, age_seconds=130)
    desk.put(young, old)
    said = desk.fails("resolve", young.key, "--sent", "--yes")
    assert f"its send began at {young.updated_at}" in said
    assert "in doubt 120 s after that" in said
    assert desk.record(young) == young
    desk.ok("resolve", old.key, "--sent", "--yes")
    assert (desk.record(old).status, desk.record(old).sent_at) == (SENT, old.updated_at)


def test_one_word_is_asked_for_and_options_that_go_with_it(desk: Desk) -> None:
    for arguments in (
        (),
        ("--sent", "--cancel"),
        ("--cancel", "--message-id", "5"),
        ("--sent", "--chat", CHAT),
        ("--sent", "--message-id", "0"),
        ("--sent", "--message-id", "5", "--chat", "@alerts"),
    ):
        desk.fails("resolve", "ab", *arguments, code=2)
    assert "TG_SUBJECT has a wildcard" in desk.fails(
        "resolve", "ab", "--send-again", code=2, TG_SUBJECT="telegram.*"
    )


def test_nothing_is_done_unasked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    record = made("m1", stream_seq=desk.message("m1"))
    desk.put(record)
    result = desk.run("resolve", record.key, "--send-again")
    assert result.exit_code == 2  # nobody to ask
    assert "IF IT HAS, THE CHAT WILL SHOW IT TWICE. Send it again?" in " ".join(result.stderr.split())
    asked: list[str] = []

    def no(question: str, _yes: bool) -> bool:
        asked.append(question)
        return False

    monkeypatch.setattr(settle, "confirmed", no)
    monkeypatch.setattr(keep, "confirmed", no)
    for how in ("--sent", "--send-again", "--cancel"):
        assert desk.fails("resolve", record.key, how) == "nothing was changed\n"
    assert desk.fails("forget", record.key) == "nothing was forgotten\n"
    doubt = f"m1, in doubt since {record.ambiguous_since}: read timeout."
    assert asked == [
        f"{doubt} Take it as sent: it is {NEVER}",
        f"{doubt} Nobody knows whether Telegram has it. IF IT HAS, THE CHAT WILL SHOW IT TWICE. "
        "Send it again?",
        f"{doubt} Cancel it: it is {NEVER}",
        "Forget 1 record and 0 links, 1 of them not over: what is handed over once more is sent again?",
    ]
    assert desk.record(record) == record
    assert len(desk.outbound()) == 1


# resolve --sent --message-id: the link


def test_a_message_id_makes_its_link(desk: Desk) -> None:
    record = made("m1", route_id="alpha", from_member="ada")
    desk.put(record)
    assert (
        desk.ok("resolve", record.key, "--sent", "--message-id", "55", "--yes")
        == "m1 (route alpha, by ada): taken as sent, message 55\n"
    )
    now = desk.record(record)
    assert (now.message_id, now.link_missing) == (55, False)
    found = json.loads(desk.ok("link", CHAT, "55", "--bot", BOT, "--json"))
    assert found == {
        "bot": BOT,
        "message_id": 55,
        "msg_id": "m1",
        "record": record.key,
        "route_id": "alpha",
        "from_member": "ada",
        "sent_at": now.sent_at,
        "stale_at": None,
    }


def test_the_link_of_what_was_sent_to_a_name_is_stored_under_the_chats_number(desk: Desk) -> None:
    record = made("m1", message={"chat": "@alerts"})
    desk.put(record)
    desk.ok("resolve", record.key, "--sent", "--message-id", "55", "--chat", CHAT, "--yes")
    assert "msg_id       m1" in desk.ok("link", CHAT, "55", TELEGRAM_BOT_TOKEN=TOKEN)
    with desk.server.client() as client:
        assert links.Links(client, BOT).sent_as("@alerts", "m1", PATIENCE_SECONDS) is not None


def test_a_message_id_that_is_anothers_changes_nothing(desk: Desk) -> None:
    record = made("m1")
    desk.put(record)
    desk.link(CHAT, 55, "m0")
    words = desk.fails("resolve", record.key, "--sent", "--message-id", "55", "--yes")
    assert "message 55 in that chat is m0: another number?" in words
    assert desk.record(record) == record
    desk.link(CHAT, 56, "m1")  # stored before the connector ended
    desk.ok("resolve", record.key, "--sent", "--message-id", "56", "--yes")


def test_a_link_that_could_not_be_stored_is_stored_by_the_same_command(desk: Desk) -> None:
    record = made("m1")
    desk.put(record)
    with desk.server.client() as client:
        config = client.api("STREAM.INFO.KV_telegram_links")["config"]
        client.api("STREAM.UPDATE.KV_telegram_links", {**config, "max_msg_size": 10})
        arguments = ("resolve", record.key, "--sent", "--message-id", "55", "--yes")
        assert "it is taken as sent now, but its link is not stored: " in desk.fails(*arguments)
        assert (desk.record(record).status, desk.record(record).link_missing) == (SENT, True)
        assert desk.run("link", CHAT, "55", "--bot", BOT).exit_code == 1
        client.api("STREAM.UPDATE.KV_telegram_links", {**config, "max_msg_size": -1})
    assert "nothing is in doubt" in desk.fails(*arguments[:-2], "56", "--yes")
    desk.ok(*arguments)
    assert desk.record(record).link_missing is False
    desk.ok("link", CHAT, "55", "--bot", BOT)


# resolve --send-again


def test_send_again_publishes_the_original_as_it_was_but_for_the_header(desk: Desk) -> None:
    seq = desk.message("m1", parse_mode="HTML", headers={"traceparent": "00-1-2-03"})
    record = made("m1", stream_seq=seq, message={"parse_mode": "HTML"})
    desk.put(record)
    assert desk.ok("resolve", record.key, "--send-again", "--yes") == "m1: published again as sequence 2\n"
    (first, _), (copy, headers) = desk.outbound()
    assert copy == first
    assert "Nats-" not in headers  # by its id the stream would take it for a duplicate
    assert "traceparent: 00-1-2-03" in headers
    now = desk.record(record)
    assert (now.status, now.resolution, now.ambiguous_since) == (PENDING, "send-again", None)


def test_send_again_finds_the_original_among_the_dead_letters(desk: Desk) -> None:
    for n in range(70):  # more than are asked for at a time
        desk.bury(f"other{n}", 500 + n)
    desk.bury("m1", 7)
    desk.bury("m1", 7, text="another text under the same id")
    desk.bury("m2", 7)
    desk.bury("m1", 7, reason="expired")
    for n in range(70):
        desk.bury(f"more{n}", 600 + n)
    record = made("m1", stream_seq=7)
    desk.put(record)
    desk.ok("resolve", record.key, "--send-again", "--yes")
    ((copy, headers),) = desk.outbound()
    assert copy == envelope("m1")
    assert "Tg-" not in headers
    assert "traceparent" in headers


def test_an_expires_at_that_is_past_is_left_out_and_one_to_come_is_kept(desk: Desk) -> None:
    past, future = "2020-01-01T00:00:00Z", "2199-01-01T00:00:00Z"
    old = made("old", stream_seq=desk.message("old", expires_at=past))
    new = made("new", stream_seq=desk.message("new", expires_at=future))
    desk.put(old, new)
    asked = desk.run("resolve", old.key, "--send-again").stderr
    assert f"Its expires_at {past} is past and is left out." in " ".join(asked.split())
    said = desk.ok("resolve", old.key, "--send-again", "--yes")
    assert said == f"old: published again as sequence 3, without its expires_at {past}\n"
    desk.ok("resolve", new.key, "--send-again", "--yes")
    assert [e.expires_at for e, _ in desk.outbound()] == [past, future, None, future]


@pytest.mark.parametrize("what", ["nothing", "another id", "another text", "no envelope", "no streams"])
def test_without_the_original_nothing_is_changed(desk: Desk, what: str) -> None:
    if what == "another id":  # a stream that was made anew counts from 1
        desk.message("m2")
        desk.bury("m2", 1)
    elif what == "another text":
        desk.message("m1", text="not what the record is of")
    elif what == "no envelope":
        with desk.server.client() as client:
            client.publish("telegram.outbound", b"no JSON")
    elif what == "no streams":
        with desk.server.client() as client:
            client.api("STREAM.DELETE.TELEGRAM_OUTBOUND")
            client.api("STREAM.DELETE.TELEGRAM_DEAD")
    record = made("m1", stream_seq=1)
    desk.put(record)
    words = desk.fails("resolve", record.key, "--send-again", "--yes")
    assert "its original is in the streams no more (it was sequence 1)" in words
    assert desk.record(record) == record


@pytest.mark.parametrize("stored", [False, True])
def test_a_send_again_that_was_cut_off_goes_on_when_run_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    record = made("m1", stream_seq=desk.message("m1"))
    desk.put(record)
    publish = Archive.publish_again

    def cut(archive: Archive, payload: bytes, headers: dict[str, str]) -> int:
        if not stored:
            raise Disconnected("connection lost")
        publish(archive, payload, headers)
        raise Unanswered("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(Archive, "publish_again", cut)
        words = desk.fails("resolve", record.key, "--send-again", "--yes")
    assert "the record says send-again now, but its copy may not be published: " in words
    assert "do the same again" in words
    assert desk.record(record).status == PENDING
    assert len(desk.outbound()) == 1 + stored
    assert "nothing is in doubt. Waits to be sent again" in desk.fails(
        "resolve", record.key, "--cancel", "--yes"
    )
    before = desk.record(record)
    assert "published again" in desk.ok("resolve", record.key, "--send-again", "--yes")
    assert len(desk.outbound()) == 2 + stored
    assert desk.record(record) == before  # who said it first stays on record


# Two at once


@pytest.mark.parametrize("first", ["--sent", "--cancel", "--send-again"])
def test_of_two_operators_the_first_wins(desk: Desk, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    record = made("m1", stream_seq=desk.message("m1"))
    desk.put(record)

    def meanwhile(_question: str, _yes: bool) -> bool:
        monkeypatch.undo()
        desk.ok("resolve", record.key, first, "--yes")
        return True

    monkeypatch.setattr(settle, "confirmed", meanwhile)
    words = desk.fails("resolve", record.key, "--send-again", "--yes")
    assert "somebody else was first; nothing was changed here" in words
    assert desk.record(record).resolution == first.removeprefix("--")
    assert len(desk.outbound()) == 1 + (first == "--send-again")


def test_two_commands_that_race_leave_one_word(desk: Desk) -> None:
    env = {"NATS_URL": desk.server.url, "NATS_TELEGRAM_NKEY_SEED": desk.server.operator_seed}
    records = [made(f"m{n}") for n in range(3)]
    desk.put(*records)
    for record in records:
        command = ("ledger", "resolve", record.key, "--yes")
        with Process(*command, "--sent", env=env) as one, Process(*command, "--cancel", env=env) as two:
            codes = (one.wait(), two.wait())
        assert sorted(codes) == [0, 1]
        assert desk.record(record).resolution == ("sent" if codes[0] == 0 else "cancel")


def test_a_write_that_nobody_confirmed_is_looked_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    update = KeyValue.update

    def unconfirmed(bucket: KeyValue, *arguments: Any) -> int | None:
        update(bucket, *arguments)
        raise Unanswered("no answer")

    def lost(_bucket: KeyValue, *_arguments: Any) -> int | None:
        raise Unanswered("no answer")

    one, two = made("m1"), made("m2")
    desk.put(one, two)
    monkeypatch.setattr(KeyValue, "update", lost)
    assert "no answer" in desk.fails("resolve", one.key, "--cancel", "--yes")
    assert desk.record(one) == one
    monkeypatch.setattr(KeyValue, "update", unconfirmed)
    desk.ok("resolve", two.key, "--cancel", "--yes")
    assert desk.record(two).status == CANCELLED


# forget and export


def test_forget_by_key_takes_the_links_of_that_message_along(desk: Desk) -> None:
    one, two = made("m1", SENT, message_id=5), made("m2", SENT, message_id=6, message={"chat": "@alerts"})
    three = made("m3", SENT, message_id=5)
    desk.put(one, two, three)
    desk.link(CHAT, 5, "m1")
    desk.link("-999", 5, "m3")
    desk.link(CHAT, 6, "m2")  # by its number; it was sent to a name
    assert desk.ok("forget", one.key[:12], one.key, "--yes") == "1 record and 2 links forgotten\n"
    assert sorted(desk.ids()) == ["m2", "m3"]
    assert desk.run("link", CHAT, "5", "--bot", BOT).exit_code == 1
    desk.ok("link", "-999", "5", "--bot", BOT)
    assert desk.ok("forget", two.key, "--yes") == "1 record and 1 link forgotten\n"
    assert desk.run("link", CHAT, "6", "--bot", BOT).exit_code == 1
    assert "no record has a key that begins with" in desk.fails("forget", one.key, "--yes")


def test_forget_by_route_leaves_the_others(desk: Desk) -> None:
    for n in range(5):
        route = "alpha" if n % 2 else "beta"
        desk.put(made(f"m{n}", SENT, message_id=n + 1, route_id=route))
        desk.link(CHAT, n + 1, f"m{n}", route)
    desk.put(made("none", SENT))
    assert desk.ok("forget", "--route", "alpha", "--yes") == "2 records and 4 links forgotten\n"
    assert desk.ids() == ["m0", "m2", "m4", "none"]
    assert (desk.kept("telegram_ledger"), desk.kept("telegram_links")) == (4, 6)
    assert desk.ok("forget", "--route", "alpha") == "nothing to forget\n"
    for wrong in ((), ("ab", "--route", "alpha")):
        assert "say which ones" in desk.fails("forget", *wrong, code=2)


def test_what_is_written_meanwhile_is_not_forgotten(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = made("m1", SENT, route_id="alpha"), made("m2", SENT, route_id="alpha")
    desk.put(one, two)

    def meanwhile(_question: str, _yes: bool) -> bool:
        desk.put(two)
        return True

    monkeypatch.setattr(keep, "confirmed", meanwhile)
    result = desk.run("forget", "--route", "alpha")
    assert (result.exit_code, result.stdout) == (1, "1 of 2 records and 0 links forgotten\n")
    assert f"{two.key}: somebody else has written it meanwhile" in result.stderr
    assert desk.ids() == ["m2"]


def test_what_is_forgotten_can_be_recorded_anew(desk: Desk) -> None:
    record = made("m1", SENT)
    desk.put(record)
    desk.ok("forget", record.key, "--yes")
    assert desk.listed() == []
    desk.put(record)
    assert desk.ids() == ["m1"]


def test_export_writes_out_all_that_is_kept(desk: Desk) -> None:
    one, two = made("m1", SENT, message_id=5, route_id="alpha"), made("m2", route_id="beta")
    desk.put(one, two)
    desk.link(CHAT, 5, "m1", "alpha")
    lines = [json.loads(line) for line in desk.ok("export").splitlines()]
    assert [line["type"] for line in lines] == ["record", "record", "link", "link"]
    assert {line["key"] for line in lines[:2]} == {one.key, two.key}
    assert lines[2] | {"key": ""} == lines[3] | {"key": ""}
    assert {line["key"] for line in lines[2:]} == {by_message(BOT, CHAT, 5), by_msg_id(BOT, CHAT, "m1")}
    of_alpha = [json.loads(line) for line in desk.ok("export", "--route", "alpha").splitlines()]
    assert of_alpha[0] == {"type": "record", **shown(one)}
    assert [line["msg_id"] for line in of_alpha] == ["m1", "m1", "m1"]
    (of_beta,) = desk.ok("export", "--route", "beta").splitlines()
    assert json.loads(of_beta)["key"] == two.key
    desk.put_raw("7" * 64, b"garbage")
    assert f"1 of what is stored cannot be read by this version, and is left out: {'7' * 64}" in desk.fails(
        "export"
    )


# link


def test_a_link_is_told_or_not_guessed(desk: Desk) -> None:
    desk.link(CHAT, 5, "m1", "alpha")
    assert desk.ok("link", CHAT, "5", TELEGRAM_BOT_TOKEN=TOKEN) == (
        f"bot          {BOT}\nmessage_id   5\nmsg_id       m1\nroute_id     alpha\n"
        "sent_at      1970-01-01T00:00:00.000Z\n"
    )
    for chat, number, bot in ((CHAT, "6", BOT), ("100200", "5", BOT), (CHAT, "5", "99")):
        result = desk.run("link", chat, number, "--bot", bot)
        assert (result.exit_code, result.stdout) == (1, "old reply target not available\n")
    assert "say which bot" in desk.fails("link", CHAT, "5", code=2)
    assert "no decimal chat id" in desk.fails("link", "@alerts", "5", "--bot", BOT, code=2)
    assert "no decimal chat id" in desk.fails("link", "--nonsense", "5", "--bot", BOT, code=2)


# Rights, settings, servers


def test_others_lack_the_rights_and_are_told_which(desk: Desk) -> None:
    said = desk.fails("list", seed=desk.server.publisher_seed)
    assert "NATS does not allow it: " in said
    assert "deploy/nats-permissions.conf" in said


def test_a_reader_lists_and_cannot_resolve_and_alerts_may_be_left_out(desk: Desk) -> None:
    reads = [
        f"$JS.API.STREAM.{verb}.KV_{bucket}"
        for verb in ("INFO", "MSG.GET")
        for bucket in ("telegram_ledger", "telegram_links")
    ]
    record = made("m1")
    desk.put(record)

    def permit(*subjects: str) -> None:
        allowed = f"publish: {{ allow: {json.dumps(subjects)} }}"
        inbox = 'subscribe: { allow: ["_INBOX.tg_outbound.>"] }'
        desk.server.worker_permissions = f"{{ {allowed}, {inbox} }}"
        desk.server.reload()

    seed = desk.server.worker_seed
    permit(*reads)
    for command in (("list",), ("show", record.key), ("why", "m1"), ("export",)):
        desk.ok(*command, seed=seed)
    said = desk.fails("resolve", record.key, "--cancel", "--yes", seed=seed)
    assert "NATS does not allow it: " in said
    assert desk.record(record) == record
    permit(*reads, "$KV.telegram_ledger.*")
    result = desk.run("resolve", record.key, "--cancel", "--yes", seed=seed)
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("bucket", ["telegram_ledger", "telegram_links"])
def test_a_bucket_that_is_not_there(desk: Desk, bucket: str) -> None:
    with desk.server.client() as client:
        client.api(f"STREAM.DELETE.KV_{bucket}")
    words = f"bucket {bucket} does not exist; make it with: telegram-connector provision"
    if bucket == "telegram_ledger":
        for command in (("list",), ("list", "--json"), ("why", "m1"), ("resolve", "ab", "--sent", "--yes")):
            assert words in desk.fails(*command)
    assert words in desk.fails("export")
    assert words in desk.fails("forget", "--route", "alpha", "--yes")


def test_without_a_link_bucket_a_link_is_not_called_unknown(desk: Desk) -> None:
    with desk.server.client() as client:
        client.api("STREAM.DELETE.KV_telegram_links")
    assert "stream not found" in desk.fails("link", CHAT, "5", "--bot", BOT)


def test_without_nats_and_without_settings(desk: Desk) -> None:
    desk.server.kill()
    assert "(NATS_URL)" in desk.fails("list")
    result = CliRunner().invoke(main, ["ledger", "list"], env={})
    assert result.exit_code == 78


# With a connector


def until(condition: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.05)


def ambiguous(fleet: Fleet) -> int | None:
    """What `status` says of how many are in doubt."""
    with fleet.server.client(fleet.server.operator_seed) as client:
        return Observatory(client, fleet.server.settings(), 0.1).look().ambiguous


def test_from_a_lost_answer_to_a_message_that_is_sent_and_known(fleet: Fleet) -> None:
    desk = Desk(fleet.server)
    fleet.sandbox.set_fault({"reset": "after_accept", "method": "sendMessage"}, times=3)
    fleet.publish(*(envelope(f"m{n}", chat=str(300 + n), route_id="alpha") for n in range(3)))
    relay = fleet.relay(ledger="kv", on_ambiguous="park")
    until(lambda: desk.ids("--in-doubt") == ["m0", "m1", "m2"])
    fleet.assert_nothing_left()
    assert [len(fleet.texts(chat)) for chat in (300, 301, 302)] == [1, 1, 1]
    assert desk.ids("--chat", "300", "--route", "alpha") == ["m0"]
    assert ambiguous(fleet) == 3
    keys = {item["msg_id"]: item["key"] for item in desk.listed()}
    desk.ok("resolve", keys["m0"], "--send-again", "--yes")
    desk.ok("resolve", keys["m1"], "--cancel", "--yes")
    desk.ok("resolve", keys["m2"], "--sent", "--message-id", "77", "--yes")
    assert ambiguous(fleet) == 0  # their dead letters are put aside, too
    until(lambda: [r["msg_id"] for r in desk.listed("--status", "sent")] == ["m0", "m2"])
    (record,) = desk.listed("--status", "sent", "--chat", "300")
    assert (record["resolution"], record["attempts"]) == ("send-again", 2)
    found = json.loads(desk.ok("link", "300", str(record["message_id"]), "--json", TELEGRAM_BOT_TOKEN=TOKEN))
    assert (found["msg_id"], found["route_id"]) == ("m0", "alpha")
    # Published once more after all, by somebody or by the same command: the ledger has each of them.
    relay.stop(10)
    with fleet.server.client() as client:
        for n in range(3):
            client.publish(
                "telegram.outbound", encode(envelope(f"m{n}", chat=str(300 + n), route_id="alpha"))
            )
    fleet.relay(ledger="kv", on_ambiguous="park")
    until(lambda: fleet.server.consumer()["ack_floor"]["stream_seq"] == 7)
    fleet.assert_nothing_left()
    assert [len(fleet.texts(chat)) for chat in (300, 301, 302)] == [2, 1, 1]
    assert desk.ids("--in-doubt") == []
