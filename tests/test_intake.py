"""What comes between the server's hand-overs and the queue: gaps, and deliveries held back behind them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from nats.aio.msg import Msg

from telegram_connector.bridge.consumer import BoundConsumer
from telegram_connector.bridge.intake import Intake, hand_over_number, reply_for
from telegram_connector.bridge.pin import HEADER
from telegram_connector.bridge.source import parse_reply
from telegram_connector.clock import LeaseClock
from telegram_connector.delivery import Delivery, Entry, Missed, StandDown, Taken
from telegram_connector.errors import Disconnected
from telegram_connector.settings import NatsSettings

SETTINGS = NatsSettings(nats_url="nats://127.0.0.1", nats_auth="none")
STREAM, DURABLE = SETTINGS.stream, SETTINGS.durable


def reply(sequence: int, number: int) -> str:
    return f"$JS.ACK.{STREAM}.{DURABLE}.1.{sequence}.{number}.1700000000000000000.0"


class Server:
    """A link that answers from memory."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []
        self.away = False
        self.alive = True

    async def api(self, subject: str, body: Any = None) -> dict[str, Any]:
        if self.away or not self.alive:
            raise Disconnected("away")
        if subject.startswith("CONSUMER.INFO"):
            return {"num_ack_pending": 0}
        return {
            "message": {
                "time": "2026-01-01T00:00:00Z",
                "data": base64.b64encode(b"%d" % body["seq"]).decode(),
            }
        }

    async def publish(self, subject: str, payload: bytes) -> None:
        self.published.append((subject, payload))


class Desk:
    """An `Intake`, pinned, and what it has put into the queue."""

    def __init__(self) -> None:
        self.queue: list[Entry] = []
        self.server = Server()
        self.intake = Intake(
            SETTINGS,
            LeaseClock(),
            link=lambda: self.server,  # type: ignore[arg-type, return-value]
            receive=lambda msg, bound: Delivery(parse_reply(msg.reply)[0], msg.data, {}, msg.reply, 1, 9e9),
            put=self.queue.append,
            repeat_acks=self._repeated,
            changed=self._change,
        )
        self._changed = asyncio.Event()

    def _change(self) -> None:
        self._changed.set()

    async def _repeated(self, link: object) -> None:
        pass

    async def bind(self, **info: Any) -> None:
        delivered = info.get("delivered", {"stream_seq": 0, "consumer_seq": 0})
        bound = BoundConsumer(
            info={"priority_groups": [{"group": "active", "pinned_client_id": "pin"}], **info},
            created="now",
            stream_created="then",
            ack_wait_seconds=60.0,
            max_deliver=None,
            max_age_seconds=None,
            group="active",
            delivered=delivered["stream_seq"],
            outstanding=0,
            first_sequence=1,
            new=False,
            from_start=False,
        )
        await self.intake.bind(self.server, bound, first=False)  # type: ignore[arg-type]

    def deliver(self, sequence: int, number: int) -> None:
        msg = Msg(None, "s", reply(sequence, number), b"", {HEADER: "pin"})  # type: ignore[arg-type]
        self.intake.deliver(msg, LeaseClock()())

    async def settle(self) -> list[Entry]:
        """What came into the queue by now."""
        while not self.intake.clear:
            await self._changed.wait()
            self._changed.clear()
        came, self.queue[:] = list(self.queue), []
        return came


def run(story: Callable[[Desk], Awaitable[None]]) -> None:
    async def told() -> None:
        desk = Desk()
        await desk.bind()
        desk.deliver(1, 1)
        assert [type(e) for e in await desk.settle()] == [Taken, Delivery]
        await story(desk)

    asyncio.run(told())


def sequences(entries: list[Entry]) -> list[Any]:
    return [
        e.id.sequence
        if isinstance(e, Delivery)
        else [id_.sequence for id_, _ in e.entries]
        if isinstance(e, Missed)
        else e
        for e in entries
    ]


def test_what_follows_goes_straight_on() -> None:
    async def story(desk: Desk) -> None:
        desk.deliver(2, 2)
        desk.deliver(4, 3)  # a sequence of another subject lies between: nothing was handed over
        assert desk.intake.clear
        assert sequences(await desk.settle()) == [2, 4]

    run(story)


def test_hand_overs_that_went_elsewhere_are_asked_for_again_before_what_came_after() -> None:
    async def story(desk: Desk) -> None:
        desk.deliver(4, 4)
        assert not desk.intake.clear
        desk.deliver(5, 5)
        assert sequences(await desk.settle()) == [[2, 3], 4, 5]
        assert desk.server.published == [(reply(2, 5), b"-NAK"), (reply(3, 5), b"-NAK")]

    run(story)


def test_a_redelivery_in_between_does_not_hide_the_gap() -> None:
    async def story(desk: Desk) -> None:
        desk.deliver(1, 4)  # numbers 2 and 3 went elsewhere: which sequences is not known yet
        assert sequences(await desk.settle()) == [1]
        desk.deliver(4, 5)
        assert sequences(await desk.settle()) == [[2, 3], 4]

    run(story)


def test_what_was_missed_at_binding_is_asked_for_at_once() -> None:
    async def story(desk: Desk) -> None:
        await desk.bind(delivered={"stream_seq": 3, "consumer_seq": 3})
        assert sequences(await desk.settle()) == [[2, 3]]
        desk.deliver(4, 4)
        assert sequences(await desk.settle()) == [4]

    run(story)


def test_what_was_swallowed_once_more_is_asked_for_once_more() -> None:
    """The server may hold the dead connection for alive, and give it what was asked for again, too."""

    def info(number: int) -> dict[str, Any]:
        return {
            "delivered": {"stream_seq": 3, "consumer_seq": number},
            "priority_groups": [{"group": "active", "pinned_client_id": "pin"}],
        }

    async def story(desk: Desk) -> None:
        await desk.bind(delivered={"stream_seq": 3, "consumer_seq": 3})
        assert sequences(await desk.settle()) == [[2, 3]]
        desk.deliver(2, 4)
        desk.intake.look(info(5))  # 3 may be on its way
        assert sequences(await desk.settle()) == [2]
        desk.intake.look(info(5))  # it was not
        assert sequences(await desk.settle()) == [[3]]
        assert desk.server.published[-1] == (reply(3, 5), b"-NAK")
        desk.deliver(3, 6)
        desk.intake.look(info(6))
        desk.intake.look(info(6))
        assert sequences(await desk.settle()) == [3]
        assert len(desk.server.published) == 3

    run(story)


def test_a_link_that_is_lost_over_it_leaves_it_to_the_next() -> None:
    """Else all chats would wait for ack_wait, for nothing."""

    async def story(desk: Desk) -> None:
        lost, desk.server = desk.server, Server()
        lost.alive = desk.server.alive = False
        desk.deliver(4, 4)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not desk.intake.clear
        desk.server = Server()
        await desk.bind(delivered={"stream_seq": 4, "consumer_seq": 4})
        assert sequences(await desk.settle()) == [[2, 3], 4]

    run(story)


def test_who_is_pinned_anew_while_asking_looks_at_all_that_is_out() -> None:
    async def story(desk: Desk) -> None:
        desk.deliver(4, 4)
        desk.intake.pin.drop()
        desk.intake.pin.see("another", LeaseClock()())
        kinds = [type(e) for e in await desk.settle()]
        assert kinds[-1] is Taken
        assert StandDown in kinds

    run(story)


def test_what_came_while_looking_goes_on_in_the_streams_order() -> None:
    """A server that was killed hands over what it had not yet before what was given back to it meanwhile."""

    async def told() -> None:
        desk = Desk()
        await desk.bind()
        desk.deliver(222, 222)
        desk.deliver(223, 223)
        desk.deliver(162, 224)
        desk.deliver(163, 225)
        taken, *others = await desk.settle()
        assert taken == Taken((), 0, 0, 0.0)  # all that is out is here: there is nothing to wait for
        assert sequences(others) == [162, 163, 222, 223]

    asyncio.run(told())


def test_what_cannot_be_looked_up_makes_all_chats_wait() -> None:
    async def story(desk: Desk) -> None:
        desk.server.away = True
        desk.deliver(4, 4)
        missed, delivery = await desk.settle()
        assert isinstance(missed, Missed)
        assert missed.everything
        assert isinstance(delivery, Delivery)

    run(story)


@pytest.mark.parametrize(
    "domain", ["", "hub.ACCOUNT."], ids=["without a domain", "with a domain and an account"]
)
def test_the_number_of_a_hand_over_and_the_reply_for_another(domain: str) -> None:
    tail = ".token" if domain else ""
    subject = f"$JS.ACK.{domain}{STREAM}.{DURABLE}.1.7.9.1700000000000000000.0{tail}"
    assert hand_over_number(subject) == 9
    other = reply_for(subject, 5, 9)
    assert hand_over_number(other) == 9
    assert parse_reply(other)[0].sequence == 5
