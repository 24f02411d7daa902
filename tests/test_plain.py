"""The plain text of a markup: what Telegram reads, and of what it refuses all that can be told."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telegram_connector.errors import MarkupError
from telegram_connector.markup import parse, plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<b>never closed", "never closed"),
        ("one<br>two<p>three</p>four", "one\ntwothree\nfour"),
        ("<b>a</i> & b &lt; c &amp;&nbsp;&#33;", "a & b < c &&nbsp;!"),
        ("1 < 2 > 0, File <stdin>, <module> <none>", "1 < 2 > 0, File <stdin>, <module> <none>"),
        ('<a href="http://x.y/?a=1&amp;b=2">here</a><br>', "here (http://x.y/?a=1&b=2)\n"),
        ('<a href="https://x.y">x.y</a><hr>', "x.y\n"),
        ('<a href="tg://user?id=7">him</a><br>', "him\n"),
        ('cut <a href="http://x', 'cut <a href="http://x'),
        ("<h1>Title</h1><ul><li>one</li></ul>", "Title\none\n"),
    ],
)
def test_html_that_is_refused(text: str, said: str) -> None:
    with pytest.raises(MarkupError):
        parse(text, "HTML")
    assert plain(text, "HTML") == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("*v1.2* is out - at last!", "v1.2 is out - at last!"),
        ("[INFO] a.b", "[INFO] a.b"),
        ("[here](http://x.y/\\)) a.b", "here (http://x.y/)) a.b"),
        ("__u__ _i_ ~s~ ||p|| `c.d` a.b", "u i s p c.d a.b"),
        ("```py\na\\`b*c*\n``` a.b", "a`b*c*\n a.b"),
        ("an *open mark", "an *open mark"),
        ("a `tick.", "a `tick."),
        ("escaped \\* and \\. and . not", "escaped * and . and . not"),
        (">quoted\n>hidden||\nplain.", "quoted\nhidden\nplain."),
        ("*a _b* c_ d.", "a _b c_ d."),
        ("![🙂](tg://emoji?id=5) a.b", "🙂 a.b"),
    ],
)
def test_markdown_v2_that_is_refused(text: str, said: str) -> None:
    with pytest.raises(MarkupError):
        parse(text, "MarkdownV2")
    assert plain(text, "MarkdownV2") == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("*b* _i_ snake_case", "b i snake_case"),
        ("[x](http://u.v/) `c` ```d``` *", "x (http://u.v/) c d *"),
        ("[x] \\_ \\a _", "[x] _ \\a _"),
    ],
)
def test_markdown_that_is_refused(text: str, said: str) -> None:
    with pytest.raises(MarkupError):
        parse(text, "Markdown")
    assert plain(text, "Markdown") == said


def test_what_telegram_reads_is_as_it_reads_it_with_addresses() -> None:
    assert plain('<b>🙂 <a href="http://x.y">here</a></b> &lt;', "html") == "🙂 here (http://x.y/) <"
    assert plain("*bold* [x.y](http://x.y)", "MarkdownV2") == "bold x.y"


def test_addresses_are_left_out_where_the_text_would_be_too_long_with_them() -> None:
    link = '<a href="http://x.y">here</a>'
    assert plain("x" * 4090 + link + "<br>", "HTML") == "x" * 4090 + "here\n"


@pytest.mark.parametrize("mode", [None, "", "none", "BBCode"])
def test_without_a_markup_that_telegram_knows_it_is_the_text(mode: str | None) -> None:
    assert plain("<b>*x*", mode) == "<b>*x*"


_PIECES = st.sampled_from(
    (
        *("<b>", "</b>", "<a href='u'>", "</a>", "<br>", "&lt;", "&#"),
        *("*", "_", "__", "||", "`", "```", "[", "](", ")", "!", "\\", ">"),
        *(" ", "\n", "a", ".", "é", "🙂", "\ud800", "\0"),
    )
)


@given(st.lists(_PIECES, max_size=40).map("".join), st.sampled_from(["HTML", "MarkdownV2", "Markdown"]))
def test_whatever_the_text_there_is_an_answer_and_what_parses_is_as_parsed(text: str, mode: str) -> None:
    said = plain(text, mode)
    try:
        parsed = parse(text, mode)
    except MarkupError:
        return
    if not any(entity.url for entity in parsed.entities):
        assert said == parsed.text


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<b ",
        "<a href=x>",
        "&#",
        "`",
        "```",
        "[x](",
        "[x](\\)",
        "_*~",
        "[",
        "](",
        "`\\",
        "||\n>",
        "![a](b)",
    ],
)
@pytest.mark.parametrize("mode", ["HTML", "MarkdownV2", "Markdown"])
def test_time_is_linear(piece: str, mode: str) -> None:
    """Within seconds: were it quadratic, it would be hours."""
    text = piece * (300_000 // len(piece))
    started = time.process_time()
    plain(text, mode)
    assert time.process_time() - started < 20
