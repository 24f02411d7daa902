"""``run``: the worker."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import threading
import time

import click

from telegram_connector.cli import logs, otel
from telegram_connector.cli.manual import foot
from telegram_connector.cli.settings import misspelt, relay_settings
from telegram_connector.errors import RelayFailed
from telegram_connector.relay import Relay

SHORT_ACK_WAIT_SECONDS = 40.0  # connecting, and the longest that the Bot API may take


@click.command(
    short_help="Relay envelopes to Telegram until SIGTERM or SIGINT.",
    epilog=foot(
        "run",
        done="stopped when asked to, or dormant",
        failed="a thread died of a bug, and so the relay stopped",
    ),
)
def run() -> None:
    """Relay envelopes to Telegram until SIGTERM or SIGINT.

    Without TELEGRAM_BOT_TOKEN or NATS_URL it is dormant: a warning, exit code 0. When stopped it finishes the
    send in flight, gives back what it holds, and exits 0 within TG_DRAIN_SECS. Whatever is the matter with
    NATS or Telegram, it goes on trying and says so; docs/operations.md explains each line of its log.
    """
    settings = relay_settings()
    secrets = (*settings.secrets, *otel.secrets(os.environ))
    logs.set_up(settings.log_level, settings.log_format, secrets)
    threading.excepthook = _log_thread_error
    for name in misspelt():
        logging.getLogger("telegram_connector").warning("%s is not a setting of this version", name)
    if settings.ack_wait_seconds < SHORT_ACK_WAIT_SECONDS:
        logging.getLogger("telegram_connector").warning(
            "TG_ACK_WAIT_SECS is below %g: a send that the Bot API is slow to answer is cut off at its lease,"
            " and may show twice",
            SHORT_ACK_WAIT_SECONDS,
        )
    # SimpleQueue.put is documented as reentrant, so a handler may call it whatever it interrupts. Further
    # signals only add to the queue, which nobody reads by then.
    stops: queue.SimpleQueue[str] = queue.SimpleQueue()
    exports = otel.Exports() if settings.dormant else otel.set_up(logs.Scrubber(secrets))
    relay = Relay(settings)
    relay.on_end(lambda: stops.put("failed"))
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda number, _frame: stops.put(signal.Signals(number).name))
    if not relay.start():
        return
    reason = stops.get()
    deadline = time.monotonic() + settings.drain_seconds
    try:
        relay.stop(max(0.0, settings.drain_seconds - exports.reserve_seconds), reason)
        relay.wait(0)
    except RelayFailed as error:
        logging.getLogger("telegram_connector").critical("%s", error)
        sys.exit(1)
    finally:
        exports.close(max(0.0, deadline - time.monotonic()))


def _log_thread_error(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None:
        logging.getLogger("telegram_connector").critical(
            "unexpected error in a thread", exc_info=(args.exc_type, args.exc_value, args.exc_traceback)
        )
