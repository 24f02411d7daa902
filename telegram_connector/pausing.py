"""Carries out what operators have paused. Called under the worker's lock; reading is the worker's business.

A paused chat is held like a flooded one: its messages wait in order, stay ours and expire as usual. A paused
bot sends nothing at all, alerts included.
"""

from __future__ import annotations

from telegram_connector import pauses as documents
from telegram_connector.events import Observer, Paused, PausesUnreadable, Resumed
from telegram_connector.lanes import Lanes
from telegram_connector.pauses import Pause, Pauses

READ_EVERY_SECONDS = 10.0  # should a command's request to read have been missed
READ_AGAIN_SECONDS = 2.0  # after a reading that failed
FIRST_SECONDS = 10.0  # that the first send waits for it: a bucket without a leader is no reason to be mute


class Pausing:
    """What is paused, as last read. Until it was read for the first time nothing is sent, see `await_first`.

    Attributes:
        bot_until: When the bot may send again, in monotonic seconds.
    """

    def __init__(self, lanes: Lanes, observe: Observer) -> None:
        self._lanes = lanes
        self._observe = observe
        self._document: bytes | None = None
        self._pauses = Pauses()
        self._next_read = float("-inf")
        self._asked = 0
        self._heard = 0
        self._known = False
        self.bot_until = float("inf")

    @property
    def pauses(self) -> Pauses:
        """What was read last, less what has ended."""
        return self._pauses

    # Reading

    def ask(self) -> int:
        """Have the document read soon; returns a number for `heard`."""
        self._asked += 1
        return self._asked

    def heard(self, number: int) -> bool:
        """Whether the document was read since `ask` returned the number."""
        return self._heard >= number

    def due(self, now: float, *, at_once: bool) -> int | None:
        """A number for `adopt` when the document must be read now; None when it need not."""
        due = at_once or self._asked > self._heard or now >= self._next_read
        return self._asked if due else None

    def await_first(self, now: float) -> None:
        """A send might start now: from now on the first reading is awaited, for `FIRST_SECONDS` at most."""
        if self._known:
            return
        self.bot_until = min(self.bot_until, now + FIRST_SECONDS)
        if now >= self.bot_until:
            self._know()
            self._observe(PausesUnreadable(f"no answer within {FIRST_SECONDS:.0f} s"))

    def adopt(self, document: bytes | None, number: int, now: float, wall: float) -> None:
        """Apply what was read; where nothing could be, what is known goes on.

        Args:
            document: As read; None where it could not be. Resuming rewrites the document and never deletes
                it, so that ``b""`` says that there is no bucket now, or that nothing was ever paused.
            number: What `due` returned before it was read.
            now: Monotonic seconds.
            wall: Seconds since 1970.
        """
        self._heard = number
        self._next_read = now + (READ_EVERY_SECONDS if document else READ_AGAIN_SECONDS)
        if document is None:
            return
        self._know()
        if not document or document == self._document:
            return
        self._document = document
        try:
            pauses = documents.read(document).current(wall)
        except ValueError as error:
            self._observe(PausesUnreadable(str(error)))
            return
        before, self._pauses = self._pauses.all(), pauses
        paused = pauses.all()
        for chat, pause in before.items():
            if chat not in paused:
                self._observe(Resumed(chat, wall - pause.since, by_itself=False))
        for chat, pause in paused.items():
            if before.get(chat) != pause:
                self._observe(Paused(chat, None if pause.until is None else pause.until - wall, pause.reason))
        ends = {chat: _end(pause, now, wall) for chat, pause in paused.items()}
        self.bot_until = ends.pop("", float("-inf"))
        self._lanes.pause_only(ends)

    def _know(self) -> None:
        if not self._known:
            self._known = True
            self.bot_until = float("-inf")

    # Ending

    def attend(self, wall: float, active: bool) -> None:
        """Report the pauses whose time is over; that they are needs nobody's doing.

        Args:
            wall: Seconds since 1970.
            active: Whether this connector sends, and so is the one that alerts.
        """
        current = self._pauses.current(wall)
        for chat, pause in self._pauses.all().items():
            if pause.ended(wall):
                self._observe(Resumed(chat, wall - pause.since, by_itself=True, alert=active))
        self._pauses = current


def _end(pause: Pause, now: float, wall: float) -> float:
    return float("inf") if pause.until is None else now + pause.until - wall
