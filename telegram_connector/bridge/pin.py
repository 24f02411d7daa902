"""Which of several connectors is active: a pinned client of the consumer's priority group.

The server hands deliveries over to the pinned client only. A pin's timer is reset by pull requests that carry
its id, and by nothing else: not by acks, not by a pull that waits (read in nats-server's consumer.go). After
`takeover_seconds` without one, the next waiting client is pinned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from telegram_connector.clock import LeaseClock

HEADER = "Nats-Pin-Id"


class Pin:
    """Our pin, and until when it is surely ours.

    Args:
        gained: Called when this connector becomes active.
        lost: Called when it is not any more.
        changed: Called when a pin that was in doubt is sure again.
    """

    def __init__(
        self,
        clock: LeaseClock,
        takeover_seconds: float,
        gained: Callable[[], None],
        lost: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._takeover_seconds = takeover_seconds
        self._gained = gained
        self._lost = lost
        self._changed = changed
        self._id = ""
        self._sure_until = float("-inf")
        self.group = ""  # "" where the server knows no pins: all connectors are active

    def bind(self, group: str) -> None:
        """A consumer was bound, with or without a priority group."""
        if not group:
            self.drop()
        self.group = group

    @property
    def renew_seconds(self) -> float | None:
        """How often a pull request must carry the id; None when there is nothing to renew."""
        return self._takeover_seconds / 3 if self._id else None

    @property
    def request_seconds(self) -> float:
        """For how long a pull request may wait at most.

        What a dead connection of ours has asked for goes on swallowing deliveries until it is over.
        """
        return self._takeover_seconds / 3 if self.group else float("inf")

    @property
    def ours(self) -> bool:
        """Whether this connector is active, as far as it knows."""
        return bool(self._id) or not self.group

    @property
    def holds(self) -> bool:
        """Whether there is a pin, sure or not."""
        return bool(self._id)

    @property
    def sure(self) -> bool:
        """Whether nobody else can have been pinned meanwhile: only then may a send start."""
        return not self.group or (bool(self._id) and self._clock() < self._sure_until)

    def held_in(self, info: Mapping[str, Any]) -> bool:
        """Whether the consumer's info names us as the pinned client."""
        return bool(self._id) and any(
            group.get("pinned_client_id") == self._id for group in info.get("priority_groups") or ()
        )

    def ask(self) -> tuple[dict[str, Any], float]:
        """What a pull request must carry, and when it was asked; see `confirm`."""
        fields: dict[str, Any] = {"group": self.group} if self.group else {}
        if self._id:
            fields["id"] = self._id
        return fields, self._clock()

    def confirm(self, asked_at: float) -> None:
        """The server has taken the request of then: the pin was renewed not before it was asked."""
        if self._id:
            was_sure = self.sure
            self._sure_until = max(self._sure_until, asked_at + self._takeover_seconds)
            if not was_sure:
                self._changed()

    def see(self, pin_id: str, asked_at: float) -> None:
        """A delivery carried `pin_id`."""
        if pin_id != self._id:
            self._id = pin_id
            self._sure_until = asked_at + self._takeover_seconds
            self._gained()
        self.confirm(asked_at)

    def doubt(self) -> None:
        """The connection was lost: a server that was killed knows no pins, and may pin anybody meanwhile.

        Nothing is sent until the server has taken a request with the id again.
        """
        self._sure_until = float("-inf")

    def forget(self) -> None:
        """The consumer is a new one: nothing of the old one counts, and nobody need hear of it."""
        self._id = ""
        self._sure_until = float("-inf")

    def drop(self) -> None:
        """The server does not know the id (any more): somebody else is, or may be, pinned."""
        if self._id:
            self._id = ""
            self._sure_until = float("-inf")
            self._lost()
