"""The sandbox's page in a real browser."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from telegram_connector.envelope import TelegramOutbound
from telegram_connector.sandbox import Sandbox
from tests.fleet import Fleet
from tests.nats_server import NatsServer, free_port
from tests.process import Process

OPS = -1001234567890
CHATS = [
    {"id": 5, "first_name": "Ada Lovelace"},
    {
        "id": OPS,
        "title": "Ops",
        "username": "ops",
        "topics": [{"id": 7, "name": "deploys"}, {"id": 8, "name": "incidents"}],
    },
    {"id": 9, "first_name": "Grace", "state": "blocked"},
    {"id": -7, "title": "<i>Night</i> watch"},
]
LINK = "https://example.org/runbooks?a=1&b=2"
HTML = (
    "<b>bold</b> <i>italic</i> <u>under</u> <s>gone</s> <tg-spoiler>hid<b>den</b></tg-spoiler> "
    f'<code>a&lt;b</code> <a href="{LINK}">runbook</a> <a href="tg://user?id=42">Ada</a>\n'
    '<pre><code class="language-python">def f():\n    return 1</code></pre>\n'
    "<blockquote>said</blockquote>after\n"
    "<blockquote expandable>one\ntwo\nthree\nfour\nfive</blockquote>"
)


class Bot:
    """Calls the sandbox's Bot API."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = requests.Session()

    def __call__(self, chat_id: int | str, text: str, method: str = "sendMessage", **params: Any) -> Any:
        """The result, or the refusal's description."""
        body = {"chat_id": chat_id, "text": text, **params}
        answer = self._session.post(f"{self._url}/bot1:x/{method}", json=body, timeout=30).json()
        return answer["result"] if answer["ok"] else answer["description"]

    def close(self) -> None:
        self._session.close()


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(chats=CHATS) as running:
        yield running


@pytest.fixture
def bot(sandbox: Sandbox) -> Iterator[Bot]:
    caller = Bot(sandbox.url)
    yield caller
    caller.close()


def twelve(sandbox: Sandbox, bot: Bot) -> None:
    """Twelve messages and calls, of all kinds that the page shows."""
    bot(9, "You will not read this.")
    first = bot(OPS, HTML, parse_mode="HTML", message_thread_id=8)["message_id"]
    sandbox.say(OPS, "On it", first_name="Grace", reply_to_message_id=first)
    bot(OPS, "quietly", disable_notification=True, message_thread_id=7)
    bot(OPS, "Look into config.py &hellip; today", parse_mode="HTML")
    bot(OPS, "CPU *95% on web-3.", parse_mode="MarkdownV2")
    edited = bot(OPS, "Queue: 1204")["message_id"]
    bot(OPS, "Queue: <b>0</b>", "editMessageText", message_id=edited, parse_mode="HTML")
    gone = bot(OPS, "a mistake")["message_id"]
    bot(OPS, "", "deleteMessage", message_id=gone)
    bot(OPS, "x" * 300)
    sandbox.set_fault({"reset": "after_accept"}, chat=OPS, times=1)
    with pytest.raises(requests.ConnectionError):
        bot(OPS, "perhaps")
    bot("@nobody!", "nowhere")
    sandbox.set_fault("flood", chat=OPS, times=1, retry_after=600)
    bot(OPS, "too many")


def entry(page: Any, text: str) -> Any:
    """The entry with a text."""
    return page.locator(".entry", has_text=text).last


def shown_at(page: Any, text: str) -> float:
    page.wait_for_function("(text) => window.shownAt[text]", arg=text)
    return float(page.evaluate("(text) => window.shownAt[text]", text))


@pytest.mark.integration
def test_a_message_published_to_nats_appears_within_a_second_formatted(
    nats_server: NatsServer, visit: Any, record_property: Any
) -> None:
    with Sandbox() as sandbox:
        fleet = Fleet(nats_server, sandbox)
        fleet.relay()
        try:
            page = visit(sandbox.url)
            seconds = []
            for number in range(5):
                text = f"<b>Disk</b> {number} <i>full</i>"
                envelope = TelegramOutbound(msg_id=f"m{number}", chat="100", text=text, parse_mode="HTML")
                published = time.time()
                fleet.publish(envelope)
                seconds.append(shown_at(page, text) - published)
        finally:
            fleet.stop()
    record_property("seconds", [round(value, 3) for value in seconds])
    print("from publishing to the page, in seconds:", [f"{value:.3f}" for value in seconds])
    # The quickest: the others may have had to wait for a processor that others use too.
    assert min(seconds) < 1.0
    last = page.locator(".entry .text").last
    assert last.inner_text() == "Disk 4 full"
    assert last.locator("strong").inner_text() == "Disk"
    assert last.locator("em").inner_text() == "full"


def test_entities_are_rendered(sandbox: Sandbox, bot: Bot, visit: Any) -> None:
    page = visit(sandbox.url)
    bot(OPS, HTML, parse_mode="HTML")
    text = page.locator(".entry .text")
    for tag, words in (("strong", "bold"), ("em", "italic"), ("u", "under"), ("s", "gone")):
        assert text.locator(tag).first.inner_text() == words
    assert text.locator(":scope > code").inner_text() == "a<b"
    assert text.locator("pre .language").inner_text() == "python"
    assert text.locator("pre code").inner_text() == "def f():\n    return 1"
    assert text.locator("blockquote").first.inner_text() == "said"
    assert text.locator(".mention").get_attribute("title") == "user 42"
    # No empty lines around blocks, which begin and end lines anyway.
    assert re.search(r"said\s*\nafter\n", text.inner_text())

    folded = text.locator("blockquote.folded")
    height = folded.bounding_box()["height"]
    folded.get_by_role("button", name="Show more").click()
    assert text.locator("blockquote.expandable").bounding_box()["height"] > height
    assert text.locator("blockquote.folded").count() == 0

    # A style within cuts it in two; one press shows both.
    colours = "(all) => all.map((e) => getComputedStyle(e).color)"
    assert set(text.locator(".spoiler").evaluate_all(colours)) == {"rgba(0, 0, 0, 0)"}
    text.get_by_role("button", name="Spoiler").first.focus()
    page.keyboard.press("Enter")
    assert set(text.locator(".spoiler").evaluate_all(colours)) == {"rgb(16, 26, 33)"}
    assert text.locator(".spoiler").all_inner_texts() == ["hid", "den"]


def test_a_link_says_where_it_leads_and_is_not_followed(sandbox: Sandbox, bot: Bot, visit: Any) -> None:
    page = visit(sandbox.url)
    bot(OPS, f'<a href="{LINK}">runbook</a>', parse_mode="HTML")
    page.get_by_role("link", name="runbook").click()
    dialog = page.get_by_role("dialog")
    assert dialog.locator(".target").inner_text() == LINK
    assert dialog.get_by_role("link", name="Open").get_attribute("href") == LINK
    page.keyboard.press("Escape")
    assert dialog.count() == 0
    assert page.url.startswith(sandbox.url)


def test_an_address_that_runs_is_only_shown(visit: Any, tmp_path: Path) -> None:
    # Telegram refuses such a link, but a file may have it.
    link = {"type": "text_link", "offset": 0, "length": 5, "url": "javascript:window.hacked=1"}
    path = tmp_path / "chats.json"
    message = {"chat_id": 5, "message_id": 1, "text": "press", "entities": [link], "bot_id": 1}
    path.write_text(json.dumps({"chats": [{"id": 5}], "messages": [message]}))
    with Sandbox(chats=path) as sandbox:
        page = visit(sandbox.url)
        page.get_by_role("link", name="press").click()
        dialog = page.get_by_role("dialog")
        assert dialog.locator(".target").inner_text() == "javascript:window.hacked=1"
        assert dialog.get_by_role("link").count() == 0
        assert page.evaluate("window.hacked") is None


def test_a_script_in_a_text_does_nothing(sandbox: Sandbox, bot: Bot, visit: Any) -> None:
    page = visit(sandbox.url)
    attacks = [
        "<script>window.hacked = 1</script>",
        '<img src=x onerror="window.hacked=1">',
        '"><svg onload=window.hacked=1>',
        "</div><iframe src=javascript:parent.hacked=1></iframe>",
    ]
    sandbox.set_chat(OPS, title=attacks[1], topics=[{"id": 7, "name": attacks[2]}])
    for attack in attacks:
        bot(OPS, attack, message_thread_id=7)
        bot(OPS, attack, parse_mode="HTML")
        bot(attack, attack)
        sandbox.say(OPS, attack, first_name=attack)
    bot(OPS, f"<b>{attacks[3].replace('<', '&lt;')}</b>", parse_mode="HTML")
    shown_at(page, attacks[3])
    for attack in attacks:
        assert page.locator(".entry .text", has_text=attack).first.inner_text() == attack
    page.locator(".entry.refused .details").first.click()
    page.wait_for_selector(".raw.answer")
    page.locator("#tab-check").click()
    page.locator("#check-text").fill("\n".join(attacks))
    page.locator("#check-mode").select_option("none")
    page.wait_for_selector("#verdict.good")
    page.locator("#search").fill("onerror")
    page.wait_for_selector("#found mark")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main iframe, main img, aside iframe, aside img, svg[onload]").count() == 0


def test_a_refused_call_is_red_with_telegrams_words_and_the_spot(
    sandbox: Sandbox, bot: Bot, visit: Any
) -> None:
    page = visit(sandbox.url)
    words = bot(OPS, "é <b>Unclosed <i>tag</b>", parse_mode="HTML")
    refused = page.locator(".entry.refused")
    assert refused.locator(".words").inner_text().strip() == f"400 {words}"
    assert refused.locator(".source").inner_text() == "é <b>Unclosed <i>tag</b>"
    assert refused.locator("mark.fault").inner_text() == "<"
    before = "(mark) => mark.previousSibling.data"
    assert refused.locator("mark").evaluate(before) == "é <b>Unclosed <i>tag"
    red = refused.locator(".words").evaluate("(e) => getComputedStyle(e).color")
    red, green, blue = map(int, re.findall(r"\d+", red))
    assert red > 2 * green
    assert red > 2 * blue

    refused.locator(".details").click()
    request, answer = page.locator(".raw.request"), page.locator(".raw.answer")
    assert "POST /bot1:<token>/sendMessage" in request.inner_text()
    assert '"parse_mode": "HTML"' in request.inner_text()
    assert '"error_code": 400' in answer.inner_text()
    assert ":x/" not in page.content()  # the token

    # The same again and again is one entry.
    for _ in range(3):
        bot(9, "blocked")
    page.locator("#chats button", has_text="Grace").click()
    assert page.locator(".entry.refused .times").inner_text() == "3 times"
    assert page.locator(".entry.refused .words").inner_text().strip() == (
        "403 Forbidden: bot was blocked by the user"
    )


def test_what_became_of_each_call_is_shown(sandbox: Sandbox, bot: Bot, visit: Any) -> None:
    page = visit(sandbox.url)
    twelve(sandbox, bot)
    page.locator("#chats button", has_text="Ops").click()
    entry(page, "too many").wait_for()
    assert entry(page, "Queue").locator(".edited").is_visible()
    assert entry(page, "quietly").locator(".marks").inner_text().split()[0] == "silent"
    assert entry(page, "quietly").locator(".topic").inner_text() == "# deploys"
    assert entry(page, "config.py").locator(".warned").inner_text().strip() == "2 warnings"
    assert "deleted" in entry(page, "a mistake").locator(".marks").inner_text()
    assert "no answer came" in entry(page, "perhaps").locator(".words").inner_text()
    assert entry(page, "too many").locator(".words").inner_text().strip() == (
        "429 Too Many Requests: retry after 600"
    )
    assert re.match(r"Held for \d+ s: Too Many", page.locator("#hold").inner_text())
    assert page.locator("#chats button", has_text="Ops").locator(".badge").inner_text() == "held"
    assert page.locator("#chats button", has_text="@nobody!").is_visible()

    entry(page, "On it").locator(".quote").click()
    assert page.evaluate("document.activeElement.textContent").startswith("Sandbox bot")
    page.get_by_label("Topic").select_option("7")
    assert page.locator(".entry:not([hidden])").count() == 1
    page.get_by_label("Topic").select_option("")
    entry(page, "config.py").locator(".details").click()
    assert page.locator(".problems li").count() == 2
    assert page.locator(".panel .source mark.warning").count() == 2
    entry(page, "Queue").locator(".details").click()
    page.locator("summary", has_text="editMessageText").wait_for()
    assert page.locator("details summary").all_inner_texts() == [
        "sendMessage → 200",
        "editMessageText → 200",
    ]


def test_live_updates_survive_a_sandbox_that_stops_and_starts(sandbox: Sandbox, bot: Bot, visit: Any) -> None:
    page = visit(sandbox.url)
    bot(OPS, "before")
    shown_at(page, "before")
    sandbox.stop()
    page.wait_for_selector("#live.warn")
    sandbox.start()
    bot(OPS, "after")
    shown_at(page, "after")
    page.wait_for_selector("#live.good")
    assert page.locator(".entry .text").all_inner_texts() == ["before", "after"]


@pytest.mark.integration
def test_another_run_on_the_same_port_begins_with_an_empty_page(visit: Any) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    bot = Bot(url)
    with Process("sandbox", "--port", str(port), env={}) as first:
        first.until("TELEGRAM_API_BASE_URL")
        page = visit(url)
        bot(5, "of the first run")
        shown_at(page, "of the first run")
    page.wait_for_selector("#live.warn")
    with Process("sandbox", "--port", str(port), env={}) as second:
        second.until("TELEGRAM_API_BASE_URL")
        page.get_by_text("Nothing was sent yet").wait_for()
        page.wait_for_selector("#live.good")
        bot(5, "of the second run")
        shown_at(page, "of the second run")
        assert page.locator(".entry .text").all_inner_texts() == ["of the second run"]
        bot.close()


def test_a_page_that_nobody_sees_lets_go_and_catches_up(sandbox: Sandbox, bot: Bot, visit: Any) -> None:
    page = visit(sandbox.url)
    hide = "Object.defineProperty(document, 'hidden', { value: %s, configurable: true });"
    change = "document.dispatchEvent(new Event('visibilitychange'));"
    with page.expect_event("requestfailed", lambda request: "/_sandbox/events" in request.url):
        page.evaluate(hide % "true" + change)
    bot(OPS, "meanwhile")
    assert page.evaluate("window.shownAt") == {}
    page.evaluate(hide % "false" + change)
    shown_at(page, "meanwhile")


def test_a_cleared_sandbox_clears_the_page(sandbox: Sandbox, bot: Bot, visit: Any) -> None:
    page = visit(sandbox.url)
    bot(OPS, "before")
    shown_at(page, "before")
    sandbox.clear()
    page.locator(".entry").wait_for(state="detached")
    bot(OPS, "after")
    shown_at(page, "after")
    assert page.locator(".entry .text").all_inner_texts() == ["after"]


def test_search_finds_texts_and_chats(sandbox: Sandbox, bot: Bot, visit: Any) -> None:
    page = visit(sandbox.url)
    for number in range(450):
        bot(5, f"report {number}")
    bot(OPS, "<b>Needle</b> in a haystack", parse_mode="HTML")
    shown_at(page, "<b>Needle</b> in a haystack")
    page.keyboard.press("/")
    page.keyboard.type("needle")
    page.wait_for_selector("#found mark")
    assert page.locator("#found mark").all_inner_texts() == ["Needle"]
    page.locator("#search").fill("lovelace")
    page.locator("#found h3", has_text="Chats").wait_for()
    assert "Ada Lovelace" in page.locator("#found button").first.inner_text()
    page.locator("#search").fill("report 17")
    page.locator("#found h3", has_text="Messages: 11").wait_for()
    page.locator("#found button", has_text="report 17").last.click()
    # Far from the newest: it and what is around it are shown.
    page.locator('.entry:focus-within .text:text-is("report 17")').wait_for()
    assert page.locator(".entry").count() == 118
    page.locator("#newest").click()
    page.locator('.text:text-is("report 449")').wait_for()
    page.locator("#search").fill("zzz")
    page.get_by_text("Nothing found").wait_for()


def test_the_box_says_whether_a_text_would_pass(sandbox: Sandbox, visit: Any) -> None:
    page = visit(sandbox.url)
    page.keyboard.press("c")
    page.keyboard.type("<b>Back & up</b> of config.py <i>done")
    verdict = page.locator("#verdict")
    page.locator("#verdict.bad").wait_for()
    assert verdict.inner_text() == (
        "Refused (line 1, column 31): "
        "Bad Request: can't parse entities: Can't find end tag corresponding to start tag \"i\""
    )
    page.keyboard.type("</i>")
    page.locator("#verdict.warn").wait_for()
    assert verdict.inner_text() == "Telegram would take it: 27 of 4096 characters, 2 entities"
    assert page.locator(".check .problems li").all_inner_texts() == [
        "config.py becomes a link; in code it does not (line 1, column 21)"
    ]
    assert page.locator(".preview strong").inner_text() == "Back & up"
    page.locator("#check-mode").select_option("none")
    page.locator("#verdict", has_text="0 entities").wait_for()
    assert sandbox.requests() == []  # nothing is sent


def test_faults_and_floods_are_set_and_taken_back_with_one_click(
    sandbox: Sandbox, bot: Bot, visit: Any
) -> None:
    page = visit(sandbox.url)
    bot(OPS, "well")
    shown_at(page, "well")
    page.keyboard.press("f")
    page.locator("[data-preset=blocked]").click()
    page.locator("#faults .rule").wait_for()
    assert bot(OPS, "no") == "Forbidden: bot was blocked by the user"
    assert bot(5, "yes")["text"] == "yes"
    page.locator("#faults .rule", has_text="fired 1").wait_for()
    page.locator("#clear-faults").click()
    page.get_by_text("None: every call is answered").wait_for()
    assert bot(OPS, "well again")["text"] == "well again"

    page.locator("[data-flood=strict]").focus()
    page.keyboard.press("Enter")
    page.locator("[data-flood=strict][aria-pressed=true]").wait_for()
    # What is shown anew keeps the focus.
    assert page.evaluate("document.activeElement.dataset.flood") == "strict"
    bot(OPS, "first")
    assert bot(OPS, "second") == "Too Many Requests: retry after 1"
    page.locator("[data-flood=off]").click()
    page.locator("[data-flood=off][aria-pressed=true]").wait_for()
    assert sandbox.world.flood.limits is None


def test_a_reply_typed_as_a_user_goes_to_get_updates(sandbox: Sandbox, bot: Bot, visit: Any) -> None:
    page = visit(sandbox.url)
    asked = bot(OPS, "Shall I?", message_thread_id=7)["message_id"]
    shown_at(page, "Shall I?")
    page.keyboard.press("m")
    page.keyboard.press("r")
    page.keyboard.type("Yes <please>")
    page.locator("#say-name").fill("Ada")
    page.locator("#say-text").press("Enter")
    shown_at(page, "Yes <please>")
    (update,) = bot(OPS, "", "getUpdates")
    message = update["message"]
    assert (message["text"], message["from"]["first_name"]) == ("Yes <please>", "Ada")
    assert message["reply_to_message"]["message_id"] == asked
    assert message["message_thread_id"] == 7
    own = page.locator(".entry.heard")
    assert own.locator(".quote").inner_text() == "Sandbox bot\nShall I?"
    assert own.locator(".text").inner_text() == "Yes <please>"


def test_a_chat_is_saved_as_a_file_that_a_sandbox_loads(
    sandbox: Sandbox, bot: Bot, visit: Any, tmp_path: Path
) -> None:
    twelve(sandbox, bot)
    page = visit(sandbox.url)
    page.locator("#chats button", has_text="Ops").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Fixture").click()
    path = tmp_path / "chat.json"
    download.value.save_as(path)
    with Sandbox(chats=path) as other:
        copy = visit(other.url)
        copy.locator(".entry .text").first.wait_for()
        texts = page.locator(".entry .text").all_inner_texts()
        assert copy.locator(".entry .text").all_inner_texts() == texts
        assert copy.locator(".entry .quote").count() == 1
        assert other.count() == 0  # nobody sent it there
        with_reply = Bot(other.url)
        answer = with_reply(OPS, "goes on", reply_parameters=json.dumps({"message_id": 10}))
        with_reply.close()
        assert answer["reply_to_message"]["text"] == "On it"
        assert answer["message_id"] == 17
        shown_at(copy, "goes on")


def test_thousands_of_messages_do_not_choke_it(visit: Any, tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    messages = [
        {"chat_id": 5, "message_id": number, "text": f"old {number}", "bot_id": 1, "date": 1_700_000_000}
        for number in range(1, 10_001)
    ]
    path.write_text(json.dumps({"chats": [{"id": 5}], "messages": messages}))
    with Sandbox(chats=path) as sandbox:
        page = visit(sandbox.url)
        page.wait_for_selector(".entry")
        assert page.locator(".entry").count() == 200
        page.get_by_role("button", name="Show older messages").click()
        page.locator('.text:text-is("old 9601")').wait_for()
        assert page.locator(".entry").count() == 400
        page.locator("#thread").evaluate("(thread) => { thread.scrollTop = thread.scrollHeight; }")
        bot = Bot(sandbox.url)
        for number in range(1000):
            bot(5, f"new {number}")
        bot.close()
        shown_at(page, "new 999")
        texts = page.locator(".entry .text").all_inner_texts()
        assert texts == [f"new {number}" for number in range(600, 1000)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_a_contrast_of_at_least_four_and_a_half(
    sandbox: Sandbox, bot: Bot, visit: Any, scheme: str, record_property: Any
) -> None:
    twelve(sandbox, bot)
    page = visit(sandbox.url, scheme=scheme)
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    page.locator("#chats button", has_text="Ops").click()
    page.wait_for_selector("#hold:not([hidden])")
    found = page.evaluate("contrasts()")
    entry(page, "config.py").locator(".details").click()
    page.wait_for_selector(".raw.answer")
    found += page.evaluate("contrasts()")
    page.locator("#tab-check").click()
    for text, kind in (("<b>x", "bad"), ("config.py", "warn"), ("fine", "good")):
        page.locator("#check-text").fill(text)
        page.wait_for_selector(f"#verdict.{kind}")
        found += page.evaluate("contrasts()")
    page.locator("#tab-faults").click()
    found += page.evaluate("contrasts()")
    page.locator("#search").fill("queue")
    page.wait_for_selector("#found mark")
    page.locator("#open-help").click()
    found += page.evaluate("contrasts()")
    assert len(found) > 300
    record_property("lowest contrast", min(found)[0])
    print(f"{scheme}: {len(found)} texts, the lowest contrast {min(found)[0]:.2f}")
    assert sorted({(round(ratio, 2), *what) for ratio, *what in found if ratio < 4.5}) == []


def test_the_switch_turns_dark_and_stays_so(sandbox: Sandbox, visit: Any) -> None:
    page = visit(sandbox.url)
    page.locator("#theme").click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 33, 43)"


def test_nothing_overflows_a_phone(sandbox: Sandbox, bot: Bot, visit: Any) -> None:
    twelve(sandbox, bot)
    sandbox.set_chat(-8, title="A chat whose title is much too long for any phone that is 360 pixels wide")
    bot(-8, "Donaudampfschifffahrtsgesellschaftskapitänswitwenrentenauszahlungsstelle" * 3)
    page = visit(sandbox.url, width=360, height=740)
    assert page.evaluate("overflowing()") == []
    for chat in ("too long", "Grace", "Ops"):
        page.locator("#chats button", has_text=chat).click()
        page.wait_for_selector(".entry")
        assert page.evaluate("overflowing()") == []
        page.get_by_role("button", name="Back to the chats").click()
    page.locator("#chats button", has_text="Ops").click()
    entry(page, "CPU").locator(".details").click()
    page.wait_for_selector(".raw.answer")
    assert page.evaluate("overflowing()") == []
    page.get_by_role("button", name="Try this text").click()
    page.wait_for_selector("#verdict")
    assert page.evaluate("overflowing()") == []
    page.locator("#tab-faults").click()
    page.locator("[data-preset=timeout-after-accept]").click()
    page.wait_for_selector("#faults .rule")
    assert page.evaluate("overflowing()") == []
    page.locator("#open-help").click()
    assert page.evaluate("overflowing()") == []


@pytest.mark.parametrize("width", [1440, 360])
def test_everything_is_reached_by_keyboard(sandbox: Sandbox, bot: Bot, visit: Any, width: int) -> None:
    twelve(sandbox, bot)
    page = visit(sandbox.url, width=width)
    whole = "#head select"  # a chat's head is made anew with its topics once its messages are there
    if width == 360:
        tabbed(page)
        page.locator("#chats button", has_text="Ops").focus()
        page.keyboard.press("Enter")
    else:
        page.wait_for_selector(whole)
        tabbed(page)
        page.keyboard.press("m")
    page.wait_for_selector(whole)
    tabbed(page)

    # From message to message, and into each.
    page.keyboard.press("m")
    page.keyboard.press("End")
    reached = []
    for _ in range(page.locator(".entry").count()):
        reached.append(page.evaluate("Number(document.activeElement.dataset.number)"))
        inner = "[...document.activeElement.querySelectorAll('button, [role]')].map((e) => e.tabIndex)"
        assert set(page.evaluate(inner)) <= {0}
        page.keyboard.press("ArrowUp")
    numbers = page.eval_on_selector_all(".entry", "(all) => all.map((e) => Number(e.dataset.number))")
    assert reached == numbers[::-1]

    page.keyboard.press("Enter")
    page.wait_for_selector(".raw.answer")
    tabbed(page)
    for tab in ("Would this pass?", "Faults", "Details"):
        page.locator('[role="tab"][aria-selected="true"]').focus()
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.textContent") == tab
        tabbed(page)
    page.locator('[role="tab"][aria-selected="true"]').focus()
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
    page.locator("#open-help").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    at = "document.activeElement.closest('#chats') !== null"
    assert page.evaluate(at)


def tabbed(page: Any) -> None:
    """Everything that can be pressed is come to by the Tab key."""
    wanted = set(page.evaluate("pressable()"))
    page.evaluate("document.activeElement.blur()")
    reached: set[str] = set()
    for _ in range(3 * len(wanted) + 20):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.reach ?? ''"))
        if wanted <= reached:
            return
    assert wanted - reached == set()


def test_the_page_is_light(sandbox: Sandbox, visit: Any) -> None:
    page = visit(sandbox.url)
    names = "performance.getEntriesByType('resource').map((e) => new URL(e.name).pathname)"
    loaded = {"/", *(name for name in page.evaluate(names) if name.startswith("/_sandbox/ui/"))}
    accept = {"Accept": "text/html"}
    size = sum(len(requests.get(sandbox.url + name, headers=accept, timeout=10).content) for name in loaded)
    print(f"{len(loaded)} files, {size / 1024:.0f} kB")
    assert size < 120 * 1024
