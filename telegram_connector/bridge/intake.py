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
from telegram_connector.delivery import Delivery, Entry, Missed, StandDown, Taken
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
        self._bound = bound
        self.pin.bind(bound.group)
        if first and not bound.group and bound.outstanding:
            # Nobody is pinned here, so this is where a predecessor is taken over from.
            self._held_back = []
            await self._take_over(link, bound)
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
        link = self._link()
        assert link is not None
        assert self._bound is not None
        if self._held_back is None:
            self._held_back = []
            self._working = asyncio.ensure_future(self._take_over(link, self._bound))

    def _unpinned(self) -> None:
        if self._held_back is not None:
            for delivery in self._held_back:
                self._put(delivery)
            self._held_back = []
        self._put(StandDown())

    async def _take_over(self, link: Link, bound: BoundConsumer) -> None:
        """Find out what a predecessor has out, and only then let deliveries through."""
        assert self._held_back is not None
        await asyncio.sleep(0)  # the delivery that brought the pin is held back by now
        with contextlib.suppress(BridgeError):
            # A consumer whose leader changed may have forgotten our last acks, like a killed server.
            await self._repeat_acks(link)
        taken = await take_over(link, self._settings, bound, {d.id.sequence for d in self._held_back})
        if self.pin.ours:
            self._put(taken or Taken((), 0, 0, 0.0))
        self._let_through()

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
            asked |= self._lost
            self._put(await self._ask_again())
        self._filling = False
        self._let_through()

    async def _ask_again(self) -> Missed:
        link, bound = self._link(), self._bound
        assert bound is not None
        if link is None:
            return Missed((), bound.ack_wait_seconds, everything=True)
        missed = await look_up(link, self._settings, bound, sorted(self._lost))
        self._lost &= {id_.sequence for id_, _ in missed.entries}
        with contextlib.suppress(BridgeError):
            for id_, _ in missed.entries:
                await link.publish(reply_for(self._reply, id_.sequence, self._number), b"-NAK")
        return missed

    def _let_through(self) -> None:
        held_back, self._held_back = self._held_back or [], None
        for delivery in held_back:
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
