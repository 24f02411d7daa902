"""Telegram's markup: parsed, refused, repaired and measured as Telegram does it, in its own words.

``parse`` ends where Telegram's parser ends; ``check`` goes on to what is sent. Rules and words are those of
tdlib 1.8.66 and telegram-bot-api 10.0; what Telegram's own servers do afterwards is not known.
"""

from __future__ import annotations

from telegram_connector.errors import MarkupError
from telegram_connector.markup.entity import Entity, Notice, Parsed, units
from telegram_connector.markup.escape import (
    html_escape,
    markdown_v2_code_escape,
    markdown_v2_escape,
    markdown_v2_url_escape,
)
from telegram_connector.markup.finish import MAX_CODE_POINTS, MAX_ENTITIES, finish
from telegram_connector.markup.parsing import MAX_RAW_BYTES, PARSE_MODES, check, parse
from telegram_connector.markup.plain import plain
from telegram_connector.markup.preview import harmless, preview
from telegram_connector.markup.verdict import Verdict, judge, line_and_column
from telegram_connector.markup.warn import warnings

__all__ = (
    "MAX_CODE_POINTS",
    "MAX_ENTITIES",
    "MAX_RAW_BYTES",
    "PARSE_MODES",
    "Entity",
    "MarkupError",
    "Notice",
    "Parsed",
    "Verdict",
    "check",
    "finish",
    "harmless",
    "html_escape",
    "judge",
    "line_and_column",
    "markdown_v2_code_escape",
    "markdown_v2_escape",
    "markdown_v2_url_escape",
    "parse",
    "plain",
    "preview",
    "units",
    "warnings",
)
