"""How things stand, looked at again and again while somebody looks on; one thread for all pages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from telegram_connector.bridge import NatsClient
from telegram_connector.bridge.link import ConnectError
from telegram_connector.errors import BridgeError
from telegram_connector.overview import Observatory, Overview
from telegram_connector.settings import NatsSettings

AGAIN_SECONDS = 1.0
ANSWERS_SECONDS = 0.5  # for which connectors' answers are gathered
UNWATCHED_SECONDS = 15.0  # after which nobody looks on any more


@dataclass(frozen=True)
class Picture:
    """What was seen last.

    Attributes:
        number: Counts pictures.
        overview: How things stood; None until that was seen once.
        trouble: Why it is not known any more, "" while it is.
        setting: The variable to look at, "" where none is to blame.
        acted: Counts what was done by this console.
    """

    number: int = 0
    overview: Overview | None = None
    trouble: str = ""
    setting: str = ""
    acted: int = 0


class Watch:
    """Keeps a picture of how things stand. Thread-safe.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, settings: NatsSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._changed = threading.Condition()
        self._picture = Picture()
        self._wanted_until = float("-inf")
        self._poked = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="console-watch", daemon=True)

    def start(self) -> None:
        """Begin; nothing is asked of NATS until somebody looks on."""
        self._thread.start()

    def close(self, timeout_seconds: float = 10.0) -> None:
        """End it, and with it every wait."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def after(self, number: int, seconds: float) -> Picture | None:
        """The first picture after the one with that number, or the last after so long; None once closed."""
        with self._changed:
            self._want()
            self._changed.wait_for(lambda: self._closed or self._picture.number > number, seconds)
            self._want()
            return None if self._closed else self._picture

    def acted(self) -> None:
        """Something was done: look again at once, and have pages ask again for what they show."""
        with self._changed:
            self._picture = self._next(self._picture.overview, acted=self._picture.acted + 1)
            self._poked = True
            self._changed.notify_all()

    def _want(self) -> None:
        was = self._is_wanted()
        self._wanted_until = self._clock() + UNWATCHED_SECONDS
        if not was:
            self._changed.notify_all()

    def _is_wanted(self) -> bool:
        return self._clock() < self._wanted_until

    def _next(
        self, overview: Overview | None, *, trouble: str = "", setting: str = "", acted: int | None = None
    ) -> Picture:
        before = self._picture
        return Picture(
            before.number + 1, overview, trouble, setting, before.acted if acted is None else acted
        )

    def _run(self) -> None:
        while self._until_wanted():
            try:
                with NatsClient(self._settings, "telegram_connector console") as client:
                    observatory = Observatory(client, self._settings, ANSWERS_SECONDS)
                    while self._goes_on():
                        self._show(observatory.look())
                        self._rest()
            except ConnectError as error:
                self._fail(error.cause, error.setting)
            except BridgeError as error:
                self._fail(str(error), "")

    def _until_wanted(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._is_wanted())
            return not self._closed

    def _goes_on(self) -> bool:
        with self._changed:
            return self._is_wanted() and not self._closed

    def _show(self, overview: Overview) -> None:
        with self._changed:
            self._picture = self._next(overview)
            self._changed.notify_all()

    def _fail(self, trouble: str, setting: str) -> None:
        with self._changed:
            self._picture = self._next(self._picture.overview, trouble=trouble, setting=setting)
            self._changed.notify_all()
        self._rest()

    def _rest(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._poked, AGAIN_SECONDS)
            self._poked = False
