"""Tasks in a pool of forked workers, as Celery's prefork pool runs them, with one publisher made before.

Each child gets a connection of its own when it first publishes. The id is made of the task's arguments, so a
task that is run again, in whatever child, says it once.

    NATS_URL=... NATS_TELEGRAM_NKEY_SEED=... python examples/prefork_tasks.py 20
"""

from __future__ import annotations

import multiprocessing
import os
import sys

from telegram_connector.envelope import TelegramOutbound
from telegram_connector.publisher import Publisher
from telegram_connector.settings import NatsSettings

WORKERS = 4

publisher = Publisher(NatsSettings.from_env(os.environ))


def report(order: int) -> tuple[int, int]:
    """A task. With Celery: ``@app.task(autoretry_for=[PublishFailed])``, of `telegram_connector.errors`."""
    envelope = TelegramOutbound(
        msg_id=f"order-{order}-shipped", chat=os.environ.get("CHAT"), text=f"order {order} shipped"
    )
    return publisher.publish(envelope, timeout_seconds=10).seq, os.getpid()


def main(orders: int) -> None:
    with multiprocessing.get_context("fork").Pool(WORKERS, maxtasksperchild=10) as pool:
        done = pool.map(report, [*range(orders), 0], chunksize=1)  # the first task comes a second time
        pool.close()
        pool.join()
    sequences, workers = zip(*done, strict=True)
    print(f"{len(done)} tasks in {len(set(workers))} workers made {len(set(sequences))} messages")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
