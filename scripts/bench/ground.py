"""What every scenario stands on: a nats-server, a stub, streams, and contenders in processes of their own."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import nats
from nats.js.errors import TooManyStalledMsgsError
from targets import STUBS, Came

from telegram_connector.bridge import NatsClient
from telegram_connector.cli.demo import environment, nats_server
from telegram_connector.demo.processes import Children, Failed, NatsServer
from telegram_connector.envelope import MSG_ID_HEADER, TelegramOutbound, encode
from telegram_connector.errors import BridgeError
from telegram_connector.settings import NatsSettings
from telegram_connector.topology import provisioned

HERE = Path(__file__).parent
TOKEN = "100001:" + "bench".ljust(35, "_")
PUBLISH_WINDOW = 500
PUBLISH_STALL_SECONDS = 30.0
STREAM_FIELDS = ("nats_url", "stream", "subject", "durable", "dead_stream", "dead_subject")

Body: TypeAlias = dict[str, Any]
Rows: TypeAlias = dict[str, dict[str, float]]  # what one run of a scenario measured: row, column, figure


@dataclass(frozen=True)
class Peer:
    """Somebody to measure: `name` as the table shows it, `kind` as contender.py knows it."""

    name: str
    kind: str
    options: dict[str, Any]


BARE = Peer("bare requests", "bare", {})
RELAY = Peer("relay", "relay", {})
PTB = Peer("nats-py + PTB", "ptb", {"at_once": 1, "limiter": False})
PTB_1 = Peer("nats-py + PTB, limiter", "ptb", {"at_once": 1, "limiter": True})
PTB_16 = Peer("the same, 16 at once", "ptb", {"at_once": 16, "limiter": True})


def relay(name: str, **settings: Any) -> Peer:
    """The relay with settings of its own."""
    return Peer(name, "relay", {"settings": settings})


class Ground:
    """One run of the benchmark.

    Attributes:
        options: The command line's.
        children: Ended with the benchmark, however it ends.
        stub: Where all contenders send to.
    """

    def __init__(self, options: argparse.Namespace, folder: Path, children: Children) -> None:
        self.options = options
        self.children = children
        self.deadline: float = time.monotonic() + options.limit_seconds
        self.random = random.Random(options.seed)
        self.stub = STUBS[options.stub](children, self.deadline)
        self._server = NatsServer(nats_server(), folder, children)
        self._streams = 0

    def bodies(self, chats: Sequence[int], first: int = 0) -> list[Body]:
        """A message of random length for each chat named, numbered on from `first`."""
        return [
            {"chat_id": chat, "text": f"{number} " + "x" * self.random.randrange(40, 200)}
            for number, chat in enumerate(chats, first)
        ]

    def some_chats(self, count: int, of: int) -> list[int]:
        return [1 + self.random.randrange(of) for _ in range(count)]

    # Streams

    def stream(self, bodies: Sequence[Body] = ()) -> NatsSettings:
        """A stream of its own, with the messages stored in it."""
        while (settings := self._server.settings(60.0)) is None:
            self._server.child.fail_if_ended()
            self.give_up_when_late()
            time.sleep(0.02)
        self._streams += 1
        number = self._streams
        settings = NatsSettings(
            nats_url=settings.nats_url,
            stream=f"BENCH_{number}",
            subject=f"bench.{number}",
            durable=f"bench_{number}",
            dead_stream=f"BENCH_DEAD_{number}",
            dead_subject=f"bench.dead.{number}",
        )
        while not self._provision(settings):
            self.give_up_when_late()
            time.sleep(0.02)
        try:
            asyncio.run(asyncio.wait_for(_publish_all(settings, bodies), self.left()))
        except (asyncio.TimeoutError, TooManyStalledMsgsError):  # what nats-py makes of being cancelled
            raise Failed("publishing was not done in time") from None
        return settings

    def _provision(self, settings: NatsSettings) -> bool:
        try:
            with NatsClient(settings, "bench") as client:
                for config in provisioned(settings):
                    client.api(f"STREAM.CREATE.{config['name']}", config)
        except BridgeError:
            return False
        return True

    @contextlib.contextmanager
    def publisher(self, settings: NatsSettings) -> Iterator[Publisher]:
        with NatsClient(settings, "bench") as client:
            yield Publisher(self, client, settings.subject)

    # Contenders

    def start(
        self, peer: Peer, settings: NatsSettings, count: int = 0, bodies: Sequence[Body] = ()
    ) -> Contender:
        """Start a contender on a stream (`bare` takes the bodies themselves) and wait until it is ready."""
        relay = {"bot_token": TOKEN, "chat_id": "1", "api_base_url": self.stub.url}
        relay |= {name: getattr(settings, name) for name in STREAM_FIELDS}
        task = {
            "count": count,
            "bodies": list(bodies) if peer.kind == "bare" else [],
            "send_url": f"{self.stub.url}/bot{TOKEN}/sendMessage",
            **peer.options,
            "settings": relay | peer.options.get("settings", {}),
        }
        if self.options.profile and peer.kind == "relay":
            task["profile"] = str(self.options.profile.absolute())
        contender = Contender(peer, task, self.environment())
        contender.line(self.deadline)
        return contender

    def environment(self) -> dict[str, str]:
        return environment(os.environ)

    def left(self) -> float:
        """Seconds until the deadline."""
        return max(1.0, self.deadline - time.monotonic())

    def give_up_when_late(self) -> None:
        if time.monotonic() > self.deadline:
            raise Failed(f"not done after --limit-seconds {self.options.limit_seconds}")


class Publisher:
    """Publishes one message at a time."""

    def __init__(self, ground: Ground, client: NatsClient, subject: str) -> None:
        self._ground = ground
        self._client = client
        self._subject = subject

    def publish(self, number: int, body: Body) -> float:
        """Publish it; returns when that began, by the stub's clock."""
        envelope = envelope_of(self._subject, number, body)
        payload = encode(envelope)
        began = self._ground.stub.now()
        self._client.publish(self._subject, payload, {MSG_ID_HEADER: envelope.msg_id})
        return began


class Contender:
    """A running `contender.py`; leaving the context ends it."""

    def __init__(self, peer: Peer, task: dict[str, Any], env: dict[str, str]) -> None:
        self._name = peer.name
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "contender.py"), peer.kind],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is ours; it ends when its standard input does
        )
        assert self._process.stdin
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self, deadline: float) -> str:
        """Its next line.

        Raises:
            Failed: It ended, or the deadline passed.
        """
        assert self._process.stdout
        ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise Failed(f"{self._name} {'ended' if ready else 'was not done in time'}")
        return line.strip()

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(10.0 if kind is None else 0.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


async def _publish_all(settings: NatsSettings, bodies: Sequence[Body]) -> None:
    """Store all of them in order, confirmed."""
    if not bodies:
        return
    client = await nats.connect(settings.nats_url)
    stream = client.jetstream(publish_async_max_pending=PUBLISH_WINDOW)
    acks = []
    for number, body in enumerate(bodies, 1):
        envelope = envelope_of(settings.subject, number, body)
        acks.append(
            await stream.publish_async(
                settings.subject,
                encode(envelope),
                wait_stall=PUBLISH_STALL_SECONDS,
                headers={MSG_ID_HEADER: envelope.msg_id},
            )
        )
    await asyncio.gather(*acks)
    await client.close()


def envelope_of(subject: str, number: int, body: Body) -> TelegramOutbound:
    """The message of a body; its id has the subject in it, since the ledger knows what was sent before."""
    return TelegramOutbound(msg_id=f"{subject}-{number}", chat=str(body["chat_id"]), text=body["text"])


def number_of(body: Body) -> int:
    return int(body["text"].split()[0])


def check_order(came: Came) -> None:
    """Raises:
    Failed: A chat's messages did not come in order.
    """
    for chat in {str(body["chat_id"]) for body in came.bodies}:
        if not in_order(came, chat):
            raise Failed(f"the order in chat {chat} was not kept")


def in_order(came: Came, chat: str) -> bool:
    numbers = [number_of(body) for body in came.bodies if str(body["chat_id"]) == chat]
    return numbers == sorted(numbers)


def check_all(came: Came, bodies: Sequence[Body]) -> None:
    """Raises:
    Failed: Something is missing, doubled or changed.
    """
    if Counter(body["text"] for body in came.bodies) != Counter(body["text"] for body in bodies):
        raise Failed(f"{len(bodies)} messages were sent and {len(came.bodies)} came, or came changed")


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
