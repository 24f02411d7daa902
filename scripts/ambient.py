"""What a local run takes from the developer's environment: nothing of ours, unless it was asked to."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from children import Failed

from telegram_connector.disposition import Sent
from telegram_connector.errors import SettingsError
from telegram_connector.settings import NatsSettings, Settings, variables
from telegram_connector.telegram import TelegramClient

OURS = ("TELEGRAM_", "NATS_", "TG_")
OF_TELEGRAM = frozenset({"TELEGRAM_BOT_TOKEN", "TELEGRAM_CHAT_ID", "TELEGRAM_API_BASE_URL", "TG_ALLOW_HTTP"})
OF_NATS = frozenset(variables(NatsSettings))


@dataclass(frozen=True)
class Plan:
    """What a run uses.

    Attributes:
        base: Environment of every child, without our variables.
        telegram: Variables for real Telegram; None for the sandbox.
        nats: Variables for a NATS server that is there already; None for one of our own.
        claims: What is used that is not of our own making, to be confirmed.
        ignored: Names of variables that are ignored.
    """

    base: Mapping[str, str]
    telegram: Mapping[str, str] | None
    nats: Mapping[str, str] | None
    claims: tuple[str, ...]
    ignored: Sequence[str]

    @classmethod
    def of(cls, options: argparse.Namespace, ignored: Sequence[str]) -> Plan:
        """Check what the options ask for.

        Raises:
            Failed: A setting is missing or wrong, or the bot is refused.
        """
        env = os.environ
        base = {name: value for name, value in env.items() if not name.startswith(OURS)}
        base |= {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
        base["LOG_FORMAT"] = base.get("LOG_FORMAT", "").strip() or "text"
        telegram = {n: env[n] for n in OF_TELEGRAM if n in env} if options.telegram else None
        nats = {n: env[n] for n in OF_NATS if n in env} if options.nats else None
        claims = []
        if telegram is not None:
            claims.append(_bot(base | telegram))
        if nats is not None:
            claims.append(_server(nats, "that bot" if options.telegram else "the sandbox"))
        return cls(base, telegram, nats, tuple(claims), ignored)


def _bot(env: Mapping[str, str]) -> str:
    """Name the bot and the chat, having asked the Bot API."""
    missing = [name for name in ("TELEGRAM_BOT_TOKEN", "TELEGRAM_CHAT_ID") if not env.get(name, "").strip()]
    if missing:
        raise Failed(f"--telegram needs {' and '.join(missing)} in the environment.")
    try:
        # Of NATS only as much as keeps the settings from being dormant.
        settings = Settings.from_env({**env, "NATS_URL": "nats://127.0.0.1", "NATS_AUTH": "none"})
    except SettingsError as error:
        raise Failed("\n".join(("--telegram:", *error.faults))) from None
    client = TelegramClient(
        settings.bot_token, settings.api_base_url, proxy_url=settings.proxy_url, ca_bundle=settings.ca_bundle
    )
    host = urlsplit(settings.api_base_url).netloc.rpartition("@")[2]
    answer = client.get_me(time.monotonic() + 20)
    client.close()
    if not isinstance(answer, Sent):
        raise Failed(
            f"--telegram: the bot cannot be used at {host}: {getattr(answer, 'description', answer)}"
        )
    return f"the bot @{client.bot_name} at {host}, to send one message to chat {settings.chat_id}"


def _server(env: Mapping[str, str], whither: str) -> str:
    """Name the NATS server and what happens there."""
    if not env.get("NATS_URL", "").strip():
        raise Failed("--nats needs NATS_URL in the environment.")
    try:
        settings = NatsSettings.from_env(env)
    except SettingsError as error:
        raise Failed("\n".join(("--nats:", *error.faults))) from None
    servers = ", ".join(urlsplit(url).netloc.rpartition("@")[2] for url in settings.nats_servers)
    return (
        f"the NATS server {servers} as it is (nothing is provisioned), to publish one message to\n"
        f"    {settings.subject}. What waits for the consumer {settings.durable} of {settings.stream}\n"
        f"    is taken from it and goes to {whither}. Another connector there may take the message"
    )
