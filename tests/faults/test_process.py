"""The worker's process killed at any moment, a backlog larger than its memory, and the largest messages."""

from __future__ import annotations

import asyncio
import base64
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telegram_connector.bridge.link import Link
from telegram_connector.bridge.loop import LoopThread
from telegram_connector.envelope import TelegramOutbound, encode
from telegram_connector.sandbox import Sandbox
from tests.fleet import PATIENCE_SECONDS, Fleet, numbered, worker_env
from tests.nats_server import NatsServer
from tests.process import Process

pytestmark = pytest.mark.integration

KILLS = 8
KILLED_MESSAGES = 400
KILLED_CHATS = 8

BACKLOG = 100_000
MAX_PENDING = 10_000
NEIGHBOUR_EVERY = 100
IN_FLIGHT = 4_000  # a server drops what it cannot queue for a stream: 10,000 of them
RSS_GROWTH_MIB = 150
MAX_PAYLOAD = 1024 * 1024  # of a server, by default: headers and body


@pytest.fixture
def fleet(nats_server: NatsServer) -> Iterator[Fleet]:
    with Sandbox() as sandbox:
        yield Fleet(nats_server, sandbox)


def until(condition: Any, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for something that only asking can tell."""
    deadline = time.monotonic() + patience_seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        pause.wait(0.05)


def publish_fast(server: NatsServer, payloads: list[bytes]) -> None:
    """Publish to the stream with many in flight; returns once all are stored."""
    loop = LoopThread("publisher")
    loop.start()

    async def publish() -> None:
        link = await Link.open(server.settings(server.root_seed), name="publisher")
        stored = 0
        progress = asyncio.Event()

        async def note(_: Any) -> None:
            nonlocal stored
            stored += 1
            progress.set()

        inbox = link.new_inbox()
        await link.subscribe(inbox, note)
        for count, payload in enumerate(payloads):
            while count - stored >= IN_FLIGHT:
                progress.clear()
                await progress.wait()
            await link.publish("telegram.outbound", payload, reply=inbox)
        while stored < len(payloads):
            progress.clear()
            await progress.wait()
        await link.close()

    try:
        loop.submit(publish()).result(60)
    finally:
        loop.stop(5)


# --- killed ------------------------------------------------------------------------------------------------


def test_killed_at_random_moments_it_loses_nothing_and_doubles_only_what_was_under_way(fleet: Fleet) -> None:
    moments = random.Random(5)
    envelopes = numbered(KILLED_MESSAGES, KILLED_CHATS)
    fleet.publish(*envelopes)
    # Half of them are killed while they wait for an answer.
    fleet.sandbox.set_fault({"delay_seconds": 0.02}, every=2)
    env = worker_env(fleet, TG_ACK_WAIT_SECS="2", TG_STANDBY_TAKEOVER_SECS="1")
    for _ in range(KILLS):
        already = fleet.sandbox.count()
        with Process("run", env=env) as worker:
            fleet.sandbox.wait(count=already + moments.randint(1, 40), timeout_seconds=PATIENCE_SECONDS)
            worker.signal(signal.SIGKILL)
            worker.wait()
    with Process("run", env=env):
        until(lambda: {e.text for e in envelopes} <= set(fleet.texts()))
        fleet.assert_nothing_left()
    doubled = Counter(fleet.texts()) - Counter(e.text for e in envelopes)
    breaks = fleet.sandbox.order_breaks()
    print(f"doubled by {KILLS} kills: {sum(doubled.values())}; order breaks: {len(breaks)}")
    assert set(fleet.texts()) == {e.text for e in envelopes}
    # A send whose answer is awaited, and one whose ack is on its way meanwhile.
    assert sum(doubled.values()) <= 2 * KILLS
    assert breaks == []
    with fleet.server.client() as client:
        assert client.api("STREAM.INFO.TELEGRAM_DEAD")["state"]["messages"] == 0


# --- a backlog larger than its memory ----------------------------------------------------------------------


def memory_mib(process: Process, figure: str) -> float:
    """`VmRSS`, what it has now, or `VmHWM`, the most it ever had."""
    status = Path(f"/proc/{process._popen.pid}/status").read_text()
    found = re.search(rf"{figure}:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured by /proc")
def test_memory_is_bounded_with_100_000_messages_behind_one_held_chat(fleet: Fleet) -> None:
    held, neighbour = "100", "200"
    fleet.sandbox.set_fault("flood", chat=int(held), retry_after=3600)
    with Process("run", env=worker_env(fleet, TG_MAX_PENDING=str(MAX_PENDING))) as worker:
        fleet.publish(TelegramOutbound(msg_id="first", chat=held, text="first"))
        fleet.sandbox.wait_requests(count=1, method="sendMessage", timeout_seconds=PATIENCE_SECONDS)
        before = memory_mib(worker, "VmRSS")
        payloads = [
            encode(
                TelegramOutbound(
                    msg_id=f"m{n}", chat=held if n % NEIGHBOUR_EVERY else neighbour, text=f"text {n}"
                )
            )
            for n in range(1, BACKLOG + 1)
        ]
        started = time.monotonic()
        publish_fast(fleet.server, payloads)
        published = time.monotonic() - started
        # The last neighbour that fits before what is out at once is full.
        served = MAX_PENDING // NEIGHBOUR_EVERY
        fleet.sandbox.wait(count=served, chat=int(neighbour), timeout_seconds=60)
        until(lambda: fleet.server.consumer()["num_ack_pending"] == MAX_PENDING)
        after = memory_mib(worker, "VmHWM")
        info = fleet.server.consumer()
        assert info["num_ack_pending"] == MAX_PENDING
        assert info["num_pending"] >= BACKLOG - MAX_PENDING - served - 2
        print(f"RSS {before:.0f} -> {after:.0f} MiB; published in {published:.1f} s")
        assert after - before < RSS_GROWTH_MIB
        texts = fleet.texts(int(neighbour))
        assert texts[:served] == [f"text {n}" for n in range(100, MAX_PENDING + 1, NEIGHBOUR_EVERY)]
        assert fleet.texts(int(held)) == []
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


# --- the largest messages ----------------------------------------------------------------------------------


def test_the_longest_texts_arrive_verbatim(fleet: Fleet) -> None:
    texts = ["😀" * 4096, "𝔘" * 4095 + "x", "\U0010ffff" * 4096, "👩‍👩‍👧‍👦" * 585]
    fleet.publish(*(TelegramOutbound(msg_id=f"m{n}", chat="100", text=t) for n, t in enumerate(texts)))
    with Process("run", env=worker_env(fleet)):
        fleet.sandbox.wait(count=len(texts), timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()
    assert fleet.texts(100) == texts


def test_a_message_of_almost_a_megabyte_is_refused_and_kept_to_the_byte(fleet: Fleet) -> None:
    large = TelegramOutbound(msg_id="large", chat="100", text="é" * 500_000)
    after = TelegramOutbound(msg_id="after", chat="100", text="after")
    fleet.publish(large, after)
    with Process("run", env=worker_env(fleet)):
        fleet.sandbox.wait(count=1, chat=100, timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()
    assert fleet.texts(100) == ["after"]
    assert dead_letter(fleet) == encode(large)


def dead_letter(fleet: Fleet) -> bytes:
    with fleet.server.client() as client:
        stored = client.api("STREAM.MSG.GET.TELEGRAM_DEAD", {"seq": 1})["message"]
    return base64.b64decode(stored["data"])


def test_one_that_leaves_no_room_for_the_dead_letters_headers_does_not_stay_for_ever(fleet: Fleet) -> None:
    smallest = TelegramOutbound(msg_id="large", chat="100", text="x")
    room = MAX_PAYLOAD - len("NATS/1.0\r\nNats-Msg-Id: large\r\n\r\n") - len(encode(smallest))
    large = TelegramOutbound(msg_id="large", chat="100", text="x" * (room + 1))
    fleet.publish(large, TelegramOutbound(msg_id="after", chat="100", text="after"))
    with Process("run", env=worker_env(fleet)):
        fleet.sandbox.wait(count=1, chat=100, timeout_seconds=PATIENCE_SECONDS)
        fleet.assert_nothing_left()
    assert fleet.texts(100) == ["after"]
