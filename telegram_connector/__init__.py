"""The one Telegram sender of a fleet: relays envelopes from NATS JetStream to the Bot API."""

__version__ = "0.1.0"
