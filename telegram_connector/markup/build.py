"""What all three parsers do with an entity that has ended."""

from __future__ import annotations

from typing import Any

from telegram_connector.markup import links
from telegram_connector.markup.entity import Entity, Notice, Parsed, in_order
from telegram_connector.markup.reader import Writer


class Builder:
    """Collects the text, its entities in the order of their ends, and notices."""

    def __init__(self) -> None:
        self.text = Writer()
        self.entities: list[Entity] = []
        self._notices: list[Notice] = []

    def add(self, kind: str, offset: int, position: int, **more: Any) -> None:
        """An entity from `offset` to where the text ends now."""
        self.entities.append(Entity(kind, offset, self.text.units - offset, position=position, **more))

    def add_link(self, offset: int, position: int, url: str) -> None:
        """A link or a mention; neither where Telegram finds the address unusable."""
        user_id = links.user_id(url)
        if user_id is not None:
            self.add("text_mention", offset, position, user_id=user_id)
            return
        try:
            self.add("text_link", offset, position, url=links.checked(url))
        except links.UnusableLink as unusable:
            reason = "its host has no dot" if str(unusable) == "Wrong HTTP URL" else str(unusable)
            self.note(position, f"the link is lost, its text stays: {reason}")

    def note(self, position: int, words: str) -> None:
        self._notices.append(Notice(position, words))

    def parsed(self) -> Parsed:
        text = self.text.since(0)
        return Parsed(text, tuple(in_order(self.entities)), tuple(self._notices), tuple(self.text.origins))
