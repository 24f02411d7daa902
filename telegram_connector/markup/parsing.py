"""A text and its parse mode: which parser reads it, and what is refused before one does."""

from __future__ import annotations

from telegram_connector.errors import MarkupError
from telegram_connector.markup.entity import SURROGATE, Parsed
from telegram_connector.markup.finish import finish
from telegram_connector.markup.html import parse_html
from telegram_connector.markup.legacy import parse_markdown
from telegram_connector.markup.links import ascii_lower
from telegram_connector.markup.markdown import parse_markdown_v2

MAX_RAW_BYTES = 32_768  # telegram-bot-api, Client.cpp
PARSE_MODES = ("HTML", "MarkdownV2", "Markdown")

_PARSERS = {"html": parse_html, "markdownv2": parse_markdown_v2, "markdown": parse_markdown}


def parse(text: str, parse_mode: str | None) -> Parsed:
    """Read the markup of a text.

    Args:
        text: As it would be given to ``sendMessage``.
        parse_mode: In any letter case; None, "" and "none" for no markup.

    Raises:
        MarkupError: Telegram would refuse it.
    """
    mode = ascii_lower(parse_mode or "none")
    if not text:
        raise MarkupError("Bad Request: message text is empty")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_RAW_BYTES:
        raise MarkupError("Bad Request: text is too long")
    if mode != "none" and mode not in _PARSERS:
        raise MarkupError("Bad Request: unsupported parse_mode")
    if mode == "none":
        return Parsed(text)
    if broken := SURROGATE.search(text):
        raise MarkupError("Bad Request: text must be encoded in UTF-8", position=broken.start())
    return _PARSERS[mode](text)


def check(text: str, parse_mode: str | None) -> Parsed:
    """What Telegram would send of a text.

    Raises:
        MarkupError: Telegram would refuse it, for its markup, its length or because nothing is visible.
    """
    return finish(parse(text, parse_mode))
