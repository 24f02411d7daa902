"""A synchronous web service that forks its workers, as gunicorn and uWSGI do, with one publisher made before.

Each worker gets a connection of its own when it first publishes. (uWSGI needs `enable-threads`.)

    NATS_URL=... NATS_TELEGRAM_NKEY_SEED=... python examples/prefork_web.py 8000
    curl -d 'text=hello' http://127.0.0.1:8000/orders/1
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import make_server

from telegram_connector.envelope import TelegramOutbound
from telegram_connector.errors import EnvelopeError, PublishFailed
from telegram_connector.publisher import Publisher
from telegram_connector.settings import NatsSettings

WORKERS = 2

publisher = Publisher(NatsSettings.from_env(os.environ))


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)).decode()
    envelope = TelegramOutbound(
        # Made of what the request is about, so that a request sent twice is one message.
        msg_id=f"order{environ['PATH_INFO'].replace('/', '-')}",
        chat=os.environ.get("CHAT"),
        text=parse_qs(body).get("text", [""])[0],
    )
    try:
        ack = publisher.publish(envelope, timeout_seconds=5)
        status, answer = "200 OK", f"stored as {ack.seq} by worker {os.getpid()}\n"
    except EnvelopeError as error:
        status, answer = "400 Bad Request", f"{error}\n"
    except PublishFailed as error:
        # Sent again by the client, the request is still one message, also where this one may be stored.
        status, answer = "503 Service Unavailable", f"{error}\n"
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [answer.encode()]


def main(port: int) -> None:
    server = make_server("127.0.0.1", port, application)
    workers = []
    for _ in range(WORKERS):
        if (worker := os.fork()) == 0:
            server.serve_forever()
        workers.append(worker)
    print(f"listening on {server.server_port}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: [os.kill(worker, signal.SIGTERM) for worker in workers])
    for worker in workers:
        os.waitpid(worker, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
