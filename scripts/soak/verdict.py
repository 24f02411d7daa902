"""What a soak came to: pure, from the sandbox's record and the times of the kills to broken promises."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from faults import KINDS

# From Telegram's answer to the moment after which a kill cannot undo the ack. nats-server writes a consumer's
# state 50 to 100 ms after it confirmed an ack (facts/jetstream_facts.md), the rest is a busy machine.
ACK_SECONDS = 1.0
# After the server is back: until the connector has reconnected and repeated what was in doubt.
RECONNECT_SECONDS = 4.0
# The kill, the request and its answer are dated in three processes.
CLOCK_SECONDS = 0.05


@dataclass(frozen=True)
class Sent:
    """One sendMessage call.

    Attributes:
        at: When it was decided, Unix seconds.
        chat: Where to.
        text: What.
        accepted: Whether Telegram has the message.
        fault: The kind of fault that met it, "" for none.
    """

    at: float
    chat: str
    text: str
    accepted: bool
    fault: str = ""


@dataclass(frozen=True)
class Kill:
    """Something was ended and started again.

    Attributes:
        at: When, Unix seconds.
        what: ``server`` or ``relay``.
        how: ``SIGKILL`` or ``SIGTERM``.
        back_at: When it was started again; a server: when it answered again.
        exit_code: What it ended with.
    """

    at: float
    what: str
    how: str
    back_at: float
    exit_code: int = 0

    @property
    def name(self) -> str:
        """What it is called in the table."""
        return f"{self.what} {self.how}"


@dataclass(frozen=True)
class Story:
    """All that is known of a run.

    Attributes:
        published: Per text, which is unique: its chat and when the server confirmed it, in stream order.
        sends: The sandbox's record, in its order.
        kills: In order of time.
        dead: Dead letters other than parked ones, in words.
        parks: Whether what is in doubt is parked: then nothing at all may be sent twice.
        parked: Texts whose dead letter says that nobody knows, and what the ledger says of each.
        on_record: How many records the ledger has in each state.
        in_stream: Messages that the stream took; more than were published means that it took one twice.
        told: Where a secret was printed, in words.
        strict: Whether one connector sends at a time; else order is kept by each for itself only.
        remembers: Whether all was sent by connectors that cannot be replaced by another while they live, so
            that an ack that the server forgot is only sent again if the connector ended, too.
        unfinished: What was left when the time was over, in words; "" for nothing.
        seconds: Duration.
    """

    published: Mapping[str, tuple[str, float]]
    sends: Sequence[Sent]
    kills: Sequence[Kill]
    dead: Sequence[str] = ()
    parks: bool = False
    parked: Mapping[str, str] = field(default_factory=dict)
    on_record: Mapping[str, int] = field(default_factory=dict)
    in_stream: int = 0
    told: Sequence[str] = ()
    strict: bool = True
    remembers: bool = True
    unfinished: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Double:
    """A message that was sent again after it had been accepted; without a reason it should not have been."""

    text: str
    chat: str
    reason: str
    after_seconds: float


@dataclass(frozen=True)
class Verdict:
    """What a run came to; `broken` lists the promises that were broken, in words."""

    lost: tuple[str, ...]
    doubles: tuple[Double, ...]
    breaks: tuple[tuple[str, str, str], ...]
    strange: tuple[str, ...]
    resumed: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    caught_up: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    broken: tuple[str, ...] = ()

    @property
    def reasons(self) -> Mapping[str, int]:
        """How often a message was sent again for each reason."""
        return Counter(double.reason or "NO REASON" for double in self.doubles)


def judge(story: Story) -> Verdict:
    """Return what a run came to."""
    accepted = [s for s in story.sends if s.accepted]
    chats = {text: chat for text, (chat, _) in story.published.items()}
    ours = [s for s in accepted if chats.get(s.text) == s.chat]
    strange = tuple(f"{s.chat}: {s.text[:80]!r}" for s in accepted if chats.get(s.text) != s.chat)
    arrived: dict[str, Sent] = {}
    for send in ours:
        arrived.setdefault(send.text, send)
    lost = tuple(text for text in story.published if text not in arrived and text not in story.parked)
    doubles = tuple(_doubles(story, ours))
    breaks = tuple(_breaks(story, arrived))
    return Verdict(
        lost=lost,
        doubles=doubles,
        breaks=breaks,
        strange=strange,
        resumed=_resumed(story, accepted),
        caught_up=_caught_up(story, arrived),
        broken=tuple(_broken(story, lost, doubles, breaks, strange)),
    )


def _broken(
    story: Story,
    lost: Sequence[str],
    doubles: Sequence[Double],
    breaks: Sequence[tuple[str, str, str]],
    strange: Sequence[str],
) -> Iterator[str]:
    if story.unfinished:
        yield f"not done in time: {story.unfinished}"
    if lost:
        yield f"{len(lost)} messages lost, the first {lost[0][:40]!r}"
    if story.dead:
        yield f"{len(story.dead)} messages became dead letters, the first {story.dead[0]}"
    unexplained = [d for d in doubles if story.parks or not d.reason]
    if unexplained:
        first = unexplained[0]
        why = "although they were to be parked" if story.parks else "without a reason"
        yield (
            f"{len(unexplained)} messages sent again {why}, the first {first.text[:40]!r} "
            f"after {first.after_seconds:.2f} s"
        )
    unlisted = [text for text, status in story.parked.items() if status != "send_ambiguous"]
    if unlisted:
        status = story.parked[unlisted[0]]
        one = f"{unlisted[0][:40]!r}: {status}"
        yield f"{len(unlisted)} parked messages are not in doubt on record, the first {one}"
    if breaks and story.strict:
        chat, earlier, later = breaks[0]
        yield f"{len(breaks)} order breaks, the first in chat {chat}: {later[:40]!r} after {earlier[:40]!r}"
    if strange:
        yield f"{len(strange)} messages that nobody published, the first {strange[0]}"
    if story.in_stream > len(story.published):
        yield f"the stream took {story.in_stream} messages for {len(story.published)}"
    if story.told:
        yield f"a secret was printed: {', '.join(story.told)}"
    wrong = [k for k in story.kills if k.how == "SIGTERM" and k.exit_code]
    if wrong:
        yield f"{len(wrong)} relays did not exit 0 on SIGTERM but {wrong[0].exit_code}"


def _doubles(story: Story, ours: Sequence[Sent]) -> Iterator[Double]:
    last: dict[str, Sent] = {}
    for send in ours:
        before = last.get(send.text)
        if before is not None:
            reason = _reason(story, before, send.at)
            yield Double(send.text, send.chat, reason, send.at - before.at)
        last[send.text] = send


def _reason(story: Story, send: Sent, again_at: float) -> str:
    """Why it had to be sent again, although Telegram had it; "" when it had not."""
    kind = KINDS.get(send.fault)
    if kind and kind.lost:
        return f"answer lost ({send.fault})"
    since = send.at - CLOCK_SECONDS
    until = send.at + (kind.seconds if kind else 0.0) + ACK_SECONDS
    downs = [k for k in story.kills if k.what == "server" and k.at <= until and k.back_at >= since]
    settled = max([until, *(k.back_at + RECONNECT_SECONDS for k in downs)])
    ends = [k for k in story.kills if k.what == "relay" and since <= k.at <= again_at]
    if any(k.how == "SIGKILL" and k.at <= settled for k in ends):
        return "relay killed before the ack was safe"
    if downs and (ends or not story.remembers):
        return "ack lost with the server" + (", its sender ended" if story.remembers else "")
    return ""


def _breaks(story: Story, arrived: Mapping[str, Sent]) -> Iterator[tuple[str, str, str]]:
    """(chat, earlier, later): first arrivals against stream order; repeats of what was there are none."""
    place = {text: number for number, text in enumerate(story.published)}
    highest: dict[str, str] = {}
    for text, send in arrived.items():
        before = highest.get(send.chat)
        if before is not None and place[text] < place[before]:
            yield send.chat, before, text
        else:
            highest[send.chat] = text


def _resumed(story: Story, accepted: Sequence[Sent]) -> Mapping[str, tuple[float, ...]]:
    """Per kind of kill: from each kill until a message was accepted after the thing was started again."""
    found = defaultdict(list)
    for kill in story.kills:
        after = [s.at for s in accepted if s.at >= kill.back_at]
        if after:
            found[kill.name].append(min(after) - kill.at)
    return {name: tuple(times) for name, times in found.items()}


def _caught_up(story: Story, arrived: Mapping[str, Sent]) -> Mapping[str, tuple[float, ...]]:
    """Per kind of kill: from each kill until all that had been stored before it had arrived."""
    found = defaultdict(list)
    for kill in story.kills:
        before = [
            arrived[text].at
            for text, (_, stored_at) in story.published.items()
            if stored_at <= kill.at and text in arrived
        ]
        if before:
            found[kill.name].append(max(0.0, max(before) - kill.at))
    return {name: tuple(times) for name, times in found.items()}


def table(story: Story, verdict: Verdict) -> str:
    """The run as a table for people."""
    rows: list[tuple[str, str]] = [
        ("messages published", str(len(story.published))),
        ("messages lost", str(len(verdict.lost))),
        ("dead-lettered", str(len(story.dead))),
        *([("parked, in doubt on record", str(len(story.parked)))] if story.parks else []),
        *((f"  records {status}", str(count)) for status, count in sorted(story.on_record.items())),
        ("sent more than once", str(len(verdict.doubles))),
    ]
    rows += [(f"  {reason}", str(count)) for reason, count in sorted(verdict.reasons.items())]
    rows += [
        ("order breaks", f"{len(verdict.breaks)}{'' if story.strict else ' (not promised in this run)'}"),
        ("messages nobody published", str(len(verdict.strange))),
        ("token or seed printed", str(len(story.told))),
    ]
    faulty = Counter(send.fault for send in story.sends if send.fault)
    share = sum(faulty.values()) / max(1, len(story.sends))
    rows.append(("faulty answers", f"{sum(faulty.values())} of {len(story.sends)} ({share:.1%})"))
    rows += [(f"  {name}", str(count)) for name, count in sorted(faulty.items())]
    rows += [
        (f"{name}: kills", str(sum(k.name == name for k in story.kills))) for name in sorted(_names(story))
    ]
    for what, times in (("sending again", verdict.resumed), ("caught up", verdict.caught_up)):
        rows += [(f"{name}: {what}", spread(times[name])) for name in sorted(times)]
    rows.append(("duration", f"{story.seconds:.0f} s"))
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    lines += ["", *(f"BROKEN: {words}" for words in verdict.broken)] if verdict.broken else ["", "All kept."]
    return "\n".join(lines)


def _names(story: Story) -> set[str]:
    return {kill.name for kill in story.kills}


def spread(times: Sequence[float]) -> str:
    """Median and largest of some times."""
    return f"median {statistics.median(times):.2f} s, max {max(times):.2f} s"
