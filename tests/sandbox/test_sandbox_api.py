"""The Bot API's methods: parameters, results, and the order of the checks."""

from __future__ import annotations

import json
import threading

import pytest
import requests

from telegram_connector.sandbox import Chat, Sandbox

GROUP = -1001234567890
NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are exactly "
    "the same as a current content and reply markup of the message"
)


def words(answer: requests.Response) -> str:
    return answer.json()["description"]


# -- order of checks, first hit wins (each case is at fault in everything that comes after, too) ---------

BAD_REPLY = {"reply_parameters": "{"}
FAULTS_FROM_FIRST_TO_LAST = [
    ("Bad Request: message text is empty", {"text": ""}),
    ("Bad Request: text is too long", {"text": "x" * 32_769}),
    ("Bad Request: unsupported parse_mode", {"text": " ", "parse_mode": "bbcode"}),
    ("Bad Request: can't parse link preview options JSON object", {"text": " ", "link_preview_options": "{"}),
    ("Bad Request: can't parse reply parameters JSON object", {"text": " ", **BAD_REPLY}),
    ("Bad Request: can't parse reply keyboard markup JSON object", {"text": " ", "reply_markup": "{"}),
    ("Bad Request: chat_id is empty", {"text": " ", "chat_id": ""}),
    ("Bad Request: chat not found", {"text": " ", "chat_id": "nobody"}),
    ("Forbidden: bot was kicked from the group chat", {"text": " ", "chat_id": -7}),
    ("Bad Request: message to be replied not found", {"text": " ", "reply_to_message_id": 99}),
    ("Bad Request: message thread not found", {"text": " ", "message_thread_id": 1}),
    ("Bad Request: text must be non-empty", {"text": " \u200b"}),
    ("Bad Request: message is too long", {"text": "x" * 4097}),
    ("Forbidden: bot was blocked by the user", {"chat_id": 8}),
    ("Too Many Requests: retry after 60", {"chat_id": GROUP}),
]


@pytest.mark.parametrize("first", range(len(FAULTS_FROM_FIRST_TO_LAST)))
def test_the_first_fault_in_telegrams_order_is_the_answer(first, sandbox, api):
    sandbox.set_chat(-7, state="kicked")
    sandbox.set_chat(8, state="blocked")
    sandbox.set_chat(GROUP, slow_mode_seconds=60)
    api("sendMessage", chat_id=GROUP, text="before")
    params: dict[str, object] = {"chat_id": GROUP, "text": "hi"}
    for _, at_fault in reversed(FAULTS_FROM_FIRST_TO_LAST[first:]):
        params.update(at_fault)
    assert words(api("sendMessage", **params)) == FAULTS_FROM_FIRST_TO_LAST[first][0]
    assert sandbox.count() == 1


def test_a_bad_token_comes_before_a_bad_method(sandbox, session):
    sandbox.revoke("1:x")
    assert words(session.get(f"{sandbox.url}/bot1:x/sendPigeon", timeout=10)) == "Unauthorized"


# -- how parameters come ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        lambda params: {"params": params},
        lambda params: {"data": params},
        lambda params: {"json": params},
        lambda params: {"files": {name: (None, str(value)) for name, value in params.items()}},
    ],
    ids=["query", "form", "json", "multipart"],
)
@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_every_way_to_give_parameters(verb, how, sandbox, session):
    text = "a\u2028b  <b>&amp; 😀 \\_ +%20\n"
    url = f"{sandbox.url}/bot1:x/SENDmessage"
    answer = session.request(verb, url, timeout=10, **how({"chat_id": 5, "text": text}))
    assert answer.status_code == 200
    (message,) = sandbox.messages()
    assert message.raw_text == text
    assert message.text == "ab  <b>&amp; 😀 \\_ +%20"
    assert sandbox.requests()[0].method == "sendMessage"


def test_a_chunked_body_is_read(sandbox, session):
    pieces = iter([b'{"chat_id": 5, ', b'"text": "hi"}'])
    session.post(
        f"{sandbox.url}/bot1:x/sendMessage",
        data=pieces,
        headers={"Content-Type": "application/json"},
        timeout=10,
    )
    assert [m.raw_text for m in sandbox.messages()] == ["hi"]
    assert session.get(f"{sandbox.url}/bot1:x/getMe", timeout=10).status_code == 200


def test_the_url_of_the_test_environment(sandbox, session):
    assert session.get(f"{sandbox.url}/bot1:x/test/getMe", timeout=10).json()["result"]["id"] == 1


def test_query_parameters_win_over_the_body(sandbox, session):
    session.post(f"{sandbox.url}/bot1:x/sendMessage?text=query", json={"chat_id": 5, "text": "b"}, timeout=10)
    assert sandbox.messages()[0].raw_text == "query"


def test_null_is_the_word_null(sandbox, api):
    answer = api("sendMessage", chat_id=None, text="hi")
    assert words(answer) == "Bad Request: chat not found"
    answer = api("sendMessage", chat_id=5, text="hi", message_thread_id=None)
    assert answer.json()["ok"]
    answer = api("sendMessage", chat_id=5, text="hi", reply_parameters=None)
    assert words(answer) == "Bad Request: object expected as reply parameters"


@pytest.mark.parametrize("mode", ["HTML", "html", "MarkdownV2", "Markdown", "none", ""])
def test_parse_modes_in_any_letter_case(mode, sandbox, api):
    assert api("sendMessage", chat_id=5, text="hi", parse_mode=mode).status_code == 200
    assert sandbox.messages()[0].parse_mode == mode


def test_text_without_markup_is_measured_in_a_parse_mode_too(api):
    answer = api("sendMessage", chat_id=5, text="x" * 4097, parse_mode="HTML")
    assert words(answer) == "Bad Request: message is too long"
    marked_up = "<b>" + "x" * 4090 + "</b>"
    assert api("sendMessage", chat_id=5, text=marked_up, parse_mode="HTML").status_code == 200


# -- results ---------------------------------------------------------------------------------------------


def test_a_message(sandbox, api):
    sandbox.set_chat(GROUP, title="Ops", username="ops", topics=[{"id": 7, "name": "deploys"}])
    first = api("sendMessage", chat_id=GROUP, text="one", message_thread_id=7).json()["result"]
    assert first == {
        "message_id": 8,
        "message_thread_id": 7,
        "from": {
            "id": 123456,
            "is_bot": True,
            "first_name": "Sandbox bot",
            "username": "sandbox_123456_bot",
        },
        "chat": {
            "id": GROUP,
            "title": "Ops",
            "username": "ops",
            "is_forum": True,
            "type": "supergroup",
        },
        "date": 1_700_000_000,
        "is_topic_message": True,
        "text": "one",
    }
    second = api("sendMessage", chat_id="@OPS", text="two", reply_parameters={"message_id": 8})
    assert second.json()["result"]["reply_to_message"]["text"] == "one"
    assert second.json()["result"]["message_id"] == 9


def test_a_post_in_a_channel_has_no_sender(api):
    post = api("sendMessage", chat_id="@news", text="hi").json()["result"]
    assert "from" not in post
    assert post["sender_chat"]["type"] == "channel"


def test_message_ids_grow_chat_by_chat(api):
    ids = [api("sendMessage", chat_id=chat, text="hi").json()["result"]["message_id"] for chat in (5, 6, 5)]
    assert ids == [1, 1, 2]


@pytest.mark.parametrize(
    ("chat_id", "kind"), [(5, "private"), (-5, "group"), (GROUP, "supergroup"), ("@news", "channel")]
)
def test_a_chat_nobody_declared(chat_id, kind, api):
    assert api("getChat", chat_id=chat_id).json()["result"]["type"] == kind


def test_only_declared_chats_exist_when_strict(session):
    with Sandbox(strict=True, chats=[Chat(5), {"id": -5, "state": "kicked"}]) as sandbox:

        def send(chat_id: object) -> requests.Response:
            params = {"chat_id": chat_id, "text": "hi"}
            return session.post(f"{sandbox.url}/bot1:x/sendMessage", json=params, timeout=10)

        assert send(5).status_code == 200
        assert words(send(6)) == "Bad Request: chat not found"
        assert words(send("@news")) == "Bad Request: chat not found"
        assert words(send(-5)) == "Forbidden: bot was kicked from the group chat"


def test_a_chats_file_declares_chats_and_tokens(tmp_path, session):
    path = tmp_path / "chats.json"
    content = {
        "chats": [{"id": 5, "state": "blocked"}],
        "tokens": [{"token": "1:x", "username": "ops_bot"}, {"token": "2:x", "state": "revoked"}],
    }
    path.write_text(json.dumps(content))
    with Sandbox(chats=path) as sandbox:

        def me(token: str) -> requests.Response:
            return session.get(f"{sandbox.url}/bot{token}/getMe", timeout=10)

        assert me("1:x").json()["result"]["username"] == "ops_bot"
        assert words(me("2:x")) == words(me("3:x")) == "Unauthorized"


@pytest.mark.parametrize(
    "content",
    [
        "[",
        '["a"]',
        '{"chat": []}',
        '{"chats": [5]}',
        '{"chats": [{"title": "no id"}]}',
        '{"chats": [{"id": "5"}]}',
        '{"chats": [{"id": 5, "colour": "red"}]}',
        '{"chats": [{"id": 5, "state": "asleep"}]}',
        '{"chats": [{"id": 5, "type": "crowd"}]}',
        '{"chats": [{"id": 5, "topics": [{"number": 1}]}]}',
        '{"chats": [{"id": 5, "topics": [{"id": 2, "state": "asleep"}]}]}',
        '{"tokens": [{"token": "nonsense"}]}',
        '{"tokens": [{"token": "1:x", "state": "asleep"}]}',
        '{"tokens": [{"name": "x"}]}',
    ],
)
def test_a_chats_file_at_fault_is_refused(content, tmp_path):
    path = tmp_path / "chats.json"
    path.write_text(content)
    with pytest.raises(ValueError):  # noqa: PT011 - the words differ
        Sandbox(chats=path)


# -- the other methods -----------------------------------------------------------------------------------


def test_editing(sandbox, api):
    api("sendMessage", chat_id=5, text="one")
    edit = {"chat_id": 5, "message_id": 1}
    edited = api("editMessageText", **edit, text="two").json()["result"]
    assert (edited["text"], edited["edit_date"]) == ("two", 1_700_000_000)
    assert words(api("editMessageText", **edit, text="two")) == NOT_MODIFIED
    assert words(api("editMessageText", **edit, text="")) == "Bad Request: message text is empty"
    (message,) = sandbox.messages()
    assert (message.raw_text, message.edits) == ("two", ("one",))
    missing = api("editMessageText", chat_id=5, message_id=9, text="x")
    assert words(missing) == "Bad Request: message to edit not found"
    unnamed = api("editMessageText", chat_id=5, text="x")
    assert words(unnamed) == "Bad Request: message identifier is not specified"
    inline = api("editMessageText", inline_message_id="abc", text="x")
    assert words(inline) == "Bad Request: MESSAGE_ID_INVALID"


def test_editing_somebody_elses_message(sandbox, api):
    theirs = sandbox.say(5, "mine")
    answer = api("editMessageText", chat_id=5, message_id=theirs.message_id, text="yours")
    assert words(answer) == "Bad Request: message can't be edited"


def test_deleting(sandbox, api):
    api("sendMessage", chat_id=5, text="one")
    assert api("deleteMessage", chat_id=5, message_id=1).json()["result"] is True
    gone = api("deleteMessage", chat_id=5, message_id=1)
    assert words(gone) == "Bad Request: message to delete not found"
    unnamed = api("deleteMessage", chat_id=5)
    assert words(unnamed) == "Bad Request: message identifier is not specified"
    assert sandbox.messages()[0].deleted
    reply = api("sendMessage", chat_id=5, text="two", reply_to_message_id=1)
    assert words(reply) == "Bad Request: message to be replied not found"


def test_chat_members(sandbox, api):
    sandbox.set_chat(GROUP, bot_status="administrator", slow_mode_seconds=30)
    own = api("getChatMember", chat_id=GROUP, user_id=123456).json()["result"]
    assert own["status"] == "administrator"
    assert api("getChatMember", chat_id="@news", user_id=123456).json()["result"]["can_post_messages"]
    assert api("getChatMember", chat_id=5, user_id=5).json()["result"]["status"] == "member"
    assert words(api("getChatMember", chat_id=5, user_id=6)) == "Bad Request: member not found"
    assert words(api("getChatMember", chat_id=5)) == "Bad Request: invalid user_id specified"
    assert api("getChat", chat_id=GROUP).json()["result"]["slow_mode_delay"] == 30
    # An administrator is not slowed down.
    assert [api("sendMessage", chat_id=GROUP, text="hi").status_code for _ in range(2)] == [200, 200]


def test_updates_are_what_people_wrote(sandbox, api):
    assert api("getUpdates").json()["result"] == []
    first = sandbox.say(5, "/start", first_name="Ada")
    sandbox.set_chat(GROUP, type="channel")
    sandbox.say(GROUP, "post")
    one, two = api("getUpdates").json()["result"]
    assert (one["message"]["from"]["first_name"], one["message"]["text"]) == ("Ada", "/start")
    assert two["channel_post"]["text"] == "post"
    assert len(api("getUpdates", limit=1).json()["result"]) == 1
    assert api("getUpdates", offset=-1).json()["result"] == [two]
    assert api("getUpdates", offset=two["update_id"] + 1).json()["result"] == []
    reply = api("sendMessage", chat_id=5, text="hi", reply_to_message_id=first.message_id)
    assert reply.json()["result"]["reply_to_message"]["text"] == "/start"


def test_a_second_getupdates_ends_the_first(sandbox, api):
    answers: list[requests.Response] = []

    def poll() -> None:
        url = f"{sandbox.url}/bot123456:secret/getUpdates"
        answers.append(requests.get(url, params={"timeout": 50}, timeout=60))

    first = threading.Thread(target=poll)
    first.start()
    # Each of ours ends the one before it; the thread's is among those once it has arrived.
    while first.is_alive():
        api("getUpdates")
        first.join(0.01)
    assert answers[0].status_code == 409
    assert words(answers[0]).startswith("Conflict: terminated by other getUpdates request")
