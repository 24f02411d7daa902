"""What a text looks like: letters and brackets in one form, whatever they were written with.

One character at a time, so that it takes linear time and keeps the way back to the text. The tables are the
look-alikes of Latin letters that common fonts have (Unicode's confusables, UTS #39), not all of Unicode's.
"""

from __future__ import annotations

import re
import unicodedata

_PAIRS = (
    # Cyrillic
    "аa вb сc ԁd еe һh іi јj кk мm нh оo рp ԛq гr ѕs тt уy ѵv ԝw хx ьb пn ӏl єe ԍg"
    # Greek
    " αa βb γy εe ζz ηn Ηh ιi κk μm Μm νv Νn οo ρp σo τt υu Υy χx ωw ϲc Ϲc ϳj"
    # Armenian
    " օo ոn սu հh ցg զq յj լl քf"
    # Latin without decomposition
    " ɑa ɡg ɩi ɪi ʟl ʋv"
    # Cherokee and Lisu, whose letters are Latin capitals
    " ᎪA ᏴB ᏟC ᎠD ᎬE ᏀG ᎻH ᎫJ ᏦK ᏞL ᎷM ᏢP ᏒR ᏚS ᎢT ᏙV ᎳW ᏃZ ᎩY"
    " ꓮA ꓐB ꓚC ꓓD ꓰE ꓝF ꓖG ꓧH ꓲI ꓙJ ꓗK ꓡL ꓟM ꓠN ꓳO ꓑP ꓣR ꓢS ꓔT ꓴU ꓦV ꓪW ꓫX ꓬY ꓜZ"
    # Brackets, slashes, quotes
    " ‹< 〈< ⟨< ❬< ❮< ❰< ˂< ᐸ< ⧼< ≺< ⋖< 𝈶< ›> 〉> ⟩> ❭> ❯> ❱> ˃> ᐳ> ⧽> ≻> ⋗> 𝈷>"
    " ⟦[ 【[ 〔[ ⁅[ ❲[ ⟧] 】] 〕] ⁆] ❳] ∕/ ⁄/ ⧸/ ╱/ ⟋/"
    """ “" ”" „" ‟" '" ‘" ’" «" »\""""
)
_SAME = {pair[0]: pair[-1].lower() for pair in _PAIRS.split() if len(pair) > 1}
# Digits that stand for letters, and the letter that looks like a digit: all of one look.
_SAME_SHAPE = {"i": "l", "1": "l", "0": "o", "5": "s"}
# What the names of letters tell: small capitals, strokes, hooks, squares, regional indicators.
_NAMED = re.compile(
    r"(?:.* )?(?:LATIN|REGIONAL INDICATOR)(?: \w+)* LETTER"
    r" (?:SMALL CAPITAL |DOTLESS |SCRIPT )?([A-Z])(?: WITH .+)?"
)
_INVISIBLE = frozenset(("Cf", "Mn", "Mc", "Me"))
# Not seen either: fillers, and what Unicode keeps free for characters that are not.
_UNASSIGNED = {0x2065, *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)}
_FILLERS = frozenset(map(chr, _UNASSIGNED)) | frozenset("\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufffc")
_SEPARATORS = frozenset("_-.:")


_MOST_KEPT = 100_000  # a hostile text may hold every character that there is


class _Look(dict[int, str]):
    """Code point to what it looks like, filled as it is asked: ``str.translate`` runs on it."""

    def __missing__(self, code: int) -> str:
        found = _look(chr(code))
        if len(self) < _MOST_KEPT:
            self[code] = found
        return found


def _look(character: str) -> str:
    if character in "\n\u2028\u2029":
        return "\n"
    if character in _FILLERS or unicodedata.category(character) in _INVISIBLE:
        return ""
    if character in _SAME:
        return _shape(_SAME[character])
    return "".join(map(_plain, unicodedata.normalize("NFKD", character)))


def _plain(character: str) -> str:
    category = unicodedata.category(character)
    if category in _INVISIBLE:
        return ""
    if character in _SEPARATORS or character.isspace() or category in ("Pd", "Pc", "Cc"):
        return " "
    small = character.casefold()
    if character.isascii():
        return _shape(_SAME.get(small, small))
    named = _NAMED.fullmatch(unicodedata.name(character, ""))
    return _shape(_SAME.get(character) or _SAME.get(small) or (named[1].lower() if named else small))


def _shape(character: str) -> str:
    return _SAME_SHAPE.get(character, character)


LOOK = _Look()


def look(text: str) -> str:
    """What the text looks like: invisible characters gone, separators and white space blank, lines kept."""
    return text.translate(LOOK)


def squeeze(text: str) -> str:
    """What the text looks like without white space, separators and backslashes."""
    return look(text).translate({ord(character): None for character in " \n\\"})


def letters(name: str) -> str:
    """The letters and digits of a name, as they look."""
    return "".join(filter(str.isalnum, look(name)))


def is_blank(text: str) -> bool:
    """Whether nothing in the text can be seen."""
    return all(character.isspace() or not LOOK[ord(character)] for character in text)


def offsets(text: str) -> list[int]:
    """For each character of ``look(text)``, where it stands in the text; and the text's length at the end."""
    places: list[int] = []
    for place, character in enumerate(text):
        places.extend([place] * len(LOOK[ord(character)]))
    places.append(len(text))
    return places
