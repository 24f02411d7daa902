"""A program whose errors are told in a chat, by its logging configuration alone.

NATS_URL=... NATS_TELEGRAM_NKEY_SEED=... python examples/log_handler.py
"""

from __future__ import annotations

import logging.config
import os

from telegram_connector.settings import NatsSettings

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": "plain"},
        "telegram": {
            "class": "telegram_connector.handler.TelegramHandler",
            "level": "ERROR",
            "settings": NatsSettings.from_env(os.environ),
            "chat": os.environ.get("CHAT"),
            "secrets": [os.environ.get("DATABASE_PASSWORD", "")],
        },
    },
    "root": {"level": "INFO", "handlers": ["console", "telegram"]},
}

logger = logging.getLogger("shop.orders")


def charge(order: int) -> None:
    if order % 10 == 0:
        raise RuntimeError("the bank refuses, password " + os.environ.get("DATABASE_PASSWORD", ""))


def main() -> None:
    logging.config.dictConfig(LOGGING)
    for order in range(1, 101):
        logger.info("order %d", order)
        try:
            charge(order)
        except RuntimeError:
            logger.exception("order %d failed", order)  # ten of them: two messages or so, with a count


if __name__ == "__main__":
    main()  # what is queued is sent at exit, which takes 3 seconds at most
