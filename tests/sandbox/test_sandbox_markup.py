"""The vectors of markup, by way of HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "markup_vectors.json").read_text())["vectors"]


def with_user_ids(entity: dict[str, Any]) -> dict[str, Any]:
    user = entity.pop("user", None)
    return entity if user is None else {**entity, "user_id": user["id"]}


@pytest.mark.parametrize("method", ["sendMessage", "editMessageText"])
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector, method, sandbox, api):
    expected = vector["expect"].get("sent", vector["expect"])
    params = {"chat_id": 5, "text": vector["input"]}
    if vector["parse_mode"] is not None:
        params["parse_mode"] = vector["parse_mode"]
    if method == "editMessageText":
        before = api("sendMessage", chat_id=5, text="before")
        params["message_id"] = before.json()["result"]["message_id"]
    answer = api(method, **params)
    if "error" in expected:
        assert answer.status_code == 400
        assert answer.json()["description"] == expected["error"]
        return
    message = answer.json()["result"]
    assert message["text"] == expected["text"]
    assert [with_user_ids(entity) for entity in message.get("entities", [])] == expected["entities"]


def test_a_fault_of_markup_hides_a_wrong_chat(api):
    answer = api("sendMessage", chat_id="", text="<b", parse_mode="HTML")
    assert answer.json()["description"].endswith("Unclosed start tag at byte offset 0")


def test_a_mention_shows_a_user(api):
    answer = api("sendMessage", chat_id=5, text="[x](tg://user?id=7)", parse_mode="MarkdownV2")
    (entity,) = answer.json()["result"]["entities"]
    assert entity["user"] == {"id": 7, "is_bot": False, "first_name": "User 7"}


def test_given_entities_are_repaired_like_parsed_ones(api):
    given = [
        {"type": "italic", "offset": 1, "length": 1},
        {"type": "bold", "offset": 0, "length": 3},
        {"type": "text_link", "offset": 0, "length": 1, "url": "A.b"},
        {"type": "code", "offset": 5, "length": 0},
        {"type": "text_mention", "offset": 4, "length": 1, "user": {"id": 7}},
        {"type": "pre", "offset": 6, "length": 1, "language": "py"},
        {"type": "date_time", "offset": 8, "length": 1, "unix_time": 5, "date_time_format": "tw"},
        {"type": "custom_emoji", "offset": 9, "length": 1, "custom_emoji_id": "8"},
    ]
    answer = api("sendMessage", chat_id=5, text="abc d e fg", entities=json.dumps(given))
    assert [with_user_ids(entity) for entity in answer.json()["result"]["entities"]] == [
        {"type": "text_link", "offset": 0, "length": 1, "url": "http://a.b/"},
        {"type": "bold", "offset": 0, "length": 1},
        {"type": "bold", "offset": 1, "length": 2},
        {"type": "italic", "offset": 1, "length": 1},
        {"type": "text_mention", "offset": 4, "length": 1, "user_id": 7},
        {"type": "pre", "offset": 6, "length": 1, "language": "py"},
        {"type": "date_time", "offset": 8, "length": 1, "unix_time": 5, "date_time_format": "wt"},
        {"type": "custom_emoji", "offset": 9, "length": 1, "custom_emoji_id": "8"},
    ]


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ({"type": "text_link", "url": "nodot"}, "entity URL 'nodot' is invalid: Wrong HTTP URL"),
        ({"type": "text_link"}, "can't parse MessageEntity: Can't find field \"url\""),
        ({"type": "text_mention"}, "can't parse MessageEntity: Can't find field \"user\""),
        (
            {"type": "date_time", "unix_time": 5, "date_time_format": "x"},
            "can't parse MessageEntity: Invalid date-time format specified",
        ),
    ],
)
def test_given_entities_that_telegram_refuses(entity, words, api):
    given = [{"offset": 0, "length": 1, **entity}]
    answer = api("sendMessage", chat_id=5, text="abc", entities=given)
    assert answer.json()["description"] == f"Bad Request: {words}"
