"""The page's requests: what is asked, what is done and by whom, over a connection of each request's own."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

import msgspec
from flask import Flask, Response, g, jsonify, request
from werkzeug.exceptions import HTTPException

from telegram_connector import __version__, checks, markup, web
from telegram_connector.ages import read_duration
from telegram_connector.bridge import NatsClient
from telegram_connector.bridge.link import ConnectError, PermissionDenied
from telegram_connector.console import preview
from telegram_connector.console.audit import Audit
from telegram_connector.console.books import Books, View, Word
from telegram_connector.console.graves import Done, Graves, Named, Query, Treatment
from telegram_connector.console.guard import Guard, Refused
from telegram_connector.console.listeners import Listeners
from telegram_connector.console.watch import Watch
from telegram_connector.errors import (
    BridgeError,
    LedgerError,
    ProjectionError,
    Unanswered,
)
from telegram_connector.operating import Switch
from telegram_connector.pauses import reason, whom
from telegram_connector.projection import Policy
from telegram_connector.resolver import HalfDone, Overtaken
from telegram_connector.settings import NatsSettings

MAX_BODY_BYTES = 256 * 1024
ANSWERS_SECONDS = 1.0  # for which connectors are waited for after a pause
_PERMISSIONS = "deploy/nats-permissions.conf has what it takes"

T = TypeVar("T")
U = TypeVar("U")

logger = logging.getLogger("telegram_connector.console")


class Pausing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be paused: a chat, or with "" the bot; for so long, or with "" until resumed."""

    chat: str = ""
    lasting: str = ""
    reason: str = ""


class Resuming(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be resumed: a chat, with "" the bot, or everything."""

    chat: str = ""
    everything: bool = False


class Treating(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Letters, and what is to be done about them."""

    letters: list[Named]
    treatment: Treatment


class Planning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which letters are meant, and what is to be done about them."""

    query: Query
    treatment: Treatment


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message in a chat."""

    chat: str
    message_id: int
    bot: str = ""


class Pages:
    """What the page asks for.

    Args:
        bot: The bot's id, where it is known: whose links are looked up.
        policy: What the preview lets leave.
    """

    def __init__(
        self,
        settings: NatsSettings,
        guard: Guard,
        audit: Audit,
        watch: Watch,
        bot: str | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._settings = settings
        self._guard = guard
        self._audit = audit
        self._watch = watch
        self._bot = bot
        self._policy = policy or Policy()
        self._listeners = Listeners()
        self._files = {**web.files("telegram_connector.console", "static"), **web.parts()}

    def app(self) -> Flask:
        """All of it as an application."""
        app = Flask(__name__, static_folder=None)
        app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
        app.json.sort_keys = False  # type: ignore[attr-defined]
        self._guard.add_to(app)
        for kind, say in _ERRORS:
            app.register_error_handler(kind, say)
        app.add_url_rule("/", "index", lambda: self._file("index.html"))
        app.add_url_rule("/ui/<path:name>", "ui", self._file)
        app.add_url_rule("/api/events", "events", self._events)
        asks: Mapping[str, Callable[..., Any]] = {
            "start": self._start,
            "dead/<int:seq>": self._dead_one,
            "records": self._records,
            "records/<key>": self._about,
            "history": self._history,
            "audit": lambda: [asdict(entry) for entry in self._audit.newest()],
        }
        for path, answer in asks.items():
            app.add_url_rule(f"/api/{path}", path, _in_json(answer))
        acts: Mapping[str, Callable[..., Any]] = {
            "dead/list": self._dead,
            "dead/plan": self._plan,
            "dead/treat": self._treat,
            "dead/<int:seq>/body": self._dead_body,
            "records/<key>/body": self._body,
            "records/<key>/settle": self._settle,
            "pause": self._pause,
            "resume": self._resume,
            "preview": self._preview,
            "link": self._link,
        }
        for path, act in acts.items():
            app.add_url_rule(f"/api/{path}", f"POST {path}", _in_json(act), methods=["POST"])
        return app

    # Files and events

    def _file(self, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise Refused(404, "file", "there is no such file")
        return Response(file.body, content_type=file.content_type)

    def _events(self) -> Response:
        told = self._listeners.told(self._watch, self._guard.still_there())
        if told is None:
            raise Refused(503, "busy", "so many pages look on already; close one")
        answer = Response(told, content_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        answer.call_on_close(told.close)
        return answer

    def _start(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "who": g.who,
            "stream": self._settings.stream,
            "durable": self._settings.durable,
            "bot": self._bot,
            "ack_wait_seconds": self._settings.ack_wait_seconds,
            "offers": preview.offers(self._policy),
        }

    # Dead letters

    def _dead(self) -> dict[str, Any]:
        query = _asked(Query)
        return self._with(Graves, lambda graves: graves.listed(query))

    def _dead_one(self, seq: int) -> dict[str, Any]:
        found = self._with(Graves, lambda graves: graves.in_full(seq))
        return _there(found)

    def _dead_body(self, seq: int) -> dict[str, Any]:
        with self._audited("dead.show-text", [str(seq)]) as say:
            found = self._with(Graves, lambda graves: graves.body(seq))
            say("shown" if found is not None else "it is there no more")
        return _judged(_there(found))

    def _plan(self) -> dict[str, Any]:
        asked = _asked(Planning)
        return self._with(Graves, lambda graves: graves.planned(asked.query, asked.treatment))

    def _treat(self) -> dict[str, Any]:
        asked = _asked(Treating)
        act = f"dead.{asked.treatment.act}"
        with self._audited(act, [str(one.seq) for one in asked.letters]) as say:
            done = self._with(Graves, lambda graves: graves.treated(asked.letters, asked.treatment))
            say(_tally(done, asked.treatment))
        return {"done": [asdict(one) for one in done]}

    # The ledger

    def _records(self) -> dict[str, Any]:
        view = _convert(request.args.get("view", "all"), View)
        return self._with(Books, lambda books: books.listed(view))

    def _about(self, key: str) -> dict[str, Any]:
        return self._with(Books, lambda books: books.about(_key(key)))

    def _body(self, key: str) -> dict[str, Any]:
        with self._audited("ledger.show-text", [key]) as say:
            found = self._with(Books, lambda books: books.body(_key(key)))
            say("it is there no more" if found["lost"] else "shown")
        return _judged(found)

    def _settle(self, key: str) -> dict[str, Any]:
        word = _asked(Word)
        with self._audited(f"ledger.{word.how}", [key]) as say:
            words = self._with(Books, lambda books: books.settle(_key(key), word))
            say(words)
        return {"words": words}

    def _history(self) -> dict[str, Any]:
        msg_id = request.args.get("msg_id", "").strip()
        if not msg_id:
            raise ValueError("msg_id: which one?")
        return self._with(Books, lambda books: books.history(msg_id))

    def _link(self) -> dict[str, Any]:
        asked = _asked(Finding)
        bot = asked.bot.strip() or self._bot
        if not bot:
            raise ValueError("bot: say which one, by the number before the colon in its token")
        return self._with(Books, lambda books: books.link(bot, asked.chat.strip(), asked.message_id))

    # The bot and its chats

    def _pause(self) -> dict[str, Any]:
        asked = _asked(Pausing)
        chat = _chat(asked.chat)
        seconds = read_duration(asked.lasting.strip()) if asked.lasting.strip() else None
        why = reason(asked.reason)
        with self._audited("pause", [chat or "the bot"]) as say:
            with self._client() as client:
                change = Switch(client, self._settings, ANSWERS_SECONDS).pause(chat, seconds, why)
            words = f"{whom(chat)} is paused; {change.heard_by()}"
            say(words)
        return {"words": words, "doubts": list(change.doubts())}

    def _resume(self) -> dict[str, Any]:
        asked = _asked(Resuming)
        chat = None if asked.everything else _chat(asked.chat)
        with self._audited("resume", ["all" if chat is None else chat or "the bot"]) as say:
            with self._client() as client:
                change = Switch(client, self._settings, ANSWERS_SECONDS).resume(chat)
            ended = ", ".join(map(whom, change.ended))
            words = f"resumed: {ended}; {change.heard_by()}" if ended else "nothing was paused"
            say(words)
        return {"words": words, "doubts": list(change.doubts())}

    def _preview(self) -> dict[str, Any]:
        return preview.look(_asked(preview.Draft), self._policy)

    # How it is done

    def _client(self) -> NatsClient:
        return NatsClient(self._settings, "telegram_connector console")

    def _with(self, made: Callable[[NatsClient, NatsSettings, str], T], use: Callable[[T], U]) -> U:
        with self._client() as client:
            return use(made(client, self._settings, g.who))

    @contextmanager
    def _audited(self, action: str, ids: Sequence[str]) -> Iterator[Callable[[str], None]]:
        """Note what is done in here; yields what to say the result with."""
        said: list[str] = []
        try:
            yield said.append
        except Exception as error:
            words = str(error) if isinstance(error, _EXPECTED) else f"internal error: {type(error).__name__}"
            self._audit.note(g.who, g.address, action, ids, words, ok=False)
            raise
        self._audit.note(g.who, g.address, action, ids, said[-1] if said else "done", ok=True)


def _in_json(answer: Callable[..., Any]) -> Callable[..., Response]:
    return lambda **given: jsonify(answer(**given))


def _asked(kind: type[T]) -> T:
    """The request's body.

    Raises:
        ValueError: It is not what was to be asked.
    """
    asked: T = _convert(request.get_json(), kind)
    return asked


def _convert(given: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _chat(text: str) -> str:
    """A chat's name, or "" for the bot.

    Raises:
        ValueError: It is none.
    """
    try:
        return checks.chat_id(text) if text.strip() else ""
    except checks.ValueFaultError as fault:
        raise ValueError(f"chat: {fault}") from None


def _key(text: str) -> str:
    if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise ValueError("key: 64 hexadecimal digits")
    return text


def _judged(found: dict[str, Any]) -> dict[str, Any]:
    """A body, with what Telegram would make of it."""
    text = found["text"]
    verdict = None if text is None else markup.judge(text, found["parse_mode"]).as_json()
    return {**found, "verdict": verdict}


def _tally(done: Sequence[Done], treatment: Treatment) -> str:
    counts = Counter(one.outcome for one in done)
    words = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    how = [
        treatment.plain and "plain",
        treatment.chat and f"to {treatment.chat}",
        treatment.again and "again",
        treatment.purge and "for good",
        treatment.why and f"why: {treatment.why}",
    ]
    shown = "; ".join(word for word in how if word)
    return f"{words or 'nothing'}{f' ({shown})' if shown else ''}"


def _there(found: dict[str, Any] | None) -> dict[str, Any]:
    if found is None:
        raise Refused(404, "gone", "it is there no more")
    return found


def _answer(status: int, kind: str, words: str, **more: Any) -> Response:
    answer = jsonify(description=words, kind=kind, **more)
    answer.status_code = status
    return answer


def _denied(error: PermissionDenied) -> Response:
    words = f"NATS does not allow it: no permission for {error.subject}; {_PERMISSIONS}"
    return _answer(403, "permission", words)


def _away(error: BridgeError) -> Response:
    if isinstance(error, ConnectError):
        return _answer(503, "nats", f"NATS cannot be reached: {error.cause} ({error.setting})")
    unsure = " It may have been done all the same: look before you do it again." if _is_unsure(error) else ""
    return _answer(503, "nats", f"NATS: {error}.{unsure}")


def _is_unsure(error: BridgeError) -> bool:
    return isinstance(error, Unanswered) and request.method == "POST"


def _http(error: HTTPException) -> Response:
    return _answer(error.code or 500, "http", error.description or error.name)


def _unexpected(error: Exception) -> Response:
    logger.error("console: unexpected error in %s", request.path, exc_info=error)
    return _answer(500, "internal", f"internal error: {type(error).__name__}; the log says more")


# The nearest class of an error counts.
_ERRORS: Sequence[tuple[type[Exception], Callable[[Any], Response]]] = (
    (ValueError, lambda error: _answer(400, "input", str(error))),
    (json.JSONDecodeError, lambda _: _answer(400, "input", "that is no JSON")),
    (ProjectionError, lambda error: _answer(400, "input", "; ".join(error.faults))),
    (Overtaken, lambda error: _answer(409, "overtaken", str(error))),
    (HalfDone, lambda error: _answer(502, "half-done", str(error))),
    (LedgerError, lambda error: _answer(409, "ledger", str(error))),
    (PermissionDenied, _denied),
    (BridgeError, _away),
    (HTTPException, _http),
    (Exception, _unexpected),
)
_EXPECTED = (ValueError, LedgerError, BridgeError)
