"""The dead letter of a delivery."""

from __future__ import annotations

from telegram_connector.deadletter import MAX_HEADER_LENGTH, dead_letter
from telegram_connector.delivery import DeliveryId
from telegram_connector.disposition import Terminal
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
