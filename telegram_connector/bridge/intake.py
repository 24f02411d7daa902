"""What the server hands over on its way into the queue, and what must be known before it may go there.

Who becomes active looks first for what a predecessor has out. Who finds that hand-overs went to a dead
connection of its own asks for them again first. Deliveries are held back meanwhile, and no send starts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from nats.aio.msg import Msg

from telegram_connector.bridge.consumer import BoundConsumer
from telegram_connector.bridge.link import Link
from telegram_connector.bridge.pin import HEADER as PIN_HEADER
from telegram_connector.bridge.pin import Pin
from telegram_connector.bridge.takeover import look_up, take_over
from telegram_connector.clock import LeaseClock
from telegram_connector.delivery import Delivery, Entry, StandDown, Taken
from telegram_connector.errors import BridgeError
from telegram_connector.settings import NatsSettings


class Intake:
    """Holds our pin, and puts deliveries into the queue in the order in which they may be sent.

    Args:
        clock: The leases' clock.
        link: The live link, if there is one.
        receive: Makes a delivery of a message and the consumer it is from.
        put: Called with each delivery, and what it is to be preceded by, in order.
        repeat_acks: Says once more over a link what was settled just now; raises `BridgeError`.
        changed: Called when sends may have become possible.
    """

    def __init__(
        self,
        settings: NatsSettings,
        clock: LeaseClock,
        *,
        link: Callable[[], Link | None],
        receive: Callable[[Msg, BoundConsumer], Delivery],
        put: Callable[[Entry], None],
        repeat_acks: Callable[[Link], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._link = link
        self._receive = receive
        self._put = put
        self._repeat_acks = repeat_acks
        self._changed = changed
        self.pin = Pin(clock, settings.takeover_seconds, self._pinned, self._unpinned, changed)
        self.received = 0  # the last sequence of this stream that was handed over to us
        self._bound: BoundConsumer | None = None
        self._held_back: list[Delivery] | None = None
        self._working: asyncio.Task[None] | None = None
        self._number = 0  # the consumer's own number of the last hand-over to us; 0 for unknown
        self._reply = ""  # of that hand-over
        self._skipped = False  # hand-overs before that one went elsewhere, and nothing newer has come since
        self._looked = 0  # the consumer's number at the last look
        self._missed = 0  # up to here, what we missed has been asked for again
        self._lost: set[int] = set()  # what was asked for again and has not come
        self._filling = False
        self._take_over_due = False  # we were pinned anew while we were asking for what was lost
        self._served: Link | None = None
        self._rebound = asyncio.Event()

    @property
    def clear(self) -> bool:
        """Whether all that must come before a next send is known."""
        return self._held_back is None

    @property
    def lacks(self) -> bool:
        """Whether something that was asked for again has not come yet."""
        return bool(self._lost)

    def forget(self) -> None:
        """The consumer is a new one: its hand-overs are counted from the start, and nobody is pinned."""
        self.pin.forget()
        self._number = self._looked = self._missed = 0
        self._skipped = False
        self._lost.clear()

    async def bind(self, link: Link, bound: BoundConsumer, *, first: bool) -> None:
        """A consumer was bound, for the first time in this process or again."""
        self._bound, self._served = bound, link
        self._rebound.set()
        self.pin.bind(bound.group)
        if first and not bound.group and bound.outstanding:
            # Nobody is pinned here, so this is where a predecessor is taken over from.
            self._held_back = []
            self._end_take_over(await take_over(link, self._settings, bound, ()))
        self._compare(bound.info, _number(bound.info))

    def look(self, info: Mapping[str, Any]) -> None:
        """Compare with the consumer's info, asked for now and then over the link that is served.

        What the server thinks it has handed over by one look must have come by the next. A dead connection
        that it still holds for alive may have swallowed even what was asked for again.
        """
        looked, self._looked = self._looked, _number(info)
        self._compare(info, looked)

    def _compare(self, info: Mapping[str, Any], due: int) -> None:
        """Miss what has not come, when the hand-over number `due` has not."""
        if self.pin.held_in(info) and 0 < self._number < due:
            self._number = _number(info)
            self._miss(self.received + 1, int(info["delivered"]["stream_seq"]))

    def deliver(self, msg: Msg, asked_at: float) -> None:
        """Take a delivery that answers the pull request of `asked_at`."""
        assert self._bound is not None
        # The server's header, not the publisher's: it is taken out before anybody else sees it.
        pin_id = msg.headers.pop(PIN_HEADER, None) if msg.headers else None
        last, known = self.received, self._number
        self._number, self._reply = hand_over_number(msg.reply), msg.reply
        delivery = self._receive(msg, self._bound)
        self.received = max(last, delivery.id.sequence)
        self._lost.discard(delivery.id.sequence)
        if pin_id and self.pin.group:
            self.pin.see(pin_id, asked_at)
        if self.pin.group and known:
            self._skipped = self._skipped or self._number > known + 1
            if self._skipped and delivery.id.sequence > last:
                self._skipped = False
                self._miss(last + 1, delivery.id.sequence - 1)
        if self._held_back is None:
            self._put(delivery)
        else:
            self._held_back.append(delivery)

    # Becoming active, and being it no more

    def _pinned(self) -> None:
        if self._held_back is None:
            self._held_back = []
            self._working = asyncio.ensure_future(self._take_over())
        else:
            self._take_over_due = self._filling

    def _unpinned(self) -> None:
        self._lost.clear()
        self._take_over_due = False
        if self._held_back is not None:
            for delivery in self._held_back:
                self._put(delivery)
            self._held_back = []
        self._put(StandDown())

    async def _take_over(self) -> None:
        """Find out what a predecessor has out, and only then let deliveries through."""
        await asyncio.sleep(0)  # the delivery that brought the pin is held back by now
        while True:
            link, bound = await self._live()
            with contextlib.suppress(BridgeError):
                # A consumer whose leader changed may have forgotten our last acks, like a killed server.
                await self._repeat_acks(link)
            ours = {d.id.sequence for d in self._held_back or ()}
            taken = await take_over(link, self._settings, bound, ours)
            if link.alive or taken is None or not taken.everything:
                break  # else the next link can tell
        self._end_take_over(taken)

    def _end_take_over(self, taken: Taken | None) -> None:
        if self.pin.ours:
            self._put(taken or Taken((), 0, 0, 0.0))
        self._let_through()

    async def _live(self) -> tuple[Link, BoundConsumer]:
        """The link that is served and its consumer, as soon as there is one."""
        while True:
            link = self._link()
            if link is not None and link.alive and link is self._served:
                assert self._bound is not None
                return link, self._bound
            self._rebound.clear()
            await self._rebound.wait()

    # What went to a dead connection of ours

    def _miss(self, first: int, last: int) -> None:
        """We are pinned, and did not get what was handed over from `first` to `last`.

        It went to a connection of ours that was dead without the server's knowing, and would come back only
        after ack_wait, behind what is newer.
        """
        if self._held_back is not None and not self._filling:
            return  # whoever takes over looks at all that is out
        first = max(first, self._missed + 1)
        if first <= last:
            self._missed = last
            self._lost.update(range(first, last + 1))
        if self._lost and not self._filling:
            self._filling = True
            self._held_back = []
            self._working = asyncio.ensure_future(self._fill_gaps())

    async def _fill_gaps(self) -> None:
        """Have handed over again at once what we missed, and let deliveries through behind it."""
        asked: set[int] = set()
        while self._lost - asked:
            link, bound = await self._live()
            asking = sorted(self._lost)
            missed = await look_up(link, self._settings, bound, asking)
            if missed.everything and not link.alive:
                continue  # the next link can tell
            asked.update(asking)
            self._lost &= {id_.sequence for id_, _ in missed.entries}
            with contextlib.suppress(BridgeError):
                for id_, _ in missed.entries:
                    await link.publish(reply_for(self._reply, id_.sequence, self._number), b"-NAK")
            self._put(missed)
        self._filling = False
        if self._take_over_due:
            self._take_over_due = False
            await self._take_over()
        else:
            self._let_through()

    def _let_through(self) -> None:
        held_back, self._held_back = self._held_back or [], None
        # What is here is awaited no more, and came as it came: what was given back after what is newer.
        for delivery in sorted(held_back, key=lambda delivery: delivery.id.sequence):
            self._put(delivery)
        self._changed()


def _number(info: Mapping[str, Any]) -> int:
    """The consumer's own number of its last hand-over; 0 for none."""
    return int(info.get("delivered", {}).get("consumer_seq", 0))


def hand_over_number(reply: str) -> int:
    """The consumer's own number of a hand-over, which grows by one with each, to whomever."""
    tokens = reply.split(".")
    return int(tokens[6 if len(tokens) == 9 else 8])


def reply_for(reply: str, sequence: int, number: int) -> str:
    """Where to settle another message of the same consumer whose hand-over was lost.

    The server goes by the stream sequence; of the other figures it checks only that the hand-over's number
    is one that it has given (read in nats-server's consumer.go, processNak).
    """
    tokens = reply.split(".")
    first = 5 if len(tokens) == 9 else 7
    tokens[first : first + 2] = str(sequence), str(number)
    return ".".join(tokens)
