"""The worker against fakes: what each disposition leads to, order, holds, pauses and stopping."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from telegram_connector import events
from telegram_connector.alerts import Alerts
from telegram_connector.clock import LeaseClock
from telegram_connector.delivery import DeliveryId, Reset, Taken
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Concluded,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.ledger import Ledger, NullLedger, Outgoing
from telegram_connector.pacing import Rates
from telegram_connector.settlement import Policy
from telegram_connector.state import State
from telegram_connector.worker import Rules, Worker
from tests.fakes import FakeApi, FakeSource, FakeStore, HandClock, make_delivery


def in_seconds(seconds: float) -> str:
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).isoformat()


class Rig:
    """A worker with fakes around it, and a clock that a test moves."""

    def __init__(
        self,
        senders: int = 1,
        max_attempts: int = 3,
        max_age: float | None = None,
        rates: Rates | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self.clock = HandClock()
        self.source = FakeSource()
        self.api = FakeApi(self.source)
        self.store = FakeStore()
        self.events: list[events.Event] = []
        self.alerts = Alerts("tg_outbound", tell_chat=True)
        self.deaths: list[tuple[str, BaseException]] = []
        self.worker = Worker(
            self.source,
            [self.api] * senders,
            State(self.store, self.observe),
            Policy(ack_wait_seconds=60.0, max_attempts=max_attempts, backoff_seconds=30.0),
            Rules("1", 1000, max_age, rates),
            self.alerts,
            observe=self.observe,
            on_death=lambda name, error: self.deaths.append((name, error)),
            random=lambda: 0.5,
            lease_clock=LeaseClock(self.clock, self.clock),
            ledger=ledger,
            clock=self.clock,
            wall=lambda: time.time() + self.clock.ahead,
        )

    def observe(self, event: events.Event) -> None:
        self.events.append(event)
        self.alerts.observe(event)
        self.source.note()

    def of(self, kind: type) -> list:
        return [e for e in self.events if isinstance(e, kind)]

    def advance(self, seconds: float) -> None:
        """Move the clock, and wake whoever waits for it."""
        self.clock.ahead += seconds
        self.source.wake()

    def until(self, *told: tuple) -> None:
        self.source.wait_until(lambda: all(t in self.source.told for t in told))

    def until_sent(self, *texts: str) -> None:
        self.source.wait_until(lambda: [t for _, t in self.api.sent] == list(texts))


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.worker.start()
    yield rig
    rig.worker.stop(rig.clock() + 10)
    assert not rig.deaths


# The seeds' three relay tests, by their names.


def test_ack_on_sent(rig: Rig) -> None:
    rig.api.script["hello"] = [Sent(42)]
    rig.source.put(make_delivery(1))
    rig.until(("ack", 1))


def test_nak_on_transient(rig: Rig) -> None:
    rig.api.script["hello"] = [Transient(429, "Too Many Requests: retry after 35", 35.0)]
    rig.source.put(make_delivery(1))
    rig.until(("nak", 1, 35.0))


def test_term_on_terminal(rig: Rig) -> None:
    rig.api.script["hello"] = [Terminal(403, "Forbidden: bot was blocked by the user")]
    rig.source.put(make_delivery(1))
    rig.until(("term", 1, "refused"))
    attempted = rig.of(events.Attempted)[0]
    assert (attempted.settled, attempted.disposition.error_code) == ("term", 403)


def test_a_long_flood_wait_naks_for_ack_wait_and_holds_the_chat_for_all_of_it(rig: Rig) -> None:
    rig.api.script["hello"] = [Transient(429, "retry after 3600", 3600.0)]
    rig.source.put(make_delivery(1))
    rig.until(("nak", 1, 60.0))
    rig.source.put(make_delivery(1, hand_over=2), make_delivery(2, "later"), make_delivery(3, "other", "8"))
    rig.until_sent("other")
    rig.advance(3500)
    rig.source.put(make_delivery(4, "another", "8"))
    rig.until_sent("other", "another")
    rig.advance(200)
    rig.until_sent("other", "another", "hello", "later")


def test_flood_control_costs_no_attempt(rig: Rig) -> None:
    rig.api.script["hello"] = [Transient(429, "retry after 1", 1.0)] * 7
    for n in range(7):
        rig.source.put(make_delivery(1, hand_over=n + 1))
        rig.source.wait_until(lambda n=n: rig.source.told.count(("nak", 1, 1.0)) == n + 1)
        rig.advance(10)
    rig.source.put(make_delivery(1))
    rig.until(("ack", 1))
    assert rig.worker._state.attempts(DeliveryId("S", 1, 1001)) == 0


def test_failures_of_its_own_end_in_giving_up(rig: Rig) -> None:
    rig.api.script["hello"] = [Transient(500, "Internal Server Error: restart")] * 3
    for n, delay in enumerate((31.5, 60.0)):
        rig.source.put(make_delivery(1, hand_over=n + 1))
        rig.source.wait_until(lambda n=n: sum(t[0] == "nak" for t in rig.source.told) == n + 1)
        assert rig.source.told[-1] == ("nak", 1, delay)
        rig.advance(100)
    rig.source.put(make_delivery(1))
    rig.until(("term", 1, "gave_up"))
    assert rig.api.knocks == 3  # each 5xx is followed by a look whether the bot as a whole is well


def test_an_outage_costs_no_message_an_attempt(rig: Rig) -> None:
    rig.api.script["hello"] = [Unavailable("refused")] * 30
    rig.api.script["other"] = [Unavailable("refused")] * 30
    rig.source.put(make_delivery(1), make_delivery(2, "other", "8"))
    for n in range(6):
        rig.source.wait_until(lambda n=n: sum(t[0] == "nak" for t in rig.source.told) >= n + 1)
        given_back = rig.source.told[-1][1]
        rig.advance(70)
        rig.source.put(
            make_delivery(given_back, "hello" if given_back == 1 else "other", "78"[given_back - 1])
        )
    rig.api.script.clear()
    rig.advance(70)
    rig.until(("ack", 1), ("ack", 2))
    assert not any(t[0] == "term" for t in rig.source.told)
    assert rig.of(events.BotReleased)


def test_5xx_from_two_chats_running_is_an_outage(rig: Rig) -> None:
    rig.api.script["hello"] = [Transient(502, "Bad Gateway")]
    rig.api.script["other"] = [Transient(502, "Bad Gateway")]
    rig.source.put(make_delivery(1), make_delivery(2, "other", "8"))
    rig.source.wait_until(lambda: sum(t[0] == "nak" for t in rig.source.told) == 2)
    assert [type(e.disposition) for e in rig.of(events.Attempted)] == [Transient, Unavailable]


def test_a_revoked_token_pauses_and_drops_nothing(rig: Rig) -> None:
    rig.api.script["hello"] = [BotFault(401, "Unauthorized")]
    rig.api.me = [BotFault(401, "Unauthorized")] * 2
    rig.source.put(make_delivery(1), *(make_delivery(n, f"t{n}", str(n)) for n in range(2, 12)))
    rig.until(("nak", 1, 1.05))
    for n in range(2):
        rig.advance(61)
        rig.source.wait_until(lambda n=n: rig.api.knocks == n + 1)
    assert len(rig.api.tried) == 1
    rig.advance(61)
    rig.source.put(make_delivery(1))
    rig.source.wait_until(lambda: len(rig.api.sent) == 11)
    assert rig.api.knocks == 3
    assert all(e.fault for e in rig.of(events.BotHeld))


def test_a_migrated_group_is_followed_and_keeps_its_order(rig: Rig) -> None:
    gate = threading.Event()
    rig.api.script["a"] = [gate, Migrated("-100")]
    rig.source.put(make_delivery(1, "a", "-5"), make_delivery(2, "b", "-5"), make_delivery(3, "c", "-100"))
    rig.source.wait_until(lambda: len(rig.api.tried) == 1)
    gate.set()
    rig.until(("ack", 1), ("ack", 2), ("ack", 3))
    assert rig.api.sent == [("-100", "a"), ("-100", "b"), ("-100", "c")]
    rig.source.put(make_delivery(4, "d", "-5"))
    rig.until(("ack", 4))
    assert rig.api.sent[-1] == ("-100", "d")
    assert [(e.old, e.new) for e in rig.of(events.ChatMigrated)] == [("-5", "-100")]


def test_groups_that_migrate_in_a_circle_do_not_spin(rig: Rig) -> None:
    rig.api.script["a"] = [Migrated("-6"), Migrated("-5")]
    rig.source.put(make_delivery(1, "a", "-5"))
    rig.source.wait_until(lambda: any(t[0] == "nak" for t in rig.source.told))
    assert len(rig.api.tried) == 2


def test_an_unreadable_envelope_is_terminal(rig: Rig) -> None:
    rig.source.put(make_delivery(1, payload=b'{"text": 5}'), make_delivery(2, "next"))
    rig.until(("term", 1, "unreadable"), ("ack", 2))
    assert "text" in rig.of(events.Attempted)[0].disposition.description


def test_a_message_without_chat_goes_to_the_default_chat(rig: Rig) -> None:
    rig.source.put(make_delivery(1, chat=None))
    rig.until(("ack", 1))
    assert rig.api.sent == [("1", "hello")]


def test_a_bug_over_one_message_costs_it_an_attempt_and_spares_the_others(rig: Rig) -> None:
    rig.api.script["hello"] = [ZeroDivisionError("boom")]
    rig.source.put(make_delivery(1), make_delivery(2, "other", "8"))
    rig.until(("ack", 2))
    assert any(t[:2] == ("nak", 1) for t in rig.source.told)
    assert isinstance(rig.of(events.AttemptCrashed)[0].error, ZeroDivisionError)


def test_a_lost_answer_is_tried_again_and_counted(rig: Rig) -> None:
    rig.api.script["hello"] = [Ambiguous("read timeout")]
    rig.source.put(make_delivery(1))
    rig.until(("nak", 1, 31.5))
    assert rig.of(events.Attempted)[0].attempt == 1


def test_what_was_settled_is_not_sent_again_when_the_server_forgets(rig: Rig) -> None:
    rig.api.script["bad"] = [Terminal(400, "no")]
    rig.source.put(make_delivery(1), make_delivery(2, "bad"))
    rig.until(("ack", 1), ("term", 2, "refused"))
    rig.source.put(make_delivery(1), make_delivery(2, "bad"))
    rig.source.wait_until(lambda: rig.source.told.count(("term", 2, "refused")) == 2)
    assert rig.source.told.count(("ack", 1)) == 2
    assert rig.api.tried == [("7", "hello"), ("7", "bad")]


def test_the_same_sequence_of_a_new_stream_is_another_message(rig: Rig) -> None:
    rig.source.put(make_delivery(1))
    rig.until(("ack", 1))
    rig.source.put(Reset("stream"), make_delivery(1, "new", id=DeliveryId("S", 1, 9_999)))
    rig.until_sent("hello", "new")


def test_nothing_is_sent_while_disconnected(rig: Rig) -> None:
    rig.source.allow(False)
    rig.source.put(make_delivery(1))
    rig.source.wait_until(lambda: bool(rig.of(events.Received)))
    assert rig.api.tried == []
    rig.source.allow(True)
    rig.until_sent("hello")


def test_a_lapsed_lease_is_not_sent(rig: Rig) -> None:
    rig.source.allow(False)
    rig.source.put(make_delivery(1, leased_until=rig.clock() + 60))
    rig.source.wait_until(lambda: bool(rig.of(events.Received)))
    rig.advance(61)
    rig.source.allow(True)
    rig.source.wait_until(lambda: bool(rig.of(events.LeaseLapsed)))
    assert rig.api.tried == []
    rig.source.put(make_delivery(1))
    rig.until(("ack", 1))


def test_an_awaited_message_that_left_the_stream_lets_its_chat_go_on(rig: Rig) -> None:
    rig.api.script["hello"] = [Transient(500, "restart")]
    rig.source.put(make_delivery(1), make_delivery(2, "later"))
    rig.source.wait_until(lambda: any(t[0] == "nak" for t in rig.source.told))
    rig.source.in_stream = {1}
    rig.advance(40)
    rig.source.put(make_delivery(3, "other", "8"))
    rig.until_sent("other")
    rig.source.in_stream = set()
    rig.advance(40)
    rig.source.wait_until(lambda: bool(rig.of(events.NotComingBack)))
    rig.until_sent("other", "later")


def test_the_last_hand_over_is_kept_not_given_back(rig: Rig) -> None:
    rig.api.script["hello"] = [Transient(429, "retry after 5", 5.0)]
    rig.source.put(make_delivery(1, last=True))
    rig.source.wait_until(lambda: bool(rig.of(events.Attempted)))
    rig.advance(6)
    rig.until(("ack", 1))
    assert [t[0] for t in rig.source.told] == ["ack"]


def test_a_differing_msg_id_header_is_said_and_the_body_counts(rig: Rig) -> None:
    rig.source.put(make_delivery(1, headers={"Nats-Msg-Id": "other"}))
    rig.until(("ack", 1))
    (event,) = rig.of(events.MsgIdDiffers)
    assert (event.subject.nats_msg_id, event.header) == ("m1", "other")


def test_stopping_gives_back_in_stream_order_and_finishes_the_send(rig: Rig) -> None:
    gate = threading.Event()
    rig.api.script["slow"] = [gate]
    rig.source.put(
        make_delivery(1, "slow"),
        make_delivery(4, "behind"),
        make_delivery(3, "other", "8"),
        make_delivery(2, "third", "9"),
    )
    rig.source.wait_until(lambda: len(rig.of(events.Received)) == 4 and bool(rig.api.tried))
    stopping = threading.Thread(target=rig.worker.stop, args=(rig.clock() + 20,))
    stopping.start()
    rig.until(("nak", 2, 0.0), ("nak", 3, 0.0))
    assert ("nak", 4, 0.0) not in rig.source.told
    gate.set()
    stopping.join()
    assert rig.source.told == [("nak", 2, 0.0), ("nak", 3, 0.0), ("ack", 1), ("nak", 4, 0.0)]


def test_a_send_that_never_ends_is_cut_off_by_the_budget() -> None:
    rig = Rig()
    rig.worker.start()
    rig.api.script["slow"] = [threading.Event(), Ambiguous("cut off")]
    rig.source.put(make_delivery(1, "slow"), make_delivery(2, "behind"))
    rig.source.wait_until(lambda: len(rig.of(events.Received)) == 2 and bool(rig.api.tried))
    rig.worker.stop(rig.clock() + 2)
    assert rig.api.aborted
    assert [t[:2] for t in rig.source.told] == [("nak", 1), ("nak", 2)]


def test_what_waits_behind_a_send_that_cannot_be_cut_off_is_not_given_back_before_it() -> None:
    rig = Rig()
    rig.api.heeds_abort = False
    gate = threading.Event()
    rig.worker.start()
    rig.api.script["slow"] = [gate]
    rig.source.put(make_delivery(1, "slow"), make_delivery(2, "behind"), make_delivery(3, "other", "8"))
    rig.source.wait_until(lambda: len(rig.of(events.Received)) == 3 and bool(rig.api.tried))
    rig.worker.stop(rig.clock() + 0.2)
    assert rig.source.told == [("nak", 3, 0.0)]
    gate.set()
    rig.until(("ack", 1))


def test_a_dead_thread_is_reported() -> None:
    rig = Rig()

    def die(_timeout: float) -> None:
        raise RuntimeError("bug")

    rig.source.next = die  # type: ignore[method-assign]
    rig.worker.start()
    rig.source.wait_until(lambda: bool(rig.of(events.ThreadDied)))
    assert rig.deaths[0][0] == "reader"
    rig.source.next = lambda _timeout: None  # type: ignore[method-assign]
    rig.worker.stop(rig.clock() + 5)


def test_several_senders_serve_different_chats_at_once_and_one_chat_in_order() -> None:
    rig = Rig(senders=3)
    gates = {text: threading.Event() for text in ("a", "c")}
    rig.api.script["a"] = [gates["a"]]
    rig.api.script["c"] = [gates["c"]]
    rig.worker.start()
    rig.source.put(make_delivery(1, "a"), make_delivery(2, "b"), make_delivery(3, "c", "8"))
    rig.source.wait_until(lambda: {t for _, t in rig.api.tried} == {"a", "c"})
    gates["c"].set()
    rig.until(("ack", 3))
    assert ("7", "b") not in rig.api.tried
    gates["a"].set()
    rig.until(("ack", 1), ("ack", 2))
    rig.worker.stop(rig.clock() + 10)
    assert [t for c, t in rig.api.sent if c == "7"] == ["a", "b"]


def test_a_paced_chat_waits_for_its_turn_and_its_neighbour_does_not() -> None:
    rig = Rig(senders=2, rates=Rates())
    rig.worker.start()
    rig.source.put(make_delivery(1, "a", "-7"), make_delivery(2, "b", "-7"), make_delivery(3, "c", "8"))
    rig.until(("ack", 1), ("ack", 3))
    assert ("-7", "b") not in rig.api.tried
    rig.advance(2.5)  # some of the three seconds is left, and passes by itself
    rig.until(("ack", 2))
    rig.worker.stop(rig.clock() + 10)
    assert not rig.deaths


def test_what_pacing_delays_is_said_once_and_sent_in_its_turn() -> None:
    rig = Rig(rates=Rates(group_per_minute=1.0))
    rig.worker.start()
    rig.source.put(make_delivery(1, "a", "-7"), make_delivery(2, "b", "-7"), make_delivery(3, "c", "-7"))
    rig.until(("ack", 1))
    rig.advance(11)
    rig.source.wait_until(lambda: len(rig.of(events.Delayed)) == 2)
    rig.advance(50)
    rig.until(("ack", 2))
    rig.worker.stop(rig.clock() + 10)
    assert [e.subject.stream_seq for e in rig.of(events.Delayed)] == [2, 3]
    assert ("nak", 3, 0.0) in rig.source.told, "given back, not dropped"


def test_a_refusal_slows_its_chat_down_while_pacing_is_on() -> None:
    rig = Rig(rates=Rates())
    rig.api.script["a"] = [Transient(429, "retry after 5", 5.0)]
    rig.worker.start()
    rig.source.put(make_delivery(1, "a"), make_delivery(2, "b"), make_delivery(3, "c"))
    rig.until(("nak", 1, 5.0))
    rig.advance(6)
    rig.source.put(make_delivery(1, "a", hand_over=2))
    rig.until(("ack", 1))
    assert ("7", "b") not in rig.api.tried, "no burst after a refusal"
    rig.advance(3)
    rig.until(("ack", 2))
    assert ("7", "c") not in rig.api.tried
    rig.worker.stop(rig.clock() + 10)


def test_attempts_and_migrations_outlive_the_process(rig: Rig) -> None:
    rig.api.script["hello"] = [Transient(500, "restart")]
    rig.api.script["a"] = [Migrated("-100")]
    rig.source.put(make_delivery(1), make_delivery(2, "a", "-5"))
    rig.until(("ack", 2))
    rig.worker.stop(rig.clock() + 10)
    again = Rig()
    again.store.documents = dict(rig.store.documents)
    again.worker.start()
    again.api.script["hello"] = [Transient(500, "restart")]
    again.source.put(make_delivery(1), make_delivery(3, "b", "-5"))
    again.until(("ack", 3))
    assert again.api.sent == [("-100", "b")]
    (held,) = again.of(events.ChatHeld)  # the backoff of the failed one goes on too
    assert (held.chat, 20 < held.seconds < 32) == ("7", True)
    again.advance(40)
    again.source.wait_until(lambda: len(again.of(events.Attempted)) == 2)
    assert again.of(events.Attempted)[1].attempt == 2
    again.worker.stop(again.clock() + 10)


def test_stopping_gives_a_held_chat_back_for_later_and_behind_what_was_nakd(rig: Rig) -> None:
    rig.api.script["flooded"] = [Transient(429, "retry after 20", 20.0)]
    rig.api.script["failing"] = [Transient(500, "restart")]
    rig.source.put(make_delivery(1, "flooded"), make_delivery(2, "failing", "8"))
    rig.until(("nak", 1, 20.0), ("nak", 2, 31.5))
    rig.source.put(make_delivery(3), make_delivery(4, "b", "8"), make_delivery(5, "c"))
    rig.source.wait_until(lambda: len(rig.of(events.Received)) == 5)
    rig.worker.stop(rig.clock() + 10)
    delays = {t[1]: t[2] for t in rig.source.told[2:]}
    assert list(delays) == [3, 4, 5]
    assert 20 < delays[3] < 22
    assert 31 < delays[4] < 33


def test_two_poisonous_messages_do_not_close_the_bot_again_and_again(rig: Rig) -> None:
    rig.api.script["hello"] = rig.api.script["other"] = [Transient(500, "restart")] * 9
    rig.source.put(make_delivery(1), make_delivery(2, "other", "8"))
    rig.source.wait_until(lambda: sum(t[0] == "nak" for t in rig.source.told) == 2)
    assert {e.chat for e in rig.of(events.ChatHeld)} == {"7", "8"}


def test_a_chat_that_migrated_while_its_send_was_out_is_no_circle(rig: Rig) -> None:
    gate = threading.Event()
    rig.api.script["a"] = [gate, Migrated("-100")]
    rig.source.put(make_delivery(1, "a", "-5"))
    rig.source.wait_until(lambda: len(rig.api.tried) == 1)
    with rig.worker._changed:
        rig.worker._lanes.migrate("-5", "-100")
    gate.set()
    rig.until(("ack", 1))
    assert rig.api.tried == [("-5", "a"), ("-100", "a")]


# Dead letters, expiry, alerts


def test_what_is_refused_is_kept_as_a_dead_letter_and_told(rig: Rig) -> None:
    rig.api.script["hello"] = [Terminal(403, "Forbidden: bot was blocked by the user")]
    rig.source.put(make_delivery(1))
    rig.until(("term", 1, "refused"))
    assert rig.source.dead[0].headers["Tg-Error-Code"] == "403"
    rig.source.wait_until(lambda: len(rig.api.sent) == 1)
    chat, text = rig.api.sent[0]
    assert (chat, text.startswith("dropped msg_id=m1 error_code=403")) == ("1", True)
    assert [e["type"] for e in rig.source.announced] == ["dropped"]


def test_without_a_stream_for_them_it_is_termed_and_said(rig: Rig) -> None:
    rig.source.keeps = False
    rig.api.script["hello"] = [Terminal(403, "Forbidden")]
    rig.source.put(make_delivery(1))
    rig.until(("term", 1, "refused"))
    rig.source.wait_until(lambda: len(rig.api.sent) == 1)
    assert rig.source.dead == []
    assert "NOT STORED" in rig.api.sent[0][1]


def test_a_failed_alert_begets_none(rig: Rig) -> None:
    rig.api.refuse_all = Terminal(403, "Forbidden")
    rig.source.put(make_delivery(1))
    rig.source.wait_until(lambda: bool(rig.of(events.AlertFailed)))
    rig.advance(120)
    rig.source.put(make_delivery(2))
    rig.source.wait_until(lambda: len(rig.of(events.AlertFailed)) == 2)
    assert [t[0] for t in rig.source.told] == ["term", "term"]
    assert len(rig.api.tried) == 4


def test_an_alert_waits_for_its_chats_hold_and_obeys_flood_control(rig: Rig) -> None:
    rig.api.script["flooded"] = [Transient(429, "retry after 30", 30.0)]
    rig.source.put(make_delivery(1, "flooded", chat=None))
    rig.until(("nak", 1, 30.0))
    rig.api.script["bad"] = [Terminal(400, "no")]
    rig.source.put(make_delivery(2, "bad", "8"))
    rig.until(("term", 2, "refused"))
    rig.source.wait_until(lambda: bool(rig.source.announced))
    rig.source.put(make_delivery(3, "other", "8"))
    rig.until(("ack", 3))
    assert [t for _, t in rig.api.sent] == ["other"]
    rig.api.refuse_next_alert = Transient(429, "retry after 30", 30.0)
    rig.advance(40)
    rig.source.wait_until(lambda: len(rig.of(events.ChatHeld)) == 2)
    rig.advance(40)
    rig.source.wait_until(lambda: any(t.startswith("dropped") for _, t in rig.api.sent))


def test_an_alert_follows_its_group_and_so_does_all_else(rig: Rig) -> None:
    rig.api.script["bad"] = [Terminal(400, "no")]
    rig.api.refuse_next_alert = Migrated("-1007")
    rig.source.put(make_delivery(1, "bad", "8"))
    rig.source.wait_until(lambda: len(rig.api.sent) == 2)
    assert [(chat, text.split()[0]) for chat, text in rig.api.sent] == [
        ("-1007", "dropped"),
        ("-1007", "group"),
    ]
    assert not rig.of(events.AlertFailed)
    rig.source.put(make_delivery(2, "to the default chat", chat=None))
    rig.until(("ack", 2))
    assert rig.api.sent[-1] == ("-1007", "to the default chat")


def test_an_alert_whose_group_migrates_in_a_circle_is_given_up(rig: Rig) -> None:
    rig.api.script["bad"] = [Terminal(400, "no")]
    rig.api.refuse_next_alert = Migrated("1")
    rig.source.put(make_delivery(1, "bad", "8"))
    rig.source.wait_until(lambda: bool(rig.of(events.AlertFailed)))
    assert rig.api.sent == []


def test_a_message_that_expired_is_not_sent(rig: Rig) -> None:
    late = TelegramOutbound(msg_id="a", chat="7", text="late", expires_at="2020-01-01T00:00:00.123456789Z")
    early = TelegramOutbound(msg_id="b", chat="7", text="early", expires_at="2999-01-01T00:00:00+02:00")
    rig.source.put(make_delivery(1, envelope=late), make_delivery(2, envelope=early))
    rig.until(("term", 1, "expired"), ("ack", 2))
    assert rig.source.dead[0].headers["Tg-Dead-Reason"] == "expired"
    assert [t for _, t in rig.api.tried if not t.startswith("dropped")] == ["early"]


def test_too_old_for_the_setting_or_the_stream() -> None:
    for rig in (Rig(max_age=60.0), Rig()):
        rig.source.max_age = 86400.0
        rig.worker.start()
        now_ns = int(time.time() * 1e9)
        old = 3600 if rig.worker._rules.max_age_seconds else 86400 - 599
        rig.source.put(
            make_delivery(1, "old", id=DeliveryId("S", 1, now_ns - old * 10**9)),
            make_delivery(2, "new", id=DeliveryId("S", 2, now_ns)),
        )
        rig.until(("term", 1, "expired"), ("ack", 2))
        rig.worker.stop(rig.clock() + 10)


def test_expiry_goes_on_during_a_hold_and_a_pause(rig: Rig) -> None:
    rig.api.script["hello"] = [BotFault(401, "Unauthorized")]
    rig.api.me = [BotFault(401, "Unauthorized")] * 99
    soon = TelegramOutbound(msg_id="a", chat="8", text="soon", expires_at=in_seconds(30))
    rig.source.put(make_delivery(1), make_delivery(2, envelope=soon))
    rig.source.wait_until(lambda: len(rig.of(events.Received)) == 2 and bool(rig.of(events.BotHeld)))
    rig.advance(40)
    rig.until(("term", 2, "expired"))
    assert [t for _, t in rig.api.tried] == ["hello"]


def test_ten_thousand_refused_messages_are_a_handful_of_alerts() -> None:
    rig = Rig()
    rig.worker._rules = Rules("1", 20_000)
    rig.worker._lanes.max_pending = 20_000
    rig.api.refuse_texts = {"bad": Terminal(403, "Forbidden: bot was blocked by the user")}
    rig.worker.start()
    rig.source.put(*(make_delivery(n, "bad", str(n % 50 + 2)) for n in range(1, 10_001)))
    rig.source.put(*(make_delivery(n, f"good {n}", str(n)) for n in range(10_001, 10_011)))
    rig.source.wait_until(lambda: sum(t[0] == "term" for t in rig.source.told) == 10_000)
    rig.source.wait_until(lambda: sum(t[0] == "ack" for t in rig.source.told) == 10)
    rig.advance(61)
    rig.source.wait_until(lambda: sum(e.get("count", 0) for e in rig.source.announced) == 10_000)
    rig.source.wait_until(lambda: sum(t.startswith("dropped") for _, t in rig.api.sent) >= 1)
    rig.worker.stop(rig.clock() + 10)
    assert len(rig.source.announced) <= 3
    assert sum(t.startswith("dropped") for _, t in rig.api.sent) <= 3


def test_what_comes_back_twice_counts_once_of_what_a_predecessor_had_out(rig: Rig) -> None:
    first, second = make_delivery(1, "first", "7"), make_delivery(2, "second", "8")
    taken = Taken(((first.id, first.payload), (second.id, second.payload)), 2, 2, 60.0)
    rig.api.script["first"] = [Transient(503, "Service Unavailable")]
    rig.source.put(taken, first)
    rig.source.wait_until(lambda: any(told[:2] == ("nak", 1) for told in rig.source.told))
    rig.advance(40.0)
    rig.source.put(make_delivery(1, "first", "7", hand_over=2), make_delivery(3, "third", "8"))
    rig.until_sent("first")
    rig.source.put(make_delivery(2, "second", "8", hand_over=2))
    rig.until_sent("first", "second", "third")


class SaysSent(NullLedger):
    """A ledger by whose word everything was sent."""

    def settled(self, outgoing: Outgoing) -> Concluded:
        return Concluded("sent")


def test_what_expires_while_its_chat_is_held_may_have_been_sent_in_time() -> None:
    rig = Rig(ledger=SaysSent())
    rig.worker.start()
    rig.api.script["flooded"] = [Transient(429, "retry after 3600", 3600.0)]
    rig.source.put(make_delivery(1, "flooded"))
    rig.until(("nak", 1, 60.0))
    soon = TelegramOutbound(msg_id="b", chat="7", text="soon", expires_at=in_seconds(30))
    rig.source.put(make_delivery(2, envelope=soon, hand_over=2))
    rig.source.wait_until(lambda: len(rig.of(events.Received)) == 2)
    rig.advance(40.0)
    rig.until(("ack", 2))
    assert not rig.source.dead
    rig.worker.stop(rig.clock() + 10)
    assert not rig.deaths
