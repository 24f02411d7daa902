"""The ledger and its links under a relay, on a real nats-server and against the sandbox Bot API."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
import requests

from telegram_connector import events
from telegram_connector.bridge import NatsClient
from telegram_connector.disposition import Concluded, Deferred
from telegram_connector.envelope import TelegramOutbound, encode
from telegram_connector.links import Link, by_message
from telegram_connector.links import decode as decode_link
from telegram_connector.record import AMBIGUOUS, IN_FLIGHT, INTERRUPTED, SENT, TERMINAL, Record, decode, fresh
from telegram_connector.record import encode as encode_record
from telegram_connector.relay import Relay
from telegram_connector.sandbox import Sandbox
from telegram_connector.topology import LEDGER_BUCKET, LINKS_BUCKET, ledger_bucket, links_bucket
from tests.fleet import PATIENCE_SECONDS, TOKEN, Fleet, numbered, worker_env
from tests.nats_server import NatsServer
from tests.process import Process

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

T = TypeVar("T")
BOT = TOKEN.partition(":")[0]
LOST = {"reset": "after_accept"}


def value_of(client: NatsClient, bucket: str, key: str) -> bytes:
    found = client.api(f"STREAM.MSG.GET.KV_{bucket}", {"last_by_subj": f"$KV.{bucket}.{key}"})
    return base64.b64decode(found["message"].get("data", ""))


def eventually(ask: Callable[[], T]) -> T:
    """Wait for something that only asking can tell."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    pause = threading.Event()
    while not (found := ask()):
        assert time.monotonic() < deadline, "it did not come about"
        pause.wait(0.05)
    return found


class LedgerFleet(Fleet):
    """A fleet whose relays keep a ledger."""

    def relay(self, **changes: Any) -> Relay:
        return super().relay(**{"ledger": "kv", "on_ambiguous": "park", **changes})

    def publish_again(self, envelope: TelegramOutbound, header: str) -> None:
        """As after the duplicate window: the stream does not know the id any more."""
        with self.server.client(self.server.publisher_seed) as client:
            ack = client.publish("telegram.outbound", encode(envelope), {"Nats-Msg-Id": header})
            assert not ack.duplicate

    def records(self) -> dict[str, Record]:
        """By msg_id."""
        return {r.msg_id: r for r in map(decode, self._values(LEDGER_BUCKET))}

    def until_record(self, msg_id: str, status: str) -> Record:
        """Wait for a record in that state: the write of it may come after the message is in the sandbox."""

        def found() -> Record | None:
            record = self.records().get(msg_id)
            return record if record is not None and record.status == status else None

        record = eventually(found)
        assert record is not None
        return record

    def _values(self, bucket: str) -> list[bytes]:
        with self.server.client() as client:
            info = client.api(f"STREAM.INFO.KV_{bucket}", {"subjects_filter": ">"})
            keys = [s.removeprefix(f"$KV.{bucket}.") for s in info["state"].get("subjects") or ()]
            return [value_of(client, bucket, key) for key in keys]

    def put_record(self, record: Record) -> None:
        """As another connector, or an operator."""
        with self.server.client() as client:
            client.publish(f"$KV.{LEDGER_BUCKET}.{record.key}", encode_record(record))

    def delete_bucket(self, bucket: str) -> None:
        with self.server.client() as client:
            client.api(f"STREAM.DELETE.KV_{bucket}")

    def provision(self) -> None:
        with self.server.client() as client:
            for config in (ledger_bucket(self.settings()), links_bucket(self.settings())):
                client.api(f"STREAM.CREATE.{config['name']}", config)

    def dead(self) -> list[dict[str, str]]:
        """The headers of the dead letters."""
        with self.server.client() as client:
            count = client.api("STREAM.INFO.TELEGRAM_DEAD")["state"]["messages"]
            found = [client.api("STREAM.MSG.GET.TELEGRAM_DEAD", {"seq": n + 1}) for n in range(count)]
        letters = []
        for letter in found:
            lines = base64.b64decode(letter["message"]["hdrs"]).decode().split("\r\n")[1:]
            letters.append(dict(line.split(": ", 1) for line in lines if line))
        return letters

    def link(self, chat: str, message_id: int) -> Link:
        """The link of a message, read with the relay's own rights."""
        with self.server.client(self.server.worker_seed) as client:
            return decode_link(value_of(client, LINKS_BUCKET, by_message(BOT, chat, message_id)))

    def concluded(self) -> list[str]:
        return [
            e.disposition.status for e in self.of(events.Attempted) if isinstance(e.disposition, Concluded)
        ]

    def until_attempted(self, count: int) -> None:
        self.until(lambda: len(self.of(events.Attempted)) >= count)


@pytest.fixture
def fleet(nats_server: NatsServer) -> Iterator[LedgerFleet]:
    with Sandbox() as sandbox:
        fleet = LedgerFleet(nats_server, sandbox)
        yield fleet
        fleet.stop()


def message(msg_id: str = "m1", **fields: Any) -> TelegramOutbound:
    return TelegramOutbound(**{"msg_id": msg_id, "chat": "7", "text": f"text of {msg_id}", **fields})


def test_a_lost_answer_is_parked_and_the_chat_goes_on(fleet: LedgerFleet) -> None:
    fleet.sandbox.set_fault(LOST, times=1)
    fleet.relay()
    fleet.publish(message("m1"), message("m2"))
    fleet.until_record("m2", SENT)
    record = fleet.until_record("m1", AMBIGUOUS)
    fleet.assert_nothing_left()
    assert record.ambiguous_since
    assert record.message_id is None
    assert fleet.texts(7) == ["text of m1", "text of m2"]
    (dead,) = fleet.dead()
    assert (dead["Tg-Dead-Reason"], dead["Tg-Orig-Msg-Id"]) == ("ambiguous", "m1")


def test_under_park_a_5xx_is_as_good_as_a_lost_answer(fleet: LedgerFleet) -> None:
    fleet.sandbox.set_fault("srv_502_html", times=1)
    fleet.relay()
    fleet.publish(message())
    assert fleet.until_record("m1", AMBIGUOUS).last_error_code == 502
    fleet.assert_nothing_left()
    assert fleet.texts() == []
    assert [d["Tg-Dead-Reason"] for d in fleet.dead()] == ["ambiguous"]


def test_under_retry_a_lost_answer_is_sent_again(fleet: LedgerFleet) -> None:
    fleet.sandbox.set_fault(LOST, times=1)
    fleet.relay(on_ambiguous="retry")
    fleet.publish(message())
    fleet.sandbox.wait(count=2, timeout_seconds=PATIENCE_SECONDS)
    assert fleet.until_record("m1", SENT).attempts == 2


def test_a_duplicate_after_the_duplicate_window_is_acked_unsent(fleet: LedgerFleet) -> None:
    first = fleet.relay()
    fleet.publish(message())
    fleet.until_record("m1", SENT)
    fleet.publish_again(message(), "another")
    fleet.until(lambda: fleet.concluded() == [SENT])
    first.stop(10)
    fleet.relay()  # which remembers nothing
    fleet.publish_again(message(), "yet another")
    fleet.until(lambda: fleet.concluded() == [SENT, SENT])
    fleet.assert_nothing_left()
    assert len(fleet.texts()) == 1
    assert fleet.dead() == []


def test_the_same_msg_id_with_another_text_is_a_conflict(fleet: LedgerFleet) -> None:
    fleet.relay()
    fleet.publish(message())
    fleet.until_record("m1", SENT)
    fleet.publish_again(message(text="something else"), "another")
    fleet.until_attempted(2)
    fleet.assert_nothing_left()
    assert fleet.texts(7) == ["text of m1"]
    assert [d["Tg-Dead-Reason"] for d in fleet.dead()] == ["conflict"]
    assert fleet.records()["m1"].status == SENT


def test_what_was_in_flight_when_its_process_ended_is_parked(fleet: LedgerFleet) -> None:
    fleet.put_record(fresh(BOT, message(), "7", time.time()))
    fleet.publish(message())
    fleet.relay()
    assert fleet.until_record("m1", AMBIGUOUS).last_error == INTERRUPTED
    fleet.assert_nothing_left()
    assert fleet.texts() == []
    assert [d["Tg-Dead-Reason"] for d in fleet.dead()] == ["ambiguous"]


# Links and replies


def test_a_success_is_linked(fleet: LedgerFleet) -> None:
    fleet.relay()
    fleet.publish(message(route_id="r", from_member="alice"))
    record = fleet.until_record("m1", SENT)
    assert record.message_id is not None
    link = fleet.link("7", record.message_id)
    assert (link.msg_id, link.route_id, link.from_member, link.stale_at) == ("m1", "r", "alice", None)


def test_a_reply_to_a_msg_id_replies_to_its_message(fleet: LedgerFleet) -> None:
    fleet.relay()
    fleet.publish(message("m1"), message("m2", reply_to="m1"))
    fleet.sandbox.wait(count=2, timeout_seconds=PATIENCE_SECONDS)
    first, second = fleet.sandbox.messages(chat=7)
    assert second.reply_to_message_id == first.message_id
    assert fleet.until_record("m2", SENT).reply_to == first.message_id


def test_a_reply_to_what_is_not_known_goes_out_only_where_it_may(fleet: LedgerFleet) -> None:
    fleet.relay()
    fleet.publish(
        message("m1", reply_to="gone"),
        message("m2", reply_to="gone", allow_sending_without_reply=True),
    )
    fleet.until_record("m2", SENT)
    record = fleet.until_record("m1", TERMINAL)
    fleet.assert_nothing_left()
    assert record.last_error == "old reply target not available"
    assert fleet.texts(7) == ["text of m2"]
    assert [d["Tg-Description"] for d in fleet.dead()] == ["old reply target not available"]


def test_a_target_that_telegram_has_deleted_is_stale_from_then_on(fleet: LedgerFleet) -> None:
    fleet.relay()
    fleet.publish(message("m1"))
    target = fleet.until_record("m1", SENT).message_id
    assert target is not None
    body = {"chat_id": 7, "message_id": target}
    assert requests.post(f"{fleet.sandbox.url}/bot{TOKEN}/deleteMessage", json=body, timeout=10).json()["ok"]
    fleet.publish(message("m2", reply_to="m1"))
    fleet.until_record("m2", TERMINAL)
    eventually(lambda: fleet.link("7", target).stale_at)
    fleet.publish(
        message("m3", reply_to="m1", allow_sending_without_reply=True), message("m4", reply_to="m1")
    )
    fleet.until_record("m3", SENT)
    assert fleet.until_record("m4", TERMINAL).last_error == "old reply target not available"
    assert fleet.texts(7) == ["text of m1", "text of m3"]
    assert fleet.sandbox.messages(chat=7)[-1].reply_to_message_id is None


def test_a_links_bucket_that_is_gone_makes_no_success_a_failure(fleet: LedgerFleet) -> None:
    fleet.delete_bucket(LINKS_BUCKET)
    fleet.relay()
    fleet.publish(*(message(f"m{n}") for n in range(3)))
    for n in range(3):
        fleet.until_record(f"m{n}", SENT)
    fleet.assert_nothing_left()
    (said,) = fleet.of(events.LedgerUnavailable)
    assert not said.waits
    eventually(lambda: all(r.link_missing for r in fleet.records().values()))
    fleet.provision()
    eventually(lambda: not any(r.link_missing for r in fleet.records().values()))
    record = fleet.records()["m0"]
    assert record.message_id is not None
    assert fleet.link("7", record.message_id).msg_id == "m0"
    assert fleet.texts(7) == ["text of m0", "text of m1", "text of m2"]


def test_a_topic_that_telegram_ignores_is_said(fleet: LedgerFleet) -> None:
    result = {"message_id": 1, "date": 1, "chat": {"id": -1001234567890, "type": "supergroup"}, "text": "x"}
    answer = {"status": 200, "body": json.dumps({"ok": True, "result": result})}
    fleet.sandbox.set_fault({"answer": answer, "accept": True}, times=1)
    fleet.relay()
    fleet.publish(
        message("m1", chat="-1001234567890", message_thread_id=5),
        message("m2", chat="-1001234567890", message_thread_id=5),
    )
    fleet.sandbox.wait(count=2, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    (ignored,) = fleet.of(events.TopicIgnored)
    assert (ignored.subject.nats_msg_id, ignored.asked, ignored.found) == ("m1", 5, None)
    assert [m.message_thread_id for m in fleet.sandbox.messages(chat=-1001234567890)] == [5, 5]


def test_a_topic_that_is_gone_is_not_answered_by_the_general_chat(fleet: LedgerFleet) -> None:
    fleet.sandbox.set_chat(-1001234567890, topics=[{"id": 5, "state": "deleted"}])
    fleet.relay()
    fleet.publish(message(chat="-1001234567890", message_thread_id=5))
    record = fleet.until_record("m1", TERMINAL)
    fleet.assert_nothing_left()
    assert record.last_error == "Bad Request: message thread not found"
    assert fleet.sandbox.messages() == []
    assert [d["Tg-Dead-Reason"] for d in fleet.dead()] == ["refused"]


# The bucket goes


def test_under_park_nothing_is_sent_without_the_bucket_and_all_of_it_after(fleet: LedgerFleet) -> None:
    fleet.relay()
    fleet.publish(message("m1"))
    fleet.until_record("m1", SENT)
    fleet.delete_bucket(LEDGER_BUCKET)
    fleet.publish(message("m2"))
    fleet.until(lambda: any(isinstance(e.disposition, Deferred) for e in fleet.of(events.Attempted)))
    said = fleet.until_event(events.LedgerUnavailable)
    assert said.waits
    assert "provision" in said.reason
    assert fleet.texts(7) == ["text of m1"]
    fleet.provision()
    fleet.until_record("m2", SENT)
    fleet.until_event(events.LedgerBack)
    fleet.assert_nothing_left()
    assert fleet.texts(7) == ["text of m1", "text of m2"]
    assert len(fleet.of(events.LedgerUnavailable)) == 1


def test_under_retry_it_goes_on_without_the_bucket(fleet: LedgerFleet) -> None:
    fleet.delete_bucket(LEDGER_BUCKET)
    fleet.relay(on_ambiguous="retry")
    fleet.publish(*numbered(5, 2))
    fleet.sandbox.wait(count=5, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    (said,) = fleet.of(events.LedgerUnavailable)
    assert not said.waits
    fleet.provision()
    fleet.publish(message("after"))
    fleet.until_record("after", SENT)
    assert fleet.until_event(events.LedgerBack).unrecorded == 5


# Killed


def test_a_server_killed_after_confirmed_acks_and_the_relay_too_sends_nothing_again(
    fleet: LedgerFleet,
) -> None:
    env = worker_env(
        fleet,
        TG_LEDGER="kv",
        TG_ON_AMBIGUOUS="park",
        TG_ACK_WAIT_SECS="3",
        TG_STANDBY_TAKEOVER_SECS="1",
        META_ALERT_ON_DROP="false",
    )
    kills, each, chats = 4, 25, 5
    for round_ in range(kills):
        with Process("run", env=env) as worker:
            fleet.publish(*numbered(each, chats, start=round_ * each))
            fleet.sandbox.wait(count=(round_ + 1) * each - 10, timeout_seconds=PATIENCE_SECONDS)
            fleet.server.kill()  # acks of the last moments are not on its disk
            worker.signal(9)
            worker.wait()
        fleet.server.start()
    with Process("run", env=env):
        fleet.assert_nothing_left()
        texts = fleet.texts()
    assert len(texts) == len(set(texts)), "sent twice"
    records = fleet.records()
    doubtful = {r.msg_id for r in records.values() if r.status in (AMBIGUOUS, IN_FLIGHT)}
    wanted = {e.text for e in numbered(kills * each, chats)}
    missing = {f"m{text.rpartition(' ')[2]}" for text in wanted - set(texts)}
    assert missing <= doubtful, "lost"
    assert len(doubtful) <= 2 * kills, "each kill may cut off one send, and one begin"
    assert len(fleet.dead()) == sum(r.status == AMBIGUOUS for r in records.values())


def test_a_relay_killed_while_it_sends_parks_what_was_on_its_way(fleet: LedgerFleet) -> None:
    fleet.sandbox.set_fault({"silence": {"seconds": 60, "when": "after_accept"}}, times=1)
    env = worker_env(
        fleet, TG_LEDGER="kv", TG_ON_AMBIGUOUS="park", TG_ACK_WAIT_SECS="3", TG_STANDBY_TAKEOVER_SECS="1"
    )
    with Process("run", env=env) as worker:
        fleet.publish(message("m1"), message("m2"))
        fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
        worker.signal(9)
        worker.wait()
    assert fleet.records()["m1"].status == IN_FLIGHT
    with Process("run", env=env):
        fleet.until_record("m2", SENT)
        fleet.assert_nothing_left()
    assert fleet.records()["m1"].status == AMBIGUOUS
    assert fleet.texts(7) == ["text of m1", "text of m2"]
    assert [d["Tg-Dead-Reason"] for d in fleet.dead()] == ["ambiguous"]
