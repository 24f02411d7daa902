"""Log records of a program as messages: a `logging.Handler` that never holds the program up."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from telegram_connector.envelope import TelegramOutbound, encode
from telegram_connector.errors import EnvelopeError, PublishFailed
from telegram_connector.gathering import Gathering
from telegram_connector.markup import MAX_CODE_POINTS
from telegram_connector.publisher import THREAD_NAME, Publisher
from telegram_connector.scrubber import Scrubber
from telegram_connector.settings import NatsSettings

FORMAT = "%(levelname)s %(name)s: %(message)s"
HANDLER_THREAD_NAME = "telegram-handler"
# What these log is never sent: it may be about the sending itself.
IGNORED_LOGGERS = frozenset({"telegram_connector", "nats", "urllib3"})
OWN_THREADS = frozenset({HANDLER_THREAD_NAME, THREAD_NAME})
TRY_SECONDS = 10.0
AGAIN_SECONDS = 5.0  # after a failure that came at once, such as wrong credentials
CLOSE_SECONDS = 1.0
KEY_LENGTH = 1000  # characters of a template that tell it from others

logger = logging.getLogger("telegram_connector")


class TelegramHandler(logging.Handler):
    """Publishes log records as plain text, from a thread of its own.

    A logging call formats its record, puts it into a bounded queue and returns: no connection, no disk, no
    wait. Records with an equal template are gathered into one message with their count, different ones that
    come together into one message, and between two messages there is a pause. What does not fit into the
    queue is counted, and the count is said. Long texts keep their beginning and their end. A record reaches
    the stream once; messages are published again under the same id until their receipt comes.

    What it cannot deliver it says to the logger ``telegram_connector``, on change, for the program's other
    handlers. In a forked child it starts anew and empty; what the parent had queued is the parent's. A child
    of multiprocessing runs no exit handlers: one that logs as its last act calls `logging.shutdown`.

    Args:
        settings: Where to publish, as `NatsSettings` or as its arguments (for `logging.config.dictConfig`).
        level: The least level that is sent.
        publisher: Instead of `settings`: one that the program has; it is not closed here.
        chat: Decimal chat id or ``@name``; None for the connector's default chat.
        message_thread_id: Topic within the chat.
        silent: Whether to deliver without a sound.
        secrets: Values that are blotted out of every text. Those of `settings` or `publisher` are known.
        capacity: Different records that may wait at a time.
        pause_seconds: Between two messages at least; between two about the same record it doubles up to 10
            minutes.
        flush_seconds: The most that `flush` waits, and the interpreter's exit with it.

    Raises:
        ValueError: Not one of `settings` and `publisher`.
        SettingsError, EnvelopeError: An argument is wrong; it is named.
    """

    def __init__(
        self,
        settings: NatsSettings | Mapping[str, Any] | None = None,
        level: int | str = logging.ERROR,
        *,
        publisher: Publisher | None = None,
        chat: str | None = None,
        message_thread_id: int | None = None,
        silent: bool = False,
        secrets: Iterable[str] = (),
        capacity: int = 200,
        pause_seconds: float = 5.0,
        flush_seconds: float = 3.0,
    ) -> None:
        if (settings is None) == (publisher is None):
            raise ValueError("give either settings or publisher")
        if isinstance(settings, Mapping):
            # Item by item: dictConfig's mappings resolve ext:// and cfg:// when asked for an item.
            settings = NatsSettings(**{name: settings[name] for name in settings})
        self._own = Publisher(settings, name="telegram_connector handler") if settings is not None else None
        self._publisher = publisher or self._own
        assert self._publisher is not None
        self._options: dict[str, Any] = {
            "chat": chat,
            "kind": "alert",
            "message_thread_id": message_thread_id,
            "disable_notification": True if silent else None,
        }
        encode(self._envelope("wrong options are named here, not when there is something to log"))
        self._scrub = Scrubber([*secrets, *self._publisher.secrets])
        self._capacity = capacity
        self._pause_seconds = pause_seconds
        self._flush_seconds = flush_seconds
        self._closed = False
        # Not one flag: a child that is forked while another thread formats would keep it.
        self._here = threading.local()
        self._queues: dict[int, _Queue] = {}  # by process, as in `Publisher`
        super().__init__(level)
        self.formatter = logging.Formatter(FORMAT)

    def handle(self, record: logging.LogRecord) -> bool:
        """Pass over what is about ourselves, before the lock: at the exit `flush` waits inside it."""
        return not _is_ours(record) and bool(super().handle(record))

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; never waits, never raises."""
        if self._closed or getattr(self._here, "formatting", False):
            return  # the latter for arguments that log while they are formatted
        self._here.formatting = True
        try:
            key = (record.name, record.levelno, record.pathname, record.lineno, str(record.msg)[:KEY_LENGTH])
            self._queue().put(key, self._text(record))
        except Exception:  # noqa: BLE001 - as every handler: the program's bug in a record is not its end
            self.handleError(record)
        finally:
            self._here.formatting = False

    def _text(self, record: logging.LogRecord) -> str:
        """The record as Telegram takes it: secrets first, so that none is cut and half shown."""
        text = self._scrub(self.format(record)).strip()
        return text.encode(errors="replace").decode() or "(an empty record)"

    def _envelope(self, text: str) -> TelegramOutbound:
        return TelegramOutbound(msg_id=f"log-{uuid.uuid4()}", text=text, **self._options)

    def _queue(self) -> _Queue:
        process = os.getpid()
        if process not in self._queues:
            gathering = Gathering(self._capacity, self._pause_seconds, MAX_CODE_POINTS)
            self._queues[process] = _Queue(gathering, self._send)
            assert self._publisher is not None
            self._publisher.start()  # at the exit, when a short script's are sent, it may be too late
        return self._queues[process]

    def _send(self, text: str, stopping: threading.Event) -> None:
        """Publish until it is stored, or the handler is closed."""
        assert self._publisher is not None
        envelope = self._envelope(text)
        said = ""
        while True:
            try:
                self._publisher.publish(envelope, TRY_SECONDS)
            except EnvelopeError as error:
                logger.error("log records cannot be sent: %s", error)
                return
            except PublishFailed as error:
                if stopping.is_set():
                    return
                if error.reason != said:
                    said = error.reason
                    logger.warning("log records cannot be sent yet: %s", said)
                if stopping.wait(AGAIN_SECONDS):
                    return
            else:
                if said:
                    logger.info("log records are sent again")
                return

    def flush(self) -> None:
        """Send what waits, without pauses; waits `flush_seconds` at most, and not at all once that failed."""
        if queue := self._queues.get(os.getpid()):
            queue.flush(self._flush_seconds)

    def close(self) -> None:
        """Flush, and end. What is not sent by then is lost, which is said. Idempotent."""
        self.flush()
        self._closed = True
        if queue := self._queues.pop(os.getpid(), None):
            queue.stop()
            if self._own is not None:
                self._own.close(CLOSE_SECONDS)
            if not queue.join(CLOSE_SECONDS) or queue.busy:
                logger.warning("log records were not sent before the end")
        super().close()


class _Queue:
    """One process's waiting records, and the thread that sends them."""

    def __init__(self, gathering: Gathering, send: Callable[[str, threading.Event], None]) -> None:
        self._gathering = gathering
        self._send = send
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._sending = False
        self._flushing = 0
        self._hopeless = False  # a flush was in vain, and nothing was sent since
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether something is not sent yet."""
        return self._sending or self._gathering.waiting

    def put(self, key: Hashable, text: str) -> None:
        with self._changed:
            self._gathering.add(key, text, time.monotonic())
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=HANDLER_THREAD_NAME, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _run(self) -> None:
        while (text := self._next()) is not None:
            self._send(text, self._stopping)
            with self._changed:
                if not self._stopping.is_set():
                    self._sending = self._hopeless = False
                self._changed.notify_all()

    def _next(self) -> str | None:
        with self._changed:
            while not self._stopping.is_set():
                now = time.monotonic()
                text = self._gathering.take(now, at_once=self._flushing > 0)
                if text is not None:
                    self._sending = True
                    self._changed.notify_all()
                    return text
                due_at = self._gathering.due_at()
                self._changed.wait(None if due_at is None else due_at - now)
        return None

    def flush(self, timeout_seconds: float) -> None:
        with self._changed:
            self._flushing += 1
            self._changed.notify_all()
            done = self._changed.wait_for(lambda: not self.busy, 0 if self._hopeless else timeout_seconds)
            self._flushing -= 1
            self._hopeless = not done

    def stop(self) -> None:
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()

    def join(self, timeout_seconds: float) -> bool:
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        return self._thread is None or not self._thread.is_alive()


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.split(".")[0] in IGNORED_LOGGERS or threading.current_thread().name in OWN_THREADS
