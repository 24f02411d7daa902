"""What is left of a text: blocks in every disguise, noise, their cost; where long texts part."""

from __future__ import annotations

import sys
import unicodedata
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from telegram_connector.projection import Noise, Policy, Reason, sanitise, split
from telegram_connector.projection.lookalike import letters, look, offsets

ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
POLICY = Policy()
SECRET = "s3cret"


# Blocks, one by one


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a <info_for_agent>s</info_for_agent> b", "a b"),
        ("a<info_for_agent>s</info_for_agent>b", "a b"),
        ("a\n<info_for_agent>\ns\n</info_for_agent>\n  b", "a\n\n  b"),
        ("<info_for_agent>s</info_for_agent>\n\nb", "b"),
        ("a [info_for_agent]s[/info_for_agent] b", "a b"),
        ("a\n```info_for_agent\ns\n```\nb", "a\n\nb"),
        ("a\n~~~ info_for_agent\ns\n~~~\nb", "a\n\nb"),
        ("a\n````info_for_agent\n```\ns\n```\n````\nb", "a\n\nb"),
        ("a\n```info_for_agent\n```json\ns\n```\ns\n```\nb", "a\n\nb"),
        ("a <thinking>s</thinking> b <system-reminder>s</system-reminder> c", "a b c"),
        ("```\na\n```\n<info_for_agent>s</info_for_agent>\nb", "```\na\n```\n\nb"),
        # nested, overlapping
        ("a <info_for_agent>s<info_for_agent>s</info_for_agent>s</info_for_agent> b", "a b"),
        ("a <info_for_agent>s<thinking>s</info_for_agent>s</thinking> b", "a b"),
        ("a <info_for_agent>s</thinking>s</info_for_agent> b", "a b"),
        # not closed, or by another bracket, or not plainly
        ("a <info_for_agent>s", "a"),
        ("a <info_for_agent>s <info_for_agent>s</info_for_agent> s", "a"),
        ("a <info_for_agent>s</info_for_agent", "a"),
        ("a <info_for_agent>s[/info_for_agent] s", "a"),
        ("a <info_for_agent>s</info_for_agent x> s", "a"),
        ("a <info_for_agent>s</\u0456nfo_for_agent> s", "a"),
        ("a <info_for_agent/> s", "a"),
        ("a ```info_for_agent\ns ``` s", "a"),
        ("a ~~~info_for_agent\ns\n```\ns", "a"),
        ("a\n```info_for_agent\ns ```\ns", "a"),
        ("a\n```info_for_agent\ns\n    ```\ns", "a"),
        ("a\n```info_for_agent\ns\n   ```\nb", "a\n\nb"),
        # disguises of an opening
        ("a <INFO_for_Agent>s</INFO_FOR_AGENT> b", "a b"),
        ("a <  info_for_agent\n>s< / info_for_agent > b", "a b"),
        ('a <info_for_agent to="x" note="</b>">s</info_for_agent> b', "a b"),
        ("a <info-for-agent>s", "a"),
        ("a <infoForAgent>s", "a"),
        ("a <info_for_agent\ns", "a"),
        ("a <in\u200bfo_for\u2060_agent>s", "a"),
        ("a <info\u2065_for\U000e0fff_agent>s", "a"),
        ("a <i\u0301nfo_for_agent>s", "a"),
        ("a \uff1cinfo_for_agent\uff1es", "a"),
        ("a \u2039info_for_agent\u203as", "a"),
        ("a <\u0456nf\u043e_f\u03bfr_\u0430gent>s", "a"),
        ("a <\U0001d422\U0001d427\U0001d41fo_for_agent>s", "a"),
        ("a <\u0131nfo_for_agent>s", "a"),
        ("a <\u026anfo_\ua730or_agent>s", "a"),
        ("a <1nf0_for_agent>s", "a"),
        ("a <info\x00_for_agent>s", "a"),
        ("a <info\u2011for\u2014agent>s", "a"),
        ("a &lt;info_for_agent&gt;s", "a"),
        ("a &#60;info_for_agent>s", "a"),
        ("a &#x3C info_for_agent>s", "a"),
        ("a \\u003cinfo_for_agent\\u003es", "a"),
        ("a <!info_for_agent>s", "a"),
        ("a \u3010info_for_agent\u3011s", "a"),
        # no blocks
        ("a < b and c > d", "a < b and c > d"),
        ("a <info_for_agents>b", "a <info_for_agents>b"),
        ("a info_for_agent b", "a info_for_agent b"),
        ("<b>a</b> [x](y) ```json\n1\n```", "<b>a</b> [x](y) ```json\n1\n```"),
        (
            "<\u043f\u0440\u0438\u0432\u0435\u0442> \u043c\u0438\u0440",
            "<\u043f\u0440\u0438\u0432\u0435\u0442> \u043c\u0438\u0440",
        ),
    ],
)
def test_blocks(text: str, left: str):
    assert sanitise(text, POLICY) == left


@pytest.mark.parametrize(
    "text",
    [
        "s </info_for_agent> b",
        "s [/info_for_agent] b",
        "s </\u0456nfo_for_agent> b",
        "s &lt;/info_for_agent&gt; b",
        "s <\\/info_for_agent> b",
        "s </info_for_agent",
        "a <info_for_agent>s</info_for_agent>s</info_for_agent> b",
        "<info_<info_for_agent></info_for_agent>for_agent>s",
        "<<thinking>s</thinking>info_for_agent>s",
    ],
)
def test_a_message_with_a_broken_block_stays(text: str):
    assert sanitise(text, POLICY) is Reason.BROKEN_BLOCK


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<info_for_agent>s</info_for_agent><teammate-message>s", Reason.ONLY_AGENT_BLOCKS),
        ("<teammate-message>s</teammate-message>\u200b", Reason.ONLY_PROTOCOL_BLOCKS),
        ("\u115f\u3164", Reason.EMPTY),
        ("\ud83d SECRET", Reason.NOT_TEXT),
        ("\ud83d\ude00", Reason.NOT_TEXT),
        ('{"a": 1}', Reason.JSON_NOISE),
        (' [ {"a": 1},\n {"b": 2} ] ', Reason.JSON_NOISE),
        ('{"a": 1}\n{"b": 2}\n', Reason.JSON_NOISE),
        ('```json\n{"a": 1}\n```', Reason.JSON_NOISE),
        ('{"a": "cut sho', Reason.JSON_NOISE),
        ("{'python': 'repr'}", Reason.JSON_NOISE),
        ("{\u201ca\u201d: 1}", Reason.JSON_NOISE),
        ("[]", Reason.JSON_NOISE),
        ("[1]\n[2]", Reason.JSON_NOISE),
        ("[\n1,\n2\n]", Reason.JSON_NOISE),
        ("[" * 100_000, Reason.JSON_NOISE),
        ('hm {\\"type\\": \\"permission_request\\"}', Reason.PERMISSION_REQUEST),
        ("{\u201ctype\u201d: \u201cpermission\u200b_request\u201d}", Reason.PERMISSION_REQUEST),
    ],
)
def test_what_stays_for_its_text(text: str, reason: Reason):
    assert sanitise(text, POLICY) is reason


@pytest.mark.parametrize(
    "text",
    [
        *("42", '"quoted"', "null", "...", "-", "[x] done", "{name} is a placeholder"),
        *('Here: {"a": 1}', '```json\n{"a": 1}\n```\nis what I sent', "\U0001f44d", "\u0e01\u0e33"),
    ],
)
def test_what_leaves_untouched(text: str):
    assert sanitise(text, POLICY) == text


def test_white_space_is_tidied_and_indentation_kept():
    text = "\n a \x07 b\u2028c\r\n\n \n\n\td  \x85e\u202e\x0b\n"
    assert sanitise(text, POLICY) == "a   b\nc\n\n    d\ne"


@pytest.mark.parametrize(
    ("at", "stays"),
    [
        ("whole", {"Be  Ready!"}),
        ("start", {"Be  Ready!", "be ready! Now"}),
        ("anywhere", {"Be  Ready!", "be ready! Now", "I said\nbe-ready! so"}),
    ],
)
def test_where_noise_stands(at: Any, stays: set[str]):
    rules = Policy(noise=(Noise(phrase="be ready!", reason=Reason.INBOX_NOISE, at=at),))
    for text in ("Be  Ready!", "be ready! Now", "I said\nbe-ready! so", "be unready!"):
        assert (sanitise(text, rules) is Reason.INBOX_NOISE) == (text in stays)


def test_without_blocks_to_strip_nothing_is_stripped():
    rules = Policy(agent_blocks=(), protocol_blocks=())
    assert sanitise("a <info_for_agent>b</x>", rules) == "a <info_for_agent>b</x>"


# Blocks, any


@st.composite
def disguised(draw: st.DrawFn, name: str) -> str:
    """An opening that looks like one of `name`."""
    spelt = []
    for character in name:
        forms = [character, character.upper(), *LOOKALIKES.get(character, "")]
        spelt.append(
            draw(st.sampled_from(forms)) + draw(st.sampled_from(["", "", "", "\u200b", "\u0301", " "]))
        )
    bracket = draw(st.sampled_from(["<", "\uff1c", "\u27e8", "&lt;", "[", "< ", "<\n"]))
    return bracket + "".join(spelt) + draw(st.sampled_from([">", " >", ' a="b">', "\n>", "\uff1e", ""])) + " "


LOOKALIKES = {
    "a": "\u0430\u03b1\uff41",
    "e": "\u0435\u212f",
    "i": "\u0456\u0131l1",
    "o": "\u043e\u03bf0",
    "f": "\ua730\U0001d41f",
    "t": "\u0442\u24e3",
    "_": "-. \u2011",
    "-": "_\u2014",
}
NAMES = ("info_for_agent", "thinking", "teammate-message")
STEPS = st.lists(
    st.tuples(st.sampled_from(["say", "open", "disguise", "close"]), st.sampled_from(NAMES)), max_size=25
)


@ANY_SPEED
@given(st.data(), STEPS)
def test_nothing_inside_a_block_leaves_and_all_outside_does(
    data: st.DataObject, steps: list[tuple[str, str]]
):
    """However blocks nest, overlap and stay open, against a model that only counts."""
    text = ""
    opened = dict.fromkeys(NAMES, 0)
    disguises, stray, outside = 0, False, []
    for number, (step, name) in enumerate(steps):
        if step == "say":
            inside = disguises or any(opened.values())
            outside += [] if inside else [f"word{number}"]
            text += SECRET if inside else f"word{number}"
        elif step == "open":
            text += f"<{name}>"
            opened[name] += 1
        elif step == "disguise":
            text += data.draw(disguised(name))
            disguises += 1  # may be a plain one, which a plain closing ends
        else:
            stray |= not disguises and not any(opened.values())
            text += f"</{name}>"
            opened[name] = max(0, opened[name] - 1)
            if disguises and not any(opened.values()):
                return  # whether it ended is the sanitiser's business; the other steps say enough
        text += " "
    left = sanitise(text, POLICY)
    if stray:
        assert left is Reason.BROKEN_BLOCK
    elif isinstance(left, Reason):
        assert not outside
    else:
        assert left.split() == outside


PIECES = st.sampled_from(
    [
        *"<>[]/{}\"'`~ \n\t\x00&;:_",
        *(
            "info_for_agent",
            "info_",
            "for_agent",
            "thinking",
            "```",
            "</",
            "[/",
            "&lt;",
            "word",
            "\U0001f642",
        ),
        *("\u200b", "\u0301", "\uff1c", "\u2028", "\u202e", "\r\n", '{"type":', "permission_request"),
    ]
)
HOSTILE = st.lists(PIECES, max_size=80).map("".join) | st.text(max_size=200)


@ANY_SPEED
@given(HOSTILE)
def test_what_is_left_is_clean_and_stays_as_it_is(text: str):
    left = sanitise(text, POLICY)
    if isinstance(left, str):
        assert left.strip()
        assert not set(left) & set("\r\t\x00\u2028\u202e")
        assert "\n\n\n" not in left
        assert sanitise(left, POLICY) == left


@ANY_SPEED
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_looks_know_the_way_back(text: str):
    places = offsets(text)
    assert len(places) == len(look(text)) + 1
    assert places == sorted(places)
    assert places[-1] == len(text)


def test_letters_of_every_script_look_like_the_latin_they_resemble():
    for disguise in (
        "\u0410\u0412\u0421",
        "\uff21\uff22\uff23",
        "\U0001d400\U0001d401\U0001d402",
        "\u0391\u0392\u03f9",
    ):
        assert letters(disguise) == "abc"
    assert letters("\U0001f170\U0001f171") == letters("\u1d00\u0299") == letters("\u24b6\u24b7") == "ab"
    assert letters("\U0001f1e6\u0180\u023c") == "abc"


# Cost


UNITS = [
    *(
        "<",
        "[",
        "{",
        "[{",
        "<[",
        "`",
        "~",
        "``` ",
        "< ",
        "</",
        "<i",
        "&lt;",
        "&#0",
        " ",
        "\n",
        "a\n",
        "\u200b",
    ),
    *("e\u0301", '{"a":', "<info_for_agent>", "</info_for_agent>", "<info_for_agent></info_for_agent>"),
    *("[info_for_agent]<info_for_agent>", "```info_for_agent\n", "i n f o ", "\u03bf", "<////"),
]


@pytest.mark.timeout(110)
@pytest.mark.parametrize("unit", UNITS)
def test_a_hostile_megabyte_is_done_with(unit: str):
    """Anything but linear would take hours here: the limit is no measure of speed."""
    result = sanitise(unit * (1_000_000 // len(unit)), POLICY)
    assert isinstance(result, Reason) or len(result) <= 1_000_000


def lines_run(text: str) -> int:
    """How many lines of Python the sanitiser runs for a text."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        sanitise(text, POLICY)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("unit", UNITS)
def test_ten_times_the_text_is_ten_times_the_work(unit: str):
    sanitise(unit, POLICY)  # what is made once
    few, many = (lines_run(unit * times) for times in (200, 2000))
    assert many <= 10.5 * few


# Splitting


@pytest.mark.parametrize(
    ("text", "size", "parts"),
    [
        ("", 10, []),
        ("short", 10, ["short"]),
        ("exactly 10", 10, ["exactly 10"]),
        ("12345 789\n\nabc", 10, ["12345 789", "abc"]),
        ("1234567890\n\nabc", 10, ["1234567890", "abc"]),
        ("123456\n89 bcd", 10, ["123456", "89 bcd"]),
        ("123456\n890\n\nabc", 10, ["123456\n890", "abc"]),
        ("123 56\n\n9\nb", 10, ["123 56", "9\nb"]),
        ("12345678 abc", 10, ["12345678", "abc"]),
        ("1234567890 abc", 10, ["1234567890", "abc"]),
        ("1234567890abc", 10, ["1234567890", "abc"]),
        ("1 34567890abc", 10, ["1 34567890", "abc"]),
        ("12345678\n    indented", 12, ["12345678", "    indented"]),
        ("a" + " " * 30 + "b", 10, ["a", "b"]),
    ],
)
def test_where_a_text_parts(text: str, size: int, parts: list[str]):
    assert split(text, size) == parts


@pytest.mark.parametrize(
    "cluster",
    [
        "e\u0301",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f44d\U0001f3fd",
        "\U0001f1e9\U0001f1ea",
        "\u2764\ufe0f",
        "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "\u0e01\u0e34",
        "\u1112\u1161\u11ab",
        "\ud83d\ude00",
        chr(0xD800) + chr(0xDC00),
        chr(0xDBFF) + chr(0xDFFF),
    ],
)
@pytest.mark.parametrize("size", [20, 21, 22, 23])
def test_what_is_seen_as_one_is_not_cut(cluster: str, size: int):
    parts = split(cluster * 50, size)
    assert "".join(parts) == cluster * 50
    assert all(len(part) <= size and len(part) % len(cluster) == 0 for part in parts)


@pytest.mark.parametrize("single", ["\ud83dx", "x\ude00", "\U0001f1e9x"])
def test_halves_that_have_no_other_half_are_cut_anywhere(single: str):
    assert [len(part) for part in split(single * 50, 21)] == [21, 21, 21, 21, 16]


def test_what_cannot_be_avoided_is_cut():
    assert [len(part) for part in split("e" + "\u0301" * 99, 20)] == [20] * 5


def test_a_mark_on_a_blank_stays_with_it():
    assert split("12345 7 \u0301abc", 9) == ["12345", "7 \u0301abc"]
    assert split("1234567  \u0301abc", 8) == ["1234567", " \u0301abc"]


@ANY_SPEED
@given(
    st.lists(
        st.sampled_from(["word", "a", " ", "\n", "\n\n", "\u0301", "\U0001f1e9", "\u200d", "x" * 30]),
        max_size=80,
    ),
    st.integers(2, 40),
)
def test_parts_fit_and_lose_only_white_space(pieces: list[str], size: int):
    text = "".join(pieces)
    parts = split(text, size)
    assert all(part.strip() and len(part) <= size for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


@ANY_SPEED
@given(st.lists(st.sampled_from(["word", "longer words", "."]), min_size=1, max_size=200).map(" ".join))
def test_words_are_whole_where_they_fit(text: str):
    parts = split(text, 40)
    assert " ".join(parts).split() == text.split()
    assert all(len(part) > 20 for part in parts[:-1])


def test_no_mark_begins_a_part_that_could_go_with_its_letter():
    text = unicodedata.normalize("NFD", "\u1ec7" * 500)
    assert all(not unicodedata.combining(part[0]) for part in split(text, 64))
