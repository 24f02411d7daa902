"""Who may reach the page, and under which names."""

from __future__ import annotations

from dataclasses import dataclass

from telegram_connector.checks import is_loopback


@dataclass(frozen=True)
class Access:
    """How the page is reached.

    Attributes:
        host: The address that is listened on.
        token: What opens it; None where whoever is on this machine may.
        names: The names under which a proxy serves it; empty for those of this machine, and for any where it
            listens elsewhere.
        routed: Whether a platform's router stands in front, and says whom it speaks for.

    Raises:
        ValueError: Others could reach it, and there is no token.
    """

    host: str = "127.0.0.1"
    token: str | None = None
    names: frozenset[str] = frozenset()
    routed: bool = False

    def __post_init__(self) -> None:
        if self.token is None and not self.is_local:
            why = "under another name" if is_loopback(self.host) else f"at {self.host}"
            raise ValueError(
                f"TG_CONSOLE_TOKEN is not set: whoever reaches the page {why} could resend and discard "
                "messages. Set it to 24 random characters or more (openssl rand -base64 24); never to the "
                "bot's token"
            )

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine reach it, by plain http."""
        return is_loopback(self.host) and not self.names and not self.routed

    def answers_to(self, host: str) -> bool:
        """Whether a request's Host header names this page.

        A page of a stranger's whose name was pointed at this machine (DNS rebinding) is known by its name.
        """
        name = _name_of(host)
        if self.names:
            return name in self.names
        return is_loopback(name) if self.is_local else bool(name)


def _name_of(host: str) -> str:
    """A Host header without its port and the brackets of an address."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower()
