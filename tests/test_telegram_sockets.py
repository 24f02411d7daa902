"""The Bot API client on real sockets: what only a raw socket can do to it."""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from telegram_connector.disposition import Ambiguous, BotFault, Sent, Terminal, Transient, Unavailable
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.telegram import TelegramClient

TOKEN = "123456789:AAF-secret_secret_secret_secret_sec"
ENVELOPE = TelegramOutbound(msg_id="m1", text="<b>hello</b>\u2028🙂")
OK = b'{"ok":true,"result":{"message_id":7,"message_thread_id":3}}'

Script = Callable[[socket.socket], None]


def far_away() -> float:
    return time.monotonic() + 60


def read_request(sock: socket.socket) -> bytes:
    """Read one whole request; b"" where the peer has closed."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        if not more:
            return data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        ),
        0,
    )
    while len(body) < length:
        body += sock.recv(65536)
    return head + b"\r\n\r\n" + body


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def reset(sock: socket.socket) -> None:
    """Close with RST instead of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Server:
    """Accepts connections one after the other and plays one script on each; then refuses."""

    def __init__(self, scripts: tuple[Script, ...], context: ssl.SSLContext | None) -> None:
        self.requests: list[bytes] = []
        self.accepted = 0
        self.errors: list[BaseException] = []
        self._stopping = False
        self._scripts = scripts
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if context else 'http'}://localhost:{self.port}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        for script in self._scripts:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if self._stopping:
                sock.close()
                return
            self.accepted += 1
            with sock:
                try:
                    if self._context:
                        with self._context.wrap_socket(sock, server_side=True) as tls:
                            script(tls)
                    else:
                        script(sock)
                except (OSError, ssl.SSLError) as error:
                    self.errors.append(error)

    def stop(self) -> None:
        self._stopping = True
        with contextlib.suppress(OSError):  # wakes accept
            socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join(10)
        self._listener.close()
        assert not self._thread.is_alive()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers = []

    def start(*scripts: Script, context: ssl.SSLContext | None = None) -> Server:
        servers.append(Server(scripts, context))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def connect() -> Iterator[Callable[..., TelegramClient]]:
    clients = []

    def make(url: str, **options: object) -> TelegramClient:
        clients.append(TelegramClient(TOKEN, url, **options))  # type: ignore[arg-type]
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that signs itself; the file holds its key too."""
    if not shutil.which("openssl"):
        pytest.skip("needs openssl to make a certificate")
    directory = tmp_path_factory.mktemp("tls")
    key, cert = directory / "key.pem", directory / "cert.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    both = directory / "both.pem"
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    return both


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def replies(*answers: bytes) -> Script:
    """Answer that many requests on one connection, then close it."""

    def script(sock: socket.socket) -> None:
        for reply in answers:
            if not read_request(sock):
                return
            sock.sendall(reply)

    return script


# --- nothing was sent --------------------------------------------------------------------------------------


def test_refused(connect):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client = connect(f"http://127.0.0.1:{port}")
    assert client.send(ENVELOPE, "1", far_away()) == Unavailable("Connection refused")


def test_a_host_without_address(connect):
    client = connect("http://does-not-exist.invalid")
    assert client.send(ENVELOPE, "1", far_away()) == Unavailable("the host name cannot be resolved")


def test_a_reset_in_the_tls_handshake_was_certainly_not_sent(serve, connect):
    def script(sock: socket.socket) -> None:
        sock.recv(10)  # the beginning of the ClientHello
        reset(sock)

    server = serve(script)
    client = connect(f"https://localhost:{server.port}")
    assert client.send(ENVELOPE, "1", far_away()) == Unavailable("Connection reset by peer")


def test_a_tls_handshake_that_hangs(serve, connect):
    over = threading.Event()
    server = serve(lambda sock: over.wait(30) and None)
    client = connect(f"https://localhost:{server.port}", connect_timeout_seconds=0.05)
    assert client.send(ENVELOPE, "1", far_away()) == Unavailable("connecting timed out")
    over.set()


def test_a_certificate_of_a_stranger(serve, connect, tls):
    server = serve(lambda sock: None, context=tls)
    disposition = connect(server.url).send(ENVELOPE, "1", far_away())
    assert isinstance(disposition, Unavailable)
    assert disposition.description.startswith("TLS certificate refused: self")


def test_a_proxy_that_refuses_connect(serve, connect):
    seen = []

    def script(sock: socket.socket) -> None:
        seen.append(read_request(sock))
        sock.sendall(answer(b"", "403 Forbidden"))

    proxy = serve(script)
    client = connect("https://api.telegram.org", proxy_url=f"http://me:secret@127.0.0.1:{proxy.port}")
    assert client.send(ENVELOPE, "1", far_away()) == Unavailable("proxy: CONNECT refused with HTTP 403")
    assert seen[0].startswith(b"CONNECT api.telegram.org:443 ")
    assert b"Proxy-Authorization: Basic " in seen[0]
    assert TOKEN.encode() not in seen[0]


def test_a_proxy_that_is_down(connect):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client = connect("https://api.telegram.org", proxy_url=f"http://127.0.0.1:{port}")
    assert client.send(ENVELOPE, "1", far_away()) == Unavailable("proxy: Connection refused")


def test_no_time_left(connect):
    client = connect("http://127.0.0.1:9")
    assert client.send(ENVELOPE, "1", time.monotonic() - 1) == Unavailable("no time was left to send it")


# --- perhaps sent ------------------------------------------------------------------------------------------


def test_a_reset_before_the_body_is_read(serve, connect):
    def script(sock: socket.socket) -> None:
        sock.recv(1)
        reset(sock)

    # Whether the reset or the end of the stream is seen depends on when it comes.
    assert isinstance(connect(serve(script).url).send(ENVELOPE, "1", far_away()), Ambiguous)


def test_a_reset_after_the_body(serve, connect):
    def script(sock: socket.socket) -> None:
        read_request(sock)
        reset(sock)

    assert connect(serve(script).url).send(ENVELOPE, "1", far_away()) == Ambiguous("Connection reset by peer")


def test_closed_without_an_answer(serve, connect):
    server = serve(read_request)
    disposition = connect(server.url).send(ENVELOPE, "1", far_away())
    assert disposition == Ambiguous("connection closed without an answer")


@pytest.mark.parametrize("limit", ["read timeout", "deadline"])
def test_no_answer_in_time(serve, connect, limit):
    over = threading.Event()

    def script(sock: socket.socket) -> None:
        read_request(sock)
        over.wait(30)

    server = serve(script)
    client = connect(
        server.url, read_timeout_seconds=0.05 if limit == "read timeout" else 30, clock=lambda: 0
    )
    disposition = client.send(ENVELOPE, "1", 30 if limit == "read timeout" else 0.05)
    over.set()
    assert disposition == Ambiguous("no answer in time")


def test_an_answer_that_is_not_http(serve, connect):
    server = serve(replies(b"SSH-2.0-OpenSSH_9.6\r\n"))
    disposition = connect(server.url).send(ENVELOPE, "1", far_away())
    assert disposition == Ambiguous("what came back is not HTTP")


def test_a_200_cut_in_its_json(serve, connect):
    server = serve(replies(answer(OK)[:-10]))
    disposition = connect(server.url).send(ENVELOPE, "1", far_away())
    assert disposition == Ambiguous("HTTP 200, then: the answer was cut off", 200)


def test_a_200_without_a_length_cut_in_its_json(serve, connect):
    server = serve(replies(b"HTTP/1.0 200 OK\r\n\r\n" + OK[:-10]))
    disposition = connect(server.url).send(ENVELOPE, "1", far_away())
    assert disposition == Ambiguous("HTTP 200 without a readable answer", 200)


def test_a_200_that_claims_to_be_compressed(serve, connect):
    server = serve(replies(answer(OK, "200 OK", "Content-Encoding: gzip")))
    disposition = connect(server.url).send(ENVELOPE, "1", far_away())
    assert disposition == Ambiguous("HTTP 200, then: the answer cannot be decompressed", 200)


def test_a_200_of_absurd_size(serve, connect):
    server = serve(replies(answer(b" " * 1024 * 1024 + OK)))
    disposition = connect(server.url).send(ENVELOPE, "1", far_away())
    assert disposition == Ambiguous("HTTP 200 without a readable answer", 200)


@pytest.mark.parametrize("part", ["headers", "body"])
def test_a_drip_ends_at_the_deadline(serve, connect, part):
    """Each byte comes within the read timeout; all of them together would take for ever."""
    now = [0.0]

    def script(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\n" + (b"X-Drip: " if part == "headers" else b"\r\n"))
        while True:  # until the client has closed
            sock.sendall(b"x")
            now[0] += 1

    client = connect(serve(script).url, clock=lambda: now[0])
    disposition = client.send(ENVELOPE, "1", 30)
    assert isinstance(disposition, Ambiguous)
    assert disposition.description.endswith("no answer in time")


# --- the answer was cut, its status was not ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("429 Too Many Requests", Transient(429, "HTTP 429, then: the answer was cut off", 9.0)),
        ("502 Bad Gateway", Transient(502, "HTTP 502 without a description", 9.0)),
        ("504 Gateway Timeout", Ambiguous("HTTP 504 without a description", 504)),
        ("401 Unauthorized", BotFault(401, "HTTP 401 without a description")),
        # It may have been a migration: not a reason to drop the message.
        ("400 Bad Request", Transient(400, "HTTP 400, then: the answer was cut off")),
    ],
)
def test_a_refusal_cut_in_its_body(serve, connect, status, expected):
    server = serve(replies(answer(b'{"ok":false,"descri', status, "Retry-After: 9")[:-5]))
    assert connect(server.url).send(ENVELOPE, "1", far_away()) == expected


# --- abort -------------------------------------------------------------------------------------------------


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    return thread, results


def test_abort_ends_an_answer_that_drips(serve, connect):
    dripping = threading.Event()

    def script(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                sock.sendall(b" ")
                dripping.set()

    client = connect(serve(script).url)
    thread, results = in_thread(lambda: client.send(ENVELOPE, "1", far_away(), number=4))
    assert dripping.wait(10)
    assert client.abort(4)
    thread.join(10)
    # What came before the abort is cut, or the shut-down is read as the end of the answer.
    assert [type(result) for result in results] == [Ambiguous]


def test_abort_ends_a_silence_and_the_client_goes_on(serve, connect):
    arrived, over = threading.Event(), threading.Event()

    def silent(sock: socket.socket) -> None:
        read_request(sock)
        arrived.set()
        over.wait(30)

    server = serve(silent, replies(answer(OK)))
    client = connect(server.url)
    thread, results = in_thread(lambda: client.send(ENVELOPE, "1", far_away(), number=1))
    assert arrived.wait(10)
    assert not client.abort(2), "another send than the one in flight"
    assert client.abort(1)
    thread.join(10)
    over.set()
    assert results == [Ambiguous("aborted by us")]
    assert not client.abort(1), "it is over"
    assert client.send(ENVELOPE, "1", far_away(), number=2) == Sent(7, 3)


def test_abort_in_the_tls_handshake_was_certainly_not_sent(serve, connect):
    arrived, over = threading.Event(), threading.Event()

    def script(sock: socket.socket) -> None:
        sock.recv(10)
        arrived.set()
        over.wait(30)

    server = serve(script)
    client = connect(f"https://localhost:{server.port}")
    thread, results = in_thread(lambda: client.send(ENVELOPE, "1", far_away()))
    assert arrived.wait(10)
    assert client.abort()
    thread.join(10)
    over.set()
    assert results == [Unavailable("aborted by us")]


def test_abort_over_tls(serve, connect, tls, certificate):
    arrived, over = threading.Event(), threading.Event()

    def script(sock: socket.socket) -> None:
        read_request(sock)
        arrived.set()
        over.wait(30)

    server = serve(script, context=tls)
    client = connect(server.url, ca_bundle=str(certificate))
    thread, results = in_thread(lambda: client.send(ENVELOPE, "1", far_away()))
    assert arrived.wait(10)
    assert client.abort()
    thread.join(10)
    over.set()
    assert results == [Ambiguous("aborted by us")]


# --- connections -------------------------------------------------------------------------------------------


def test_one_connection_serves_many_sends(serve, connect):
    server = serve(replies(answer(OK), answer(OK), answer(b'{"ok":true,"result":{"username":"a_bot"}}')))
    client = connect(server.url)
    assert [client.send(ENVELOPE, "1", far_away()) for _ in range(2)] == [Sent(7, 3)] * 2
    assert client.get_me(far_away()) == Sent(None)
    assert client.bot_name == "a_bot"
    assert server.accepted == 1


def test_chunked_answers_keep_the_connection(serve, connect):
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(OK), OK)
    server = serve(replies(chunked, chunked))
    client = connect(server.url)
    assert [client.send(ENVELOPE, "1", far_away()) for _ in range(2)] == [Sent(7, 3)] * 2
    assert server.accepted == 1


def test_http_1_0_closes_after_each_answer(serve, connect):
    reply = b"HTTP/1.0 200 OK\r\n\r\n" + OK
    server = serve(replies(reply), replies(reply))
    client = connect(server.url)
    assert [client.send(ENVELOPE, "1", far_away()) for _ in range(2)] == [Sent(7, 3)] * 2
    assert server.accepted == 2


def test_a_connection_that_the_peer_has_closed_is_made_again(serve, connect):
    closed = threading.Event()

    def first(sock: socket.socket) -> None:
        replies(answer(OK))(sock)
        sock.shutdown(socket.SHUT_RDWR)
        closed.set()

    server = serve(first, replies(answer(OK)))
    client = connect(server.url)
    assert client.send(ENVELOPE, "1", far_away()) == Sent(7, 3)
    assert closed.wait(10)
    assert client.send(ENVELOPE, "1", far_away()) == Sent(7, 3)
    assert server.accepted == 2


def test_an_idle_connection_is_not_used_again(serve, connect):
    now = [1000.0]
    server = serve(replies(answer(OK), answer(OK)), replies(answer(OK)))
    client = connect(server.url, clock=lambda: now[0])
    client.send(ENVELOPE, "1", now[0] + 60)
    now[0] += 29.9
    client.send(ENVELOPE, "1", now[0] + 60)
    assert server.accepted == 1
    now[0] += 30.0
    assert client.send(ENVELOPE, "1", now[0] + 60) == Sent(7, 3)
    assert server.accepted == 2


def test_a_redirect_is_not_followed(serve, connect):
    server = serve(replies(answer(b"", "302 Found", "Location: /elsewhere"), answer(OK)))
    client = connect(server.url)
    assert client.send(ENVELOPE, "1", far_away()) == Transient(302, "HTTP 302 without a description")
    assert client.send(ENVELOPE, "1", far_away()) == Sent(7, 3)


def test_tls_and_a_tunnel_through_a_proxy(serve, connect, tls, certificate):
    """The request is written inside the tunnel, and a failure there is no longer one of the proxy."""
    served = []

    def script(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with tls.wrap_socket(sock, server_side=True) as inner:
            served.append(read_request(inner))
            inner.sendall(answer(OK))
            served.append(read_request(inner))

    proxy = serve(script)
    client = connect(
        "https://localhost:1", proxy_url=f"http://127.0.0.1:{proxy.port}", ca_bundle=str(certificate)
    )
    assert client.send(ENVELOPE, "1", far_away()) == Sent(7, 3)
    assert client.send(ENVELOPE, "1", far_away()) == Ambiguous("connection closed without an answer")
    assert all(request.startswith(f"POST /bot{TOKEN}/sendMessage ".encode()) for request in served)


def test_a_socks_proxy(serve, connect):
    pytest.importorskip("socks")

    def script(sock: socket.socket) -> None:
        assert sock.recv(3) == b"\x05\x01\x00"
        sock.sendall(b"\x05\x00")
        sock.recv(262)
        sock.sendall(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        replies(answer(OK))(sock)
        read_request(sock)
        reset(sock)

    proxy = serve(script)
    client = connect("http://api.example", proxy_url=f"socks5h://127.0.0.1:{proxy.port}")
    assert client.send(ENVELOPE, "1", far_away()) == Sent(7, 3)
    assert client.send(ENVELOPE, "1", far_away()) == Ambiguous("Connection reset by peer")


def test_what_is_written(serve, connect, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    seen = []

    def script(sock: socket.socket) -> None:
        seen.append(read_request(sock))
        sock.sendall(answer(OK, "200 OK", "Set-Cookie: a=b"))
        seen.append(read_request(sock))
        sock.sendall(answer(OK))

    client = connect(serve(script).url + "/prefix")
    client.send(TelegramOutbound(msg_id="m", text="ä"), "-100", far_away())
    client.send(TelegramOutbound(msg_id="m", text="a longer text"), "@chat", far_away())
    (head, _, first), (second_head, _, second) = (request.partition(b"\r\n\r\n") for request in seen)
    assert head.startswith(f"POST /prefix/bot{TOKEN}/sendMessage HTTP/1.1\r\n".encode())
    assert b"User-Agent: telegram_connector/" in head
    assert first == '{"chat_id":-100,"text":"ä"}'.encode()
    assert second == b'{"chat_id":"@chat","text":"a longer text"}'
    assert b"cookie" not in second_head.lower()


# --- the token ---------------------------------------------------------------------------------------------


def test_the_token_is_in_no_log_record(serve, connect, caplog):
    caplog.set_level(logging.DEBUG)
    bad_header = b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\nbad header\r\n\r\n" % len(OK) + OK
    echo = answer(f'{{"ok":false,"error_code":400,"description":"/bot{TOKEN}/"}}'.encode(), "400 Bad Request")
    server = serve(replies(answer(OK), bad_header), replies(echo), read_request)
    client = connect(server.url)
    dispositions = [client.send(ENVELOPE, "1", far_away()) for _ in range(4)]
    dispositions.append(connect("http://does-not-exist.invalid").send(ENVELOPE, "1", far_away()))
    assert "sendMessage" in caplog.text, "urllib3 logged the URLs"
    shown = caplog.text + repr(dispositions) + repr(client) + "".join(map(repr, caplog.records))
    shown += "".join(repr(record.__dict__) for record in caplog.records)
    assert TOKEN not in shown
    assert dispositions[2] == Terminal(400, "/bot<token>/")
