"""What the page asks and does about dead letters: the same as the commands of ``dead``."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

import msgspec

from telegram_connector.ages import Ages, read_length
from telegram_connector.bridge import DeadLetters, NatsClient
from telegram_connector.bridge.deadletters import Resent
from telegram_connector.clock import timestamp
from telegram_connector.console import shown
from telegram_connector.deadletter import Letter
from telegram_connector.envelope import is_chat
from telegram_connector.letters import Filter, Row, discard_one, resend_one, rows_of
from telegram_connector.marks import Change, Leave, Refuse
from telegram_connector.settings import NatsSettings

LISTED = 200  # the newest; all are counted
MOST_AT_ONCE = 50  # in one request: the page sends many in portions, and says how far it is
MOST_PLANNED = 5_000


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which letters are meant, in the words of the page.

    Attributes:
        reasons: Any of these.
        chat: The chat as the publisher named it; "" for all.
        msg_id: The publisher's id; "" for all.
        newer_than: At most this old, e.g. ``2h``; "" for whatever age.
        everything: Those that were discarded, too.
    """

    reasons: list[str] = []
    chat: str = ""
    msg_id: str = ""
    newer_than: str = ""
    everything: bool = False

    def filter(self) -> Filter:
        """The filter.

        Raises:
            ValueError: The age is none.
        """
        return Filter(
            reasons=frozenset(self.reasons),
            chats=frozenset([self.chat] if self.chat else []),
            msg_ids=frozenset([self.msg_id] if self.msg_id else []),
            ages=Ages(newer_than=read_length(self.newer_than) if self.newer_than else None),
        )


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One letter as it was looked at.

    Attributes:
        seq: Its number.
        stored_at: When it was stored, which no other letter shares.
        revision: Of what was done about it.
    """

    seq: int
    stored_at: str
    revision: int


class Treatment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be done about letters.

    Attributes:
        act: What.
        chat: Where a copy is to go instead; "" for where the original was to go.
        plain: Whether a copy is the plain text of its markup.
        again: Whether those that were resent or discarded are meant, too.
        why: What a discard is noted with.
        purge: Whether a discard deletes.
    """

    act: Literal["resend", "discard"]
    chat: str = ""
    plain: bool = False
    again: bool = False
    why: str = ""
    purge: bool = False

    def change(self) -> Change:
        """What a copy is to have other than the original.

        Raises:
            ValueError: The chat is none.
        """
        if self.chat and not is_chat(self.chat):
            raise ValueError("chat: neither a decimal chat id nor @name")
        return Change(self.chat or None, self.plain)


@dataclass(frozen=True)
class Done:
    """What became of one letter.

    Attributes:
        outcome: ``done``, ``before`` (it was already), ``left``, ``refused`` or ``gone``.
        words: That in a sentence.
    """

    seq: int
    outcome: str
    words: str


class Graves:
    """The dead letters over one connection. For one thread.

    Args:
        by: Who asks, for the marks.
    """

    def __init__(self, client: NatsClient, settings: NatsSettings, by: str) -> None:
        self._settings = settings
        self._letters = DeadLetters(client, settings, by, lambda: timestamp(_now().timestamp()))

    def listed(self, query: Query) -> dict[str, Any]:
        """The newest letters that are wanted, and how many there are.

        Raises:
            ValueError: The query is wrong.
            BridgeError: They cannot be read.
        """
        newest: deque[Row] = deque(maxlen=LISTED)
        reasons, statuses, chats = Counter[str](), Counter[str](), Counter[str]()
        for row in rows_of(self._letters, query.filter(), _now()):
            statuses[row.status] += 1
            if row.status == "discarded" and not query.everything:
                continue
            reasons[row.letter.reason] += 1
            chats[row.letter.chat or "default"] += 1
            newest.append(row)
        return {
            "letters": [shown.letter(row) for row in reversed(newest)],
            "count": reasons.total(),
            "reasons": dict(reasons.most_common()),
            "statuses": dict(statuses),
            "chats": [chat for chat, _ in chats.most_common(50)],
        }

    def in_full(self, seq: int) -> dict[str, Any] | None:
        """One letter with its headers; None where it is gone."""
        found = self._letters.letter(seq)
        if found is None:
            return None
        row = Row(found, self._letters.marked(found))
        return {
            **shown.letter(row),
            "headers": list(found.headers.items()),
            "stream_seq": found.stream_seq,
            "body_omitted": found.body_omitted,
            "bytes": len(found.payload),
        }

    def body(self, seq: int) -> dict[str, Any] | None:
        """What one letter says; None where it is gone."""
        found = self._letters.letter(seq)
        if found is None:
            return None
        whole = self._letters.body(found)
        return {
            "text": whole.text,
            "parse_mode": _parse_mode(whole),
            "raw": whole.payload.decode("utf-8", "backslashreplace"),
            "lost": whole.body_omitted and not whole.payload,
        }

    def planned(self, query: Query, treatment: Treatment) -> dict[str, Any]:
        """Which letters the treatment would be for, the oldest first, and which not and why.

        Raises:
            ValueError: The query or the treatment is wrong.
            BridgeError: They cannot be read.
        """
        change = treatment.change()
        ready: list[Named] = []
        more = 0
        against = Counter[str]()
        for row in rows_of(self._letters, query.filter(), _now()):
            why = self._against(row, treatment, change, query.everything)
            if why:
                against[why] += 1
            elif len(ready) < MOST_PLANNED:
                ready.append(Named(row.letter.seq, row.letter.stored_at, row.seen.revision))
            else:
                more += 1
        return {
            "ready": [msgspec.structs.asdict(one) for one in ready],
            "more": more,
            "against": [{"why": why, "count": count} for why, count in against.most_common()],
        }

    def treated(self, named: Sequence[Named], treatment: Treatment) -> list[Done]:
        """Treat these letters one by one, in their order.

        Raises:
            ValueError: The treatment is wrong, or they are too many.
            BridgeError: NATS; doing the same again goes on where this one stopped.
        """
        if len(named) > MOST_AT_ONCE:
            raise ValueError(f"at most {MOST_AT_ONCE} letters in one request")
        if treatment.act == "resend" and {"*", ">"} & set(self._settings.subject.split(".")):
            raise ValueError("TG_SUBJECT has a wildcard: set it to the one subject to publish to")
        change = treatment.change()
        return [self._treat(one, treatment, change) for one in named]

    def _against(self, row: Row, treatment: Treatment, change: Change, everything: bool) -> str:
        if treatment.act == "discard":
            is_over = row.status == "discarded" and not treatment.purge
            return "discarded before" if is_over or (row.status == "discarded" and not everything) else ""
        step = row.step(change, treatment.again)
        if isinstance(step, Leave):
            return f"{row.status} before"
        return step.why if isinstance(step, Refuse) else ""

    def _treat(self, named: Named, treatment: Treatment, change: Change) -> Done:
        found = self._letters.letter(named.seq)
        if found is None or found.stored_at != named.stored_at:
            return Done(named.seq, "gone", "it is there no more")
        seen = self._letters.marked(found)
        is_as_seen = seen.revision == named.revision
        row = Row(found, seen)
        if treatment.act == "discard":
            return self._discard(row, treatment) if is_as_seen else _overtaken(row)
        outcome = resend_one(self._letters, row, change, treatment.again and is_as_seen)
        match outcome:
            case None:
                return Done(named.seq, "gone", "it is there no more")
            case Resent(msg_id=msg_id, already=already):
                words = "was published already" if already else "published"
                return Done(named.seq, "before" if already else "done", f"{words} as {msg_id}")
            case Leave(why):
                return Done(named.seq, "left", why)
            case Refuse(why):
                return Done(named.seq, "refused", why)

    def _discard(self, row: Row, treatment: Treatment) -> Done:
        if not discard_one(self._letters, row, treatment.why or None, treatment.purge):
            return _overtaken(Row(row.letter, self._letters.marked(row.letter)))
        return Done(row.letter.seq, "done", "deleted" if treatment.purge else "discarded")


def _overtaken(row: Row) -> Done:
    mark = row.mark
    words = f"{mark.state} by {mark.by} at {mark.at} meanwhile" if mark else "somebody else is at it"
    return Done(row.letter.seq, "left", words)


def _parse_mode(letter: Letter) -> str | None:
    try:
        found = msgspec.json.decode(letter.payload, type=dict[str, Any]).get("parse_mode")
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return found if isinstance(found, str) else None


def _now() -> datetime:
    return datetime.now(timezone.utc)
