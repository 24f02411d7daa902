"""What Telegram would refuse of an envelope's text, known before it is published and said in its words."""

from __future__ import annotations

from telegram_connector import markup
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import MarkupError, TextRefused

_BLANK = "".join(map(chr, range(0x21)))
# What Telegram takes out of a text, all or some of it, before it counts.
_UNCOUNTED = dict.fromkeys((0x0D, 0x200E, 0x200F, *range(0x2028, 0x202F), 0x030A, 0x0333, 0x033F))


def fits(envelope: TelegramOutbound) -> None:
    """Refuse what Telegram surely refuses for its length; knows nothing of markup.

    Raises:
        TextRefused: The text is empty or too long.
    """
    size = len(envelope.text.encode(errors="replace"))
    if size > markup.MAX_RAW_BYTES:
        raise TextRefused("Bad Request: text is too long", figures=f"{size} bytes of {markup.MAX_RAW_BYTES}")
    if not envelope.text.strip(_BLANK):
        raise TextRefused("Bad Request: text must be non-empty", figures="it is white space")
    if (envelope.parse_mode or "none").lower() == "none":
        shown = len(envelope.text.translate(_UNCOUNTED).strip())
        if shown > markup.MAX_CODE_POINTS:
            figures = f"{shown} characters of {markup.MAX_CODE_POINTS}"
            raise TextRefused("Bad Request: message is too long", figures=figures)


def reads_well(envelope: TelegramOutbound) -> None:
    """Refuse what Telegram refuses for its length or its markup, by the rules that `markup` knows.

    Raises:
        TextRefused: With Telegram's words, and the place of a fault of markup.
    """
    fits(envelope)
    try:
        markup.check(envelope.text, envelope.parse_mode)
    except MarkupError as fault:
        offset = fault.byte_offset
        if offset is None and fault.position is not None:
            offset = len(envelope.text[: fault.position].encode(errors="replace"))
        raise TextRefused(fault.description, offset, fault.position) from None
