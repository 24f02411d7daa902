"""Reads a call's parameters as the Bot API does: whatever they came as, they end as strings.

That is why a JSON ``null`` is read as the word "null", and why numbers may come as strings and the other
way round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl

from werkzeug.formparser import FormDataParser
from werkzeug.http import parse_options_header

Params = Mapping[str, str]

# Telegram's HTTP layer refuses more than this (HttpReader.h, MAX_TOTAL_PARAMETERS_LENGTH).
MAX_BODY_BYTES = 1 << 20


class Unreadable(Exception):
    """Raised for a body that Telegram's HTTP layer answers with an empty 400."""


def read(query: str, content_type: str, body: bytes) -> dict[str, str]:
    """The parameters of a call; the query's come first and win.

    Bytes that are no UTF-8 stay in the strings as lone surrogates, for the methods to refuse.

    Raises:
        Unreadable: The body is not what its content type says.
    """
    params = _pairs(query)
    if body:
        for name, value in _read_body(content_type, body).items():
            params.setdefault(name, value)
    return params


def boolean(value: str) -> bool:
    """A boolean parameter: Telegram takes true, yes and 1 in any letter case."""
    return value.lower() in ("true", "yes", "1")


def integer(value: str) -> int:
    """A number; 0 for what is none, as in Telegram."""
    try:
        return int(value)
    except ValueError:
        return 0


def _read_body(content_type: str, body: bytes) -> dict[str, str]:
    kind, options = parse_options_header(content_type)
    if kind == "application/json":
        return _read_json(body)
    if kind == "application/x-www-form-urlencoded":
        return _pairs(body.decode("ascii", "surrogateescape"))
    if kind == "multipart/form-data":
        try:
            _, form, _ = FormDataParser(silent=False).parse(BytesIO(body), kind, len(body), options)
        except ValueError as error:
            raise Unreadable(str(error)) from None
        return form.to_dict()
    return {}


def _pairs(encoded: str) -> dict[str, str]:
    params: dict[str, str] = {}
    for name, value in parse_qsl(encoded, keep_blank_values=True, errors="surrogateescape"):
        params.setdefault(name, value)
    return params


def _read_json(body: bytes) -> dict[str, str]:
    try:
        value = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from None
    if not isinstance(value, dict):
        raise Unreadable("not an object")
    return {name: _as_string(item) for name, item in value.items()}


def _as_string(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
