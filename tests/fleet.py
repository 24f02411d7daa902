"""A nats-server, the sandbox, and relays on them: what the tests of the whole have in common."""

from __future__ import annotations

import threading
import time
from typing import Any

from telegram_connector import events
from telegram_connector.envelope import TelegramOutbound, encode
from telegram_connector.relay import Relay
from telegram_connector.sandbox import Sandbox
from telegram_connector.settings import Settings
from tests.nats_server import NatsServer

TOKEN = "123456:" + "Ab-_" * 9
PATIENCE_SECONDS = 60.0


class Fleet:
    """A server, a sandbox, and relays started on them."""

    def __init__(self, server: NatsServer, sandbox: Sandbox) -> None:
        self.server = server
        self.sandbox = sandbox
        self.events: list[events.Event] = []
        self._changed = threading.Condition()
        self._relays: list[Relay] = []

    def observe(self, event: events.Event) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, kind: type) -> list[Any]:
        return [e for e in self.events if isinstance(e, kind)]

    def until(self, condition: Any) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE_SECONDS), self.events[-20:]

    def until_event(self, kind: type, count: int = 1) -> Any:
        self.until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    def settings(self, **changes: Any) -> Settings:
        return Settings(
            **{
                "bot_token": TOKEN,
                "chat_id": "1",
                "nats_url": self.server.url,
                "nats_nkey_seed": self.server.worker_seed,
                "api_base_url": self.sandbox.url,
                "nak_backoff_seconds": 0.2,
                **changes,
            }
        )

    def relay(self, **changes: Any) -> Relay:
        relay = Relay(self.settings(**changes), self.observe)
        self._relays.append(relay)
        assert relay.start()
        return relay

    def stop(self) -> None:
        for relay in self._relays:
            relay.stop(10)

    def publish(self, *envelopes: TelegramOutbound) -> None:
        with self.server.client(self.server.publisher_seed) as client:
            for envelope in envelopes:
                client.publish("telegram.outbound", encode(envelope), {"Nats-Msg-Id": envelope.msg_id})

    def texts(self, chat: str | int | None = None) -> list[str]:
        return [m.raw_text for m in self.sandbox.messages(chat=chat)]

    def assert_nothing_left(self) -> None:
        """The consumer has nothing pending or unacked (acks are confirmed, so soon after the sends)."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        pause = threading.Event()
        while True:
            info = self.server.consumer()
            left = (info["num_pending"], info["num_ack_pending"])
            if left == (0, 0):
                return
            assert time.monotonic() < deadline, left
            pause.wait(0.05)


def numbered(count: int, chats: int, start: int = 0) -> list[TelegramOutbound]:
    return [
        TelegramOutbound(msg_id=f"m{n}", chat=str(100 + n % chats), text=f"text {n}")
        for n in range(start, start + count)
    ]


def worker_env(fleet: Fleet, **more: str) -> dict[str, str]:
    """The environment of a worker process on the fleet's server and sandbox."""
    return {
        "TELEGRAM_BOT_TOKEN": TOKEN,
        "TELEGRAM_CHAT_ID": "1",
        "NATS_URL": fleet.server.url,
        "NATS_TELEGRAM_NKEY_SEED": fleet.server.worker_seed,
        "TELEGRAM_API_BASE_URL": fleet.sandbox.url,
        "TG_NAK_BACKOFF_SECS": "0.2",
        **more,
    }
