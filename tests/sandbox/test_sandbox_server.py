"""The server: many clients at once, keep-alive, stopping and starting, the command's own call."""

from __future__ import annotations

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from telegram_connector.sandbox import Sandbox, serve


def test_long_answers_do_not_block_the_api(sandbox, api, session):
    sandbox.set_fault({"silence": {"seconds": 60}, "chat": 6})
    slow = [
        f"{sandbox.url}/bot1:x/getUpdates?timeout=50",
        f"{sandbox.url}/_sandbox/wait?count=99&timeout=50",
        f"{sandbox.url}/bot1:x/sendMessage?chat_id=6&text=silence",
    ]
    ended: list[str] = []

    def ask(url: str) -> None:
        with contextlib.suppress(requests.ConnectionError):
            requests.get(url, timeout=60)
        ended.append(url)

    threads = [threading.Thread(target=ask, args=(url,)) for url in slow]
    for thread in threads:
        thread.start()
    sandbox.wait(count=1, chat=6)
    assert [api("sendMessage", chat_id=5, text="hi").status_code for _ in range(20)] == [200] * 20
    assert session.get(f"{sandbox.url}/_sandbox/count", timeout=10).json() == {"count": 21}
    assert ended == []
    sandbox.stop()
    for thread in threads:
        thread.join(10)
    assert len(ended) == 3


def test_many_clients_at_once(sandbox):
    def send_ten(client: int) -> None:
        with requests.Session() as session:
            for n in range(10):
                params = {"chat_id": client, "text": f"m{n}"}
                url = f"{sandbox.url}/bot1:x/sendMessage"
                assert session.post(url, json=params, timeout=30).status_code == 200

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(send_ten, range(1, 65)))
    assert sandbox.count() == 640
    assert sandbox.order_breaks() == []
    assert sorted(m.message_id for m in sandbox.messages(chat=7)) == list(range(1, 11))


def test_a_crowd_that_connects_at_the_same_moment(sandbox):
    connections = [socket.create_connection(("127.0.0.1", sandbox.port), timeout=10) for _ in range(200)]
    for connection in connections:
        connection.sendall(b"GET /bot1:x/getMe HTTP/1.0\r\n\r\n")
    for connection in connections:
        with connection:
            assert connection.recv(12) == b"HTTP/1.1 200"


def test_a_connection_is_kept(sandbox, session):
    adapter = session.get_adapter(sandbox.url)
    for _ in range(5):
        session.post(f"{sandbox.url}/bot1:x/sendMessage", json={"chat_id": 5, "text": "hi"}, timeout=10)
        session.get(f"{sandbox.url}/_sandbox/count", timeout=10)
        session.get(f"{sandbox.url}/nothing", timeout=10)
        # Refused without a look at the body, which must not be taken for the next request.
        session.post(f"{sandbox.url}/nothing", data=b"x" * 100_000, timeout=10)
    (key,) = adapter.poolmanager.pools.keys()
    pool = adapter.poolmanager.pools[key]
    assert pool.num_connections == 1
    assert pool.num_requests == 20


def test_requests_that_come_in_one_packet_are_answered_in_turn(sandbox):
    one = b"GET /bot1:x/getMe HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"HEAD /bot1:x/getMe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=10) as connection:
        connection.sendall(one + one + last)
        received = b""
        while piece := connection.recv(65_536):
            received += piece
    assert received.count(b"HTTP/1.1 200") == 3
    assert received.endswith(b"Connection: close\r\n\r\n")


@pytest.mark.parametrize(
    "request_", [b"nonsense\r\n\r\n", b"GET /bot1:x/getMe HTTP/9.9\r\n\r\n", b"A B C D\r\n\r\n"]
)
def test_what_is_no_http_gets_an_empty_400(request_, sandbox):
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=10) as connection:
        connection.sendall(request_)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400")


def test_a_broken_length_or_chunk_ends_the_connection(sandbox):
    head = b"POST /bot1:x/getMe HTTP/1.1\r\nHost: x\r\n"
    for tail in (b"Content-Length: ten\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n"):
        with socket.create_connection(("127.0.0.1", sandbox.port), timeout=10) as connection:
            connection.sendall(head + tail)
            received = b""
            while piece := connection.recv(65_536):
                received += piece
        assert b"Connection: close" in received


def test_half_a_request_is_no_message(sandbox):
    head = b"POST /bot1:x/sendMessage HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n"
    form = b"Content-Type: application/x-www-form-urlencoded\r\n\r\n"
    with socket.create_connection(("127.0.0.1", sandbox.port), timeout=10) as connection:
        connection.sendall(head + form + b"chat_id=5&text=hi")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(65_536) == b""
    assert sandbox.count() == 0


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000])
def test_a_body_nested_beyond_reason_is_refused(body, sandbox, session):
    json_type = {"Content-Type": "application/json"}
    answer = session.post(f"{sandbox.url}/bot1:x/getMe", data=body, headers=json_type, timeout=10)
    assert (answer.status_code, answer.content) == (400, b"")


def test_down_and_up_again_on_the_same_port(sandbox, session):
    url = f"{sandbox.url}/bot1:x/sendMessage"
    params = {"chat_id": 5, "text": "hi"}
    assert session.post(url, json=params, timeout=10).status_code == 200
    sandbox.stop()
    sandbox.stop()
    with pytest.raises(requests.ConnectionError):
        session.post(url, json=params, timeout=10)
    sandbox.start()
    sandbox.start()
    assert session.post(url, json=params, timeout=10).json()["result"]["message_id"] == 2
    assert sandbox.wait(count=2, timeout_seconds=0)


def test_stopping_leaves_no_thread_behind(sandbox, session):
    session.get(f"{sandbox.url}/bot1:x/getMe", timeout=10)
    assert any(thread.name.startswith("sandbox") for thread in threading.enumerate())
    sandbox.stop()
    assert not any(thread.name.startswith("sandbox") for thread in threading.enumerate())


def test_a_taken_port_is_an_error_not_an_exit(sandbox):
    with pytest.raises(OSError, match="in use"):
        Sandbox(sandbox.port).start()


def test_other_addresses_are_warned_of(capsys):
    with Sandbox(host="0.0.0.0") as sandbox:
        assert sandbox.port
    assert "0.0.0.0, which others may reach" in capsys.readouterr().err
    with Sandbox(host="localhost"):
        pass
    assert capsys.readouterr().err == ""


def test_nothing_is_logged_per_request(sandbox, api, capfd, caplog):
    api("getMe")
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_serving_until_told_to_stop(tmp_path):
    chats = tmp_path / "chats.json"
    chats.write_text('{"chats": [{"id": 5}]}')
    lines: list[str] = []
    listening, stop = threading.Event(), threading.Event()

    def announce(line: str) -> None:
        lines.append(line)
        if line.startswith("TELEGRAM_API_BASE_URL="):
            listening.set()

    serving = threading.Thread(
        target=serve,
        args=("127.0.0.1", 0, chats, None, "telegram", True, announce, stop),
        kwargs={"faults": ["blocked:chat=5"]},
    )
    serving.start()
    assert listening.wait(10)
    url = lines[-1].partition("=")[2]
    assert requests.get(f"{url}/bot1:x/sendMessage?chat_id=5&text=x", timeout=10).status_code == 403
    assert requests.get(f"{url}/bot1:x/getChat?chat_id=6", timeout=10).status_code == 400
    stop.set()
    serving.join(10)
    assert not serving.is_alive()
