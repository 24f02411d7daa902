"""What is measured: a function for each scenario, which returns the figures of one run."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors import collectors
from ground import (
    BARE,
    PTB,
    PTB_1,
    PTB_16,
    RELAY,
    STREAM_FIELDS,
    TOKEN,
    Body,
    Ground,
    Peer,
    Rows,
    check_all,
    check_order,
    in_order,
    number_of,
    percentile,
    relay,
)
from targets import Came

from telegram_connector.settings import NatsSettings

CHATS = 50
CALL_SECONDS = 0.08
BOT_RATE = 30
CEILING_CHATS = 60
WARM_UP = 20  # of the idle messages, not counted
IDLE_PAUSE_SECONDS = 0.005
HOT_CHAT = 1
OTHERS = 150
TRICKLE_CHATS = range(1001, 1101)
BACKLOG_COUNTED = 1000
PAID_CHATS = 5000

PACED = relay("relay, 16 workers, paced", workers=16, pacing=True)
HELD = relay("relay, 16 workers", workers=16)


@dataclass(frozen=True)
class Scenario:
    """Something to measure.

    Attributes:
        title: What is done.
        measure: One run of it.
        ratio: The column whose figures are also shown as multiples of the first row's.
    """

    title: str
    measure: Callable[[Ground], Rows]
    ratio: str | None = None


# a: one after the other, as fast as it goes


def sequential(ground: Ground) -> Rows:
    bodies = ground.bodies(ground.some_chats(ground.options.messages, CHATS))
    return {peer.name: throughput(ground, peer, bodies) for peer in _present(BARE, RELAY, PTB)}


def throughput(
    ground: Ground,
    peer: Peer,
    bodies: Sequence[Body],
    counted: int | None = None,
    *,
    skipped: int = 0,
    standby: bool = False,
) -> dict[str, float]:
    """Messages a second between the first and the last at the stub, and the contender's CPU for them.

    Args:
        counted: How many are waited for; all by default.
        skipped: How many at the beginning do not count for the messages a second.
        standby: Whether a second one is started to stand by.
    """
    count = counted or len(bodies)
    settings = ground.stream(bodies)
    ground.stub.reset()
    with ground.start(peer, settings, count, bodies) as contender:
        if standby:
            with ground.start(peer, settings):
                cpu = float(contender.line(ground.deadline))
        else:
            cpu = float(contender.line(ground.deadline))
        came = ground.stub.receipts(count)
    if counted is None:
        check_all(came, bodies)
    check_order(came)
    seconds = came.times[count - 1] - came.times[skipped]
    return {"messages/s": (count - 1 - skipped) / seconds, "CPU ms/message": 1000 * cpu / (count - 1)}


# b: Telegram's ceiling


def ceiling(ground: Ground) -> Rows:
    rows: Rows = {}
    for peer in _present(BARE, relay("relay, 1 worker"), PACED, PTB_1, PTB_16):
        # Those that send one at a time get as many as take the others' time.
        one_at_a_time = peer not in (PACED, PTB_16)
        count = 240 if one_at_a_time else 600
        bodies = ground.bodies([1 + n % CEILING_CHATS for n in range(count)])
        settings = ground.stream(bodies)
        ground.stub.reset(delay=CALL_SECONDS, flood="telegram")
        with ground.start(peer, settings, count, bodies):
            came = ground.stub.receipts(count, within=count / BOT_RATE + float(ground.options.patience))
        # The first second's worth may go at once, and is left out.
        seconds = came.times[-1] - came.times[BOT_RATE - 1]
        rows[peer.name] = {
            "messages/s": (len(came.times) - BOT_RATE) / seconds,
            "missing": count - len(came.times),
            "refused (429)": came.refused,
            "chats out of order": sum(not in_order(came, str(c + 1)) for c in range(CEILING_CHATS)),
        }
    return rows


# c: one hot chat


def hot_chat(ground: Ground) -> Rows:
    rows: Rows = {}
    for hot in (300, 2000):
        for peer in (PACED, HELD):
            rows[f"{peer.name}, {hot} hot"] = _hot(ground, peer, hot)
    for peer in _present(BARE, PTB_1, PTB_16):
        rows[f"{peer.name}, 300 hot"] = _hot(ground, peer, 300)
    return rows


def _hot(ground: Ground, peer: Peer, hot: int) -> dict[str, float]:
    """`hot` to one chat are queued first, then 150 over 50 others: how long the others take."""
    patience = float(ground.options.patience)
    bodies = ground.bodies([HOT_CHAT] * hot + [2 + n % 50 for n in range(OTHERS)])
    settings = ground.stream(bodies)
    ground.stub.reset(delay=CALL_SECONDS, flood="telegram")
    with ground.start(peer, settings, 0, bodies):
        start = ground.stub.receipts(1).times[0]
        end = time.monotonic() + patience
        others: list[float] = []
        while len(others) < OTHERS and (left := end - time.monotonic()) > 0:
            came = ground.stub.receipts(10**9, within=min(0.2, left))
            pairs = zip(came.times, came.bodies, strict=True)
            others = [at for at, body in pairs if int(body["chat_id"]) != HOT_CHAT]
        figures = {
            "others served": len(others),
            "within s": (others[-1] - start) if len(others) == OTHERS else patience,
        }
        if peer.kind == "relay":
            figures |= _trickle(ground, settings, hot + OTHERS)
        came = ground.stub.receipts(0)
    if peer.kind == "relay":
        check_order(came)
    return figures | {"refused (429)": came.refused}


def _trickle(ground: Ground, settings: NatsSettings, first: int) -> dict[str, float]:
    """Publish to send of messages to other chats while the hot chat drains."""
    bodies = ground.bodies(TRICKLE_CHATS, first)
    published: dict[int, float] = {}
    with ground.publisher(settings) as publisher:
        for body in bodies:
            published[number_of(body)] = publisher.publish(number_of(body) + 1, body)
            time.sleep(0.1)
    came = ground.stub.receipts(10**9, within=1.0)
    sent = {number_of(b): t for t, b in zip(came.times, came.bodies, strict=True)}
    waits = [1000 * (sent.get(number, came.times[-1]) - at) for number, at in published.items()]
    return {"trickle p50 ms": percentile(waits, 50), "p99 ms": percentile(waits, 99)}


# d: idle


def idle(ground: Ground) -> Rows:
    """From before a publish to the stub's receipt, one message at a time."""
    return {peer.name: _idle(ground, peer) for peer in _present(RELAY, PTB)}


def _idle(ground: Ground, peer: Peer) -> dict[str, float]:
    count = WARM_UP + ground.options.idle
    bodies = ground.bodies(ground.some_chats(count, CHATS))
    settings = ground.stream()
    ground.stub.reset()
    published = []
    came = Came([], [])
    with ground.start(peer, settings), ground.publisher(settings) as publisher:
        for number, body in enumerate(bodies, 1):
            time.sleep(IDLE_PAUSE_SECONDS)
            published.append(publisher.publish(number, body))
            came = ground.stub.receipts(number)
    waits = [1000 * (there - here) for here, there in zip(published, came.times, strict=True)][WARM_UP:]
    return {"p50 ms": percentile(waits, 50), "p99 ms": percentile(waits, 99), "most ms": max(waits)}


# e: what it needs


def footprint(ground: Ground) -> Rows:
    """`telegram-connector run` from its start to its first send, and its memory after a thousand messages."""
    bodies = ground.bodies(ground.some_chats(1000, CHATS))
    rows: Rows = {}
    for workers in (1, 16):
        settings = ground.stream(bodies)
        ground.stub.reset()
        env = {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "TELEGRAM_CHAT_ID": "1",
            "TELEGRAM_API_BASE_URL": ground.stub.url,
            "TG_WORKERS": str(workers),
            "NATS_URL": settings.nats_url,
        }
        names = ("stream", "subject", "durable_name", "dead_stream", "dead_subject")
        fields = STREAM_FIELDS[1:]
        env |= {f"TG_{n.upper()}": getattr(settings, f) for n, f in zip(names, fields, strict=True)}
        started = ground.stub.now()
        child = ground.children.start("relay", [sys.executable, "-m", "telegram_connector", "run"], env)
        first = ground.stub.receipts(1).times[0]
        ground.stub.receipts(len(bodies))
        rows[f"relay, {workers} worker{'s' if workers > 1 else ''}"] = {
            "s to the first send": first - started,
            "MiB at most": _peak_mib(child.pid),
        }
        ground.children.kill(child)
    return rows


def _peak_mib(pid: int) -> float:
    """The most memory that a process has had; not a number where the system does not say."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return float("nan")
    kib = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(kib.split()[1]) / 1024


# f: backlogs


def backlogs(ground: Ground) -> Rows:
    """The first thousand messages of backlogs of different depth."""
    rows: Rows = {}
    for depth in ground.options.backlogs:
        bodies = ground.bodies(ground.some_chats(depth, CHATS))
        rows[f"{depth}"] = throughput(ground, RELAY, bodies, min(BACKLOG_COUNTED, depth))
    return rows


# g: what may be switched on


def parts(ground: Ground) -> Rows:
    """What pacing costs with limits that never bind; the ledger; a second connector that stands by.

    The second one starts while the first half is sent, which is not counted.
    """
    skipped = ground.options.messages
    bodies = ground.bodies(ground.some_chats(2 * skipped, CHATS))
    free = {"bot_rate": 10_000.0, "chat_rate": 10_000.0, "group_rate_per_minute": 10_000.0}
    return {
        "all off": throughput(ground, RELAY, bodies, skipped=skipped),
        "pacing": throughput(ground, relay("pacing", pacing=True, **free), bodies, skipped=skipped),
        "the ledger": throughput(ground, relay("ledger", ledger="kv"), bodies, skipped=skipped),
        "a standby": throughput(ground, RELAY, bodies, skipped=skipped, standby=True),
    }


# h: paid broadcasts


def paid(ground: Ground) -> Rows:
    """A bot that may send 1000 a second: ``TG_BOT_RATE=1000 TG_WORKERS=32``."""
    rows: Rows = {}
    bodies = ground.bodies([1 + n % PAID_CHATS for n in range(ground.options.messages)])
    for workers in (1, 32, 96):
        name = f"relay, {workers} worker{'' if workers == 1 else 's'}"
        for seconds in (0.0, CALL_SECONDS):
            if workers == 1 and seconds:
                continue
            settings = ground.stream(bodies)
            ground.stub.reset(delay=seconds)
            peer = relay(name, workers=workers, pacing=True, bot_rate=1000.0)
            with ground.start(peer, settings, len(bodies)) as contender:
                cpu = float(contender.line(ground.deadline))
                came = ground.stub.receipts(len(bodies))
            check_all(came, bodies)
            check_order(came)
            rows[f"{name}, calls of {1000 * seconds:.0f} ms"] = {
                "messages/s": (len(bodies) - 1) / (came.times[-1] - came.times[0]),
                "CPU ms/message": 1000 * cpu / len(bodies),
            }
    return rows


def _present(*peers: Peer) -> list[Peer]:
    """Those that are installed: the peers come with the extra `bench`."""
    try:
        import telegram.ext  # noqa: F401
    except ImportError:
        return [peer for peer in peers if peer.kind != "ptb"]
    return list(peers)


# i: telemetry


def telemetry(ground: Ground) -> Rows:
    """Four spans of each message, and metrics; the exporters' threads are the relay's process's."""
    bodies = ground.bodies(ground.some_chats(ground.options.messages, CHATS))
    with collectors() as (answers, hangs):
        peers = [
            RELAY,
            Peer("relay, OTLP", "relay", {"otlp": answers}),
            Peer("relay, OTLP hung", "relay", {"otlp": hangs}),
        ]
        if importlib.util.find_spec("opentelemetry.sdk") is None:
            peers = peers[:1]  # the others need the extra `otel`
        return {peer.name: throughput(ground, peer, bodies) for peer in peers}


SCENARIOS = {
    "a": Scenario("one at a time, as fast as it goes", sequential, "messages/s"),
    "b": Scenario(
        f"the ceiling: calls of {1000 * CALL_SECONDS:.0f} ms, 30/s, {CEILING_CHATS} chats",
        ceiling,
        "messages/s",
    ),
    "c": Scenario(f"a hot chat queued first, then {OTHERS} messages over 50 others", hot_chat),
    "d": Scenario("idle, publish to send, one message at a time", idle),
    "e": Scenario("start and memory", footprint),
    "f": Scenario("cost per message by depth of the backlog", backlogs, "CPU ms/message"),
    "g": Scenario("optional parts", parts, "messages/s"),
    "h": Scenario("paid broadcasts: TG_BOT_RATE=1000", paid),
    "i": Scenario("telemetry: to nobody, to a collector, to one that hangs", telemetry, "CPU ms/message"),
}
