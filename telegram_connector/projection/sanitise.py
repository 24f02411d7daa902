"""From a local text to what a user may read of it, or the reason why nothing of it leaves.

Openings are recognised generously and closings strictly: whatever looks like the beginning of a block begins
one, and only its plain closing ends it. So a doubt costs text, never a leak. What is left and looks like part
of a block withholds the message. Every step takes linear time.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from telegram_connector.projection.lookalike import is_blank, letters, look, offsets, squeeze
from telegram_connector.projection.policy import Policy
from telegram_connector.projection.reasons import Reason

# Line ends of every kind; Telegram drops U+202A to U+202E and makes other control characters blanks.
_CLEAN = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), " ")
_CLEAN |= dict.fromkeys((0x0A, 0x0B, 0x0C, 0x0D, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029), "\n")
_CLEAN |= {0x09: "    "} | dict.fromkeys(range(0x202A, 0x202F), "")
_QUOTES = "\"'“”„‟‘’"


def sanitise(text: str, policy: Policy) -> str | Reason:
    """Strip what is internal and tidy what is left.

    Returns:
        The text, which has something to read in it, or the reason to withhold it.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return Reason.NOT_TEXT
    scanner = _scanner(policy.agent_blocks, policy.protocol_blocks)
    found = scanner.strip(tidy(text))
    if found is None:
        return Reason.BROKEN_BLOCK
    left, names = tidy(found[0]), found[1]
    protocol = names & scanner.protocol
    if is_blank(left):
        if not names:
            return Reason.EMPTY
        return Reason.ONLY_PROTOCOL_BLOCKS if protocol == names else Reason.ONLY_AGENT_BLOCKS
    if scanner.finds(left):
        return Reason.BROKEN_BLOCK  # what stood around a block makes another one
    if protocol and policy.on_protocol_blocks == "withhold":
        return Reason.PROTOCOL_BLOCKS
    return _noise(left, policy) or left


def tidy(text: str) -> str:
    """One kind of line end, no control characters, no blanks at ends of lines, no two empty lines."""
    lines = text.replace("\r\n", "\n").translate(_CLEAN).split("\n")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()


def _noise(text: str, policy: Policy) -> Reason | None:
    # What is known by name says more than that it is JSON.
    squeezed = squeeze(text)
    for noise in policy.noise:
        phrase = squeeze(noise.phrase)
        if (
            squeezed == phrase
            or (noise.at == "start" and squeezed.startswith(phrase))
            or (noise.at == "anywhere" and phrase in squeezed)
        ):
            return noise.reason
    return Reason.JSON_NOISE if _is_json(text) else None


def _is_json(text: str) -> bool:
    """Whether the text is JSON objects or arrays, whole or cut, bare or fenced, or one a line."""
    lines = [line for line in text.split("\n") if line]
    if len(lines) > 2 and lines[0].startswith(("```", "~~~")) and lines[-1] in ("```", "~~~"):
        lines = lines[1:-1]
    text = "\n".join(lines).strip()
    if not text.startswith(("{", "[")):
        return False
    rest = text.lstrip("{[ \n")
    if "{" in text[: len(text) - len(rest)] and rest.startswith(tuple(_QUOTES)):
        return True  # also where it was cut
    return _parses(text) or all(line.lstrip().startswith(("{", "[")) and _parses(line) for line in lines)


def _parses(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except RecursionError:
        return True  # nothing that anybody wrote to be read
    except (msgspec.DecodeError, ValueError):
        return False
    return True


# Blocks


@functools.lru_cache(maxsize=32)
def _scanner(agent_blocks: tuple[str, ...], protocol_blocks: tuple[str, ...]) -> _Scanner:
    return _Scanner(agent_blocks, protocol_blocks)


@dataclass
class _Open:
    """The blocks open at a place in the text.

    Attributes:
        tags: How many of each, by bracket and name.
        fences: The marks of the fences, the outermost first.
    """

    tags: Counter[tuple[str, str]] = field(default_factory=Counter)
    fences: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.tags or self.fences)


class _Scanner:
    """Finds blocks of the given names: ``<name>``, ``[name]``, and fences of the language ``name``."""

    def __init__(self, agent_blocks: tuple[str, ...], protocol_blocks: tuple[str, ...]) -> None:
        self.protocol = frozenset(map(letters, protocol_blocks))
        names = (*agent_blocks, *protocol_blocks)
        # Over what the text looks like. No name, no match; else each run of blanks is read once per name.
        spread = "|".join(r"[ \n]*".join(map(re.escape, letters(name))) for name in names) or r"(?!)"
        named = rf"(?:{spread})(?![a-z0-9])"
        # A digit 0 looks like the letter here, also in the escapes of "<".
        opening = r"<|\[|&(?:lt|#o{0,6}6o|#xo{0,6}3c);?|\\uoo3c"
        tag = rf"(?P<bracket>{opening})(?P<lead>[ \n/!?\\]*)(?P<name>{named})"
        fence = rf"(?P<fence>(?<!`)`{{3,}}|(?<!~)~{{3,}}) *(?P<language>{named})?"
        self._tokens = re.compile(f"{tag}|{fence}")
        literal = "|".join(map(re.escape, names)) or r"(?!)"
        blank = r"[ \t\n]*"
        self._closing = re.compile(
            rf"<{blank}/{blank}(?P<angle>{literal}){blank}>|\[{blank}/{blank}(?P<square>{literal}){blank}\]",
            re.IGNORECASE | re.ASCII,
        )

    def finds(self, text: str) -> bool:
        """Whether anything in the text looks like part of a block."""
        return any(token["name"] or token["language"] for token in self._tokens.finditer(look(text)))

    def strip(self, text: str) -> tuple[str, set[str]] | None:
        """The text without its blocks and their names' letters; None where a closing closes nothing.

        Blocks that overlap are one from the first opening to the last closing. What is not closed goes on to
        the end of the text.
        """
        tokens = list(self._tokens.finditer(look(text)))
        if not any(token["name"] or token["language"] for token in tokens):
            return text, set()
        places = offsets(text)
        opened = _Open()
        kept: list[str] = []
        names: set[str] = set()
        begin = 0
        for token in tokens:
            place = places[token.start()]
            inside = bool(opened)
            end = self._step(opened, token, text, place)
            if end is None:
                return None
            if opened and not inside:
                _append(kept, text[begin:place])
            elif inside and not opened:
                begin = end
            name = token["name"] or token["language"]
            if name:
                names.add(letters(name))
        if not opened:
            _append(kept, text[begin:])
        return "".join(kept), names

    def _step(self, opened: _Open, token: re.Match[str], text: str, place: int) -> int | None:
        """Open or close what the token does; returns where it ends, None where it closes nothing at all."""
        if token["fence"]:
            return _fence(opened, token, text, place)
        key = ("[" if token["bracket"] == "[" else "<", letters(token["name"]))
        if "/" not in token["lead"]:
            opened.tags[key] += 1
            return place
        if not opened:
            return None
        closing = self._closing.match(text, place)
        if closing is None or not opened.tags[key]:
            return place
        opened.tags[key] -= 1
        opened.tags += Counter()  # drops what is at zero
        return closing.end()


_CLOSING_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*(?=\n|\Z)")


def _fence(opened: _Open, token: re.Match[str], text: str, place: int) -> int:
    """Open or close a fence; of an unnamed one only inside a named one is there anything to do."""
    if token["language"]:
        opened.fences.append(token["fence"])
    elif opened.fences:
        closing = _CLOSING_FENCE.match(text, place)
        _, line_end, indent = text[max(0, place - 4) : place].rpartition("\n")
        if closing and line_end and not indent.strip(" ") and closing[1].startswith(opened.fences[-1]):
            opened.fences.pop()
            return closing.end()
        opened.fences.append(token["fence"])
    return place


def _append(kept: list[str], piece: str) -> None:
    """Join what stood before and after a block, with a blank where words would run together."""
    if kept and kept[-1]:
        piece = piece.lstrip(" ") if kept[-1][-1].isspace() else piece
        if piece and not kept[-1][-1].isspace() and not piece[0].isspace():
            piece = " " + piece
    if piece:
        kept.append(piece)
