"""The demo itself: publishes, floods, kills, starts again, and counts what arrived."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from telegram_connector.bridge import NatsClient
from telegram_connector.demo.plan import CHATS, Plan, Planned
from telegram_connector.demo.processes import Child, Children, Failed, NatsServer, read_line, start_worker
from telegram_connector.demo.tally import Arrival, Span, Tally, tally
from telegram_connector.demo.view import Row, Snapshot, View
from telegram_connector.envelope import MSG_ID_HEADER, TelegramOutbound, encode
from telegram_connector.errors import BridgeError
from telegram_connector.sandbox import Sandbox
from telegram_connector.settings import NatsSettings
from telegram_connector.topology import provisioned

FRAME_SECONDS = 0.1
ASK_SECONDS = 0.02
START_SECONDS = 30.0
GRACE_SECONDS = 30.0  # beyond the plan, until what has not arrived counts as lost
QUIET_SECONDS = 3.0

FLOODED = next(chat for chat in CHATS if chat.flooded)


class Show:
    """One demo.

    Args:
        nats_server: Path of the program.
        env: Environment of the processes, without any of our variables.
        pause: Waits some seconds; raises `Interrupted` when the demo is to stop.
    """

    def __init__(
        self,
        plan: Plan,
        nats_server: str,
        env: Mapping[str, str],
        view: View,
        pause: Callable[[float], None],
    ) -> None:
        self._plan = plan
        self._nats_server = nats_server
        self._env = env
        self._view = view
        self._pause = pause

    def run(self) -> Tally:
        """Play it to the end. Whatever happens, no process and no folder is left.

        Raises:
            Failed: Something did not start, ended by itself or did not happen in time.
            Interrupted: `pause` raised it.
        """
        self._view.begin(self._plan)
        try:
            with (
                tempfile.TemporaryDirectory(
                    prefix="telegram-connector-demo-", ignore_cleanup_errors=True
                ) as name,
                Sandbox() as sandbox,
                Children(Path(name), self._env) as children,
            ):
                nats = self._start_nats(Path(name), children)
                with NatsClient(nats, "telegram-connector demo") as client:
                    for config in provisioned(nats):
                        client.api(f"STREAM.CREATE.{config['name']}", config)
                    result = _Play(
                        self._plan, nats, client, sandbox, children, self._view, self._pause
                    ).play()
                self._view.end(result)
                return result
        except BridgeError as error:
            raise Failed(f"the nats-server did not answer: {error}") from None
        finally:
            self._view.close()

    def _start_nats(self, folder: Path, children: Children) -> NatsSettings:
        server = NatsServer(self._nats_server, folder, children)
        deadline = time.monotonic() + START_SECONDS
        while True:
            server.child.fail_if_ended()
            settings = server.settings(self._plan.ack_wait_seconds)
            if settings is not None:
                try:
                    with NatsClient(settings, "telegram-connector demo") as client:
                        client.api("INFO")
                    return settings
                except BridgeError:  # it listens a moment before JetStream is up
                    pass
            if time.monotonic() > deadline:
                raise Failed(f"the nats-server was not ready after {START_SECONDS:.0f} s")
            self._pause(ASK_SECONDS)


class _Play:
    """From the first worker's start to the count."""

    def __init__(
        self,
        plan: Plan,
        nats: NatsSettings,
        client: NatsClient,
        sandbox: Sandbox,
        children: Children,
        view: View,
        pause: Callable[[float], None],
    ) -> None:
        self._plan = plan
        self._nats = nats
        self._client = client
        self._sandbox = sandbox
        self._children = children
        self._view = view
        self._pause = pause
        self._began = time.monotonic()
        self._published: list[tuple[Planned, float]] = []
        self._worker: Child | None = None
        self._at_work = False
        self._state = "starting"
        self._in_a_pause = False
        self._hold_ends = 0.0  # these four in Unix seconds
        self._held_from: float | None = None
        self._killed_at: float | None = None
        self._replaced_at: float | None = None

    def play(self) -> Tally:
        plan = self._plan
        self._start_worker()
        self._until(lambda: self._at_work, START_SECONDS, "the worker to connect")
        self._began = time.monotonic()
        self._tell("the worker is at work")
        agenda: list[tuple[float, Callable[[], None]]] = [
            (message.at, lambda message=message: self._publish(message))  # type: ignore[misc]
            for message in plan.messages
        ]
        agenda += [(plan.flood_at, self._flood), (plan.kill_at, self._kill)]
        for at, act in sorted(agenda, key=lambda entry: entry[0]):
            self._until(lambda at=at: self._at() >= at)  # type: ignore[misc]
            act()
        deadline = plan.seconds + GRACE_SECONDS
        self._until(lambda: self._restarted() and (self._all_settled() or self._at() > deadline))
        if self._held_from is None:
            raise Failed("Telegram's 429 never came: the flooded chat was not held")
        held = Span(self._held_from, self._hold_ends)
        dead = None
        if self._killed_at is not None:
            dead = Span(self._killed_at, self._replaced_at or time.time())
        return tally(self._published, self._arrivals(), held, dead, self._in_a_pause)

    # What happens

    def _publish(self, message: Planned) -> None:
        envelope = TelegramOutbound(
            msg_id=f"demo-{message.text.replace(' ', '-')}", chat=str(message.chat.id), text=message.text
        )
        at = time.time()
        self._client.publish(self._nats.subject, encode(envelope), {MSG_ID_HEADER: envelope.msg_id})
        self._published.append((message, at))

    def _flood(self) -> None:
        self._sandbox.set_fault("flood", chat=FLOODED.id, times=1, retry_after=self._plan.retry_after)

    def _kill(self) -> None:
        """kill -9 while all that is out is the held chat's: a kill in mid-send may double that message.

        Nothing is published until the server has noticed: what it hands to a dead worker comes back only
        after ack_wait, behind newer ones.
        """
        worker = self._worker
        assert worker is not None
        self._in_a_pause = self._wait(self._quiet)
        held = self._outstanding()
        self._killed_at = time.time()
        self._children.kill(worker)
        self._worker, self._at_work, self._state = None, False, "killed with kill -9"
        self._tell(f"kill -9 to the worker (pid {worker.pid}), which held {held} messages of {FLOODED.name}")
        self._wait(lambda: not self._consumer().get("num_waiting"))

    def _start_worker(self) -> None:
        self._worker = start_worker(self._children, self._nats, self._sandbox.url, FLOODED.id)
        self._state = f"starting (pid {self._worker.pid})"

    def _restarted(self) -> bool:
        return self._worker is not None

    # Looking

    def _until(self, done: Callable[[], bool], seconds: float | None = None, what: str = "") -> None:
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            self._look()
            if done():
                return
            if deadline is not None and time.monotonic() > deadline:
                raise Failed(f"waited {seconds:.0f} s for {what}, in vain")
            self._pause(FRAME_SECONDS)

    def _wait(self, done: Callable[[], bool]) -> bool:
        """Wait shortly, asking often; False when it did not come about."""
        deadline = time.monotonic() + QUIET_SECONDS
        while not (is_done := done()) and time.monotonic() < deadline:
            self._pause(ASK_SECONDS)
        return is_done

    def _look(self) -> None:
        worker = self._worker
        if worker is not None:
            while not worker.lines.empty():
                self._hear(read_line(worker.lines.get()))
            worker.fail_if_ended()
        elif self._killed_at is not None and time.time() > self._killed_at + self._plan.restart_after:
            self._start_worker()
        now = time.time()
        sent = Counter(message.chat_id for message in self._sandbox.messages())
        published = Counter(message.chat.id for message, _ in self._published)
        self._view.show(
            Snapshot(
                self._at(),
                tuple(
                    Row(
                        chat,
                        self._plan.of(chat),
                        published[chat.id],
                        sent[chat.id],
                        max(0.0, self._hold_ends - now) if chat.flooded else 0.0,
                    )
                    for chat in CHATS
                ),
                self._state,
                self._at_work,
            )
        )

    def _hear(self, line: Mapping[str, Any]) -> None:
        words = str(line.get("message", ""))
        if words.startswith("connected to nats-server"):
            self._at_work = True
            assert self._worker is not None
            self._state = f"at work (pid {self._worker.pid})"
            if self._killed_at is not None and self._replaced_at is None:
                self._replaced_at = time.time()
                self._tell(f"a new worker is at work (pid {self._worker.pid})")
        elif words.startswith("chat held"):
            seconds, now = float(line.get("retry_after", 0)), time.time()
            self._hold_ends = max(self._hold_ends, now + seconds)
            if self._held_from is None:
                self._held_from = now
                self._tell(f"Telegram says 429 to {FLOODED.name}: retry after {self._plan.retry_after} s")
            elif "before this process" in words:
                self._tell(f"it knows that {FLOODED.name} is held for {seconds:.1f} s more")
        elif words == "chat released":
            self._tell(f"the hold of {FLOODED.name} is over")
        elif line.get("level") in ("ERROR", "CRITICAL"):
            self._tell(f"the worker says: {words}")

    def _tell(self, words: str) -> None:
        self._view.tell(self._at(), words)

    def _at(self) -> float:
        return time.monotonic() - self._began

    def _arrivals(self) -> list[Arrival]:
        calls = self._sandbox.requests(method="sendMessage", accepted=True)
        return [Arrival(int(call.chat_id), call.params["text"], call.at) for call in calls]

    def _outstanding(self) -> int:
        sent = {message.raw_text for message in self._sandbox.messages(chat=FLOODED.id)}
        return sum(m.chat.flooded and m.text not in sent for m, _ in self._published)

    def _consumer(self) -> dict[str, Any]:
        return self._client.api(f"CONSUMER.INFO.{self._nats.stream}.{self._nats.durable}")

    def _quiet(self) -> bool:
        """Whether all that was published is settled but what the held chat waits with."""
        info = self._consumer()
        return (info["num_pending"], info["num_ack_pending"]) == (0, self._outstanding())

    def _all_settled(self) -> bool:
        """Whether nothing is left that could be sent, or sent again."""
        if len(self._published) < len(self._plan.messages) or not self._at_work:
            return False
        info = self._consumer()
        return (info["num_pending"], info["num_ack_pending"]) == (0, 0)
