"""The newest dead letters, by reason, and those in doubt: `status` and a gauge count them alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from telegram_connector import marks
from telegram_connector.bridge.link import Link
from telegram_connector.bridge.stored import data, headers
from telegram_connector.deadletter import REASON
from telegram_connector.errors import NO_MESSAGE_FOUND, STREAM_NOT_FOUND, ApiError
from telegram_connector.topology import STATE_BUCKET

NEWEST = 1_000  # letters that are looked at


class _Letter(NamedTuple):
    """Why it died, and when it was stored, in the server's words."""

    reason: str
    stored_at: str


class Census:
    """Each letter is read once, since letters do not change: counting again costs new ones alone.

    Args:
        dead_stream: The stream of dead letters.
        at_once: How many requests wait for answers at the same time.
    """

    def __init__(self, dead_stream: str, at_once: int) -> None:
        self._dead_stream = dead_stream
        self._at_once = at_once
        self._of: tuple[object, object] = (None, None)
        self._letters: dict[int, _Letter | None] = {}  # None for one that is gone
        self._resolved: set[int] = set()

    async def reasons(self, link: Link, info: Mapping[str, Any]) -> Counter[str]:
        """How many of the newest died of which reason.

        Args:
            info: The stream's, as JetStream has told it just now.

        Raises:
            BridgeError: They cannot be read.
        """
        state = info["state"]
        of = info.get("created"), state.get("num_deleted")
        if of != self._of:  # a stream that is made anew counts from 1
            self._of, self._letters, self._resolved = of, {}, set()
        first, last = int(state["first_seq"]), int(state["last_seq"])
        window = range(max(first, last - NEWEST + 1), last + 1) if int(state["messages"]) else range(0)
        self._letters = {sequence: letter for sequence, letter in self._letters.items() if sequence in window}
        self._resolved &= self._letters.keys()
        missing = {sequence: {"seq": sequence} for sequence in window if sequence not in self._letters}
        async for sequence, message in self._stored(link, self._dead_stream, missing):
            self._letters[sequence] = None if message is None else _letter(message)
        return Counter(letter.reason for letter in self._letters.values() if letter is not None)

    async def in_doubt(self, link: Link) -> int:
        """How many of those that `reasons` has counted nobody knows of, and no operator has resolved.

        Raises:
            BridgeError: What operators have done about them cannot be read.
        """
        unresolved = {
            sequence: letter.stored_at
            for sequence, letter in self._letters.items()
            if letter is not None and letter.reason == "ambiguous" and sequence not in self._resolved
        }
        asked = {
            sequence: {"last_by_subj": f"$KV.{STATE_BUCKET}.{marks.key(self._dead_stream, sequence)}"}
            for sequence in unresolved
        }
        try:
            async for sequence, mark in self._stored(link, f"KV_{STATE_BUCKET}", asked):
                if mark is not None and marks.settles(data(mark), unresolved[sequence]):
                    self._resolved.add(sequence)
        except ApiError as error:
            if error.err_code != STREAM_NOT_FOUND:  # without a bucket there are no marks
                raise
        return len(unresolved.keys() - self._resolved)

    async def _stored(
        self, link: Link, stream: str, asked: Mapping[int, Mapping[str, Any]]
    ) -> AsyncIterator[tuple[int, dict[str, Any] | None]]:
        """What a stream has for each of the requests; None for nothing."""
        sequences = list(asked)
        for first in range(0, len(sequences), self._at_once):
            some = sequences[first : first + self._at_once]
            answers = await link.api_each(f"STREAM.MSG.GET.{stream}", [asked[sequence] for sequence in some])
            for sequence, answer in zip(some, answers, strict=True):
                if not isinstance(answer, ApiError):
                    yield sequence, answer["message"]
                elif answer.err_code == NO_MESSAGE_FOUND:
                    yield sequence, None
                else:
                    raise answer


def _letter(message: Mapping[str, Any]) -> _Letter:
    return _Letter(headers(message).get(REASON, "unknown"), str(message["time"]))
