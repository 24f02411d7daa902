"""A Bot API to develop and test against: Telegram's words, its order of checks, and faults on demand.

Needs the extra ``sandbox``. See docs/sandbox.md.
"""

from __future__ import annotations

try:
    import flask as _flask  # noqa: F401
except ImportError as error:
    raise ImportError(
        "the sandbox needs Flask, which is not installed: pip install 'telegram-connector[sandbox]'"
    ) from error

from telegram_connector.sandbox.actions import Drip, Half, Pass, Reset, Say, Silence
from telegram_connector.sandbox.chats import Chat, Topic
from telegram_connector.sandbox.clock import Clock
from telegram_connector.sandbox.faults import Fault, Rule
from telegram_connector.sandbox.flood import Flood, Limits
from telegram_connector.sandbox.record import Call, Message, OrderBreak
from telegram_connector.sandbox.server import Sandbox, serve
from telegram_connector.sandbox.tokens import Bot

__all__ = [
    "Bot",
    "Call",
    "Chat",
    "Clock",
    "Drip",
    "Fault",
    "Flood",
    "Half",
    "Limits",
    "Message",
    "OrderBreak",
    "Pass",
    "Reset",
    "Rule",
    "Sandbox",
    "Say",
    "Silence",
    "Topic",
    "serve",
]
