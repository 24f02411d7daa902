"""A console on a real nats-server, with a relay, the sandbox, and something of everything to be seen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from telegram_connector.bridge.archive import Archive
from telegram_connector.console import Access, Console
from telegram_connector.deadletter import dead_letter
from telegram_connector.delivery import DeliveryId
from telegram_connector.disposition import Terminal
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.operating import Switch
from telegram_connector.overview import Observatory
from telegram_connector.projection import LocalMessage, Member, Policy, ReplyToTurn, Route
from telegram_connector.publisher import Publisher
from telegram_connector.record import AMBIGUOUS, Record
from telegram_connector.relay import Relay
from telegram_connector.sandbox import Sandbox
from telegram_connector.settings import NatsSettings
from telegram_connector.status import Status
from tests.fakes import make_delivery
from tests.fleet import PATIENCE_SECONDS, TOKEN, Fleet
from tests.nats_server import NatsServer

BOT = TOKEN.partition(":")[0]
SECRET = "the text that nobody may see"
CHAT = "-100200"
LOST = {"reset": "after_accept"}
ROUTE = Route(
    id="frontend",
    chat=CHAT,
    topic=None,
    team="Frontend",
    state="active",
    members=(Member(name="alice", label="Alice"), Member(name="lead", label="Lead")),
)
TURN = ReplyToTurn(route_id="frontend", inbound_key="k", inbound_message_id="in-1")


class Stage(Fleet):
    """A fleet, what operators see of it, and the page on which they do."""

    buried = 0

    @property
    def operator(self) -> NatsSettings:
        return self.server.settings(self.server.operator_seed)

    def console(self, **changes: Any) -> Console:
        """The page; to be entered by the test."""
        access = Access(token=changes.pop("token", None))
        return Console(self.operator, access, **{"operator": "ada@desk", "bot": BOT, **changes})

    def relay(self, **changes: Any) -> Relay:
        return super().relay(**{"ledger": "kv", "on_ambiguous": "park", **changes})

    # What there is to see

    def bury(
        self, msg_id: str, reason: str = "refused", code: int = 400, words: str = "", **more: Any
    ) -> int:
        """Put in a dead letter as the relay does; its number."""
        self.buried += 1
        payload = more.pop("payload", None)
        delivery = make_delivery(
            self.buried,
            id=DeliveryId("TELEGRAM_OUTBOUND", self.buried, 1_000 + self.buried),
            envelope=TelegramOutbound(msg_id=msg_id, **{"text": SECRET, "chat": CHAT, **more}),
            payload=payload,
            headers={"Nats-Msg-Id": msg_id, "Publisher": "billing"},
        )
        letter = dead_letter(delivery, Terminal(code, words or "Bad Request: no", reason), 1)
        with self.server.client() as client:
            return client.publish("telegram.dead", letter.payload, letter.headers).seq

    def lose(self, msg_id: str, **more: Any) -> Record:
        """Have a message sent by the relay whose answer is lost; its record, once it is in doubt."""
        envelope = TelegramOutbound(msg_id=msg_id, **{"text": SECRET, "chat": CHAT, **more})
        self.sandbox.set_fault(LOST, chat=envelope.chat, times=1)
        self.publish(envelope)
        return self.until_record(msg_id, lambda record: record.status == AMBIGUOUS)

    def withhold(self, message_id: str, **more: Any) -> None:
        """Have a local message looked at that stays."""
        message = LocalMessage(
            **{
                "id": message_id,
                "sender": "alice",
                "to": "user",
                "source": "send_message",
                "kind": "message",
                "text": SECRET,
                "in_reply_to": "in-1",
                **more,
            }
        )
        with Publisher(self.server.settings(self.server.root_seed), bot=BOT) as publisher:
            publisher.publish_local(message, ROUTE, TURN, Policy())

    def pause(self, chat: str, seconds: float | None = None, reason: str = "") -> None:
        with self.server.client() as client:
            Switch(client, self.operator, 0.2).pause(chat, seconds, reason)

    # What became of it

    def connectors(self) -> list[Status]:
        """Those that answer."""
        with self.server.client() as client:
            return Observatory(client, self.operator, 0.2).look().connectors

    def records(self) -> list[Record]:
        with self.server.client() as client:
            return [kept.value for kept in Archive(client, self.operator).records() if kept.value]

    def record(self, msg_id: str) -> Record | None:
        return next((record for record in self.records() if record.msg_id == msg_id), None)

    def until_record(self, msg_id: str, condition: Callable[[Record], bool]) -> Record:
        def found() -> Record | None:
            record = self.record(msg_id)
            return record if record is not None and condition(record) else None

        return eventually(found)


def eventually(ask: Callable[[], Any]) -> Any:
    """Wait for something that only asking can tell."""
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, threading.Event()
    while not (found := ask()):
        assert time.monotonic() < deadline, "it did not come about"
        pause.wait(0.05)
    return found


def a_dozen(stage: Stage) -> None:
    """A dozen different things: sent, held, paused, dead for every reason, in doubt, withheld."""
    stage.relay()
    for number in range(4):
        stage.publish(TelegramOutbound(msg_id=f"order-{1230 + number}", chat="42", text=f"Filled {number}"))
    stage.sandbox.wait(count=4, timeout_seconds=PATIENCE_SECONDS)
    stage.publish(
        TelegramOutbound(
            msg_id="order-1234-filled", chat="43", text="<b>Filled</b>: <i>BUY", parse_mode="HTML"
        )
    )
    stage.bury("deploy-77", "refused", 403, "Forbidden: bot was kicked from the group", kind="alert")
    stage.bury("cron-9", "gave_up", 502, "Bad Gateway")
    stage.bury("digest-3", "expired", 0, "expires_at is over", chat="@ops_room")
    stage.bury("order-1199", "conflict", 0, "the same msg_id was used for this place with another text")
    stage.bury("no-envelope", "unreadable", 0, "not a JSON object", payload=b"<xml>no JSON</xml>")
    stage.bury("mark-1", "refused", 400, "Bad Request: message is too long", text="x" * 5000)
    stage.lose("invoice-2041", chat="44", kind="trade")
    stage.lose("reply-17", chat="45", route_id="frontend", from_member="alice")
    stage.withhold("thought-1", to=None, source="lead_session", sender="lead")
    stage.withhold("chatter-2", to="lead")
    stage.withhold("block-3", text="<info_for_agent>internal</info_for_agent>")
    stage.pause("-1001234567890", 3600, "moving the group")
    stage.sandbox.set_fault("flood", chat="46", times=1, retry_after=540)
    stage.publish(
        TelegramOutbound(msg_id="flood-1", chat="46", text="too many"),
        TelegramOutbound(msg_id="flood-2", chat="46", text="and more"),
        TelegramOutbound(msg_id="paused-1", chat="-1001234567890", text="waits"),
    )
    eventually(lambda: stage.record("flood-1") is not None)


@pytest.fixture
def stage(nats_server: NatsServer) -> Iterator[Stage]:
    """A provisioned server, the sandbox, and what operators see of them."""
    with Sandbox() as sandbox:
        made = Stage(nats_server, sandbox)
        yield made
        made.stop()
