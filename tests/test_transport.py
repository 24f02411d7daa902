"""Reading the head of an answer: what is usual in one go, and like ``http.client`` in all of it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time

import pytest

from telegram_connector.transport import Flight, _DeadlineResponse

USUAL = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nServer: nginx\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\ncontent-length:2\r\n\r\n{}",
    b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 5\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    b"HTTP/1.1 502 Bad Gateway\r\nX-Name: caf\xe9\r\nX-Name: again\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nX-Empty:\r\nX-Colons: a:b: c\r\nContent-Length: 2\r\n\r\n{}",
]
UNUSUAL = [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 7\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2 \r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nX-Long: one\r\n two\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
    b"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 2\r\n\r\n{}",
]


def read(kind: type[http.client.HTTPResponse], raw: bytes, cut: int | None = None) -> dict[str, object]:
    """All that a response of the kind makes of what the other side sends, in one piece or in two."""
    here, there = socket.socketpair()
    with here, there:
        there.sendall(raw[:cut])
        if cut is None:
            there.shutdown(socket.SHUT_WR)
        if kind is _DeadlineResponse:
            flight = Flight(time.monotonic)
            flight.begin(None, time.monotonic() + 30)
            response = _DeadlineResponse(here, method="POST", flight=flight)
        else:
            response = kind(here, method="POST")
        if cut is not None:
            there.sendall(raw[cut:])
            there.shutdown(socket.SHUT_WR)
        with contextlib.closing(response):
            response.begin()
            return {
                "status": (response.version, response.status, response.code, response.reason),
                "headers": response.headers.items(),
                "frame": (response.chunked, response.length, response.will_close),
                "body": response.read(),
            }


@pytest.mark.parametrize("raw", [*USUAL, *UNUSUAL])
def test_every_answer_is_read_as_http_client_reads_it(raw: bytes):
    assert read(_DeadlineResponse, raw) == read(http.client.HTTPResponse, raw)


@pytest.mark.parametrize("cut", [1, 15, 17, 30, 37, 39])
def test_an_answer_that_comes_in_pieces_is_read_as_well(cut: int):
    assert read(_DeadlineResponse, USUAL[0], cut) == read(http.client.HTTPResponse, USUAL[0])


@pytest.mark.parametrize(
    "raw", [b"", b"HTTP/1.1 2000 OK\r\n\r\n", b"SSH-2.0-x\r\n\r\n", b"HTTP/2 200\r\n\r\n"]
)
def test_what_is_no_answer_is_refused_as_by_http_client(raw: bytes):
    with pytest.raises(http.client.HTTPException) as expected:
        read(http.client.HTTPResponse, raw)
    with pytest.raises(type(expected.value)):
        read(_DeadlineResponse, raw)


def test_the_usual_ones_are_read_in_one_go(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http.client, "parse_headers", None)
    for raw in USUAL:
        read(_DeadlineResponse, raw)
