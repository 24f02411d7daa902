"""What can go wrong between the relay and the Bot API, on real sockets, through the whole relay."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from email.utils import formatdate
from typing import Any

import pytest

from telegram_connector import events
from telegram_connector import relay as relay_module
from telegram_connector.disposition import Ambiguous, Sent, Terminal, Transient, Unavailable
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.sandbox import Sandbox
from telegram_connector.telegram import TelegramClient
from tests.fleet import PATIENCE_SECONDS, Fleet, numbered
from tests.nats_server import NatsServer
from tests.test_telegram_sockets import (  # noqa: F401 - `tls` needs `certificate`
    answer,
    certificate,
    read_request,
    reset,
    tls,
)

pytestmark = pytest.mark.integration

# Short, but long enough for an answer over loopback on a busy machine.
TIMEOUT_SECONDS = 1.0
HTML = b"<html><head><title>sorry</title></head><body><h1>no Bot API here</h1></body></html>"
FOURTEEN_DAYS = 14 * 86_400.0


class Call:
    """One request, as the Bot API would read it."""

    def __init__(self, server: BotApi, raw: bytes) -> None:
        head, _, body = raw.partition(b"\r\n\r\n")
        self._server = server
        self.request_line = head.split(b"\r\n")[0].decode()
        self.method = self.request_line.split()[1].rpartition("/")[2]
        self.params: dict[str, Any] = json.loads(body or b"{}")
        self.text = str(self.params.get("text", ""))
        self.chat = str(self.params.get("chat_id", ""))

    def accept(self) -> bytes:
        """Carry it out; returns the body of the answer."""
        if self.method != "sendMessage":
            return b'{"ok":true,"result":{"id":1,"is_bot":true,"username":"a_bot"}}'
        number = self._server.note(self.chat, self.text)
        return json.dumps({"ok": True, "result": {"message_id": number}}).encode()


Act = Callable[[socket.socket, Call], None]  # one answer; a socket that it closes is not read on


class BotApi:
    """A Bot API on a raw socket: each `sendMessage` gets the next act, then a good answer."""

    def __init__(self, *acts: Act, listener: socket.socket | None = None) -> None:
        self.acts = deque(acts)
        self.by_text: Callable[[Call], Act | None] = lambda call: None
        self.accepted: list[tuple[str, str]] = []
        self.calls: list[Call] = []
        self.connections = 0
        self.closed: threading.Semaphore = threading.Semaphore(0)  # released when a connection is closed
        self._changed = threading.Condition()
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        self._threads[0].start()

    def _listen(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(sock)
            self._threads.append(threading.Thread(target=self._serve, args=(sock,), daemon=True))
            self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            while sock.fileno() >= 0:
                if self.acts and self.acts[0] is reset_unread:
                    sock.recv(1)
                    self.acts.popleft()
                    reset(sock)
                    break
                raw = read_request(sock)
                if not raw:
                    break
                call = Call(self, raw)
                self.calls.append(call)
                act = self.by_text(call)
                if act is None and call.method == "sendMessage" and self.acts:
                    act = self.acts.popleft()
                (act or well)(sock, call)
        self._open.discard(sock)
        self.closed.release()

    def note(self, chat: str, text: str) -> int:
        with self._changed:
            self.accepted.append((chat, text))
            self._changed.notify_all()
            return len(self.accepted)

    def until_accepted(self, *texts: str) -> None:
        """Wait until each of the texts was accepted."""
        with self._changed:
            wanted = set(texts)
            assert self._changed.wait_for(
                lambda: wanted <= {t for _, t in self.accepted}, PATIENCE_SECONDS
            ), wanted - {t for _, t in self.accepted}

    def texts(self, chat: str) -> list[str]:
        return [text for to, text in self.accepted if to == chat]

    def stop(self) -> None:
        with contextlib.suppress(OSError):  # wakes accept
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)


# Acts.


def well(sock: socket.socket, call: Call) -> None:
    sock.sendall(answer(call.accept()))


def reset_unread(sock: socket.socket, call: Call) -> None:
    raise AssertionError("played before the request is read")


def reset_before_accepting(sock: socket.socket, call: Call) -> None:
    reset(sock)


def reset_after_accepting(sock: socket.socket, call: Call) -> None:
    call.accept()
    reset(sock)


def silent_before_accepting(sock: socket.socket, call: Call) -> None:
    sock.recv(1)  # until the caller hangs up
    sock.close()


def silent_after_accepting(sock: socket.socket, call: Call) -> None:
    call.accept()
    silent_before_accepting(sock, call)


def drip(sock: socket.socket, call: Call) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in answer(call.accept()):
        sock.sendall(bytes([byte]))


def cut(sock: socket.socket, call: Call) -> None:
    whole = answer(call.accept())
    sock.sendall(whole[:-5])
    sock.close()


def cut_json(sock: socket.socket, call: Call) -> None:
    sock.sendall(answer(call.accept()[:-5]))  # the length says that this is all of it


def html_after_accepting(sock: socket.socket, call: Call) -> None:
    call.accept()
    sock.sendall(answer(HTML, "200 OK", "Content-Type: text/html"))


def not_http(sock: socket.socket, call: Call) -> None:
    sock.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
    sock.close()


def http_1_0(sock: socket.socket, call: Call) -> None:
    sock.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + call.accept())
    sock.close()


def well_then_close(sock: socket.socket, call: Call) -> None:
    """Without a word of it in the headers, as a load balancer does to what is idle."""
    well(sock, call)
    sock.close()


def saying(status: int, body: bytes = HTML, *headers: str) -> Act:
    """Refuse; the connection is closed, since a body after 204 or 304 would be taken for the next answer."""

    def act(sock: socket.socket, call: Call) -> None:
        sock.sendall(answer(body, f"{status} Whatever", "Connection: close", *headers))
        sock.close()

    return act


Start = Callable[..., tuple[BotApi, Fleet]]


@pytest.fixture(autouse=True)
def _short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    client = functools.partial(
        TelegramClient, connect_timeout_seconds=TIMEOUT_SECONDS, read_timeout_seconds=TIMEOUT_SECONDS
    )
    monkeypatch.setattr(relay_module, "TelegramClient", client)


@pytest.fixture
def start(nats_server: NatsServer) -> Iterator[Start]:
    """A Bot API with its acts, and what is needed to run relays that send to it."""
    made: list[tuple[BotApi, Fleet]] = []

    def start(*acts: Act, listener: socket.socket | None = None) -> tuple[BotApi, Fleet]:
        api = BotApi(*acts, listener=listener)
        made.append((api, Fleet(nats_server, api)))  # type: ignore[arg-type]
        return made[-1]

    yield start
    for api, fleet in made:
        fleet.stop()
        api.stop()


def dead_letters(fleet: Fleet) -> int:
    with fleet.server.client() as client:
        return int(client.api("STREAM.INFO.TELEGRAM_DEAD")["state"]["messages"])


def assert_in_order(api: BotApi, envelopes: list[TelegramOutbound], doubled: tuple[str, ...] = ()) -> None:
    """Each once and in its chat's order, but for those whose answer was lost."""
    counts = Counter(api.accepted)
    assert {text for (_, text), count in counts.items() if count > 1} == set(doubled)
    for chat in {str(e.chat) for e in envelopes}:
        assert list(dict.fromkeys(api.texts(chat))) == [e.text for e in envelopes if e.chat == chat]


# --- no connection -----------------------------------------------------------------------------------------


def test_refused(nats_server: NatsServer) -> None:
    with Sandbox() as sandbox:
        fleet = Fleet(nats_server, sandbox)
        sandbox.stop()
        fleet.relay()
        fleet.publish(*numbered(12, 3))
        assert fleet.until_event(events.BotHeld).reason == "Connection refused"
        sandbox.start()
        sandbox.wait(count=12, timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()
        assert not sandbox.duplicates()
        assert not sandbox.order_breaks()
        assert dead_letters(fleet) == 0
        assert all(e.attempt == 0 for e in fleet.of(events.Attempted))
        fleet.stop()


def test_a_host_that_does_not_exist(start: Start) -> None:
    _, fleet = start()
    fleet.relay(api_base_url="https://does-not-exist.invalid")
    fleet.publish(*numbered(3, 3))
    assert fleet.until_event(events.BotHeld).reason == "the host name cannot be resolved"
    fleet.stop()
    assert dead_letters(fleet) == 0
    assert fleet.server.consumer()["ack_floor"]["stream_seq"] == 0


def test_a_connect_black_hole(start: Start) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    fillers = []
    while len(fillers) < 20:  # until the kernel drops what it cannot queue
        fillers.append(socket.socket())
        fillers[-1].settimeout(0.3)
        try:
            fillers[-1].connect(listener.getsockname())
        except TimeoutError:
            break
    else:
        pytest.skip("this kernel queues connections without end")
    _, fleet = start()
    fleet.relay(api_base_url=url)
    fleet.publish(*numbered(6, 3))
    assert fleet.until_event(events.BotHeld).reason == "connecting timed out"
    for filler in fillers:
        filler.close()
    api, _ = start(listener=listener)
    api.until_accepted(*(e.text for e in numbered(6, 3)))
    fleet.assert_nothing_left()
    assert_in_order(api, numbered(6, 3))
    assert {type(e.disposition) for e in fleet.of(events.Attempted)} == {Unavailable, Sent}
    fleet.stop()  # before the API that it sends to


def test_a_foreign_certificate_sends_nothing_and_is_said(
    nats_server: NatsServer,
    tls: ssl.SSLContext,  # noqa: F811 - the fixture
) -> None:
    received: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), tls.wrap_socket(sock, server_side=True) as secure:
                received.append(secure.recv(65536))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,), daemon=True)
        serving.start()
        with Sandbox() as unused:
            fleet = Fleet(nats_server, unused)
            fleet.relay(api_base_url=f"https://localhost:{listener.getsockname()[1]}")
            fleet.publish(*numbered(6, 3))
            assert fleet.until_event(events.BotHeld).reason.startswith("TLS certificate refused: self")
            fleet.until_event(events.BotHeld, 2)
            fleet.stop()
        listener.shutdown(socket.SHUT_RDWR)
        serving.join(10)
    assert not any(received)
    assert all(e.attempt == 0 for e in fleet.of(events.Attempted))
    assert dead_letters(fleet) == 0
    info = fleet.server.consumer()
    assert info["ack_floor"]["stream_seq"] == 0


# --- an answer that is lost, or is none --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "doubled"),
    [
        (reset_unread, False),
        (reset_before_accepting, False),
        (reset_after_accepting, True),
        (silent_before_accepting, False),
        (silent_after_accepting, True),
        (cut, True),
        (cut_json, True),
        (html_after_accepting, True),
        (not_http, False),
    ],
)
def test_a_lost_answer_costs_at_most_a_second_showing_of_that_message(
    start: Start, act: Act, doubled: bool
) -> None:
    api, fleet = start(well, act)
    envelopes = numbered(12, 3)
    fleet.publish(*envelopes)
    fleet.relay()
    api.until_accepted(*(e.text for e in envelopes))
    fleet.assert_nothing_left()
    assert_in_order(api, envelopes, ("text 1",) if doubled else ())
    in_doubt = [e for e in fleet.of(events.Attempted) if isinstance(e.disposition, Ambiguous)]
    assert [(e.subject.nats_msg_id, e.attempt, e.settled) for e in in_doubt] == [("m1", 1, "nak")]
    assert dead_letters(fleet) == 0


@pytest.mark.parametrize("act", [drip, http_1_0, well_then_close])
def test_an_answer_in_an_odd_manner_is_an_answer(start: Start, act: Act) -> None:
    api, fleet = start(*[act] * 12)
    envelopes = numbered(12, 3)
    fleet.publish(*envelopes)
    fleet.relay()
    api.until_accepted(*(e.text for e in envelopes))
    fleet.assert_nothing_left()
    if act is not well_then_close:
        assert_in_order(api, envelopes)
        assert {type(e.disposition) for e in fleet.of(events.Attempted)} == {Sent}


def test_a_kept_connection_that_the_peer_closed_between_two_sends_is_not_used(start: Start) -> None:
    api, fleet = start(*[well_then_close] * 5)
    fleet.relay()
    for envelope in numbered(5, 1):
        fleet.publish(envelope)
        assert api.closed.acquire(timeout=PATIENCE_SECONDS)
    fleet.assert_nothing_left()
    assert_in_order(api, numbered(5, 1))
    assert api.connections == 5
    assert {type(e.disposition) for e in fleet.of(events.Attempted)} == {Sent}


def test_a_redirect_to_a_web_page_is_not_followed(start: Start) -> None:
    api, fleet = start()
    api.acts.append(saying(302, HTML, f"Location: {api.url}/"))
    fleet.publish(*numbered(6, 2))
    fleet.relay()
    api.until_accepted(*(e.text for e in numbered(6, 2)))
    fleet.assert_nothing_left()
    assert_in_order(api, numbered(6, 2))
    assert all(c.request_line.startswith("POST /bot") for c in api.calls)
    assert fleet.of(events.Attempted)[0].disposition.status_code == 302


# --- HTML at every status ----------------------------------------------------------------------------------

TERMINAL = set(range(400, 500)) - {401, 404, 407, 408, 421, 425, 429}


def test_html_at_every_status_is_never_taken_for_an_answer(start: Start) -> None:
    api, fleet = start()
    met: set[str] = set()

    def by_text(call: Call) -> Act | None:
        status = call.text.removeprefix("status ")
        if not status.isdigit() or call.text in met:
            return None
        met.add(call.text)
        return saying(int(status), b"" if status in ("204", "304") else HTML)

    api.by_text = by_text
    statuses = range(200, 505)
    envelopes = []
    for n in statuses:
        envelopes.append(TelegramOutbound(msg_id=f"s{n}", chat=str(n), text=f"status {n}"))
        # A chat that is served in between: else two running would look like an outage.
        envelopes.append(TelegramOutbound(msg_id=f"f{n}", chat="1000", text=f"fine {n}"))
    fleet.publish(*envelopes)
    fleet.relay(meta_alert_on_drop=False)
    delivered = [e for e in envelopes if e.chat == "1000" or int(str(e.chat)) not in TERMINAL]
    api.until_accepted(*(e.text for e in delivered))
    fleet.assert_nothing_left()
    assert_in_order(api, delivered)
    assert len(api.accepted) == len(delivered)
    dropped = {e.disposition.error_code for e in fleet.of(events.Attempted) if e.settled == "term"}
    assert dropped == TERMINAL
    assert dead_letters(fleet) == len(TERMINAL)


# --- how long to wait, told in every way -------------------------------------------------------------------


def flood(
    parameters: object = None, description: str = "Too Many Requests", *headers: str, status: int = 429
) -> Act:
    body: dict[str, Any] = {"ok": False, "error_code": status, "description": description}
    if parameters is not None:
        body["parameters"] = {"retry_after": parameters}
    return saying(status, json.dumps(body).encode(), *headers)


DEFAULT = 0.2  # the relay's own backoff here
NOW = 1_700_000_000
FLOODS: list[tuple[str, Act, float | None]] = [
    ("parameters", flood(1), 1.0),
    ("a fraction", flood(0.5), 0.5),
    ("zero", flood(0), 0.0),
    ("description", flood(None, "Too Many Requests: retry after 1"), 1.0),
    ("header seconds", flood(None, "Too Many Requests", "Retry-After: 1"), 1.0),
    (
        "header date",
        flood(None, "Too Many Requests", f"Date: {formatdate(NOW)}", f"Retry-After: {formatdate(NOW + 1)}"),
        1.0,
    ),
    (
        "a date that is over",
        flood(None, "Too Many Requests", f"Date: {formatdate(NOW)}", f"Retry-After: {formatdate(NOW - 9)}"),
        None,
    ),
    ("a date that is none", flood(None, "Too Many Requests", "Retry-After: soon"), None),
    ("parameters before all else", flood(1, "retry after 3000", "Retry-After: 4000"), 1.0),
    ("description before header", flood(None, "retry after 1", "Retry-After: 4000"), 1.0),
    ("nothing", flood(), None),
    ("html", saying(429, HTML), None),
    ("html and header", saying(429, HTML, "Retry-After: 1"), 1.0),
    ("negative", flood(-1), None),
    ("negative, but said in words", flood(-1, "retry after 1"), 1.0),
    ("a string", flood("3000"), None),
    ("a boolean", flood(True), None),
    ("null", saying(429, b'{"ok":false,"error_code":429,"parameters":{"retry_after":null}}'), None),
    ("a list", flood([1]), None),
    ("parameters that are a list", saying(429, b'{"ok":false,"parameters":[1]}'), None),
    ("infinity is no JSON", saying(429, b'{"ok":false,"parameters":{"retry_after":Infinity}}'), None),
    ("a negative header", flood(None, "Too Many Requests", "Retry-After: -5"), None),
    ("an empty header", flood(None, "Too Many Requests", "Retry-After:"), None),
]
HUGE: list[tuple[str, Act]] = [
    ("14 days", flood(1_209_600)),
    ("1e99", saying(429, b'{"ok":false,"error_code":429,"parameters":{"retry_after":1e99}}')),
    ("10**30", flood(10**30)),
    ("10**18 in words", flood(None, f"retry after {10**17}")),
    ("10**17 in the header", flood(None, "Too Many Requests", f"Retry-After: {10**17}")),
    (
        "the year 9999",
        flood(None, "No", f"Date: {formatdate(NOW)}", "Retry-After: Fri, 31 Dec 9999 23:59:59 GMT"),
    ),
]


def test_flood_control_is_heeded_in_whatever_way_it_is_told(start: Start) -> None:
    api, fleet = start()
    told = {name: act for name, act, _ in FLOODS}
    told |= dict(HUGE)
    unmet = dict(told)
    api.by_text = lambda call: unmet.pop(call.text, None)
    envelopes = []
    for n, name in enumerate(told):
        envelopes.append(TelegramOutbound(msg_id=f"m{n}", chat=str(100 + n), text=name))
        envelopes.append(TelegramOutbound(msg_id=f"l{n}", chat=str(100 + n), text=f"after {name}"))
        # Without one that is served in between, three chats would look like the bot's own flood.
        envelopes.append(TelegramOutbound(msg_id=f"f{n}", chat="99", text=f"fine {n}"))
    fleet.publish(*envelopes)
    fleet.relay(nak_backoff_seconds=DEFAULT)
    held = {e.chat for e in envelopes if e.text in dict(HUGE)}
    delivered = [e for e in envelopes if e.chat not in held]
    api.until_accepted(*(e.text for e in delivered))
    assert_in_order(api, delivered)
    assert not [chat for chat, _ in api.accepted if chat in held]
    refused = {e.subject.nats_msg_id: e for e in fleet.of(events.Attempted) if e.settled == "nak"}
    names = {e.msg_id: e.text for e in envelopes}
    asked = {names[i]: e.disposition.retry_after_seconds for i, e in refused.items()}
    assert asked == {name: seconds for name, _, seconds in FLOODS} | dict.fromkeys(dict(HUGE), FOURTEEN_DAYS)
    assert all(e.attempt == 0 for e in refused.values())
    holds = {e.chat: e.seconds for e in fleet.of(events.ChatHeld)}
    for name, _, seconds in FLOODS:
        chat = str(next(e.chat for e in envelopes if e.text == name))
        assert holds[chat] >= (DEFAULT if seconds is None else seconds)
        assert holds[chat] <= (DEFAULT if seconds is None else seconds) + 1.1
    assert all(holds[str(chat)] >= FOURTEEN_DAYS for chat in held)
    # What is held for days comes back all the while, at most ack_wait apart, and is not lost meanwhile.
    assert {e.delay_seconds for e in refused.values() if names[e.subject.nats_msg_id] in dict(HUGE)} == {60.0}
    assert dead_letters(fleet) == 0
    assert fleet.server.consumer()["num_ack_pending"] == 2 * len(held)


def test_a_503_that_tells_its_time_is_not_tried_before(start: Start) -> None:
    api, fleet = start(saying(503, HTML, "Retry-After: 1"))
    fleet.publish(*numbered(4, 2))
    fleet.relay()
    api.until_accepted(*(e.text for e in numbered(4, 2)))
    fleet.assert_nothing_left()
    assert_in_order(api, numbered(4, 2))
    first = fleet.of(events.Attempted)[0]
    assert isinstance(first.disposition, Transient)
    assert first.delay_seconds >= 1.0


def test_refusals_of_telegram_itself_are_the_only_ones_that_drop(start: Start) -> None:
    gone = json.dumps({"ok": False, "error_code": 403, "description": "Forbidden: bot was blocked"}).encode()
    api, fleet = start(saying(403, gone), saying(500, b""), saying(502), reset_before_accepting)
    fleet.publish(*numbered(12, 4))
    fleet.relay(meta_alert_on_drop=False)
    api.until_accepted(*(e.text for e in numbered(12, 4)[1:]))
    fleet.assert_nothing_left()
    assert_in_order(api, numbered(12, 4)[1:])
    (dropped,) = [e for e in fleet.of(events.Attempted) if e.settled == "term"]
    assert dropped.disposition == Terminal(403, "Forbidden: bot was blocked")
    assert dead_letters(fleet) == 1
