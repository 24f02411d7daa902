"""Answers of the Bot API: the envelope around every result and every refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from telegram_connector.sandbox.presets import Preset

JSON = "application/json"
HTML = "text/html"


@dataclass(frozen=True)
class Answer:
    """What goes back to the caller.

    Attributes:
        status: HTTP status.
        body: The bytes of the body.
        content_type: Of the body; "" sends no such header.
        headers: Further headers, in order.
        close: Whether the connection is closed after it, as Telegram's HTTP layer does with what it cannot
            read.
    """

    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    close: bool = False


class Refused(Exception):
    """Raised by a check of the Bot API's methods to end the call with an answer in Telegram's words."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        super().__init__(f"{answer.status} {answer.body[:200].decode('utf-8', 'replace')}")


def result(value: Any) -> Answer:
    """Success with a result."""
    return Answer(200, _dump({"ok": True, "result": value}))


def refusal(status: int, description: str, parameters: Mapping[str, int] | None = None) -> Answer:
    """A refusal in JSON; a ``retry_after`` among the parameters also sends the header ``Retry-After``."""
    body: dict[str, Any] = {"ok": False, "error_code": status, "description": description}
    headers: tuple[tuple[str, str], ...] = ()
    if parameters:
        body["parameters"] = dict(parameters)
        if "retry_after" in parameters:
            headers = (("Retry-After", str(parameters["retry_after"])),)
    return Answer(status, _dump(body), headers=headers)


def bad_request(words: str) -> Refused:
    """400 with Telegram's usual prefix, ready to be raised."""
    return Refused(refusal(400, f"Bad Request: {words}"))


def too_many_requests(retry_after_seconds: int) -> Answer:
    """429 with the number in the description, in the parameters and in the header."""
    return refusal(
        429, f"Too Many Requests: retry after {retry_after_seconds}", {"retry_after": retry_after_seconds}
    )


def from_preset(preset: Preset, **changed: int) -> Answer | None:
    """The answer a preset stands for; None where it is success, which only the method itself can give.

    `changed` replaces values of the preset's parameters (``retry_after``, ``migrate_to_chat_id``); the
    number in the description follows a changed ``retry_after``.
    """
    if preset.body is not None:
        html = preset.body.lstrip().startswith("<")
        empty = preset.body == ""
        return Answer(preset.status, preset.body.encode(), HTML if html else "", close=empty)
    if preset.description is None:
        return None
    parameters = {**preset.parameters, **changed}
    description = preset.description
    if "retry_after" in changed and "retry_after" in preset.parameters:
        description = description.replace(str(preset.parameters["retry_after"]), str(changed["retry_after"]))
    return refusal(preset.status, description, parameters)


def with_headers(answer: Answer, headers: Mapping[str, str]) -> Answer:
    """The same answer with more headers; one of the same name is replaced."""
    if not headers:
        return answer
    names = {name.lower() for name in headers}
    kept = tuple(pair for pair in answer.headers if pair[0].lower() not in names)
    return replace(answer, headers=kept + tuple(headers.items()))


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
