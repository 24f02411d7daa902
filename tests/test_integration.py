"""The relay against a real nats-server and the sandbox Bot API."""

from __future__ import annotations

import base64
import json
import signal
import time

import pytest

from telegram_connector import events
from telegram_connector.disposition import Sent
from telegram_connector.envelope import TelegramOutbound, decode
from telegram_connector.errors import ApiError
from tests.fleet import PATIENCE_SECONDS, Fleet, numbered
from tests.nats_server import NatsServer

DELETE_FAILED = 10051

pytestmark = pytest.mark.integration


def delete_durable(server: NatsServer) -> None:
    """Delete the consumer; 2.10, when it is still writing its state, says that this failed: it is gone."""
    with server.client() as client:
        try:
            client.api("CONSUMER.DELETE.TELEGRAM_OUTBOUND.tg_outbound")
        except ApiError as error:
            if error.err_code != DELETE_FAILED:
                raise


def test_a_thousand_texts_of_all_kinds_arrive_once_verbatim_and_in_order(fleet: Fleet) -> None:
    texts = [
        "<b>bold</b> & <i>it</i> *star* _under_ `code` [link](http://x.y/?a=1&b=2)",
        "emoji 😀👩‍👩‍👧‍👦🇭🇺 and ÁRVÍZTŰRŐ",
        "x" * 4096,
        "😀" * 4096,
        "line\nbreak\r\nand\u2028line\u2029separators\ttab",
        'quotes " \\ back\\slash \\n not a break',
    ]
    envelopes = [
        TelegramOutbound(msg_id=f"m{n}", chat=str(200 + n % 20), text=f"{n} {texts[n % 6]}"[:4096])
        for n in range(1000)
    ]
    fleet.publish(*envelopes)
    fleet.relay()
    fleet.sandbox.wait(count=1000, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    for chat in range(200, 220):
        assert fleet.texts(chat) == [e.text for e in envelopes if e.chat == str(chat)]
    assert len(fleet.sandbox.messages()) == 1000


def test_four_workers_with_pacing_are_never_refused_by_flood_control_and_keep_order(fleet: Fleet) -> None:
    fleet.sandbox.set_flood("telegram")
    hot = [TelegramOutbound(msg_id=f"h{n}", chat="99", text=f"hot {n}") for n in range(8)]
    group = [TelegramOutbound(msg_id=f"g{n}", chat="-1001234567890", text=f"group {n}") for n in range(3)]
    fleet.publish(*hot, *group, *numbered(60, 20))
    fleet.relay(workers=4, pacing=True)
    fleet.sandbox.wait(count=71, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    assert not fleet.of(events.ChatHeld)
    assert all(isinstance(e.disposition, Sent) for e in fleet.of(events.Attempted))
    assert fleet.texts(99) == [e.text for e in hot]
    assert fleet.texts(-1001234567890) == [e.text for e in group]
    for chat in range(100, 120):
        assert fleet.texts(chat) == [f"text {n}" for n in range(chat - 100, 60, 20)]


def test_the_next_worker_sends_the_rest_at_once_and_nothing_twice(fleet: Fleet) -> None:
    fleet.sandbox.set_fault({"delay_seconds": 0.3}, nth=1)
    fleet.publish(*numbered(60, 3))
    first = fleet.relay()
    fleet.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
    first.stop(20)
    fleet.relay()
    started = time.monotonic()
    fleet.sandbox.wait(count=60, timeout_seconds=PATIENCE_SECONDS)
    assert time.monotonic() - started < 30  # not after ack_wait, which is 60 s
    fleet.assert_nothing_left()
    assert sorted(fleet.texts()) == sorted(e.text for e in numbered(60, 3))
    for chat in range(100, 103):
        assert fleet.texts(chat) == [e.text for e in numbered(60, 3) if e.chat == str(chat)]


def test_a_killed_server_loses_and_doubles_nothing(fleet: Fleet) -> None:
    fleet.relay()
    fleet.publish(*numbered(300, 5))
    fleet.sandbox.wait(count=100, timeout_seconds=PATIENCE_SECONDS)
    fleet.server.kill()
    fleet.until_event(events.ConnectionLost)
    fleet.server.start()
    fleet.publish(*numbered(50, 5, start=300))
    fleet.sandbox.wait(count=350, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    for chat in range(100, 105):
        assert fleet.texts(chat) == [e.text for e in numbered(350, 5) if e.chat == str(chat)]


def test_a_deleted_durable_is_made_again_without_a_replay(fleet: Fleet) -> None:
    fleet.relay()
    fleet.publish(*numbered(300, 5))
    fleet.sandbox.wait(count=100, timeout_seconds=PATIENCE_SECONDS)
    delete_durable(fleet.server)
    fleet.publish(*numbered(50, 5, start=300))
    fleet.sandbox.wait(count=350, timeout_seconds=PATIENCE_SECONDS)
    fleet.until_event(events.ConsumerGone)
    fleet.assert_nothing_left()
    for chat in range(100, 105):
        assert fleet.texts(chat) == [e.text for e in numbered(350, 5) if e.chat == str(chat)]


def test_a_durable_deleted_while_nobody_ran_starts_from_the_saved_floor(fleet: Fleet) -> None:
    fleet.publish(*numbered(20, 2))
    first = fleet.relay()
    fleet.sandbox.wait(count=20, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    first.stop(10)
    delete_durable(fleet.server)
    fleet.publish(*numbered(5, 2, start=20))
    fleet.relay()
    fleet.sandbox.wait(count=25, timeout_seconds=PATIENCE_SECONDS)
    assert fleet.of(events.Bound)[-1].start_sequence == 21
    assert len(fleet.sandbox.messages()) == 25


def test_a_stream_made_anew_is_read_from_its_start(fleet: Fleet) -> None:
    fleet.relay()
    fleet.publish(*numbered(5, 2))
    fleet.sandbox.wait(count=5, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    from telegram_connector.topology import outbound_stream

    with fleet.server.client() as client:
        client.api("STREAM.DELETE.TELEGRAM_OUTBOUND")
        client.api("STREAM.CREATE.TELEGRAM_OUTBOUND", outbound_stream(fleet.server.settings()))
    fleet.publish(*numbered(5, 2, start=100))
    fleet.sandbox.wait(count=10, timeout_seconds=PATIENCE_SECONDS)
    assert len(fleet.sandbox.messages()) == 10


def test_a_flooded_chat_waits_and_its_neighbour_does_not(fleet: Fleet) -> None:
    fleet.sandbox.set_fault("flood", chat=100, times=1, retry_after=2)
    fleet.publish(*numbered(20, 2))
    fleet.relay()
    fleet.sandbox.wait(count=10, chat=101, timeout_seconds=PATIENCE_SECONDS)
    assert fleet.texts(100) == []
    fleet.sandbox.wait(count=20, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    assert fleet.texts(100) == [e.text for e in numbered(20, 2) if e.chat == "100"]


def test_wrong_credentials_are_named_and_tried_again(fleet: Fleet) -> None:
    from tests.nats_server import make_user

    fleet.relay(nats_nkey_seed=make_user()[0])
    failed = fleet.until_event(events.ConnectFailed)
    assert failed.operator_fault
    assert failed.setting == "NATS_TELEGRAM_NKEY_SEED"


def test_authorization_removed_and_restored(fleet: Fleet) -> None:
    fleet.relay()
    fleet.publish(*numbered(5, 2))
    fleet.sandbox.wait(count=5, timeout_seconds=PATIENCE_SECONDS)
    fleet.server.worker_allowed = False
    fleet.server.reload()
    fleet.until_event(events.ConnectFailed)
    fleet.server.worker_allowed = True
    fleet.server.reload()
    fleet.until_event(events.Connected, 2)
    fleet.publish(*numbered(5, 2, start=5))
    fleet.sandbox.wait(count=10, timeout_seconds=PATIENCE_SECONDS)


def test_a_missing_stream_is_waited_for(fleet: Fleet) -> None:
    fleet.relay(stream="OTHER", subject="other.outbound", durable="tg_outbound")
    failed = fleet.until_event(events.BindFailed)
    assert failed.operator_fault


def test_a_missing_bucket_costs_nothing_but_a_warning(fleet: Fleet) -> None:
    with fleet.server.client() as client:
        client.api("STREAM.DELETE.KV_telegram_state")
    fleet.relay()
    fleet.publish(*numbered(5, 2))
    fleet.sandbox.wait(count=5, timeout_seconds=PATIENCE_SECONDS)
    assert "provision" in fleet.until_event(events.StateUnavailable).reason


def test_a_differing_consumer_is_updated_and_what_we_do_not_know_is_kept(fleet: Fleet) -> None:
    config = {
        "durable_name": "tg_outbound",
        "name": "tg_outbound",
        "ack_policy": "explicit",
        "max_deliver": 5,
        "metadata": {"team": "ops"},
        "filter_subject": "telegram.outbound",
    }
    with fleet.server.client() as client:
        client.api(
            "CONSUMER.CREATE.TELEGRAM_OUTBOUND.tg_outbound.telegram.outbound",
            {"stream_name": "TELEGRAM_OUTBOUND", "config": config, "action": "create"},
        )
    fleet.relay()
    updated = fleet.until_event(events.ConsumerUpdated)
    assert any("max_deliver" in d for d in updated.differences)
    found = fleet.server.consumer()["config"]
    assert found["max_deliver"] == -1
    assert found["metadata"]["team"] == "ops"


def test_a_finite_max_deliver_that_may_not_be_changed_loses_nothing(fleet: Fleet) -> None:
    config = {
        "durable_name": "tg_outbound",
        "name": "tg_outbound",
        "ack_policy": "explicit",
        "max_deliver": 1,
        "filter_subject": "telegram.outbound",
    }
    with fleet.server.client() as client:
        client.api(
            "CONSUMER.CREATE.TELEGRAM_OUTBOUND.tg_outbound.telegram.outbound",
            {"stream_name": "TELEGRAM_OUTBOUND", "config": config, "action": "create"},
        )
    fleet.server.worker_permissions = """{
      publish: { allow: [
        "$JS.API.STREAM.INFO.TELEGRAM_OUTBOUND", "$JS.API.STREAM.MSG.GET.TELEGRAM_OUTBOUND"
        "$JS.API.CONSUMER.INFO.TELEGRAM_OUTBOUND.tg_outbound"
        "$JS.API.CONSUMER.MSG.NEXT.TELEGRAM_OUTBOUND.tg_outbound", "$JS.ACK.>"
        "$JS.API.STREAM.INFO.KV_telegram_state", "$JS.API.STREAM.MSG.GET.KV_telegram_state"
        "$KV.telegram_state.>"
      ] }
      subscribe: { allow: ["_INBOX.tg_outbound.>"] } }"""
    fleet.server.reload()
    fleet.sandbox.set_fault("srv_restart", times=1)
    fleet.relay()
    assert fleet.until_event(events.ConsumerDiffers).finite_max_deliver == 1
    fleet.publish(*numbered(3, 1))
    fleet.sandbox.wait(count=3, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    assert fleet.texts() == [e.text for e in numbered(3, 1)]


def test_a_missing_permission_is_named(fleet: Fleet) -> None:
    fleet.server.worker_permissions = """{
      publish: { allow: ["$JS.API.STREAM.INFO.TELEGRAM_OUTBOUND"] }
      subscribe: { allow: ["_INBOX.tg_outbound.>"] } }"""
    fleet.server.reload()
    fleet.relay()
    failed = fleet.until_event(events.BindFailed)
    assert failed.operator_fault
    assert "permission" in failed.cause
    assert "CONSUMER.INFO" in failed.cause


def test_a_frozen_server_stops_sending_and_resumes(fleet: Fleet) -> None:
    fleet.relay()
    fleet.publish(*numbered(20, 2))
    fleet.sandbox.wait(count=20, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    fleet.server.signal(signal.SIGSTOP)
    fleet.until_event(events.ConnectionLost)
    fleet.server.signal(signal.SIGCONT)
    fleet.publish(*numbered(20, 2, start=20))
    fleet.sandbox.wait(count=40, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    assert len(fleet.sandbox.messages()) == 40


def test_leases_are_kept_through_a_hold_longer_than_ack_wait(fleet: Fleet) -> None:
    fleet.sandbox.set_fault("flood", chat=100, times=1, retry_after=5)
    fleet.publish(*numbered(20, 2))
    fleet.relay(ack_wait_seconds=2)
    fleet.sandbox.wait(count=20, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    assert fleet.texts(100) == [e.text for e in numbered(20, 2) if e.chat == "100"]
    assert not fleet.of(events.LeaseLapsed)


def test_what_is_refused_is_a_dead_letter_before_it_is_termed(fleet: Fleet) -> None:
    fleet.sandbox.set_fault("chat_blocked", chat=100)
    fleet.relay()
    fleet.publish(*numbered(4, 2))
    fleet.until(lambda: sum(e.settled == "term" for e in fleet.of(events.Attempted)) == 2)
    fleet.assert_nothing_left()
    with fleet.server.client() as client:
        assert client.api("STREAM.INFO.TELEGRAM_DEAD")["state"]["messages"] == 2
        stored = client.api("STREAM.MSG.GET.TELEGRAM_DEAD", {"seq": 1})["message"]
    assert decode(base64.b64decode(stored["data"])) == numbered(1, 1)[0]
    headers = base64.b64decode(stored["hdrs"]).decode()
    for line in (
        "Tg-Orig-Msg-Id: m0",
        "Tg-Dead-Reason: refused",
        "Tg-Error-Code: 403",
        "Tg-Description: Forbidden: bot was blocked by the user",
        "Tg-Stream-Seq: 1",
    ):
        assert f"{line}\r\n" in headers
    assert fleet.texts(101) == ["text 1", "text 3"]


def test_while_a_dead_letter_cannot_be_stored_only_the_storing_is_tried_again(fleet: Fleet) -> None:
    fleet.server.worker_permissions = """{
      publish: { deny: ["telegram.dead"] }, subscribe: { allow: ["_INBOX.tg_outbound.>"] } }"""
    fleet.server.reload()
    fleet.sandbox.set_fault("chat_blocked", chat=100, times=1)
    fleet.relay()
    fleet.publish(*numbered(3, 1))
    fleet.until_event(events.DeadLetterDelayed)
    fleet.sandbox.wait(count=2, chat=100, timeout_seconds=PATIENCE_SECONDS)  # the lane goes on
    assert fleet.server.consumer()["num_ack_pending"] == 1
    fleet.server.worker_permissions = "$TELEGRAM_CONNECTOR"
    fleet.server.reload()
    fleet.assert_nothing_left()
    with fleet.server.client() as client:
        assert client.api("STREAM.INFO.TELEGRAM_DEAD")["state"]["messages"] == 1
    assert len(fleet.sandbox.requests(method="sendMessage", chat=100)) == 3


def test_without_a_dead_letter_stream_a_refused_message_is_termed_and_said(fleet: Fleet) -> None:
    with fleet.server.client() as client:
        client.api("STREAM.DELETE.TELEGRAM_DEAD")
    fleet.sandbox.set_fault("chat_blocked", chat=100, times=1)
    fleet.relay()
    fleet.until_event(events.DeadStreamMissing)
    fleet.publish(*numbered(2, 1))
    fleet.sandbox.wait(count=1, chat=1, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    assert "NOT STORED as a dead letter, stream sequence 1" in fleet.texts(1)[0]


def test_messages_removed_unseen_are_reported_with_their_range(fleet: Fleet) -> None:
    first = fleet.relay()
    fleet.publish(*numbered(3, 1))
    fleet.sandbox.wait(count=3, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    first.stop(10)
    fleet.publish(*numbered(10, 1, start=3))
    with fleet.server.client() as client:
        client.api("STREAM.PURGE.TELEGRAM_OUTBOUND", {"keep": 2})
    fleet.relay()
    removed = fleet.until_event(events.RemovedUnseen)
    assert (removed.first_sequence, removed.last_sequence) == (4, 11)
    fleet.sandbox.wait(count=5, chat=100, timeout_seconds=PATIENCE_SECONDS)


def test_a_stream_that_had_lost_messages_before_us_is_no_fault(fleet: Fleet) -> None:
    fleet.publish(*numbered(10, 1))
    with fleet.server.client() as client:
        client.api("STREAM.PURGE.TELEGRAM_OUTBOUND", {"keep": 2})
    fleet.relay()
    fleet.sandbox.wait(count=2, timeout_seconds=PATIENCE_SECONDS)
    assert not fleet.of(events.RemovedUnseen)


def test_alerts_are_events_on_nats_too(fleet: Fleet) -> None:
    heard = fleet.server.listen("telegram.alerts")
    fleet.sandbox.set_fault("chat_blocked", chat=100, times=1)
    fleet.relay()
    fleet.publish(*numbered(1, 1))
    event = json.loads(heard.get(timeout=PATIENCE_SECONDS))
    assert (event["type"], event["count"], event["first"]["msg_id"]) == ("dropped", 1, "m0")
    assert "text 0" not in json.dumps(event)


def test_a_second_relay_on_the_same_durable_doubles_nothing(fleet: Fleet) -> None:
    fleet.relay()
    fleet.relay()
    fleet.publish(*numbered(200, 10))
    fleet.sandbox.wait(count=200, timeout_seconds=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    assert sorted(fleet.texts()) == sorted(e.text for e in numbered(200, 10))
