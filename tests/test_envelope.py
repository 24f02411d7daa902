"""The wire, both ways."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telegram_connector.envelope import (
    TelegramOutbound,
    decode,
    encode,
    is_chat,
    msg_id_mismatch,
    request_body,
)
from telegram_connector.errors import EnvelopeError

# Generating the first texts takes a while on a slow machine; that is no failure.
ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
WIRE = Path(__file__).parent / "data" / "wire"
DEFAULT_CHAT = "-1001234567890"
UNICODE = "🙂 👨\u200d👩\u200d👧 é e\u0301 ñ \u2028\u2029 \u202e \ufeff 漢字"

GOLDEN = {
    "signal": TelegramOutbound(
        msg_id="cohort|1234|signal_id", text="<b>Signal</b>: BUY at 0.45", parse_mode="HTML", kind="trade"
    ),
    "minimal": TelegramOutbound(msg_id="m", text="x"),
    "markup": TelegramOutbound(
        msg_id="m",
        chat="@some_channel",
        text='_*[]()~`>#+-=|{}.!\\ <b>&amp;</b> "quoted" \t\n  end ',
        parse_mode="MarkdownV2",
    ),
    "unicode": TelegramOutbound(msg_id="m", chat="-42", text=UNICODE),
    "escaped": TelegramOutbound(msg_id="m", chat="-42", text=UNICODE),
    "everything": TelegramOutbound(
        msg_id="m",
        chat=str(-(2**63)),
        text="all",
        parse_mode="HTML",
        kind="info",
        message_thread_id=2**63 - 1,
        reply_to_message_id=5,
        reply_to="earlier",
        allow_sending_without_reply=False,
        disable_notification=True,
        link_preview=False,
        on_ambiguous="park",
        route_id="r1",
        from_member="ana",
        expires_at="2030-01-01T00:00:00+01:00",
        group="g",
        part=2,
        parts=3,
        visibility_decision_id="d1",
    ),
    "unknown_fields": TelegramOutbound(msg_id="m", text="x", link_preview=True),
    "white_space": TelegramOutbound(msg_id=" m ", text=" \n"),
}


def test_every_golden_file_has_its_envelope():
    assert {path.name.split(".")[0] for path in WIRE.iterdir()} == set(GOLDEN)


@pytest.mark.parametrize("name", GOLDEN)
def test_from_the_publisher_and_back(name):
    published = (WIRE / f"{name}.envelope.json").read_bytes()
    canonical = WIRE / f"{name}.canonical.json"
    assert decode(published) == GOLDEN[name]
    assert encode(GOLDEN[name]) == (canonical.read_bytes() if canonical.exists() else published)


@pytest.mark.parametrize("name", GOLDEN)
def test_to_the_bot_api(name):
    envelope = GOLDEN[name]
    expected = (WIRE / f"{name}.body.json").read_bytes()
    assert request_body(envelope, envelope.chat or DEFAULT_CHAT) == expected


@pytest.mark.parametrize("text", ["x" * 4096, "🙂" * 4096, "\u2028" * 5000, "<&>" * 30_000])
def test_long_texts_are_not_touched(text):
    envelope = decode(json.dumps({"msg_id": "m", "text": text}).encode())
    assert envelope.text == text
    assert decode(encode(envelope)) == envelope
    assert json.loads(request_body(envelope, "1"))["text"] == text


@ANY_SPEED
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.booleans())
def test_any_text_survives(text, ascii_only):
    published = json.dumps({"msg_id": "m", "text": text}, ensure_ascii=ascii_only).encode()
    envelope = decode(published)
    assert envelope.text == text
    assert json.loads(request_body(envelope, "-5"))["text"] == text
    assert decode(encode(envelope)) == envelope


# --- what cannot be read -----------------------------------------------------------------------------------


def with_fields(**fields: object) -> bytes:
    return json.dumps({"msg_id": "m", "text": "SECRET", **fields}).encode()


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        (b"", ""),
        (b"{", ""),
        (b"SECRET", ""),
        (b"null", ""),
        (b"[]", ""),
        (b'"SECRET"', ""),
        (b'{"msg_id":"m","text":"SECRET"} x', ""),
        (b'{"msg_id":"m","text":"SECRET\n"}', ""),
        (b'{"msg_id":"m","text":"SECRET\xff"}', ""),
        (b'{"msg_id":"m","text":"\xed\xa0\xbd SECRET"}', ""),
        (b'{"msg_id":"m","text":"\\ud83d SECRET"}', ""),
        (b'{"msg_id":"m","text":"SECRET \\ude00"}', ""),
        (b'{"msg_id":"m","text":"\\ud83d"}', ""),
        (b'{"msg_id":"m","text":"SECRET","x":' + b"[" * 200_000, ""),
        (b'{"msg_id":"m","text":"SECRET","x":NaN}', ""),
        ('{"msg_id":"m","text":"SECRET"}'.encode("utf-16"), ""),
        (b'{"msg_id":"m"}', "text"),
        (b'{"text":"SECRET"}', "msg_id"),
        (with_fields(msg_id=""), "msg_id"),
        (with_fields(msg_id=None), "msg_id"),
        (with_fields(msg_id=5), "msg_id"),
        (with_fields(text=""), "text"),
        (with_fields(text=None), "text"),
        (with_fields(text=["SECRET"]), "text"),
        (with_fields(chat=5), "chat"),
        (with_fields(chat=True), "chat"),
        (with_fields(chat=""), "chat"),
        (with_fields(chat=" 5"), "chat"),
        (with_fields(chat="+5"), "chat"),
        (with_fields(chat="05"), "chat"),
        (with_fields(chat="1e3"), "chat"),
        (with_fields(chat="5\n"), "chat"),
        (with_fields(chat="٥"), "chat"),
        (with_fields(chat=str(2**63)), "chat"),
        (with_fields(chat="@abc"), "chat"),
        (with_fields(chat="@some-chat"), "chat"),
        (with_fields(chat="some_chat"), "chat"),
        (with_fields(parse_mode=1), "parse_mode"),
        (with_fields(kind={}), "kind"),
        (with_fields(message_thread_id=0), "message_thread_id"),
        (with_fields(message_thread_id=-1), "message_thread_id"),
        (with_fields(message_thread_id="1"), "message_thread_id"),
        (with_fields(message_thread_id=1.0), "message_thread_id"),
        (with_fields(message_thread_id=True), "message_thread_id"),
        (with_fields(message_thread_id=2**63), "message_thread_id"),
        (with_fields(reply_to_message_id=10**30), "reply_to_message_id"),
        (with_fields(reply_to=7), "reply_to"),
        (with_fields(allow_sending_without_reply=1), "allow_sending_without_reply"),
        (with_fields(disable_notification="true"), "disable_notification"),
        (with_fields(link_preview=0), "link_preview"),
        (with_fields(on_ambiguous="SECRET"), "on_ambiguous"),
        (with_fields(on_ambiguous=""), "on_ambiguous"),
        (with_fields(expires_at="SECRET"), "expires_at"),
        (with_fields(expires_at="2030-01-01T00:00:00"), "expires_at"),
        (with_fields(expires_at="2030-01-01"), "expires_at"),
        (with_fields(expires_at=5), "expires_at"),
        (with_fields(group=5), "group"),
        (with_fields(part=0), "part"),
        (with_fields(part="1"), "part"),
        (with_fields(parts=2**63), "parts"),
        (with_fields(visibility_decision_id=["SECRET"]), "visibility_decision_id"),
    ],
)
def test_unreadable(payload, field):
    with pytest.raises(EnvelopeError) as caught:
        decode(payload)
    assert caught.value.field == field
    assert caught.value.reason
    assert "SECRET" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@ANY_SPEED
@given(st.binary())
def test_arbitrary_bytes(payload):
    with contextlib.suppress(EnvelopeError):
        decode(payload)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text())
FIELDS = st.sampled_from([*TelegramOutbound.__struct_fields__, "unknown", "ключ", ""])


@ANY_SPEED
@given(st.dictionaries(FIELDS, VALUES), st.booleans())
def test_arbitrary_objects(fields, complete):
    if complete:
        fields = {"msg_id": "m", "text": "t", **fields}
    with contextlib.suppress(EnvelopeError):
        envelope = decode(json.dumps(fields).encode())
        assert decode(encode(envelope)) == envelope
        json.loads(request_body(envelope, envelope.chat or DEFAULT_CHAT))


# --- what must not be published ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": ""},
        {"text": 5},
        {"text": "\ud83d"},
        {"chat": 5},
        {"message_thread_id": 2**70},
        {"disable_notification": "yes"},
        {"on_ambiguous": object()},
    ],
)
def test_encode_refuses_what_decode_would(wrong):
    envelope = TelegramOutbound(**{"msg_id": "m", "text": "x", **wrong})
    with pytest.raises(EnvelopeError):
        encode(envelope)


def test_envelopes_are_frozen():
    with pytest.raises(AttributeError):
        GOLDEN["minimal"].text = "other"  # type: ignore[misc]


def test_absent_and_null_are_the_same_and_never_null_for_the_bot_api():
    nulls = dict.fromkeys(TelegramOutbound.__struct_fields__)
    envelope = decode(json.dumps({**nulls, "msg_id": "m", "text": "x"}).encode())
    assert envelope == GOLDEN["minimal"]
    assert b"null" not in request_body(envelope, "1")


def test_a_reply_needs_its_message():
    envelope = TelegramOutbound(msg_id="m", text="x", allow_sending_without_reply=True, reply_to="other")
    assert request_body(envelope, "1") == b'{"chat_id":1,"text":"x"}'


@pytest.mark.parametrize(
    ("headers", "expected"),
    [(None, None), ({}, None), ({"Nats-Msg-Id": "m"}, None), ({"Nats-Msg-Id": "n", "x": "y"}, "n")],
)
def test_msg_id_mismatch(headers, expected):
    assert msg_id_mismatch(GOLDEN["minimal"], headers) == expected


def test_is_chat():
    assert is_chat(str(2**63 - 1))
    assert is_chat("@some_chat")
    assert not is_chat("0")


def test_the_fields_are_those_of_the_contract():
    assert TelegramOutbound.__struct_fields__ == (
        "msg_id",
        "chat",
        "text",
        "parse_mode",
        "kind",
        "message_thread_id",
        "reply_to_message_id",
        "reply_to",
        "allow_sending_without_reply",
        "disable_notification",
        "link_preview",
        "on_ambiguous",
        "route_id",
        "from_member",
        "expires_at",
        "group",
        "part",
        "parts",
        "visibility_decision_id",
    )
