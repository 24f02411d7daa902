"""What happened in each chat, in order, and told to whoever looks on while it happens.

The record answers what a test asks; this is what a person sees: refusals beside messages, the same refusal
over and over as one, what people wrote, and every change of it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from telegram_connector.sandbox.params import integer
from telegram_connector.sandbox.record import Call, Message

ENTRY = "entry"
CLEAR = "clear"
STATE = "state"

# Who is further behind starts over; about a minute of a bot at full speed many times over.
_KEPT_CHANGES = 10_000
# Of calls that were refused alike one after the other, the newest are kept with their entry.
_KEPT_CALLS = 20
_AT_ONCE = 200


@dataclass(frozen=True)
class Entry:
    """One thing that a chat shows: a message, or a call that was refused.

    Attributes:
        number: Its place in the order of all entries; also after changes.
        place: The chat's id, or ``chat_id`` as it came where there is no such chat; "" for none.
        message: The message as it is now; None where none was made.
        calls: What a bot asked for: the call that made the message and those that changed it, or those that
            were refused. Empty for what a person wrote.
        count: How many calls there were; of very many only the newest are in `calls`.
    """

    number: int
    place: str
    message: Message | None
    calls: tuple[Call, ...] = ()
    count: int = 0


@dataclass(frozen=True)
class Change:
    """Something that is told: ``entry`` (new or changed), ``clear``, or ``state`` (anything that is set)."""

    number: int
    kind: str
    entry: Entry | None = None


class Timeline:
    """Keeps the newest `keep` entries and tells changes; thread-safe.

    Attributes:
        run: A name of this run, so that who looked on before a restart knows that all is new.
        keep: How many entries are kept.
    """

    def __init__(self, keep: int = 50_000) -> None:
        self.run = secrets.token_hex(4)
        self._changed = threading.Condition()
        self.keep = keep
        self._last = 0
        self._entries: dict[int, Entry] = {}
        self._of_message: dict[tuple[int, int], int] = {}
        self._newest: dict[str, int] = {}
        self._changes: deque[Change] = deque(maxlen=_KEPT_CHANGES)
        self._closed = False

    # -- told by the sandbox
    # ----------------------------------------------------------------------------------

    def add(self, place: str, message: Message | None, *calls: Call) -> None:
        """Keeps a message with the call that made it if one did, or a call that made none."""
        with self._changed:
            if message is not None:
                entry = self._new(place, message, *calls)
                self._of_message[message.chat_id, message.message_id] = entry.number
            for call in calls if message is None else ():
                self._add_call(place, call)

    def _add_call(self, place: str, call: Call) -> None:
        if call.status == 200 and not call.fault:
            key = (integer(place), integer(call.params.get("message_id", "")))
            number = self._of_message.get(key)
            # What only asks is not shown.
            if number is not None and call.method in ("editMessageText", "deleteMessage"):
                self._again(self._entries[number], call)
            return
        newest = self._entries.get(self._newest.get(place, 0))
        if newest is not None and newest.message is None and _alike(newest.calls[-1], call):
            self._again(newest, call)
        else:
            self._new(place, None, call)

    def change(self, message: Message) -> None:
        """Replaces a message by a later state of it, unless it was forgotten."""
        with self._changed:
            number = self._of_message.get((message.chat_id, message.message_id))
            if number is not None:
                before = self._entries[number]
                seq = before.message.seq if before.message else 0
                self._put(replace(before, message=replace(message, seq=seq)))

    def tell(self, kind: str = STATE) -> None:
        """Tells that something was set."""
        with self._changed:
            self._tell(kind)

    def clear(self) -> None:
        """Forgets all entries."""
        with self._changed:
            self._entries.clear()
            self._of_message.clear()
            self._newest.clear()
            self._tell(CLEAR)

    def close(self) -> None:
        """Ends every wait; `open` takes it back."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def open(self) -> None:
        """Lets waits wait again."""
        with self._changed:
            self._closed = False

    def _new(self, place: str, message: Message | None, *calls: Call) -> Entry:
        entry = Entry(self._last + 1, place, message, calls, len(calls))
        self._newest[place] = entry.number
        self._put(entry)
        while len(self._entries) > self.keep:
            old = self._entries.pop(next(iter(self._entries)))
            if old.message is not None:
                self._of_message.pop((old.message.chat_id, old.message.message_id), None)
        return entry

    def _again(self, entry: Entry, call: Call) -> None:
        # The first one is kept: of a message it is the call that made it.
        calls = (*entry.calls[:1], *entry.calls[1:][-(_KEPT_CALLS - 2) :], call)
        self._put(replace(entry, calls=calls, count=entry.count + 1))

    def _put(self, entry: Entry) -> None:
        self._entries[entry.number] = entry
        self._tell(ENTRY, entry)

    def _tell(self, kind: str, entry: Entry | None = None) -> None:
        self._last += 1
        self._changes.append(Change(self._last, kind, entry))
        self._changed.notify_all()

    # -- asked by who looks on
    # --------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """Number of the newest change; 0 for none."""
        with self._changed:
            return self._last

    @property
    def closed(self) -> bool:
        """Whether nothing is to be waited for."""
        with self._changed:
            return self._closed

    def since(self, number: int, timeout_seconds: float) -> list[Change] | None:
        """The changes after a number, the oldest 200 of them; waits for the first one.

        Returns:
            Nothing after `timeout_seconds` or when it was closed; None where some of them are forgotten, or
            the number is none of this run's.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while number == self._last and not self._closed:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            missing = self._last - number
            if missing < 0 or missing > len(self._changes):
                return None
            first = len(self._changes) - missing
            end = min(first + _AT_ONCE, len(self._changes))
            return [self._changes[index] for index in range(first, end)]

    def entry(self, number: int) -> Entry | None:
        """An entry as it is now; None where it is forgotten."""
        with self._changed:
            return self._entries.get(number)

    def number_of(self, chat_id: int, message_id: int) -> int | None:
        """The number of a message's entry; None where it is forgotten."""
        with self._changed:
            return self._of_message.get((chat_id, message_id))

    def entries(
        self, place: str, *, before: int | None = None, after: int | None = None, count: int = 200
    ) -> list[Entry]:
        """Entries of one chat in order: the newest, the newest before a number, or the oldest after one."""

        def fits(entry: Entry) -> bool:
            return (
                entry.place == place
                and (before is None or entry.number < before)
                and (after is None or entry.number > after)
            )

        return self._some(fits, count, oldest=after is not None)

    def search(self, words: str, count: int = 100) -> list[Entry]:
        """The newest entries with these words in their texts, in order; letter case does not matter."""
        wanted = words.casefold()
        return self._some(lambda entry: any(wanted in text.casefold() for text in _texts(entry)), count)

    def places(self) -> list[tuple[Entry, int]]:
        """The newest entry of each chat and how many there are, in the order of the chats' first entries."""
        found: dict[str, tuple[Entry, int]] = {}
        for entry in self._snapshot():
            found[entry.place] = (entry, found[entry.place][1] + 1 if entry.place in found else 1)
        return list(found.values())

    def _some(self, fits: Callable[[Entry], bool], count: int, *, oldest: bool = False) -> list[Entry]:
        everything = self._snapshot()
        found: list[Entry] = []
        for entry in everything if oldest else reversed(everything):
            if len(found) == count:
                break
            if fits(entry):
                found.append(entry)
        return found if oldest else found[::-1]

    def _snapshot(self) -> list[Entry]:
        # Copied, so that a look at very many keeps no call of the Bot API waiting.
        with self._changed:
            return list(self._entries.values())


def _alike(one: Call, other: Call) -> bool:
    return _gist(one) == _gist(other)


def _gist(call: Call) -> tuple[object, ...]:
    names = ("text", "parse_mode", "message_id", "message_thread_id")
    return call.method, call.status, call.fault, *(call.params.get(name) for name in names)


def _texts(entry: Entry) -> Iterator[str]:
    if entry.message is not None:
        yield entry.message.text
        yield entry.message.raw_text
    yield from _said(entry.calls)


def _said(calls: Iterable[Call]) -> Iterator[str]:
    for call in calls:
        yield call.params.get("text", "")
        yield call.description
