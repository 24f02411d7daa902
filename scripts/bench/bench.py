"""How fast is the relay? Side by side in one run, against the same stub: see scripts/bench/README.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import nats
from targets import STUBS

from telegram_connector.bridge import NatsClient
from telegram_connector.cli.demo import environment, nats_server
from telegram_connector.demo.processes import Children, Failed, NatsServer
from telegram_connector.envelope import MSG_ID_HEADER, TelegramOutbound, encode
from telegram_connector.errors import BridgeError
from telegram_connector.settings import NatsSettings
from telegram_connector.topology import provisioned

HERE = Path(__file__).parent
TOKEN = "100001:" + "bench".ljust(35, "_")
CHATS = 50
WARM_UP = 20  # of the idle messages, not counted
IDLE_PAUSE_SECONDS = 0.005
PUBLISH_WINDOW = 500


@dataclass(frozen=True)
class Throughput:
    """One contender's round: all messages at once, as fast as they go.

    Attributes:
        rate: Messages a second, from the first to the last at the stub.
        cpu_ms: Milliseconds of the contender's process per message.
    """

    rate: float
    cpu_ms: float


@dataclass
class Results:
    """What a run measured."""

    about: dict[str, Any]
    throughput: dict[str, list[Throughput]] = field(default_factory=dict)
    idle_ms: list[float] = field(default_factory=list)


class Bench:
    """One run: a nats-server, a stub, and the contenders one after the other, round by round."""

    def __init__(self, options: argparse.Namespace, folder: Path, children: Children) -> None:
        self._options = options
        self._folder = folder
        self._children = children
        self._deadline = time.monotonic() + options.limit_seconds
        self._random = random.Random(options.seed)
        self._stub = STUBS[options.stub](children, self._deadline)
        self._server = NatsServer(nats_server(), folder, children)
        self._streams = 0

    def run(self) -> Results:
        options = self._options
        results = Results(self._about())
        bodies = self._bodies(options.messages)
        contenders: dict[str, Callable[[list[dict[str, Any]]], Throughput]] = {
            "bare requests": self._bare,
            "relay": self._relay,
        }
        for _ in range(options.rounds):
            for name, measure in contenders.items():
                results.throughput.setdefault(name, []).append(measure(bodies))
            results.idle_ms += self._idle()
        results.about["load_after"] = os.getloadavg()[0]
        return results

    def _about(self) -> dict[str, Any]:
        options = self._options
        version = subprocess.run([nats_server(), "--version"], capture_output=True, text=True, check=True)
        return {
            "messages": options.messages,
            "chats": CHATS,
            "rounds": options.rounds,
            "seed": options.seed,
            "stub": options.stub,
            "python": platform.python_version(),
            "nats_server": version.stdout.split()[-1].lstrip("v"),
            "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "load_before": os.getloadavg()[0],
        }

    def _bodies(self, count: int) -> list[dict[str, Any]]:
        return [
            {
                "chat_id": 1 + self._random.randrange(CHATS),
                "text": f"{number} " + "x" * self._random.randrange(40, 200),
            }
            for number in range(count)
        ]

    # Throughput

    def _bare(self, bodies: list[dict[str, Any]]) -> Throughput:
        self._stub.reset()
        contender = self._contender(
            "bare", {"send_url": f"{self._stub.url}/bot{TOKEN}/sendMessage", "bodies": bodies}
        )
        with contender:
            cpu = float(contender.line(self._deadline))
        return self._measured(bodies, cpu)

    def _relay(self, bodies: list[dict[str, Any]]) -> Throughput:
        self._stub.reset()
        settings = self._new_stream()
        left = max(1.0, self._deadline - time.monotonic())
        try:
            asyncio.run(asyncio.wait_for(publish_all(settings, bodies), left))
        except asyncio.TimeoutError:
            raise Failed("publishing was not done in time") from None
        task = self._relay_task(settings, len(bodies))
        if self._options.profile:
            task["profile"] = str(self._options.profile.absolute())
        with self._contender("relay", task) as contender:
            contender.line(self._deadline)
            cpu = float(contender.line(self._deadline))
        return self._measured(bodies, cpu)

    def _measured(self, bodies: Sequence[dict[str, Any]], cpu_seconds: float) -> Throughput:
        """The figures of a round, which must have brought every message once and each chat's in order."""
        times, got = self._stub.receipts(len(bodies))
        texts = Counter(body["text"] for body in got)
        if texts != Counter(body["text"] for body in bodies):
            raise Failed(f"{len(bodies)} messages were sent and {len(got)} came, or came changed")
        for chat in {str(body["chat_id"]) for body in bodies}:
            numbers = [int(b["text"].split()[0]) for b in got if str(b["chat_id"]) == chat]
            if numbers != sorted(numbers):
                raise Failed(f"the order in chat {chat} was not kept")
        intervals = max(1, len(times) - 1)
        seconds = max(times) - min(times)
        return Throughput(intervals / seconds if seconds else 0.0, 1000 * cpu_seconds / intervals)

    # Latency

    def _idle(self) -> list[float]:
        """Milliseconds from before a publish to the stub's receipt, one message at a time."""
        settings = self._new_stream()
        self._stub.reset()
        bodies = self._bodies(WARM_UP + self._options.idle)
        published = []
        pause = IDLE_PAUSE_SECONDS
        with self._contender("relay", self._relay_task(settings, 0)) as contender:
            contender.line(self._deadline)
            with NatsClient(settings, "bench") as client:
                for number, body in enumerate(bodies, 1):
                    envelope = envelope_of(number, body)
                    payload = encode(envelope)
                    time.sleep(pause)
                    published.append(self._stub.now())
                    client.publish(settings.subject, payload, {MSG_ID_HEADER: envelope.msg_id})
                    times, _ = self._stub.receipts(number)
        waits = [1000 * (came - went) for went, came in zip(published, times, strict=True)]
        return waits[WARM_UP:]

    # What they need

    def _new_stream(self) -> NatsSettings:
        """A stream of this round's own."""
        while (settings := self._server.settings(60.0)) is None:
            self._server.child.fail_if_ended()
            self._give_up_when_late()
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
        while True:
            try:
                with NatsClient(settings, "bench") as client:
                    for config in provisioned(settings):
                        client.api(f"STREAM.CREATE.{config['name']}", config)
                return settings
            except BridgeError:
                self._give_up_when_late()
                time.sleep(0.02)

    def _relay_task(self, settings: NatsSettings, count: int) -> dict[str, Any]:
        names = ("nats_url", "stream", "subject", "durable", "dead_stream", "dead_subject")
        relay = {"bot_token": TOKEN, "chat_id": "1", "api_base_url": self._stub.url}
        return {"count": count, "settings": {**relay, **{name: getattr(settings, name) for name in names}}}

    def _contender(self, name: str, task: dict[str, Any]) -> Contender:
        return Contender(name, task, environment(os.environ))

    def _give_up_when_late(self) -> None:
        if time.monotonic() > self._deadline:
            raise Failed(f"not done after --limit-seconds {self._options.limit_seconds}")


class Contender:
    """A running `contender.py`; leaving the context ends it."""

    def __init__(self, name: str, task: dict[str, Any], env: dict[str, str]) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "contender.py"), name],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,  # Ctrl-C is ours; it ends when its standard input does
        )
        assert self._process.stdin
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()

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


async def publish_all(settings: NatsSettings, bodies: Sequence[dict[str, Any]]) -> None:
    """Store all of them in order, confirmed."""
    client = await nats.connect(settings.nats_url)
    stream = client.jetstream(publish_async_max_pending=PUBLISH_WINDOW)
    acks = []
    for number, body in enumerate(bodies, 1):
        envelope = envelope_of(number, body)
        acks.append(
            await stream.publish_async(
                settings.subject, encode(envelope), headers={MSG_ID_HEADER: envelope.msg_id}
            )
        )
    await asyncio.gather(*acks)
    await client.close()


def envelope_of(number: int, body: dict[str, Any]) -> TelegramOutbound:
    return TelegramOutbound(msg_id=f"bench-{number}", chat=str(body["chat_id"]), text=body["text"])


# Showing


def table(results: Results) -> str:
    """The results for people."""
    about = results.about
    lines = [
        f"{about['messages']} messages to {about['chats']} chats, {about['rounds']} rounds interleaved, "
        f"seed {about['seed']}, stub {about['stub']}",
        f"Python {about['python']}, nats-server {about['nats_server']}, {about['cpus']} CPUs, load "
        f"{about['load_before']:.2f} before and {about['load_after']:.2f} after",
        "",
        f"{'':16}{'messages/s':>12}{'(least-most)':>16}{'CPU ms/message':>17}{'rate : bare':>14}",
    ]
    base = next(iter(results.throughput.values()))
    for name, rounds in results.throughput.items():
        rates = [one.rate for one in rounds]
        ratio = statistics.median(one.rate / first.rate for one, first in zip(rounds, base, strict=True))
        lines.append(
            f"{name:16}{statistics.median(rates):12.0f}{f'({min(rates):.0f}-{max(rates):.0f})':>16}"
            f"{statistics.median(one.cpu_ms for one in rounds):17.3f}{ratio:14.2f}"
        )
    if results.idle_ms:
        waits = sorted(results.idle_ms)
        lines += [
            "",
            f"idle, publish to send: p50 {percentile(waits, 50):.2f} ms, p99 {percentile(waits, 99):.2f} ms, "
            f"most {waits[-1]:.2f} ms ({len(waits)} messages, one at a time)",
        ]
    lines.append("Every message came once, and each chat's in order.")
    return "\n".join(lines)


def percentile(ordered: Sequence[float], percent: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def document(results: Results) -> dict[str, Any]:
    """The results for programs."""
    return {
        **results.about,
        "throughput": {name: [asdict(one) for one in rounds] for name, rounds in results.throughput.items()},
        "idle_ms": results.idle_ms,
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="scripts/bench/run.sh", allow_abbrev=False, description=__doc__)
    made.add_argument("--messages", type=int, default=2000, help="per contender and round (2000)")
    made.add_argument("--idle", type=int, default=200, help="messages one at a time, per round (200)")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--stub", choices=sorted(STUBS), default="fast")
    made.add_argument("--limit-seconds", type=float, default=300.0, help="give up after so long (300)")
    made.add_argument(
        "--profile", type=Path, help="write the relay's sampled stacks (last round) to this file"
    )
    made.add_argument("--json", action="store_true", help="figures for programs")
    return made


def stop(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, stop)
    with tempfile.TemporaryDirectory(prefix="telegram-connector-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            with Children(folder, environment(os.environ)) as children:
                results = Bench(options, folder, children).run()
        except (Failed, BridgeError) as error:
            print(f"scripts/bench: {error}", file=sys.stderr)
            return 1
    print(json.dumps(document(results), indent=1) if options.json else table(results))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
