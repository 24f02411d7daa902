"""Everything that touches NATS, on one asyncio thread of its own; the only importer of `nats`."""

from telegram_connector.bridge.client import NatsClient, PublishAck
from telegram_connector.bridge.deadletters import DeadLetters
from telegram_connector.bridge.kv import KeyValue
from telegram_connector.bridge.outlet import THREAD_NAME, Outlet
from telegram_connector.bridge.source import JetStreamSource

__all__ = [
    "THREAD_NAME",
    "DeadLetters",
    "JetStreamSource",
    "KeyValue",
    "NatsClient",
    "Outlet",
    "PublishAck",
]
