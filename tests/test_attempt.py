"""One attempt: what is tried again at once, and what getMe is asked about."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from telegram_connector.attempt import CONNECT_PAUSES_SECONDS, Attempt, Surroundings, attempt
from telegram_connector.delivery import Delivery, DeliveryId
from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Disposition,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.ledger import NullLedger, Outgoing

DELIVERY = Delivery(DeliveryId("S", 1, 1), b"", {}, "", 1, 99.0)
ENVELOPE = TelegramOutbound(msg_id="m1", text="hello")
DOWN = Unavailable("no connection")
BROKEN = Transient(502, "Bad Gateway")
DOUBT = Ambiguous("no answer in time")
WELL = Sent(None)


class Scene:
    """A Bot API that answers from a script, and the surroundings that an attempt asks."""

    def __init__(
        self,
        sends: Sequence[Disposition] = (),
        me: Disposition = WELL,
        *,
        several: bool = False,
        stopping: bool = False,
    ) -> None:
        self._sends = list(sends)
        self._me = me
        self._several = several
        self._stopping = stopping
        self.calls: list[tuple[object, ...]] = []
        self.pauses: list[float] = []
        self.noted = 0

    def send(
        self, envelope: TelegramOutbound, chat_id: str, deadline: float, *, number: int | None = None
    ) -> Disposition:
        self.calls.append(("send", envelope, chat_id, deadline, number))
        return self._sends.pop(0)

    def get_me(self, deadline: float, *, number: int | None = None) -> Disposition:
        self.calls.append(("getMe", deadline, number))
        return self._me

    def abort(self, number: int | None = None) -> bool:
        raise AssertionError("nobody asked for that")

    def close(self) -> None:
        raise AssertionError("nobody asked for that")

    @property
    def methods(self) -> list[object]:
        return [call[0] for call in self.calls]

    def play(self, envelope: TelegramOutbound = ENVELOPE) -> Attempt:
        def pause(seconds: float) -> bool:
            if seconds:
                self.pauses.append(seconds)
            return self._stopping

        def several_chats_err() -> bool:
            self.noted += 1
            return self._several

        around = Surroundings(99.0, pause, several_chats_err)
        result = attempt(Outgoing(DELIVERY, envelope, "7"), self, NullLedger(), around, 5)
        assert not self._sends, "not asked as often as the script says"
        return result


@pytest.mark.parametrize(
    "disposition",
    [
        Sent(1),
        Terminal(403, "blocked"),
        Transient(429, "slow down", 3.0),
        Transient(408, ""),
        Migrated("-100"),
        BotFault(401, "Unauthorized"),
    ],
)
def test_an_answer_that_speaks_for_itself_is_taken_as_it_is(disposition: Disposition):
    scene = Scene([disposition])
    assert scene.play() == Attempt(disposition)
    assert scene.calls == [("send", ENVELOPE, "7", 99.0, 5)]
    assert scene.noted == 0


# Connections never made


def test_a_connection_never_made_is_tried_three_times():
    scene = Scene([DOWN, DOWN, DOWN])
    assert scene.play() == Attempt(DOWN)
    assert scene.pauses == list(CONNECT_PAUSES_SECONDS)
    assert scene.methods == ["send"] * 3


@pytest.mark.parametrize("failures", [1, 2])
def test_the_first_connection_that_is_made_decides(failures: int):
    scene = Scene([DOWN] * failures + [Terminal(403, "blocked")])
    assert scene.play() == Attempt(Terminal(403, "blocked"))


def test_a_message_in_doubt_is_never_tried_again_at_once():
    scene = Scene([DOWN, DOUBT])
    assert scene.play() == Attempt(DOUBT)


def test_stopping_ends_the_tries():
    assert Scene([DOWN], stopping=True).play() == Attempt(DOWN)


# Server errors


def test_a_server_error_is_the_messages_own_while_getme_is_answered():
    scene = Scene([BROKEN])
    assert scene.play() == Attempt(BROKEN)
    assert (scene.methods, scene.noted) == (["send", "getMe"], 1)
    assert scene.calls[1] == ("getMe", 99.0, 5)


@pytest.mark.parametrize("me", [BROKEN, DOWN, DOUBT, Transient(429, "", 1.0), Terminal(400, "")])
def test_a_server_error_with_getme_failing_too_is_an_outage(me: Disposition):
    assert Scene([BROKEN], me).play() == Attempt(Unavailable("Bad Gateway", 502))


def test_a_server_error_with_getme_refused_is_the_bots_fault():
    me = BotFault(401, "Unauthorized")
    assert Scene([BROKEN], me).play() == Attempt(me)


def test_server_errors_from_several_chats_are_an_outage_without_asking():
    scene = Scene([BROKEN], several=True)
    assert scene.play() == Attempt(Unavailable("Bad Gateway", 502))
    assert scene.methods == ["send"]


def test_a_server_error_after_a_connection_never_made_is_looked_into_all_the_same():
    scene = Scene([DOWN, BROKEN])
    assert scene.play() == Attempt(BROKEN)
    assert scene.methods == ["send", "send", "getMe"]


# Messages in doubt


def test_a_message_in_doubt_alone_holds_nobody_else():
    scene = Scene([DOUBT])
    assert scene.play() == Attempt(DOUBT, outage="")
    assert scene.methods == ["send", "getMe"]


@pytest.mark.parametrize("me", [BROKEN, DOWN, DOUBT, BotFault(401, "Unauthorized")])
def test_a_message_in_doubt_with_getme_failing_stays_in_doubt_and_tells_of_an_outage(me: Disposition):
    assert Scene([DOUBT], me).play() == Attempt(DOUBT, outage="no answer in time")


@pytest.mark.parametrize(
    ("disposition", "result"),
    [(DOUBT, Attempt(DOUBT)), (BROKEN, Attempt(Unavailable("Bad Gateway", 502)))],
)
def test_stopping_asks_getme_nothing(disposition: Disposition, result: Attempt):
    """The budget of a stop is for settling; a getMe could take what is left of it."""
    scene = Scene([disposition], stopping=True)
    assert scene.play() == result
    assert scene.methods == ["send"]


# Parked: only a refusal proves that nothing was sent

PARKED = TelegramOutbound(msg_id="m1", text="hello", on_ambiguous="park")


def test_parked_a_message_in_doubt_is_not_tried_again():
    scene = Scene([DOUBT])
    assert scene.play(PARKED) == Attempt(Ambiguous("no answer in time", parked=True))
    assert scene.methods == ["send", "getMe"]


def test_parked_a_server_error_is_in_doubt():
    scene = Scene([BROKEN])
    assert scene.play(PARKED) == Attempt(Ambiguous("Bad Gateway", 502, parked=True))


def test_parked_server_errors_from_several_chats_hold_the_bot():
    scene = Scene([BROKEN], several=True)
    assert scene.play(PARKED) == Attempt(Ambiguous("Bad Gateway", 502, parked=True), outage="Bad Gateway")


@pytest.mark.parametrize(
    "refused", [Terminal(403, "blocked"), Transient(429, "slow down", 3.0), BotFault(401, ""), DOWN]
)
def test_parked_what_was_surely_not_sent_is_as_ever(refused: Disposition):
    sends = [refused] * (3 if refused is DOWN else 1)
    assert Scene(sends).play(PARKED) == Attempt(refused)


# Replies


def test_a_reply_to_a_message_of_ours_takes_a_ledger():
    scene = Scene()
    result = scene.play(TelegramOutbound(msg_id="m1", text="hello", reply_to="m0"))
    assert result == Attempt(Terminal(0, "reply_to names a msg_id, which takes TG_LEDGER=kv"))
    assert scene.calls == []


def test_without_one_it_goes_out_as_no_reply_where_the_envelope_allows_it():
    scene = Scene([WELL])
    envelope = TelegramOutbound(msg_id="m1", text="hello", reply_to="m0", allow_sending_without_reply=True)
    assert scene.play(envelope) == Attempt(WELL)
    assert scene.calls == [("send", envelope, "7", 99.0, 5)]
