"""The page that shows the chats, and what it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import NotFound, ServiceUnavailable

from telegram_connector import markup, web
from telegram_connector.sandbox import view
from telegram_connector.sandbox.actions import WIRE_PRESETS
from telegram_connector.sandbox.desk import Desk
from telegram_connector.sandbox.fixture import export
from telegram_connector.sandbox.listeners import Listeners, stream
from telegram_connector.sandbox.presets import ALIASES, PRESETS, named
from telegram_connector.sandbox.timeline import Change

ENDPOINTS: Mapping[str, str] = {
    "GET /": "the page, for a browser; this list for all others",
    "GET /_sandbox/state": "what the page begins with: chats, faults, flood control, the time",
    "GET /_sandbox/entries": "messages and refusals of ?chat=, the newest; ?before= ?after= ?count=",
    "GET /_sandbox/search": "the newest entries with ?words= in them",
    "GET /_sandbox/raw": "the calls of entry ?number= as they were asked and answered",
    "GET /_sandbox/events": "server-sent events: what changes, while it does",
    "POST /_sandbox/check": 'whether Telegram would take {"text": "…", "parse_mode": "HTML"}',
    "GET /_sandbox/export": "?chat= and its messages as a chats file",
}
# One click each; the other presets are in a list.
ONE_CLICK = (*ALIASES, *WIRE_PRESETS)
_WIRE_WORDS: Mapping[str, str] = {
    "reset-before": "the connection breaks before the request is read",
    "reset-after": "sent, then the connection breaks without an answer",
    "half-body": "sent, then half of the answer comes",
    "slow-drip": "sent, then the answer comes byte by byte",
    "timeout-after-accept": "sent, then no answer for a minute",
}

_MAX_ENTRIES = 500


class Page:
    """The page of one sandbox."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._world = desk.world
        self._timeline = desk.world.timeline
        self._listeners = Listeners()
        self._files = {**web.files("telegram_connector.sandbox", "static"), **web.parts()}

    def add_to(self, app: Flask) -> None:
        """Adds what is no JSON; the rest is in `views`."""
        app.add_url_rule("/_sandbox/ui/<path:name>", "ui", self.file)
        app.add_url_rule("/_sandbox/events", "events", self.events)

    def file(self, name: str) -> Response:
        """A file of the page."""
        file = self._files.get(name)
        if file is None:
            raise NotFound
        return Response(file.body, content_type=file.content_type, headers=dict(web.HEADERS))

    def events(self) -> Response:
        """What changes, while it does."""
        connection = request.environ["werkzeug.socket"]
        if not self._listeners.admit(connection):
            raise ServiceUnavailable("so many pages look on already; close one")
        after = request.headers.get("Last-Event-ID") or request.args.get("after", "")
        told = stream(self._timeline, after, connection, self._listeners, self._change, self._desk.clock.now)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return Response(told, content_type="text/event-stream", headers=headers)

    def state(self) -> dict[str, Any]:
        """What the page begins with."""
        # Before all else, so that what happens meanwhile is told again and not missed.
        last = self._timeline.last
        desk, roster = self._desk, self._world.roster
        told = self._timeline.places()
        places = {newest.place: (newest, count) for newest, count in told}
        names = dict.fromkeys([*(str(chat.id) for chat in roster.all()), *places])
        limits = self._world.flood.limits
        return {
            "after": f"{self._timeline.run}-{last}",
            "now": desk.clock.now(),
            "standing": desk.clock.standing,
            "chats": [self._chat(name, *places.get(name, (None, 0))) for name in names],
            "faults": [fault.as_json() for fault in desk.faults],
            "flood": None if limits is None else vars(limits),
            "one_click": [{"name": name, "words": _words(name)} for name in ONE_CLICK],
            "presets": list(PRESETS),
        }

    def entries(self) -> list[dict[str, Any]]:
        """Entries of one chat."""
        before, after = (_number(name) for name in ("before", "after"))
        count = min(_number("count") or 200, _MAX_ENTRIES)
        chat = request.args.get("chat", "")
        found = self._timeline.entries(chat, before=before, after=after, count=count)
        return [view.entry(self._world, entry) for entry in found]

    def search(self) -> list[dict[str, Any]]:
        """Entries with some words in them, the newest first."""
        words = request.args.get("words", "")
        found = self._timeline.search(words) if words else []
        return [view.entry(self._world, entry) for entry in reversed(found)]

    def raw(self) -> dict[str, Any]:
        """An entry's calls in full."""
        entry = self._timeline.entry(_number("number") or 0)
        if entry is None:
            raise NotFound("no such entry, or it is forgotten")
        return view.raw(entry)

    def check(self) -> dict[str, Any]:
        """What `lint` says of a text."""
        body = request.get_json()
        if not isinstance(body, dict) or not isinstance(body.get("text"), str):
            raise ValueError(  # noqa: TRY004 - answered as 400
                'expected {"text": "…", "parse_mode": "HTML"}'
            )
        return markup.judge(body["text"], str(body.get("parse_mode") or "")).as_json()

    def export(self) -> dict[str, Any]:
        """A chat as a file."""
        chat = self._world.roster.known(request.args.get("chat", ""))
        if chat is None:
            raise NotFound("no such chat")
        return export(chat, self._timeline)

    def _chat(self, name: str, newest: Any, count: int) -> dict[str, Any]:
        shown = {**view.place(self._world, name), "count": count, "newest": None}
        if newest is not None:
            message, call = newest.message, newest.calls[-1] if newest.calls else None
            shown["newest"] = {
                "number": newest.number,
                "text": view.snippet(newest),
                "outcome": view.outcome(newest),
                "hold": view.hold(newest),
                "at": message.date if message else call.at if call else 0,
            }
        return shown

    def _change(self, change: Change) -> dict[str, Any]:
        return view.entry(self._world, change.entry) if change.entry is not None else {}


def _words(name: str) -> str:
    preset = named(name)
    if preset is None:
        return _WIRE_WORDS[name]
    return f"{preset.status} {preset.description or 'a page of what stands in front of the Bot API'}"


def _number(name: str) -> int | None:
    value = request.args.get(name)
    return None if value is None else int(value)
