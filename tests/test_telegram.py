"""What answers and failures of the Bot API come to."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import ssl
import time
from pathlib import Path

import pytest
import requests
import responses
import urllib3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telegram_connector.disposition import (
    Ambiguous,
    BotFault,
    Migrated,
    Sent,
    Terminal,
    Transient,
    Unavailable,
)
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.telegram import RedactingFilter, TelegramClient, classify, classify_failure

# Generating the first texts takes a while on a slow machine; that is no failure.
ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
CATALOGUE = json.loads((Path(__file__).parent / "data" / "telegram_errors.json").read_text("utf-8"))
CLASSES = {
    "sent": Sent,
    "rate_limited": Transient,
    "retry_server": Transient,
    "ambiguous": Ambiguous,
    "bot_fault": BotFault,
    "migrate": Migrated,
    "terminal_chat": Terminal,
    "terminal_message": Terminal,
}
ANSWERED = [row for row in CATALOGUE if row["http_status"] is not None]
UNANSWERED = [row["id"] for row in CATALOGUE if row["http_status"] is None]

TOKEN = "123456789:AAF-secret_secret_secret_secret_sec"
BASE = "https://api.telegram.org"
URL = f"{BASE}/bot{TOKEN}/sendMessage"
ENVELOPE = TelegramOutbound(msg_id="m1", text="hello")


def body_of(row: dict) -> bytes:
    if "body" in row:
        return row["body"].encode()
    if row["http_status"] == 200:
        return b'{"ok":true,"result":{"message_id":42,"chat":{"id":1}}}'
    answer = {"ok": False, "error_code": row["error_code"], "description": row["description"]}
    if row["parameters"] is not None:
        answer["parameters"] = row["parameters"]
    return json.dumps(answer).encode()


def headers_of(row: dict) -> dict[str, str]:
    return dict([row["header"].split(": ", 1)]) if "header" in row else {}


@pytest.mark.parametrize("row", ANSWERED, ids=lambda row: row["id"])
def test_every_answer_of_the_catalogue(row):
    disposition = classify(row["http_status"], headers_of(row), body_of(row))
    assert type(disposition) is CLASSES[row["class"]]
    match disposition:
        case Sent():
            assert disposition == Sent(42, chat_id=1)
        case Transient():
            assert disposition.rate_limited == (row["class"] == "rate_limited")
            expected = (row["parameters"] or {}).get("retry_after")
            if row["id"] == "rl_no_parameters":
                expected = 3
            assert disposition.retry_after_seconds == expected
            assert disposition.status_code == (row["error_code"] or row["http_status"])
        case Migrated():
            assert disposition.new_chat == str(row["parameters"]["migrate_to_chat_id"])
        case Terminal():
            assert disposition.error_code == (row["error_code"] or row["http_status"])
            assert disposition.reason == "refused"
    if row["description"]:
        assert disposition.description == row["description"]


def reset() -> requests.ConnectionError:
    error = ConnectionResetError(104, "Connection reset by peer")
    return requests.ConnectionError(urllib3.exceptions.ProtocolError("Connection aborted.", error))


def read_timeout() -> requests.ReadTimeout:
    return requests.ReadTimeout(urllib3.exceptions.ReadTimeoutError(None, URL, "Read timed out."))  # type: ignore[arg-type]


def refused_tunnel() -> requests.exceptions.ProxyError:
    inner = OSError("Tunnel connection failed: 407 Proxy Authentication Required")
    return requests.exceptions.ProxyError(urllib3.exceptions.ProxyError("Unable to connect to proxy", inner))


# (what happened, whether the request had been written, what it comes to)
FAILURES = {
    "amb_read_timeout": (read_timeout, True, Ambiguous("no answer in time")),
    "amb_conn_reset_after_write": (reset, True, Ambiguous("Connection reset by peer")),
    "amb_stale_keepalive": (reset, True, Ambiguous("Connection reset by peer")),
    "net_tls_reset": (reset, False, Unavailable("Connection reset by peer")),
    "net_proxy": (refused_tunnel, False, Unavailable("proxy: CONNECT refused with HTTP 407")),
}


@pytest.mark.parametrize("row_id", UNANSWERED)
def test_every_failure_of_the_catalogue(row_id):
    make, written, expected = FAILURES[row_id]
    assert classify_failure(make(), written) == expected


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "the host name cannot be resolved"),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (requests.ConnectTimeout(URL), "connecting timed out"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version"), "TLS failed: no reason given"),
        (requests.exceptions.InvalidProxyURL(URL), "InvalidProxyURL"),
        (http.client.BadStatusLine("x"), "what came back is not HTTP"),
        (OSError("Could not find a suitable TLS CA certificate bundle"), "OSError"),
    ],
)
def test_failures_are_named_without_the_url(error, words):
    assert classify_failure(error, False) == Unavailable(words)
    assert TOKEN not in classify_failure(error, True).description


# --- precedence --------------------------------------------------------------------------------------------


def answer(code: int | None = None, description: str | None = None, **parameters: object) -> bytes:
    found: dict[str, object] = {"ok": False}
    if code is not None:
        found["error_code"] = code
    if description is not None:
        found["description"] = description
    if parameters:
        found["parameters"] = parameters
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, answer(429, "slow", retry_after=4), Transient(429, "slow", 4.0)),
        (200, answer(403, "gone"), Terminal(403, "gone")),
        (200, answer(), Transient(200, "HTTP 200 without a description")),
        (200, b'{"ok":"true"}', Ambiguous("HTTP 200 without a readable answer", 200)),
        (200, b"[]", Ambiguous("HTTP 200 without a readable answer", 200)),
        (200, b"", Ambiguous("HTTP 200 without a readable answer", 200)),
        (200, b"\xff", Ambiguous("HTTP 200 without a readable answer", 200)),
        (200, b"[" * 100_000, Ambiguous("HTTP 200 without a readable answer", 200)),
        (200, b'{"ok":true}', Sent(None)),
        (200, b'{"ok":true,"result":true}', Sent(None)),
        (200, b'{"ok":true,"result":{"message_id":"7"}}', Sent(None)),
        (200, b'{"ok":true,"result":{"message_id":7,"message_thread_id":9}}', Sent(7, 9)),
        # error_code before the status, where it is one
        (502, answer(403, "gone"), Terminal(403, "gone")),
        (403, answer(502, "down"), Transient(502, "down")),
        (403, answer(0, "gone"), Terminal(403, "gone")),
        (403, b'{"ok":false,"error_code":"502"}', Terminal(403, "HTTP 403 without a description")),
        # parameters before either
        (403, answer(403, "moved", migrate_to_chat_id=-5), Migrated("-5", "moved")),
        (400, answer(400, "moved", migrate_to_chat_id=None), Terminal(400, "moved")),
        (400, answer(400, "moved", migrate_to_chat_id=True), Terminal(400, "moved")),
        (503, answer(503, "wait", retry_after=2), Transient(503, "wait", 2.0)),
        (400, b'{"ok":false,"parameters":[]}', Terminal(400, "HTTP 400 without a description")),
        # a 504 stays open however well it is worded
        (504, answer(504, "wait", retry_after=2), Ambiguous("wait", 504)),
        # not Telegram's own
        (407, b"", Unavailable("HTTP 407 without a description", 407)),
        (408, b"", Transient(408, "HTTP 408 without a description")),
        (302, b"", Transient(302, "HTTP 302 without a description")),
        (101, b"", Transient(101, "HTTP 101 without a description")),
        (600, b"", Transient(600, "HTTP 600 without a description")),
        (201, b"", Ambiguous("HTTP 201 without a readable answer", 201)),
        # the wording counts for nothing, but for these
        (403, answer(403, "Logged out"), Terminal(403, "Logged out")),
        (400, answer(400, "Bad Request: you Logged out"), Terminal(400, "Bad Request: you Logged out")),
        (400, answer(400, "Bad Request: Logged out"), BotFault(400, "Bad Request: Logged out")),
    ],
)
def test_precedence(status, body, expected):
    assert classify(status, {}, body) == expected


DATES = {"Date": "Mon, 30 Nov 2026 12:00:00 GMT", "Retry-After": "Mon, 30 Nov 2026 12:01:30 GMT"}
DAYS_14 = 14 * 86_400.0


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry-After": "45"}, b"", 45.0),
        ({"retry-after": " 45 "}, b"", 45.0),
        ({"Retry-After": "1.5"}, b"", 1.5),
        ({"Retry-After": "-3"}, b"", None),
        ({"Retry-After": "soon"}, b"", None),
        ({"Retry-After": "9" * 18}, b"", DAYS_14),
        (DATES, b"", 90.0),
        ({"Retry-After": DATES["Retry-After"]}, b"", None),
        ({"Retry-After": DATES["Date"], "Date": DATES["Retry-After"]}, b"", None),
        ({}, b"", None),
        ({}, answer(429, "x", retry_after=0), 0.0),
        ({}, answer(429, "x", retry_after=-1), None),
        ({}, answer(429, "x", retry_after=True), None),
        ({}, answer(429, "x", retry_after="9"), None),
        ({}, answer(429, "x", retry_after=10**30), DAYS_14),
        ({}, answer(429, "retry after 0"), 0.0),
        ({"Retry-After": "45"}, answer(429, "retry after 7"), 7.0),
        ({"Retry-After": "45"}, answer(429, "retry after 7", retry_after=3), 3.0),
        ({"Retry-After": "45"}, answer(429, "try 7 times"), 45.0),
        ({}, answer(429, "retry after 12345678901234567890123"), DAYS_14),
    ],
)
def test_retry_after(headers, body, seconds):
    disposition = classify(429, headers, body)
    assert isinstance(disposition, Transient)
    assert disposition.rate_limited
    assert disposition.retry_after_seconds == seconds


def test_a_503_may_ask_for_a_wait():
    assert classify(503, {"Retry-After": "120"}, b"") == Transient(
        503, "HTTP 503 without a description", 120.0
    )


def test_descriptions_are_one_short_line():
    disposition = classify(400, {}, answer(400, "a\r\nb\x00\u2028" + "c" * 1000))
    assert isinstance(disposition, Terminal)
    assert disposition.description.startswith("a b ccc")
    assert len(disposition.description) == 300


@ANY_SPEED
@given(
    st.integers(100, 599),
    st.dictionaries(st.sampled_from(["Retry-After", "Date", "date"]), st.text()),
    st.one_of(
        st.binary(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
            lambda inner: (
                st.dictionaries(
                    st.sampled_from(
                        [
                            "ok",
                            "result",
                            "error_code",
                            "description",
                            "parameters",
                            "retry_after",
                            "message_id",
                        ]
                    ),
                    inner,
                )
                | st.lists(inner)
            ),
        ).map(lambda value: json.dumps(value).encode()),
    ),
)
def test_no_answer_is_too_strange(status, headers, body):
    disposition = classify(status, headers, body)
    if isinstance(disposition, Transient) and disposition.retry_after_seconds is not None:
        assert 0 <= disposition.retry_after_seconds <= DAYS_14


# --- the client, above requests ----------------------------------------------------------------------------


@pytest.fixture
def client():
    client = TelegramClient(TOKEN, BASE)
    yield client
    client.close()


def send(client: TelegramClient, envelope: TelegramOutbound = ENVELOPE) -> object:
    return client.send(envelope, "-1001", time.monotonic() + 60)


@responses.activate
def test_send_message_200(client):
    responses.post(URL, json={"ok": True, "result": {"message_id": 11}})
    assert send(client) == Sent(11)
    request = responses.calls[0].request
    assert json.loads(request.body) == {"chat_id": -1001, "text": "hello"}
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Content-Length"] == str(len(request.body))


@responses.activate
def test_rate_limit_429(client):
    responses.post(URL, status=429, headers={"Retry-After": "45"}, json={"ok": False, "error_code": 429})
    assert send(client) == Transient(429, "HTTP 429 without a description", 45.0)


@responses.activate
def test_bad_request_400(client):
    responses.post(
        URL,
        status=400,
        json={"ok": False, "error_code": 400, "description": "Bad Request: Invalid chat_id"},
    )
    assert send(client) == Terminal(400, "Bad Request: Invalid chat_id")


@responses.activate
def test_get_me(client):
    url = f"{BASE}/bot{TOKEN}/getMe"
    responses.post(url, json={"ok": True, "result": {"id": 1, "username": "a_bot"}})
    responses.post(url, status=401, json={"ok": False, "error_code": 401, "description": "Unauthorized"})
    deadline = time.monotonic() + 60
    assert client.bot_name is None
    assert client.get_me(deadline) == Sent(None)
    assert client.get_me(deadline) == BotFault(401, "Unauthorized")
    assert client.bot_name == "a_bot"


@responses.activate
def test_what_is_unforeseen_leaves_without_the_url(client):
    responses.post(URL, body=ValueError(URL))
    with pytest.raises(RuntimeError, match="unexpected ValueError") as caught:
        send(client)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert TOKEN not in str(caught.value)


def test_repr_is_silent(client):
    assert TOKEN not in repr(client)


def test_filters_are_installed_once():
    before = [TelegramClient(TOKEN, BASE), TelegramClient(TOKEN, BASE)]
    for name in ("connection", "connectionpool", "poolmanager", "util.retry"):
        filters = logging.getLogger(f"urllib3.{name}").filters
        assert filters.count(RedactingFilter(TOKEN)) == 1
    for client in before:
        client.close()


def test_the_filter_takes_every_form_out_of_message_arguments_and_traceback():
    quoted = TOKEN.replace(":", "%3A")
    try:
        raise ValueError(URL)
    except ValueError as error:
        trace = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.DEBUG, "f", 1, "%s and %s", (URL, quoted), trace)
    assert RedactingFilter(TOKEN).filter(record)
    text = logging.Formatter().format(record)
    assert TOKEN not in text
    assert quoted not in text
    assert text.count("<token>") == 3


def test_the_filter_leaves_other_records_alone():
    record = logging.LogRecord("x", logging.DEBUG, "f", 1, "%s", ("fine",), None)
    RedactingFilter(TOKEN).filter(record)
    assert (record.msg, record.args) == ("%s", ("fine",))
