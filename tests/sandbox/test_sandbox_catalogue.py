"""Every known answer of the Bot API, to the letter, over a real socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import requests

from telegram_connector.sandbox.presets import ALIASES, PRESETS, named

ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "telegram_errors.json").read_text()
)
WITH_STATUS = [row for row in ROWS if row["http_status"] is not None]
GROUP = -1001234567890


def assert_to_the_letter(answer: requests.Response, row: dict[str, Any]) -> None:
    assert answer.status_code == row["http_status"]
    if row.get("body") is not None:
        assert answer.content == row["body"].encode()
        return
    wanted = {"ok": False, "error_code": row["error_code"], "description": row["description"]}
    if row["parameters"]:
        wanted["parameters"] = row["parameters"]
    assert answer.json() == wanted
    retry_after = (row["parameters"] or {}).get("retry_after")
    assert answer.headers.get("Retry-After") == (None if retry_after is None else str(retry_after))
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("row", WITH_STATUS, ids=lambda row: row["id"])
def test_every_answer_by_its_preset(row, sandbox, api):
    sandbox.set_fault(row["id"])
    answer = api("sendMessage", chat_id=5, text="hi")
    if row["class"] == "sent":
        assert answer.json()["ok"] is True
        assert sandbox.count() == 1
        return
    assert_to_the_letter(answer, row)
    assert sandbox.count() == 0
    (call,) = sandbox.requests()
    assert (call.accepted, call.status, call.fault) == (False, row["http_status"], row["id"])


def test_presets_are_the_catalogue_and_nothing_else():
    assert set(PRESETS) == {row["id"] for row in WITH_STATUS}
    assert all(named(alias) for alias in ALIASES)


BY_CHAT = {
    "chat_blocked": (5, {"state": "blocked"}),
    "chat_deactivated": (5, {"state": "deactivated"}),
    "chat_cant_initiate": (5, {"state": "cant_initiate"}),
    "chat_bot_to_bot": (5, {"state": "bot"}),
    "chat_kicked_group": (-5, {"state": "kicked"}),
    "chat_kicked_supergroup": (GROUP, {"state": "kicked"}),
    "chat_kicked_channel": (GROUP, {"state": "kicked", "type": "channel"}),
    "chat_not_member_group": (-5, {"state": "left"}),
    "chat_group_deleted": (-5, {"state": "deleted"}),
    "chat_not_found": (5, {"state": "not_found"}),
    "chat_private_not_found": (5, {"state": "private_not_found"}),
    "chat_not_enough_rights": (GROUP, {"state": "no_rights"}),
    "chat_need_admin_channel": (GROUP, {"state": "no_rights", "type": "channel"}),
    "chat_no_write_access": (GROUP, {"state": "no_write_access"}),
    "chat_cant_access": (GROUP, {"state": "cant_access"}),
    "chat_write_forbidden": (GROUP, {"state": "write_forbidden"}),
    "chat_guest_forbidden": (GROUP, {"state": "guest"}),
    "chat_paid_required": (5, {"state": "paid"}),
    "mig_current": (-5, {"state": "migrated", "migrated_to": -1001557912345}),
    "mig_without_id": (-5, {"state": "migrated"}),
    # Any name of a preset is a state.
    "mig_2016": (-5, {"state": "mig_2016"}),
    "mig_2016_error_prefix": (-5, {"state": "mig_2016_error_prefix"}),
    "chat_kicked_old": (-5, {"state": "chat_kicked_old"}),
    "chat_bot_to_bot_2024": (5, {"state": "chat_bot_to_bot_2024"}),
    "chat_peer_invalid": (-5, {"state": "chat_peer_invalid"}),
    "chat_admin_required": (GROUP, {"state": "chat_admin_required"}),
    "chat_no_rights_old": (GROUP, {"state": "chat_no_rights_old"}),
    "chat_user_bot_invalid": (GROUP, {"state": "chat_user_bot_invalid"}),
    "chat_you_blocked": (5, {"state": "chat_you_blocked"}),
    "chat_user_is_blocked_raw": (5, {"state": "chat_user_is_blocked_raw"}),
}


@pytest.mark.parametrize("name", BY_CHAT)
def test_answers_that_a_chats_state_gives(name, sandbox, api, catalogue):
    chat_id, changes = BY_CHAT[name]
    sandbox.set_chat(chat_id, **changes)
    assert_to_the_letter(api("sendMessage", chat_id=chat_id, text="hi"), catalogue[name])
    sandbox.set_chat(chat_id, state="ok")
    assert api("sendMessage", chat_id=chat_id, text="hi").status_code == 200


def test_every_row_about_a_chat_is_a_state():
    about_chats = {row["id"] for row in WITH_STATUS if row["class"] in ("terminal_chat", "migrate")}
    assert about_chats == set(BY_CHAT)


LONG_HTML = "x" * 4097
BY_MESSAGE = {
    "msg_empty": {"text": ""},
    "msg_too_long": {"text": LONG_HTML},
    "msg_text_too_long_raw": {"text": "й" * 16_385},
    "msg_utf8": {"text": "half \ud83d"},
    "msg_utf8_parse": {"text": "half \ud83d", "parse_mode": "HTML"},
    "msg_parse_mode": {"text": "hi", "parse_mode": None},
    "ent_json": {"text": "hi", "entities": [{"type": "nonsense", "offset": 0, "length": 1}]},
    "ent_surrogate": {"text": "😀", "entities": [{"type": "bold", "offset": 1, "length": 1}]},
    "ent_after_end": {"text": "hi", "entities": [{"type": "bold", "offset": 50, "length": 1}]},
    "opt_link_json": {"text": "hi", "link_preview_options": "{'is_disabled': True}"},
    "opt_link_object": {"text": "hi", "link_preview_options": None},
    "opt_reply_json": {"text": "hi", "reply_parameters": "{'message_id': 7}"},
    "reply_not_found": {"text": "hi", "reply_parameters": {"message_id": 7}},
    "thread_not_found": {"text": "hi", "message_thread_id": 1},
}


@pytest.mark.parametrize("name", BY_MESSAGE)
def test_answers_that_a_message_brings_upon_itself(name, api, catalogue):
    answer = api("sendMessage", **{"chat_id": GROUP, **BY_MESSAGE[name]})
    assert_to_the_letter(answer, catalogue[name])


def test_answers_to_a_topic(sandbox, api, catalogue):
    topics = [{"id": 2}, {"id": 3, "state": "closed"}, {"id": 4, "state": "deleted"}]
    topics.append({"id": 5, "state": "topic_deleted"})
    sandbox.set_chat(GROUP, topics=topics, any_topic=False)

    def send(thread_id: int) -> requests.Response:
        return api("sendMessage", chat_id=GROUP, text="hi", message_thread_id=thread_id)

    sent = send(2).json()["result"]
    assert (sent["message_thread_id"], sent["is_topic_message"]) == (2, True)
    assert send(3).json()["description"] == "Bad Request: TOPIC_CLOSED"
    assert_to_the_letter(send(4), catalogue["thread_not_found"])
    assert_to_the_letter(send(6), catalogue["thread_not_found"])
    assert_to_the_letter(send(5), catalogue["topic_deleted"])


def test_slow_mode(sandbox, api, catalogue):
    sandbox.set_chat(GROUP, slow_mode_seconds=3590)
    assert api("sendMessage", chat_id=GROUP, text="one").status_code == 200
    assert_to_the_letter(api("sendMessage", chat_id=GROUP, text="two"), catalogue["rl_slowmode"])
    sandbox.clock.advance(3590)
    assert api("sendMessage", chat_id=GROUP, text="two").status_code == 200


BY_TOKEN = {
    "bot_401": "revoked",
    "bot_401_api_id": "bot_401_api_id",
    "bot_logged_out": "bot_logged_out",
    "bot_frozen": "bot_frozen",
    "rl_authorization": "rl_authorization",
}


@pytest.mark.parametrize("name", BY_TOKEN)
def test_answers_that_a_tokens_state_gives(name, sandbox, api, catalogue):
    sandbox.set_token("123456:secret", BY_TOKEN[name])
    assert_to_the_letter(api("getMe"), catalogue[name])
    sandbox.restore("123456:secret")
    assert api("getMe").status_code == 200


BY_PATH = {
    "bot_401_malformed": ["012:x", "no-colon", "1:" + "x" * 80, "18014398509481984:x", "1:a%2Fb"],
    "bot_421": ["abc:x", "-5:x"],
}


@pytest.mark.parametrize(("name", "token"), [(n, t) for n, tokens in BY_PATH.items() for t in tokens])
def test_answers_to_malformed_tokens(name, token, sandbox, session, catalogue):
    answer = session.get(f"{sandbox.url}/bot{token}/getMe", timeout=10)
    assert_to_the_letter(answer, catalogue[name])


def test_answers_to_bodies_and_paths(sandbox, session, catalogue):
    base = f"{sandbox.url}/bot1:x"
    json_type = {"Content-Type": "application/json"}
    for broken in (b"{", b"[1]", b'"text"'):
        answer = session.post(f"{base}/getMe", data=broken, headers=json_type, timeout=10)
        assert_to_the_letter(answer, catalogue["body_empty_400"])
        assert answer.headers["Connection"] == "close"
    huge = session.post(f"{base}/sendMessage", data=b"text=" + b"x" * (1 << 20), timeout=10)
    assert_to_the_letter(huge, catalogue["body_413"])
    long_url = session.get(f"{base}/sendMessage", params={"text": "x" * 70_000}, timeout=10)
    assert_to_the_letter(long_url, catalogue["url_414"])
    headers = session.get(f"{base}/getMe", headers={"X-Long": "x" * 70_000}, timeout=10)
    assert_to_the_letter(headers, catalogue["hdr_431"])
    assert_to_the_letter(session.get(f"{base}/sendPigeon", timeout=10), catalogue["bot_404_method"])
    through_proxy = session.get(
        "http://api.telegram.org/bot1:x/getMe", proxies={"http": sandbox.url}, timeout=10
    )
    assert_to_the_letter(through_proxy, catalogue["bot_404_absolute"])
    for path in ("/", "/bot", "/bot1:x"):
        answer = session.get(f"{sandbox.url}/nothing{path}", timeout=10)
        assert answer.json() == {"ok": False, "error_code": 404, "description": "Not Found"}


def test_a_reply_that_may_be_dropped_is(api):
    reply = {"message_id": 7, "allow_sending_without_reply": True}
    sent = api("sendMessage", chat_id=5, text="hi", reply_parameters=reply).json()["result"]
    assert "reply_to_message" not in sent


def test_entities_beyond_a_hundred_are_dropped(api):
    text = "ab" * 101
    entities = [{"type": "bold", "offset": 2 * n, "length": 1} for n in range(101)]
    sent = api("sendMessage", chat_id=5, text=text, entities=entities).json()["result"]
    assert sent["entities"] == entities[:100]
