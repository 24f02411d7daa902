"""The dead letter of a delivery, and what is made of it."""

from __future__ import annotations

import pytest

from telegram_connector.deadletter import MAX_HEADER_LENGTH, Letter, copy, dead_letter
from telegram_connector.delivery import DeliveryId
from telegram_connector.disposition import Terminal
from telegram_connector.envelope import TelegramOutbound, decode
from telegram_connector.errors import EnvelopeError
from telegram_connector.marks import Change
from tests.fakes import make_delivery

REFUSED = Terminal(403, "Forbidden: bot was blocked by the user")


def test_bytes_are_the_publishers_and_headers_say_what_became_of_them():
    delivery = make_delivery(
        7,
        id=DeliveryId("S", 7, 1_700_000_000_123_456_789),
        payload=b"\x00not even JSON",
        headers={"Nats-Msg-Id": "m7", "nats-expected-stream": "S", "traceparent": "00-1-2-3", "X": "y"},
    )
    letter = dead_letter(delivery, REFUSED, attempts=2)
    assert letter.payload == b"\x00not even JSON"
    assert letter.headers == {
        "Tg-Orig-Msg-Id": "m7",
        "Tg-Orig-expected-stream": "S",
        "traceparent": "00-1-2-3",
        "X": "y",
        "Tg-Dead-Reason": "refused",
        "Tg-Error-Code": "403",
        "Tg-Description": "Forbidden: bot was blocked by the user",
        "Tg-Stream-Seq": "7",
        "Tg-Attempts": "2",
        "Tg-First-Seen": "2023-11-14T22:13:20.123Z",
        "Nats-Msg-Id": "S:7:1700000000123456789",
    }


def test_a_description_is_one_line_and_bounded():
    letter = dead_letter(make_delivery(1), Terminal(400, "a\r\n b\t" + "x" * 9000), attempts=0)
    assert letter.headers["Tg-Description"].startswith("a b x")
    assert len(letter.headers["Tg-Description"]) == MAX_HEADER_LENGTH


def test_storing_it_again_changes_nothing():
    first, again = (dead_letter(make_delivery(1), REFUSED, attempts=n) for n in (0, 1))
    assert first.headers["Nats-Msg-Id"] == again.headers["Nats-Msg-Id"]


# Read, and made a message again


def read(payload: bytes, **headers: str) -> Letter:
    """A letter as it comes from the stream; names of headers with `_` for `-`."""
    return Letter(
        9,
        "2026-11-30T21:31:36.123456789Z",
        {name.replace("_", "-"): value for name, value in headers.items()},
        payload,
    )


def test_a_letter_says_what_its_headers_and_its_body_say():
    delivery = make_delivery(7, envelope=TelegramOutbound(msg_id="m7", chat="@desk", text="hi", kind="alert"))
    written = dead_letter(delivery, REFUSED, attempts=2)
    letter = Letter(9, "2026-11-30T21:31:36.123456789Z", written.headers, written.payload)
    assert (letter.reason, letter.error_code, letter.attempts) == ("refused", 403, 2)
    assert letter.description == "Forbidden: bot was blocked by the user"
    assert (letter.msg_id, letter.chat, letter.kind, letter.text) == ("m7", "@desk", "alert", "hi")
    assert (letter.stream_seq, letter.original) == (7, (7, 1_007))
    assert letter.dead_at.isoformat() == "2026-11-30T21:31:36.123457+00:00"


@pytest.mark.parametrize(
    "payload", [b"\xff", b"", b"[1]", b"null", b'{"msg_id": 1, "chat": 2, "text": []}', b"[" * 100_000]
)
def test_a_letter_that_is_no_envelope_can_be_looked_at_all_the_same(payload: bytes):
    letter = read(payload, Tg_Orig_Msg_Id="from the header", Tg_Error_Code="none", Nats_Msg_Id="other")
    assert (letter.msg_id, letter.chat, letter.kind, letter.text) == ("from the header", None, None, None)
    assert (letter.error_code, letter.attempts, letter.stream_seq, letter.original) == (None,) * 4
    with pytest.raises(EnvelopeError):
        copy(letter, 1, Change("@desk"))


def test_a_copy_is_what_the_publisher_said_under_an_id_of_its_own():
    payload = (
        b'{"new": {"a": [1.50, 123456789012345678901234567890]}, "msg_id": "m7", "text": "<b>\\u00e9</b>",'
        b' "parse_mode": "HTML", "expires_at": "2026-01-01T00:00:00Z", "chat": "-5", "message_thread_id": 3}'
    )
    letter = read(
        payload,
        traceparent="00-1-2-3",
        X="y",
        Tg_Orig_Msg_Id="m7",
        Tg_Orig_TTL="1s",
        nats_expected_stream="TELEGRAM_DEAD",
        Tg_Dead_Reason="expired",
        Tg_Description="d",
        Tg_Resent_Of="1",
    )
    made = copy(letter, 3, Change())
    assert made.msg_id == "m7.r3"
    assert made.headers == {
        "traceparent": "00-1-2-3",
        "X": "y",
        "Nats-Msg-Id": "m7.r3",
        "Tg-Resent-Of": "9",
    }
    assert made.payload == (
        b'{"new":{"a": [1.50, 123456789012345678901234567890]},"msg_id":"m7.r3","text":"<b>\\u00e9</b>",'
        b'"parse_mode":"HTML","chat":"-5","message_thread_id":3}'
    )


def test_a_copy_of_a_copy_has_an_id_that_no_other_copy_has():
    letter = read(b'{"msg_id": "m.r1", "text": "t"}')
    assert copy(letter, 1, Change()).msg_id == "m.r1.r1"


def test_a_copy_may_go_to_another_chat_and_without_markup():
    letter = read(
        b'{"msg_id":"m","text":"<b>x","parse_mode":"HTML","chat":"-5","message_thread_id":3,"reply_to":"k"}'
    )
    assert decode(copy(letter, 1, Change(plain=True)).payload) == TelegramOutbound(
        msg_id="m.r1", text="x", chat="-5", message_thread_id=3, reply_to="k"
    )
    assert decode(copy(letter, 1, Change("@desk")).payload) == TelegramOutbound(
        msg_id="m.r1", text="<b>x", parse_mode="HTML", chat="@desk"
    )
    same = decode(copy(letter, 1, Change("-5")).payload)
    assert (same.chat, same.message_thread_id) == ("-5", 3)


def test_another_chat_can_mend_an_envelope_and_an_id_in_the_header_another():
    letter = read(b'{"text": "t", "chat": "general"}', Tg_Orig_Msg_Id="h")
    with pytest.raises(EnvelopeError, match="chat: neither a decimal chat id nor @name"):
        copy(letter, 1, Change())
    assert decode(copy(letter, 1, Change("7")).payload) == TelegramOutbound(msg_id="h.r1", text="t", chat="7")
    with pytest.raises(EnvelopeError, match="msg_id: missing"):
        copy(read(letter.payload), 1, Change("7"))
