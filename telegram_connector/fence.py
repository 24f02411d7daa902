"""Between our threads and a host's telemetry: what it raises must not cost a message."""

from __future__ import annotations

import logging
from types import TracebackType

logger = logging.getLogger("telegram_connector")


class Fence:
    """A context manager that any exception ends at; logged, and again only when it is another one.

    Args:
        whose: What may raise, as the log is to call it.
    """

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._said = ""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        if self._said != repr(error):
            self._said = repr(error)
            logger.error("%s raised; messages go on", self._whose, exc_info=error)
        return True
