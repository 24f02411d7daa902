"""The control API: what a test in any language asks of the sandbox and tells it, over HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from flask import Flask, Response, jsonify, request
from werkzeug.exceptions import HTTPException

from telegram_connector.sandbox import page
from telegram_connector.sandbox.actions import PRESET_NAMES
from telegram_connector.sandbox.chats import Chat
from telegram_connector.sandbox.desk import Desk, read_faults
from telegram_connector.sandbox.record import Call, Message, TextFilter

View: TypeAlias = Callable[[], Any]
Route: TypeAlias = Callable[..., Callable[[View], View]]

# A client that waits longer than this asks again.
_MAX_WAIT_SECONDS = 300.0

_ENDPOINTS: Mapping[str, str] = {
    "GET /_sandbox/health": "whether it is up",
    "GET /_sandbox/messages": "accepted messages; ?chat= ?text= (exact) ?pattern=",
    "GET /_sandbox/requests": "every call with its answer; ?method= ?chat= ?status= ?accepted=",
    "GET /_sandbox/count": "how many messages; filters as for messages",
    "GET /_sandbox/wait": "waits for ?count= messages up to ?timeout= seconds; filters as for messages",
    "GET /_sandbox/duplicates": "messages with the same text in the same chat",
    "GET /_sandbox/order": "texts per chat in order of acceptance, and breaks of their numbers; ?pattern=",
    "POST /_sandbox/clear": "forgets messages and calls",
    "GET, PUT, POST, DELETE /_sandbox/faults": "lists, replaces, adds, removes fault rules (?name= for one)",
    "GET /_sandbox/presets": "names of presets",
    "GET, PUT /_sandbox/chats": "lists chats; changes one or a list of them",
    "GET, PUT /_sandbox/tokens": "lists bots; sets the state of a token",
    "GET, PUT /_sandbox/clock": 'the time; {"advance_seconds": N}, {"set": N} or {"run": true}',
    "GET, PUT /_sandbox/flood": 'flood control; {"flood": "off"}',
    "POST /_sandbox/updates": 'a person writes: {"chat": N, "text": "…"}, for getUpdates',
    **page.ENDPOINTS,
}


def control_app(desk: Desk) -> Flask:
    """The control API over a desk."""
    app = Flask(__name__, static_folder=None)
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.register_error_handler(ValueError, _refuse)
    app.register_error_handler(HTTPException, _refuse_http)

    def route(rule: str, *verbs: str) -> Callable[[View], View]:
        def register(view: View) -> View:
            path = rule if rule == "/" else f"/_sandbox/{rule}"
            app.add_url_rule(path, view.__name__, lambda: _answer(view()), methods=list(verbs))
            return view

        return register

    shown = page.Page(desk)
    shown.add_to(app)

    @route("/", "GET")
    def index() -> Any:
        # A browser asks for HTML in so many words.
        if request.accept_mimetypes.best_match(("application/json", "text/html")) == "text/html":
            return shown.file("index.html")
        return {
            "sandbox": "a test double of Telegram's Bot API; nothing leaves this machine",
            "bot_api": "/bot<token>/METHOD",
            "control": _ENDPOINTS,
        }

    @route("health", "GET")
    def health() -> Any:
        return {"ok": True}

    for name in ("state", "entries", "search", "raw", "export"):
        route(name, "GET")(getattr(shown, name))
    route("check", "POST")(shown.check)
    _asking(route, desk)
    _changing(route, desk)
    return app


def _asking(route: Route, desk: Desk) -> None:
    @route("messages", "GET")
    def messages() -> Any:
        return [_message(m) for m in desk.messages(*_message_filter())]

    @route("requests", "GET")
    def requests() -> Any:
        accepted = request.args.get("accepted")
        return [
            _call(call)
            for call in desk.requests(
                request.args.get("method"),
                request.args.get("chat"),
                _number("status"),
                None if accepted is None else accepted.lower() in ("1", "true", "yes"),
            )
        ]

    @route("count", "GET")
    def count() -> Any:
        return {"count": desk.count(*_message_filter())}

    @route("wait", "GET")
    def wait() -> Any:
        chat, text = _message_filter()
        seconds = min(float(request.args.get("timeout", "10")), _MAX_WAIT_SECONDS)
        wanted = _number("count")
        try:
            found = desk.wait(1 if wanted is None else wanted, chat, text, seconds)
        except TimeoutError as error:
            return {
                "ok": False,
                "description": str(error),
                "messages": [_message(m) for m in desk.messages(chat, text)],
            }
        return {"ok": True, "messages": [_message(m) for m in found]}

    @route("duplicates", "GET")
    def duplicates() -> Any:
        return [[_message(m) for m in group] for group in desk.duplicates()]

    @route("order", "GET")
    def order() -> Any:
        pattern = request.args.get("pattern")
        breaks = desk.order_breaks(_pattern(pattern)) if pattern else desk.order_breaks()
        return {
            "chats": {str(chat): texts for chat, texts in desk.order().items()},
            "breaks": [asdict(b) for b in breaks],
        }


def _changing(route: Route, desk: Desk) -> None:
    @route("clear", "POST")
    def clear() -> Any:
        desk.clear()
        return {"ok": True}

    @route("faults", "GET", "PUT", "POST", "DELETE")
    def faults() -> Any:
        if request.method == "PUT":
            body = request.get_json()
            desk.set_faults(body["faults"] if isinstance(body, dict) and "faults" in body else _list(body))
        elif request.method == "POST":
            for rule in read_faults(_list(request.get_json())):
                desk.set_fault(rule)
        elif request.method == "DELETE":
            name = request.args.get("name")
            for fault in desk.faults:
                if name is None or fault.rule.label == name:
                    desk.remove_fault(fault)
        return [fault.as_json() for fault in desk.faults]

    @route("presets", "GET")
    def presets() -> Any:
        return list(PRESET_NAMES)

    @route("chats", "GET", "PUT")
    def chats() -> Any:
        if request.method == "PUT":
            for item in _list(request.get_json()):
                changes = dict(item) if isinstance(item, dict) else {}
                if not isinstance(changes.get("id"), int):
                    raise ValueError("a chat needs an id")  # noqa: TRY004 - answered as 400
                desk.set_chat(changes.pop("id"), **changes)
        return [_chat(chat) for chat in desk.world.roster.all()]

    @route("tokens", "GET", "PUT")
    def tokens() -> Any:
        if request.method == "PUT":
            body = _object("token", "state")
            desk.set_token(str(body["token"]), str(body["state"]))
        return [{**bot.as_json(), "state": bot.state} for bot in desk.world.tokens.all()]

    @route("clock", "GET", "PUT")
    def clock() -> Any:
        if request.method == "PUT":
            body = _object()
            if "set" in body:
                desk.clock.set(float(body["set"]))
            if "advance_seconds" in body:
                desk.clock.advance(float(body["advance_seconds"]))
            if body.get("run"):
                desk.clock.run()
            desk.world.timeline.tell()
        return {"now": desk.clock.now(), "standing": desk.clock.standing}

    @route("flood", "GET", "PUT")
    def flood() -> Any:
        if request.method == "PUT":
            desk.set_flood(str(_object("flood")["flood"]))
        limits = desk.world.flood.limits
        return {"limits": None if limits is None else asdict(limits)}

    @route("updates", "POST")
    def updates() -> Any:
        body = _object("chat", "text")
        reply_to = body.get("reply_to_message_id")
        said = desk.say(
            int(body["chat"]),
            str(body["text"]),
            str(body.get("first_name", "")),
            reply_to_message_id=None if reply_to is None else int(reply_to),
        )
        return _message(said)


def _answer(value: Any) -> Response:
    return value if isinstance(value, Response) else jsonify(value)


def _message_filter() -> tuple[int | None, TextFilter | None]:
    pattern = request.args.get("pattern")
    return _number("chat"), _pattern(pattern) if pattern is not None else request.args.get("text")


def _pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern is a regular expression: {error}") from None


def _number(name: str) -> int | None:
    value = request.args.get(name)
    return None if value is None else int(value)


def _object(*needed: str) -> dict[str, Any]:
    body = request.get_json()
    if not isinstance(body, dict) or not body.keys() >= set(needed):
        raise ValueError(f"expected an object with {' and '.join(needed) or 'what to change'}")
    return body


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _message(message: Message) -> dict[str, Any]:
    return {**asdict(message), "params": dict(message.params)}


def _call(call: Call) -> dict[str, Any]:
    shown = {**vars(call), "params": dict(call.params), "headers": dict(call.headers)}
    shown["body"] = call.body.decode("utf-8", "backslashreplace")
    shown["answer"] = call.answer.decode("utf-8", "backslashreplace")
    return shown


def _chat(chat: Chat) -> dict[str, Any]:
    return asdict(chat)


def _refuse(error: Exception) -> tuple[Response, int]:
    return jsonify({"ok": False, "description": str(error)}), 400


def _refuse_http(error: Exception) -> tuple[Response, int]:
    code = error.code if isinstance(error, HTTPException) and error.code else 500
    return jsonify({"ok": False, "description": str(error)}), code
