"""Values made safe to be put into marked-up texts: what they say is what people read.

Each undoes what its parser does, for every text without half surrogate pairs. What Telegram cleans afterwards
(control characters, blanks at the ends) it cleans in values too.
"""

from __future__ import annotations

import re

from telegram_connector.markup.markdown import RESERVED

_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_V2 = re.compile(rf"[\\{re.escape(RESERVED)}]")
_V2_CODE = re.compile(r"[\\`]")
_V2_URL = re.compile(r"[\\)]")


def html_escape(value: str) -> str:
    """For HTML: between tags, in ``<code>`` and ``<pre>``, and in a quoted attribute (there without NUL)."""
    return value.translate(_HTML)


def markdown_v2_escape(value: str) -> str:
    """For MarkdownV2: anywhere but in code and in an address."""
    return _V2.sub(r"\\\g<0>", value)


def markdown_v2_code_escape(value: str) -> str:
    """For MarkdownV2: between single backticks, or after the first line of a fence of three."""
    return _V2_CODE.sub(r"\\\g<0>", value)


def markdown_v2_url_escape(value: str) -> str:
    """For MarkdownV2: the address between the parentheses of ``[text](address)``."""
    return _V2_URL.sub(r"\\\g<0>", value)
