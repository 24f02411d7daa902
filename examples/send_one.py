"""A cron script that says how it went: one message, confirmed, or a clear failure and exit code 1.

NATS_URL=... NATS_TELEGRAM_NKEY_SEED=... python examples/send_one.py "backup done, 12 GB"
"""

from __future__ import annotations

import datetime
import os
import sys

from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import EnvelopeError, PublishFailed, SettingsError
from telegram_connector.publisher import Publisher
from telegram_connector.settings import NatsSettings


def main(text: str) -> int:
    # The same id all day: a script that cron or a person starts again within minutes says it once.
    today = datetime.datetime.now(datetime.timezone.utc).date()
    envelope = TelegramOutbound(msg_id=f"backup-{today}", chat=os.environ.get("CHAT"), text=text)
    try:
        with Publisher(NatsSettings.from_env(os.environ)) as publisher:
            ack = publisher.publish(envelope, timeout_seconds=30)
    except (SettingsError, EnvelopeError, PublishFailed) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"stored as {ack.seq}" + (", as before" if ack.duplicate else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:]) or "done"))
