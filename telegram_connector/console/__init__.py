"""The operator's page: how things stand, dead letters, what is in doubt, and why a message was not sent.

Needs the extra ``console``. See docs/console.md.
"""

from __future__ import annotations

try:
    import flask as _flask  # noqa: F401
except ImportError as error:
    raise ImportError(
        "the console needs Flask, which is not installed: pip install 'telegram-connector[console]'"
    ) from error

from telegram_connector.console.access import Access
from telegram_connector.console.server import Console, serve

__all__ = ["Access", "Console", "serve"]
