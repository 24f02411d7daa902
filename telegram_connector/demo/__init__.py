"""Half a minute of the whole connector on this machine: a flood, a kill -9, and what arrived in the end.

Needs the extra ``local``. `cli.demo` is its command; nothing here reads the environment or handles signals.
"""

from __future__ import annotations

try:
    import telegram_connector.sandbox as _sandbox  # noqa: F401
except ImportError as error:
    raise ImportError(
        "the demo needs what is not installed: pip install 'telegram-connector[local]'"
    ) from error

from telegram_connector.demo.plan import Plan, draw_up
from telegram_connector.demo.processes import Failed, Interrupted
from telegram_connector.demo.show import Show
from telegram_connector.demo.tally import Tally
from telegram_connector.demo.view import PlainView, View

__all__ = [
    "Failed",
    "Interrupted",
    "PlainView",
    "Plan",
    "Show",
    "Tally",
    "View",
    "draw_up",
]
