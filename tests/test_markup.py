"""Markup as Telegram reads it: vectors, refusals, links, repair, losses, escapes, cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telegram_connector import markup
from telegram_connector.errors import MarkupError
from telegram_connector.markup import Entity, Parsed, links
from telegram_connector.markup.html import parse_html
from telegram_connector.markup.legacy import parse_markdown
from telegram_connector.markup.markdown import parse_markdown_v2
from telegram_connector.markup.reader import Reader, Writer

DOTLESS = "the link is lost, its text stays: its host has no dot"
NOTHING = "bold around nothing: the marks vanish"
LINKED = "becomes a link; in code it does not"
VECTORS = json.loads((Path(__file__).parent / "data" / "markup_vectors.json").read_text())["vectors"]
CANNOT = "Bad Request: can't parse entities: "
HTML, V2, LEGACY = markup.PARSE_MODES
PARSERS = {HTML: parse_html, V2: parse_markdown_v2, LEGACY: parse_markdown}


def in_json(parsed: Parsed) -> dict[str, Any]:
    return {"text": parsed.text, "entities": [entity.as_json() for entity in parsed.entities]}


def outcome(step: Callable[[], Parsed]) -> dict[str, Any]:
    try:
        return in_json(step())
    except MarkupError as error:
        return {"error": error.description}


def spans(parsed: Parsed) -> list[tuple[str, int, int]]:
    return [(entity.type, entity.offset, entity.length) for entity in parsed.entities]


def refusal(text: str, mode: str) -> MarkupError:
    with pytest.raises(MarkupError) as caught:
        markup.check(text, mode)
    return caught.value


def words(text: str, mode: str) -> list[tuple[int | None, str]]:
    return [(notice.position, notice.words) for notice in markup.warnings(text, mode)]


# Vectors


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector):
    text, mode, expected = vector["input"], vector["parse_mode"], vector["expect"]
    if "error" in expected:
        assert outcome(lambda: markup.parse(text, mode)) == expected
        return
    assert outcome(lambda: markup.parse(text, mode)) == expected["parsed"]
    assert outcome(lambda: markup.check(text, mode)) == expected["sent"]


def test_all_the_vectors_are_there():
    assert len(VECTORS) == 60


# Refusals


@pytest.mark.parametrize(
    ("text", "mode", "said", "byte_offset", "position"),
    [
        ("é<b", HTML, "Unclosed start tag at byte offset 2", 2, 1),
        ("é<b x", HTML, 'Unclosed start tag "b" at byte offset 2', 2, 1),
        ("<b x='y", HTML, "Unclosed start tag at byte offset 0", 0, 0),
        ("<b x=y", HTML, "Unclosed start tag at byte offset 0", 0, 0),
        ("<b x= ", HTML, 'Unclosed start tag "b" at byte offset 0', 0, 0),
        ("<b ", HTML, 'Empty attribute name in the tag "b" at byte offset 0', 0, 0),
        ("<b /x>", HTML, 'Empty attribute name in the tag "b" at byte offset 0', 0, 0),
        ("<b =x>", HTML, 'Empty attribute name in the tag "b" at byte offset 0', 0, 0),
        ("<BR/>", HTML, 'Unsupported start tag "br/" at byte offset 0', 0, 0),
        ("<!-- x -->", HTML, 'Unsupported start tag "!--" at byte offset 0', 0, 0),
        ("a</b>", HTML, "Unexpected end tag at byte offset 1", 1, 1),
        ("<b>x</b", HTML, "Unclosed end tag at byte offset 4", 4, 4),
        ("<b><i>x", HTML, 'Can\'t find end tag corresponding to start tag "i"', 3, 3),
        ('<tg-emoji emoji-id="0">x</tg-emoji>', HTML, "Invalid custom emoji identifier specified", 0, 0),
        ("<b\0>", HTML, "Unclosed start tag at byte offset 0", 0, 0),
        ("é*", V2, "Can't find end of Bold entity at byte offset 2", 2, 1),
        ("é.", V2, "Character '.' is reserved and must be escaped with the preceding '\\'", 2, 1),
        ("```a b", V2, "Can't find end of PreCode entity at byte offset 0", 0, 0),
        (">*a\nb", V2, "Can't find end of Bold entity at byte offset 1", 1, 1),
        (">||a", V2, "Can't find end of Spoiler entity at byte offset 1", 1, 1),
        ("![x]", V2, "The entity must contain a tg://emoji or tg://time URL", 0, 0),
        ("![x](tg://time?unix=0)", V2, "Invalid tg://emoji or tg://time URL specified", 0, 0),
        ("![x](tg://emoji?id=-0)", V2, "Invalid tg://emoji or tg://time URL specified", 0, 0),
        ("é [t](", V2, "Can't find end of a URL at byte offset 7", 7, 6),
        ("é `a", LEGACY, "Can't find end of the entity starting at byte offset 3", 3, 2),
        ("```a``", LEGACY, "Can't find end of the entity starting at byte offset 0", 0, 0),
    ],
)
def test_refusals_of_the_parsers(text, mode, said, byte_offset, position):
    error = refusal(text, mode)
    assert error.description == CANNOT + said
    assert (error.byte_offset, error.position) == (byte_offset, position)


@pytest.mark.parametrize(
    ("text", "mode", "said", "position"),
    [
        ("", "bogus", "message text is empty", None),
        ("é" * 16_385, "bogus", "text is too long", None),
        ("<" * 32_769, HTML, "text is too long", None),
        ("\udcff", "bogus", "unsupported parse_mode", None),
        ("a<\udcff", HTML, "text must be encoded in UTF-8", 2),
        ("a\udcff", "none", "strings must be encoded in UTF-8", 1),
        ('<a href="http://a.b/&#xD83D;">x</a>', HTML, "messageEntityTextUrl.url must be encoded in UTF-8", 0),
        ("<b>\u200b \n</b>&#32;", HTML, "text must be non-empty", None),
        ("<b>" + "😀" * 4097 + "</b>", HTML, "message is too long", None),
    ],
)
def test_refusals_of_the_text_as_a_whole_come_in_telegrams_order(text, mode, said, position):
    error = refusal(text, mode)
    assert (error.description, error.position) == (f"Bad Request: {said}", position)


def test_the_limit_is_code_points_after_parsing_and_trimming():
    text = "<b>" + "😀" * 4096 + "</b>  \n"
    assert len(markup.check(text, HTML).text) == 4096


@pytest.mark.parametrize("mode", ["html", "HtMl", "HTML"])
def test_the_parse_mode_in_any_letter_case(mode):
    assert markup.parse("<b>x</b>", mode).text == "x"


@pytest.mark.parametrize("mode", [None, "", "none", "NONE"])
def test_without_a_parse_mode_a_text_is_what_it_is(mode):
    assert markup.parse("<b>*_", mode) == Parsed("<b>*_")


# Parsing


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("&lt;&gt;&amp;&quot;", '<>&"'),
        ("&LT; &ltx; &lt", "&LT; &ltx; <"),
        ("&#65;&#x41&#X41;", "AA&#X41;"),
        ("&#0; &#1114111; &#x10FFFE;", "&#0; &#1114111; \U0010fffe"),
        ("&#00000065; &#0000065;", "&#00000065; A"),
        ("& &; &#; &#x;", "& &; &#; &#x;"),
    ],
)
def test_references(text, plain):
    assert markup.parse(text, HTML).text == plain


@pytest.mark.parametrize(
    ("text", "mode", "found"),
    [
        ('<code class="language-py"><pre>x</pre></code>', HTML, [("pre", 0, 1)]),
        ('<pre><code class="language-py">x</code> </pre>', HTML, [("pre", 0, 2), ("code", 0, 1)]),
        ("<b a b='c' d=e.f-1>x</b>", HTML, [("bold", 0, 1)]),
        ("<blockquote expandable=0>x</blockquote>", HTML, [("expandable_blockquote", 0, 1)]),
        ("<tg-time unix=1x>a</tg-time><tg-time>b</tg-time>", HTML, [("date_time", 0, 1)]),
        ("<tg-time unix=4294967297>a</tg-time>", HTML, [("date_time", 0, 1)]),
        ("<tg-time unix=-5>a</tg-time>", HTML, []),
        (">a\n>b||\nc\n>d", V2, [("expandable_blockquote", 0, 4), ("blockquote", 6, 1)]),
        (">a||\r\nb", V2, [("expandable_blockquote", 0, 3)]),
        ("\\\n>a", V2, [("blockquote", 1, 1)]),
        ("\r>a", V2, [("blockquote", 1, 1)]),
        ("*>a\nb*", V2, [("bold", 0, 3), ("blockquote", 0, 2)]),
        (">`a\nb`", V2, [("blockquote", 0, 3), ("code", 0, 3)]),
        ("``` a```", V2, [("pre", 0, 2)]),
        ("```\r\na```", V2, [("pre", 0, 1)]),
        ("```a`b`c```", V2, [("pre", 0, 3), ("code", 1, 1)]),
        ("*__x__*", V2, [("bold", 0, 1), ("underline", 0, 1)]),
        ("[*x*](a.b)", V2, [("text_link", 0, 1), ("bold", 0, 1)]),
        ("[](a.b)x", LEGACY, []),
        ("```py\nx```_y_", LEGACY, [("pre", 0, 1), ("italic", 1, 1)]),
        ("\\[x] a]b", LEGACY, []),
    ],
)
def test_entities(text, mode, found):
    assert sorted(spans(markup.parse(text, mode))) == sorted(found)


def test_offsets_are_utf16_units():
    parsed = markup.parse("😀<b>é😀</b>", HTML)
    assert spans(parsed) == [("bold", 2, 3)]
    assert parsed.entities[0].position == 1


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("[example.org]", "http://xample.orgg/"),
        ("_a_[example.org]", "http://mple.orgorg/"),
        ("\\*" * 12 + "[example.org]", "http://example.org/"),
    ],
)
def test_the_old_markdown_garbles_the_address_of_a_link_without_one(text, url):
    (link,) = [entity for entity in markup.parse(text, LEGACY).entities if entity.type == "text_link"]
    assert link.url == url


# Links


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTPS://User:pw@Example.ORG:0443?q#f", "https://User:pw@example.org:443/?q#f"),
        ("example.org/a b\t", "http://example.org/a%20b"),
        ("mailto:a@b.org", "http://mailto:a@b.org/"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
        ("http://пример.рф", "http://пример.рф/"),
        ("http://a%41.b/%zz", "http://a%41.b/%zz"),
        ("TG:resolve?domain=Durov", "tg://resolve?domain=Durov"),
        ("tg://resolve/?x", "tg://resolve?x"),
        ("ton://transfer/abc", "ton://transfer/abc"),
        ("tonsite://foundation.ton", "tonsite://foundation.ton/"),
        ("tg://user?id=99999999999999", "tg://user?id=99999999999999"),
    ],
)
def test_usable_links(url, normal):
    assert links.checked(url) == normal
    assert links.checked(normal) == normal


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://localhost:8080/", "Wrong HTTP URL"),
        ("http://grafana/d/1", "Wrong HTTP URL"),
        ("ftp://a.b", "Unsupported URL protocol"),
        ("javascript://a.b", "Unsupported URL protocol"),
        ("", "URL host is empty"),
        (".", "Host is invalid"),
        ("a b.c", "Disallowed character in URL host"),
        ("a%4.b", "Wrong percent-encoded symbol in URL host"),
        ("u/ser@a.b", "Wrong HTTP URL"),
        ("{u}@a.b", "Disallowed character in URL userinfo"),
        ("a.b:0", "Wrong port number specified in the URL"),
        ("a.b:65536", "Wrong port number specified in the URL"),
        ("a.b:", "Wrong port number specified in the URL"),
        ("http://[::x]/", "Wrong IPv6 address specified in the URL"),
        ("tg://https://a.b", "Wrong tg URL"),
        ("ton://a:80", "Wrong ton URL"),
        ("tg://a.b", "Unallowed characters in URL host"),
    ],
)
def test_unusable_links(url, reason):
    with pytest.raises(links.UnusableLink) as caught:
        links.checked(url)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("url", "user_id"),
    [
        ("tg://user?id=5", 5),
        ("TG:USER/?a&ID=5#x", 5),
        ("tg://user?id=05", None),
        ("tg://user?id=x&id=5", None),
        ("tg://user?id=1099511627776", None),
        ("tg://users?id=5", None),
        ("http://user?id=5", None),
    ],
)
def test_mentions(url, user_id):
    assert links.user_id(url) == user_id


@pytest.mark.parametrize(
    ("letters", "written"),
    [("", ""), ("R", "r"), ("rt", None), ("Wtd", "wdt"), ("TtDd", "dt"), ("TD", "DT"), ("x", None)],
)
def test_date_formats(letters, written):
    assert links.date_format(letters) == written


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("-", 0),
        ("17x", 17),
        ("-17", -17),
        ("2147483648", -(2**31)),
        ("4294967301", 5),
        ("9" * 5000, -1),
    ],
)
def test_lenient_numbers(text, number):
    assert links.lenient_int32(text) == number


# Repair


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("<b>a<code>b</code>c</b>", [("bold", 0, 1), ("code", 1, 1), ("bold", 2, 1)]),
        ("<code>a<b>b</b></code>", [("code", 0, 2)]),
        ("<blockquote>a<code>b</code></blockquote>", [("blockquote", 0, 2), ("code", 1, 1)]),
        ("<code>a<blockquote>b</blockquote></code>", [("blockquote", 1, 1)]),
        ("<a href='a.b'>x<a href='c.d'>y</a></a>", [("text_link", 0, 2)]),
        ("<a href='a.b'>x<b>y</b></a>", [("text_link", 0, 2), ("bold", 1, 1)]),
        (
            "<b>x<a href='a.b'>y</a>z</b>",
            [("bold", 0, 1), ("text_link", 1, 1), ("bold", 1, 1), ("bold", 2, 1)],
        ),
        ("<b>a</b><strong>b</strong>", [("bold", 0, 2)]),
        ("<b>a<b>b</b></b>", [("bold", 0, 2)]),
        ("<b>a</b>\u2028<b>b</b>", [("bold", 0, 2)]),
        ("<blockquote>a<blockquote>b</blockquote></blockquote>", [("blockquote", 0, 2)]),
        ("<s>a <u>b</u> c</s>", [("strikethrough", 0, 2), ("underline", 2, 1), ("strikethrough", 2, 3)]),
        ("<b> \n</b>a", [("bold", 0, 2)]),
        ("a<b> \n</b>", []),
    ],
)
def test_what_remains_of_nested_entities(text, sent):
    assert sorted(spans(markup.check(text, HTML))) == sorted(sent)


def test_a_hundred_entities_are_sent_styles_last_and_emoji_uncounted():
    many = "<b>a</b> <code>b</code> <tg-emoji emoji-id='5'>c</tg-emoji> " * 70
    kinds = [entity.type for entity in markup.check(many, HTML).entities]
    assert (kinds.count("code"), kinds.count("bold"), kinds.count("custom_emoji")) == (70, 30, 70)
    assert (None, "more than 100 entities: the rest is lost") in words(many, HTML)
    exactly = "<b>a</b> <code>b</code> " * 50
    assert len(markup.check(exactly, HTML).entities) == 100
    assert words(exactly, HTML) == []


def test_addresses_and_languages_are_cleaned_like_texts():
    parsed = Parsed(
        "ab", (Entity("text_link", 0, 1, url="a.b/\u2028c"), Entity("pre", 1, 1, language="p\ty"))
    )
    link, code = markup.finish(parsed).entities
    assert (link.url, code.language) == ("http://a.b/c", "p y")


# Losses


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("x<a href='http://grafana/'>y</a>", HTML, [(1, DOTLESS)]),
        ("<b></b>x", HTML, [(0, "<b> around nothing is lost")]),
        ("<b class='x'>y</b>", HTML, [(3, 'the attribute "class" of <b> means nothing here')]),
        ("<tg-time>x</tg-time>", HTML, [(0, "the date is lost: unix must be a number above 0")]),
        ("<code>x<b>y</b></code>", HTML, [(7, "bold is lost: another entity is in its way")]),
        ("**x**", V2, [(0, NOTHING), (3, NOTHING)]),
        ("___x_**__", V2, []),
        ("[x]", V2, [(0, DOTLESS)]),
        ("see README\\.md", V2, [(4, f"README.md {LINKED}")]),
        ("`run.py` 10\\.0\\.0\\.1", V2, [(9, f"10.0.0.1 {LINKED}")]),
        ("<code>😀</code> x.zip, a.log, http://a.sh/b", HTML, [(15, f"x.zip {LINKED}")]),
        ("A\u030a\t\t.", "none", [
            (1, "U+030A (COMBINING RING ABOVE) vanishes"),
            (2, "U+0009 (control character) becomes a space (2 times)"),
        ]),
        ("a\r\nb", "none", []),
        ("&nbsp; &amp;nbsp; &lt", HTML, [
            (0, "&nbsp; stays as it is: Telegram knows only &lt; &gt; &amp; &quot; and numbers"),
        ]),
        ("[a.b]", LEGACY, [(0, "a link without (address) takes its text for one, and Telegram garbles it")]),
    ],
)  # fmt: skip
def test_warnings(text, mode, said):
    assert words(text, mode) == said


def test_a_language_outside_pre_is_a_loss():
    ((position, said),) = words('x <code class="language-py">y</code>', HTML)
    assert position == 2
    assert said.startswith("the language is lost")


def test_a_length_that_depends_on_who_counts_is_a_warning():
    ((position, said),) = words("😀" * 2049, "none")
    assert position is None
    assert said.startswith("4098 UTF-16 units in 2049 characters")
    assert words("😀" * 2048, "none") == []


def test_warnings_of_a_refused_text_are_its_refusal():
    with pytest.raises(MarkupError, match="Unclosed start tag"):
        markup.warnings("<b", HTML)


# Preview


def test_preview_without_colour():
    text = ">quote *b*\n>two\nsee [x](https://a.b/c) and [Ann](tg://user?id=5)\n\n>last"
    shown = "│ quote b\n│ two\nsee x (https://a.b/c) and Ann (user 5)\n\n│ last"
    assert markup.preview(text, V2, colour=False) == shown


def test_preview_in_colour():
    assert markup.preview("<b>a <i>b</i></b>\nc", HTML) == "\x1b[1ma \x1b[0m\x1b[1;3mb\x1b[0m\nc"


def test_a_quote_stands_on_its_own_lines():
    text = "a<blockquote>b</blockquote>c"
    assert markup.preview(text, HTML, colour=False) == "a\n│ b\nc"


@settings(deadline=None)
@given(st.text(min_size=1, max_size=40))
def test_previews_are_harmless_to_terminals(text):
    try:
        shown = markup.preview(text, None)
    except MarkupError:
        return
    assert not any(
        ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in shown.replace("\n", "")
    )


# Escapes

TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("<>&;\\`_*[]()~|!.\n\r#x41"))
)


@settings(deadline=None)
@given(TEXTS)
def test_html_escapes_round_trip(value):
    escaped = markup.html_escape(value)
    for template in ("x{}", "<b>x{}</b>", "<pre>x{}</pre>", "<pre><code class='language-a'>x{}</code></pre>"):
        assert parse_html(template.format(escaped)).text == f"x{value}"


@settings(deadline=None)
@given(TEXTS)
def test_markdown_v2_escapes_round_trip(value):
    escaped = markup.markdown_v2_escape(value)
    for template in ("x{}", "*x{}*", "[x{}](a.b)", "__x{}__"):
        assert parse_markdown_v2(template.format(escaped)).text == f"x{value}"


@settings(deadline=None)
@given(TEXTS)
def test_markdown_v2_code_escapes_round_trip(value):
    escaped = markup.markdown_v2_code_escape(value)
    for template in ("`x{}`", "```\nx{}```", "```py\nx{}```"):
        assert parse_markdown_v2(template.format(escaped)).text == f"x{value}"


@settings(deadline=None)
@given(TEXTS.filter(lambda value: "\0" not in value))
def test_addresses_round_trip(value):
    url = links.checked(f"a.b/{value}")
    in_attribute = parse_html(f'<a href="{markup.html_escape(url)}">t</a>')
    in_parentheses = parse_markdown_v2(f"[t]({markup.markdown_v2_url_escape(url)})")
    assert [parsed.entities[0].url for parsed in (in_attribute, in_parentheses)] == [url, url]


# Anything at all

PIECES = st.sampled_from(
    [
        *("<", ">", "</", "</>", "<b>", "</b>", "<a>", "<code>", "</code>", "<pre>", "</pre>"),
        *("<blockquote>", "&", "&#", "&lt;", "&#x", "=", '"', "'", "/", "*", "_", "__", "~", "|", "||"),
        *("`", "```", "[", "]", "(", ")", "![", "](a.b)", "](tg://emoji?id=1)", "#", "\\", "!", "."),
        *("a.b", "a", "😀", "é", "<a href='", " ", "\n", "\r", "\0", "\u2028", "\u200e", "\ud83d"),
    ]
)


@settings(max_examples=500, deadline=None)
@given(st.lists(PIECES, max_size=25).map("".join), st.sampled_from([*markup.PARSE_MODES, None]))
def test_only_the_declared_error_ever(text, mode):
    try:
        parsed = markup.parse(text, mode)
        sent = markup.finish(parsed)
        markup.warnings(text, mode)
        markup.preview(text, mode)
    except MarkupError as error:
        position = error.position or 0
    else:
        position = 0
        check_entities(parsed, sent)
    assert 0 <= position <= len(text)


def check_entities(parsed: Parsed, sent: Parsed) -> None:
    for result in (parsed, sent):
        end = markup.units(result.text)
        assert all(0 <= entity.offset < entity.end <= end for entity in result.entities)
    assert markup.finish(sent) == sent


# Cost


class Work:
    """Counts what passes through the two ends of the parsers, one for each call and each character."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done = 0
        for owner, names in ((Reader, ("take", "take_one", "take_until", "ahead")), (Writer, ("since",))):
            for name in names:
                monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            result = method(*args)
            self.done += 1 + len(result or "")
            return result

        return counted

    def of(self, mode: str, text: str) -> int:
        self.done = 0
        with suppress(MarkupError):
            PARSERS[mode](text)
        return self.done


REPEATED = (
    *("[", "<", "*", "_", "`", "~", "|", "&", ">", "\\", "!", "](", "[a](a.b)", "[a](", "<b>"),
    *("<b></b>", "<a>a.b</a>", "&#", "&lt;", "&ltx", "__", "||", "**", "```", "```a`", "*a*"),
    *("[a.b]", "\\[", "é", "<b x='", "<b x=y ", "\n>a", "```a b", "<b ", "a b "),
)


@pytest.mark.parametrize("mode", markup.PARSE_MODES)
@pytest.mark.parametrize("piece", REPEATED)
def test_twice_the_text_is_twice_the_work(mode, piece, monkeypatch):
    work = Work(monkeypatch)
    once, twice = work.of(mode, piece * 500), work.of(mode, piece * 1000)
    assert twice <= 2 * once + 50
    assert once <= 50 * (len(piece) * 500 + 1)


@pytest.mark.parametrize("mode", markup.PARSE_MODES)
@pytest.mark.parametrize("character", "[<*_")
def test_a_megabyte_is_refused_unread(mode, character, monkeypatch):
    work = Work(monkeypatch)
    assert refusal(character * 1_000_000, mode).description == "Bad Request: text is too long"
    assert work.done == 0
