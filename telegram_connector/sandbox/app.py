"""The Bot API over HTTP: from a request to an answer, faults included.

The Bot API itself is plain WSGI, because it has to break connections before a framework would have read
them; the control API beside it is Flask.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from telegram_connector.sandbox import methods, params, wire
from telegram_connector.sandbox.actions import AFTER_ACCEPT, Drip, Half, Pass, Reset, Say, Silence
from telegram_connector.sandbox.answers import Answer, from_preset, refusal
from telegram_connector.sandbox.faults import Faults, Rule
from telegram_connector.sandbox.presets import PRESETS
from telegram_connector.sandbox.record import Call, Message
from telegram_connector.sandbox.world import World

CONTROL_PREFIX = "/_sandbox"

_NOT_FOUND = refusal(404, "Not Found")
_ABSOLUTE = refusal(404, "Not Found: absolute URI is specified in the Request-Line")
_UNREADABLE = from_preset(PRESETS["body_empty_400"]) or _NOT_FOUND
_TOO_LARGE = from_preset(PRESETS["body_413"]) or _NOT_FOUND


class Application:
    """The sandbox as a WSGI application; needs the sandbox's own server under it."""

    def __init__(self, world: World, faults: Faults, control: Any) -> None:
        self._world = world
        self._faults = faults
        self._control = control

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answers one request."""
        path = environ["RAW_URI"].partition("?")[0]
        if path.startswith("/bot"):
            return _Exchange(self._world, self._faults, environ, start_response, path).answer()
        if path == "/" or path == CONTROL_PREFIX or path.startswith(CONTROL_PREFIX + "/"):
            answered: Iterable[bytes] = self._control(environ, start_response)
            return answered
        return _say(_NOT_FOUND if path.startswith("/") else _ABSOLUTE, start_response)


class _Exchange:
    """One call of the Bot API, from its request to the last byte of its answer."""

    def __init__(
        self, world: World, faults: Faults, environ: dict[str, Any], start_response: Any, path: str
    ) -> None:
        self._world = world
        self._faults = faults
        self._environ = environ
        self._start_response = start_response
        self._socket = environ["werkzeug.socket"]
        token, self._has_method, method = path[len("/bot") :].partition("/")
        self._token = unquote(token)
        self._method = methods.spelt(unquote(method.removeprefix("test/")))
        self._params: params.Params = {}
        self._body = b""

    def answer(self) -> Iterable[bytes]:
        if not self._has_method:
            return _say(_NOT_FOUND, self._start_response)
        unread = self._faults.meet(self._method, None)
        if unread is not None:
            self._note(unread, None)
            return self._break(unread)
        try:
            self._read()
        except params.Unreadable:
            return self._finish(None, _UNREADABLE)
        except OverflowError:
            return self._finish(None, _TOO_LARGE)
        return self._carry_out(self._faults.meet(self._method, self._params))

    def _carry_out(self, rule: Rule | None) -> Iterable[bytes]:
        action = rule.action if rule else Pass()
        if rule and isinstance(action, Reset | Silence) and action.when != AFTER_ACCEPT:
            self._note(rule, None)
            return self._break(rule)
        if isinstance(action, Say) and not action.accept:
            return self._finish(rule, action.answer)

        def note(answer: Answer, message: Message | None) -> None:
            said = action.answer if isinstance(action, Say) else answer
            status = None if isinstance(action, Reset | Silence) else said.status
            self._note(rule, status, message, said.body)

        answer = methods.call(self._world, self._token, self._method, self._params, note)
        if rule and isinstance(action, Reset | Silence):
            return self._break(rule)
        return self._send(rule, action.answer if isinstance(action, Say) else answer)

    def _read(self) -> None:
        stream = self._environ["wsgi.input"]
        pieces: list[bytes] = []
        size = 0
        try:
            while size <= params.MAX_BODY_BYTES:
                piece = stream.read(65_536)
                if not piece:
                    break
                pieces.append(piece)
                size += len(piece)
        except OSError as error:
            raise params.Unreadable(str(error)) from None
        if size > params.MAX_BODY_BYTES:
            raise OverflowError
        self._body = b"".join(pieces)
        query = self._environ["RAW_URI"].partition("?")[2]
        self._params = params.read(query, self._environ.get("CONTENT_TYPE", ""), self._body)

    def _finish(self, rule: Rule | None, answer: Answer) -> Iterable[bytes]:
        self._note(rule, answer.status, body=answer.body)
        return self._send(rule, answer)

    def _send(self, rule: Rule | None, answer: Answer) -> Iterable[bytes]:
        if rule and rule.delay_seconds and not wire.rest(self._socket, rule.delay_seconds):
            raise wire.Cut(reset=False)
        match rule.action if rule else Pass():
            case Half():
                return _say(answer, self._start_response, wire.half(answer.body))
            case Drip(size, interval_seconds):
                pieces = wire.drip(self._socket, answer.body, size, interval_seconds)
                return _say(answer, self._start_response, pieces)
            case _:
                return _say(answer, self._start_response)

    def _break(self, rule: Rule) -> Iterable[bytes]:
        seconds = rule.delay_seconds
        if isinstance(rule.action, Silence):
            seconds += rule.action.seconds
        if seconds:
            wire.rest(self._socket, seconds)
        raise wire.Cut(reset=True)

    def _note(
        self, rule: Rule | None, status: int | None, message: Message | None = None, body: bytes = b""
    ) -> None:
        number = self._token.partition(":")[0]
        self._world.note(
            Call(
                seq=0,
                at=self._world.clock.now(),
                bot_id=params.integer(number),
                verb=self._environ["REQUEST_METHOD"],
                method=self._method,
                params=self._params,
                headers=_headers(self._environ),
                body=self._body,
                accepted=message is not None,
                message_id=message.message_id if message else None,
                status=status,
                answer=body,
                fault=rule.label if rule else "",
                cut=rule is not None and isinstance(rule.action, Half),
            ),
            message,
        )


def _say(answer: Answer, start_response: Any, pieces: Iterable[bytes] | None = None) -> Iterable[bytes]:
    headers = [("Content-Length", str(len(answer.body))), *answer.headers]
    if answer.content_type:
        headers.insert(0, ("Content-Type", answer.content_type))
    if answer.close:
        headers.append(("Connection", "close"))
    start_response(f"{answer.status} {_phrase(answer.status)}", headers)
    return [answer.body] if pieces is None else pieces


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _headers(environ: dict[str, Any]) -> dict[str, str]:
    headers = {key[5:].replace("_", "-").title(): environ[key] for key in environ if key.startswith("HTTP_")}
    if environ.get("CONTENT_TYPE"):
        headers["Content-Type"] = environ["CONTENT_TYPE"]
    return headers
