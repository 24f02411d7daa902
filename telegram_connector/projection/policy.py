"""What may leave, as data: kinds, sources, members, blocks to strip, noise, the prefix, the length."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec

from telegram_connector.errors import ProjectionError
from telegram_connector.projection.checked import Checked
from telegram_connector.projection.lookalike import letters, squeeze
from telegram_connector.projection.reasons import Reason

# tdlib counts code points after its own cleaning (MessageContent.cpp); neither UTF-16 units nor bytes.
LONGEST_TEXT = 4096
_SHORTEST_LIMIT = 512  # two labels and a mark take less than half of it
_SHORTEST_NAME = 3
_SHORTEST_PHRASE = 4
_LONGEST_FRAME = 64

_Count = Annotated[int, msgspec.Meta(ge=2, le=99)]
_Limit = Annotated[int, msgspec.Meta(ge=_SHORTEST_LIMIT, le=LONGEST_TEXT)]


class Noise(Checked, frozen=True, kw_only=True):
    """Words by which internal chatter is known. Case, white space and look-alike letters do not matter.

    Plain words on purpose: a pattern could take for ever on a hostile text.

    Attributes:
        phrase: The words.
        reason: Why such a message does not leave.
        at: Whether they are the whole text, or stand at its start, or anywhere in it.
    """

    phrase: str
    reason: Reason
    at: Literal["whole", "start", "anywhere"] = "anywhere"

    def _faults(self) -> Iterator[str]:
        if len(squeeze(self.phrase)) < _SHORTEST_PHRASE:
            yield f"phrase: too short; {_SHORTEST_PHRASE} characters besides white space at least"
        if self.reason is Reason.ELIGIBLE:
            yield "reason: eligible is no reason to withhold"


class Splitting(Checked, frozen=True, kw_only=True):
    """How a long text becomes several messages.

    Attributes:
        max_parts: At most this many; a longer text is withheld.
        mark: What each part ends with, of ``{part}`` and ``{parts}``.
    """

    max_parts: _Count = 10
    mark: str = "\n({part}/{parts})"

    def _faults(self) -> Iterator[str]:
        yield from _format_faults("mark", self.mark, needed={"part", "parts"}, known={"part", "parts"})


def _protocol_json(kind: str) -> str:
    return f'"type":"{kind}"'


_INBOX_JSON = (
    "idle_notification",
    "shutdown_request",
    "shutdown_response",
    "shutdown_approved",
    "shutdown_rejected",
    "teammate_terminated",
    "task_assignment",
    "task_completed",
    "plan_approval_request",
    "plan_approval_response",
)

_WHY_NOT_SOURCES = {
    "lead_session": Reason.LEAD_SESSION,
    "inbox": Reason.INBOX,
    "user_sent": Reason.USER_SENT,
    "system_notification": Reason.SYSTEM_NOTIFICATION,
    "cross_team": Reason.CROSS_TEAM,
}
_WHY_NOT_KINDS = {
    "slash_command": Reason.SLASH_COMMAND,
    "slash_command_result": Reason.SLASH_COMMAND_RESULT,
    "tool_summary": Reason.TOOL_ONLY,
    "command_output": Reason.TOOL_ONLY,
    "diagnostic": Reason.DIAGNOSTIC,
    "retry_prompt": Reason.RETRY_PROMPT,
    "permission_request": Reason.PERMISSION_REQUEST,
}


class Policy(Checked, frozen=True, kw_only=True):
    """What may leave. Whatever is not named here stays.

    Attributes:
        sources: Sources that may leave.
        kinds: Kinds that may leave.
        kinds_on_request: Kinds that leave only by an order to publish that names the message.
        members: Names of the members who may speak to the user; None for every active one.
        why_not_sources: Reasons for sources that are known and stay.
        why_not_kinds: The same for kinds.
        agent_blocks: Names of blocks meant for agents: ``<name>…</name>``, ``[name]…[/name]`` and fences of
            that language are stripped.
        protocol_blocks: The same for blocks of the teammates' protocol.
        on_protocol_blocks: Whether a message with a protocol block leaves without it, or stays.
        noise: Words by which internal chatter is known.
        prefix: What each message begins with, of ``{team}`` and ``{member}``.
        limit: Longest message, prefix and mark included, in code points.
        splitting: How longer ones are split; None for not at all.
        on_ambiguous: The envelopes' own; None for the connector's setting.
    """

    sources: frozenset[str] = frozenset(
        {"lead_process", "runtime_delivery", "send_message", "cross_team_sent"}
    )
    kinds: frozenset[str] = frozenset({"message"})
    kinds_on_request: frozenset[str] = frozenset({"slash_command_result"})
    members: frozenset[str] | None = None
    why_not_sources: Mapping[str, Reason] = msgspec.field(default_factory=lambda: dict(_WHY_NOT_SOURCES))
    why_not_kinds: Mapping[str, Reason] = msgspec.field(default_factory=lambda: dict(_WHY_NOT_KINDS))
    agent_blocks: tuple[str, ...] = (
        "info_for_agent",
        "agent_block",
        "opencode_runtime_delivery",
        "system-reminder",
        "thinking",
    )
    protocol_blocks: tuple[str, ...] = ("teammate-message",)
    on_protocol_blocks: Literal["strip", "withhold"] = "strip"
    noise: tuple[Noise, ...] = (
        *(Noise(phrase=_protocol_json(kind), reason=Reason.INBOX_NOISE) for kind in _INBOX_JSON),
        Noise(phrase=_protocol_json("permission_request"), reason=Reason.PERMISSION_REQUEST),
        Noise(phrase=_protocol_json("permission_response"), reason=Reason.PERMISSION_REQUEST),
        Noise(phrase="No response requested.", reason=Reason.THOUGHT_NOISE, at="whole"),
        Noise(phrase="(no content)", reason=Reason.THOUGHT_NOISE, at="whole"),
    )
    prefix: str = "[{team}] {member}\n"
    limit: _Limit = LONGEST_TEXT
    splitting: Splitting | None = None
    on_ambiguous: Literal["retry", "park"] | None = None

    def _faults(self) -> Iterator[str]:
        yield from _format_faults("prefix", self.prefix, needed={"member"}, known={"team", "member"})
        for field, allowed in (("sources", self.sources), ("kinds", self.kinds)):
            if allowed & {""}:
                yield f"{field}: an empty name"
            both = sorted(allowed & getattr(self, f"why_not_{field}").keys())
            if both:
                yield f"{field}: also in why_not_{field}: {', '.join(both)}"
        if self.kinds & self.kinds_on_request:
            both = sorted(self.kinds & self.kinds_on_request)
            yield f"kinds: also in kinds_on_request: {', '.join(both)}"
        for field in ("why_not_sources", "why_not_kinds"):
            if Reason.ELIGIBLE in getattr(self, field).values():
                yield f"{field}: eligible is no reason to withhold"
        names = [*self.agent_blocks, *self.protocol_blocks]
        for number, name in enumerate(names):
            field, index = ("agent_blocks", number)
            if number >= len(self.agent_blocks):
                field, index = "protocol_blocks", number - len(self.agent_blocks)
            if len(letters(name)) < _SHORTEST_NAME:
                yield f"{field}[{index}]: a name of {_SHORTEST_NAME} letters or digits at least"
            elif letters(name) in map(letters, names[:number]):
                yield f"{field}[{index}]: looks the same as an earlier one"


def read_policy(payload: bytes) -> Policy:
    """Read a policy from JSON; what it leaves out is as in `Policy`, and what it should not have is refused.

    Raises:
        ProjectionError: It cannot be read, or something in it is wrong.
    """
    try:
        return msgspec.json.decode(payload, type=Policy)
    except msgspec.ValidationError as error:
        words, _, path = str(error).partition(" - at `$")
        if words.startswith("Invalid "):
            words = "a value that is not allowed"
        raise ProjectionError("Policy", [f"{path.strip('.`') or 'the whole'}: {words}"]) from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise ProjectionError("Policy", ["the whole: not JSON"]) from None


def _format_faults(field: str, form: str, *, needed: set[str], known: set[str]) -> Iterator[str]:
    try:
        pieces = list(string.Formatter().parse(form))
    except ValueError:
        yield f"{field}: braces that do not match"
        return
    names = [name for _, name, _, _ in pieces if name is not None]
    plain = all(not spec and not conversion for _, _, spec, conversion in pieces)
    if not plain or set(names) - known or len(names) != len(set(names)) or needed - set(names):
        yield f"{field}: must have {_braced(needed)} once, and nothing in braces but {_braced(known)}"
    if not form.replace("\n", "").isprintable():
        yield f"{field}: characters that cannot be printed"
    if sum(len(literal) for literal, _, _, _ in pieces) > _LONGEST_FRAME:
        yield f"{field}: more than {_LONGEST_FRAME} characters besides what is in braces"


def _braced(names: set[str]) -> str:
    return " and ".join(f"{{{name}}}" for name in sorted(names))
