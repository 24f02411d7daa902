"""Fixtures of the fault tests, and the table of how soon delivery resumed after each fault."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from telegram_connector import events
from telegram_connector.envelope import TelegramOutbound, encode
from telegram_connector.errors import BridgeError
from telegram_connector.relay import Relay
from telegram_connector.sandbox import Sandbox
from tests.faults.proxy import Proxy
from tests.fleet import Fleet
from tests.nats_server import NatsServer

PATIENCE_SECONDS = 60.0
MARKER_CHAT = "900"
FIRST_CHAT = 100
_PAUSE_SECONDS = 0.02


class FaultFleet(Fleet):
    """A fleet that knows what it has published, and measures how soon delivery resumes."""

    def __init__(self, server: Any, sandbox: Sandbox, record: Callable[[str, object], None]) -> None:
        super().__init__(server, sandbox)
        self._record = record
        self._count = 0
        self._hooks: list[tuple[type, Callable[[], None]]] = []
        self.published: list[TelegramOutbound] = []
        self.url: str | None = None  # where relays connect to, when not to the server itself

    # Patience

    def observe(self, event: events.Event) -> None:
        super().observe(event)
        for hook in [h for h in self._hooks if isinstance(event, h[0])]:
            self._hooks.remove(hook)
            hook[1]()

    def at_next(self, kind: type, do: Callable[[], None]) -> None:
        """Do something at once, on the relay's own thread, when the next event of a kind comes."""
        self._hooks.append((kind, do))

    def until(self, condition: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_SECONDS), self.events[-20:]

    def arrived(self, count: int, chat: str | None = None) -> None:
        """Wait until so many messages were sent."""
        self.sandbox.wait(count, int(chat) if chat else None, timeout_seconds=PATIENCE_SECONDS)

    def until_no_send_may_start(self) -> None:
        """Wait until the relay has as many settlements in doubt as it may, or no connection."""
        running = self._relays[-1]._running
        assert running is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while running.source.may_send(1):
            assert time.monotonic() < deadline
            threading.Event().wait(_PAUSE_SECONDS)

    # Relays and load

    def relay(self, **changes: Any) -> Relay:
        return super().relay(**{"nats_url": self.url or self.server.url, **changes})

    def pace(self, seconds: float) -> None:
        """Every send takes so long: a fault meets some that are under way."""
        self.sandbox.clear_faults()
        self.sandbox.set_fault({"delay_seconds": seconds})

    def load(self, count: int, chats: int = 5) -> None:
        """Publish numbered messages over some chats."""
        start, self._count = self._count, self._count + count
        self.publish(
            *(
                TelegramOutbound(msg_id=f"m{n}", chat=str(FIRST_CHAT + n % chats), text=f"text {n}")
                for n in range(start, self._count)
            )
        )

    def publish(self, *envelopes: TelegramOutbound) -> None:
        """Publish each until it is stored: with its `Nats-Msg-Id` it is stored once."""
        self.published += envelopes
        left = list(envelopes)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while left:
            try:
                with self.server.client(self.server.publisher_seed) as client:
                    while left:
                        headers = {"Nats-Msg-Id": left[0].msg_id}
                        client.publish("telegram.outbound", encode(left[0]), headers)
                        del left[0]
            except BridgeError:
                assert time.monotonic() < deadline
                threading.Event().wait(_PAUSE_SECONDS)

    # Measuring and judging

    def resumed(self, since: float, counted_from: str) -> float:
        """Publish a message to a chat of its own and wait for it; notes how long that took since then."""
        number = sum(e.chat == MARKER_CHAT for e in self.published)
        marker = TelegramOutbound(msg_id=f"marker-{number}", chat=MARKER_CHAT, text=f"marker {number}")
        self.publish(marker)
        stored = time.monotonic() - since
        self.arrived(number + 1, MARKER_CHAT)
        seconds = time.monotonic() - since
        self._record("counted_from", counted_from)
        self._record("stored_seconds", round(stored, 2))
        self._record("resumed_seconds", round(seconds, 2))
        return seconds

    def backlog_done(self, since: float) -> None:
        """Wait for all that was published; notes how long that took from `since` on."""
        self.arrived(len(self.published))
        self._record("all_seconds", round(time.monotonic() - since, 2))

    def assert_all_once_in_order(self) -> None:
        """Everything published was sent once, in order per chat, and the consumer is done with all."""
        self.arrived(len(self.published))
        self.assert_nothing_left()
        sent: dict[str, list[str]] = {}
        for message in self.sandbox.messages():
            sent.setdefault(str(message.chat_id), []).append(message.raw_text)
        expected: dict[str, list[str]] = {}
        for envelope in self.published:
            expected.setdefault(str(envelope.chat), []).append(envelope.text)
        assert sent == expected
        assert not self.of(events.ThreadDied)
        assert not self.of(events.AttemptCrashed)

    def assert_nothing_left(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                info = self.server.consumer()
                left = (info["num_pending"], info["num_ack_pending"])
                if left == (0, 0):
                    return
            except BridgeError as error:
                left = error  # type: ignore[assignment]
            assert time.monotonic() < deadline, left
            threading.Event().wait(0.05)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def fleet(
    nats_server: NatsServer, sandbox: Sandbox, record_property: Callable[[str, object], None]
) -> Iterator[FaultFleet]:
    fleet = FaultFleet(nats_server, sandbox, record_property)
    yield fleet
    fleet.stop()


@pytest.fixture
def proxy(fleet: FaultFleet) -> Iterator[Proxy]:
    """Relays of `fleet` connect through this; publishers and the test itself do not."""
    with Proxy(fleet.server.port) as proxy:
        fleet.url = proxy.url
        yield proxy
        fleet.stop()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    rows = []
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        noted = dict(getattr(report, "user_properties", ()))
        if getattr(report, "when", "") == "call" and "resumed_seconds" in noted:
            rows.append((report.nodeid.rpartition("::")[2].removeprefix("test_"), report.outcome, noted))
    if not rows:
        return
    terminalreporter.section("delivery resumed after")
    width = max(len(name) for name, _, _ in rows)
    origin = max(len(noted["counted_from"]) for _, _, noted in rows)
    terminalreporter.write_line(
        f"{'fault':{width}}  {'counted from':{origin}}  broker s  resumed s  all s  outcome"
    )
    for name, outcome, noted in rows:
        everything = noted.get("all_seconds")
        terminalreporter.write_line(
            f"{name:{width}}  {noted['counted_from']:{origin}}  {noted['stored_seconds']:8.2f}"
            f"  {noted['resumed_seconds']:9.2f}  {'' if everything is None else f'{everything:.2f}':>5}"
            f"  {outcome}"
        )
