"""The operator's page in a real browser, on a real nats-server with a real relay and the sandbox."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from telegram_connector.cli import main
from telegram_connector.console import Console
from telegram_connector.envelope import TelegramOutbound
from telegram_connector.record import AMBIGUOUS, CANCELLED, SENT
from tests.browser.test_page import tabbed
from tests.console.stage import BOT, CHAT, SECRET, Stage, a_dozen, stage
from tests.fleet import PATIENCE_SECONDS, TOKEN

__all__ = ["stage"]

pytestmark = pytest.mark.integration

CONSOLE_TOKEN = "correct-horse-battery-staple-42"
LOGIN = "#login form"
VIEWS = ("overview", "dead", "doubt", "messages", "preview", "activity")


@pytest.fixture
def console(stage: Stage) -> Iterator[Console]:
    with stage.console() as running:
        yield running


def card(page: Any, msg_id: str) -> Any:
    """The card of a message in doubt."""
    return page.locator(".doubtful", has=page.locator("h3", has_text=re.compile(f"^{msg_id}$")))


def row(page: Any, msg_id: str) -> Any:
    """The line of a dead letter."""
    return page.locator("#letters .letter", has=page.locator("strong", has_text=re.compile(f"^{msg_id}$")))


def settle(page: Any, msg_id: str, how: str) -> None:
    """Press a word and confirm it."""
    card(page, msg_id).locator(f"[data-how={how}]").click()
    page.get_by_role("dialog").locator("button[type=submit]").click()


def opened(page: Any, msg_id: str) -> Any:
    """A dead letter's details, opened."""
    row(page, msg_id).locator(".summary").click()
    details = row(page, msg_id).locator(".details")
    details.locator(".acts").wait_for()
    return details


# The seeds' renderer tests, each by its sentence


def test_connector_status_shows_ambiguous_provider_sends(stage: Stage, console: Console, visit: Any) -> None:
    stage.relay()
    page = visit(console.url)
    page.locator("#tile-doubt .figure:text-is('0')").wait_for()
    stage.lose("m1", chat="7")
    # Live, without anybody's asking.
    page.locator("#tile-doubt .figure.warn:text-is('1')").wait_for()
    page.locator("#count-doubt:text-is('1')").wait_for()
    page.locator("#tile-doubt").click()
    assert "Nobody knows whether Telegram has it." in card(page, "m1").inner_text()


def test_ambiguous_send_has_manual_resolution_affordance(stage: Stage, console: Console, visit: Any) -> None:
    stage.relay()
    for number, msg_id in enumerate(("saw-it", "lost-it", "drop-it")):
        stage.lose(msg_id, chat=str(7 + number))
    page = visit(f"{console.url}#doubt")
    card(page, "saw-it").locator("dd:text-is('7')").wait_for()
    for words in ("Mark as sent", "Send again", "Cancel it"):
        assert card(page, "saw-it").get_by_role("button", name=words).is_visible()
    risks = card(page, "saw-it").locator(".word p").all_inner_texts()
    assert [re.search(r"If .*", risk)[0] for risk in risks] == [  # type: ignore[index]
        "If it is not there after all, nobody will ever get it.",
        "If Telegram has it after all, the chat will show it twice.",
        "If Telegram does not have it, nobody will ever get it.",
    ]
    # Looked at and left alone, nothing is done.
    card(page, "saw-it").locator("[data-how=send-again]").click()
    assert "will show it twice" in page.get_by_role("dialog").inner_text()
    page.keyboard.press("Escape")
    assert {record.status for record in stage.records()} == {AMBIGUOUS}

    card(page, "saw-it").locator("[data-how=sent]").click()
    page.locator("#message-id").fill("4711")
    page.get_by_role("dialog").locator("button[type=submit]").click()
    page.locator("#settled li", has_text="saw-it: taken as sent, message 4711").wait_for()
    settle(page, "drop-it", "cancel")
    page.locator("#settled li", has_text="drop-it: cancelled").wait_for()
    settle(page, "lost-it", "send-again")
    page.locator("#settled li", has_text="lost-it: published again as sequence").wait_for()
    page.get_by_text("Nothing is in doubt").wait_for()
    found = {record.msg_id: record for record in stage.records()}
    assert (found["saw-it"].status, found["saw-it"].message_id) == (SENT, 4711)
    assert found["drop-it"].status == CANCELLED
    stage.until_record("lost-it", lambda record: record.status == SENT)
    assert {record.resolved_by for record in stage.records()} == {"ada@desk (console)"}


def test_user_can_see_why_a_local_reply_was_not_sent_to_telegram(
    stage: Stage, console: Console, visit: Any
) -> None:
    stage.withhold("thought", to=None)
    stage.withhold("chatter", to="lead")
    stage.withhold("block", text="<info_for_agent>internal</info_for_agent>")
    page = visit(f"{console.url}#messages")
    listed = page.locator("#records .summary")
    listed.nth(2).wait_for()
    told = " ".join(listed.all_inner_texts())
    for words in (
        "Withheld: It is addressed to nobody, like a thought.",
        "Withheld: It is addressed to somebody else than the user.",
        "Withheld: Nothing is left of it without the blocks meant for agents.",
    ):
        assert words in told
    page.locator("#history-id").fill("frontend/thought")
    page.keyboard.press("Enter")
    story = page.locator("#history .story", has_text="like a thought")
    story.wait_for()
    assert "Withheld: it was not published" in page.locator("#history .past").inner_text()
    assert "internal" not in page.content()


def test_teammate_prefix_renders_in_telegram_projection_preview(
    stage: Stage, console: Console, visit: Any
) -> None:
    page = visit(f"{console.url}#preview")
    page.locator("#verdict.good").wait_for()
    page.locator("#preview-text").fill(
        "I found the <failing> test.\n<info_for_agent>not this</info_for_agent>"
    )
    bubble = page.locator("#preview-result .bubble .text")
    page.locator("#preview-result .bubble", has_text="<failing>").wait_for()
    assert bubble.inner_text() == "[Frontend] Alice\nI found the <failing> test."
    page.locator("#label").fill("Alice from QA")
    page.locator("#preview-result .bubble", has_text="[Frontend] Alice from QA").wait_for()
    page.locator("#to").select_option("lead")
    page.locator("#verdict.warn").wait_for()
    assert page.locator("#verdict").inner_text() == (
        "Withheld. It is addressed to somebody else than the user."
    )
    assert bubble.count() == 0
    page.locator("#to").select_option("user")
    page.locator("#topic").select_option("repair_required")
    page.get_by_text("The route's topic needs repair; there is no other place.").wait_for()
    page.locator("#topic").select_option("")
    page.locator("#preview-text").fill("x" * 4097)
    page.get_by_text("It is longer than one message may be").wait_for()
    assert stage.records() == []  # nothing is kept of it


# Settling


def test_resolving_an_ambiguous_delivery_in_the_page_sends_it_once(
    stage: Stage, console: Console, visit: Any
) -> None:
    stage.relay()
    stage.lose("m1", chat="7", text="hello")
    page = visit(f"{console.url}#doubt")
    card(page, "m1").locator("[data-how=send-again]").click()
    submit = page.get_by_role("dialog").locator("button[type=submit]")
    # An impatient operator.
    submit.evaluate("(button) => { button.click(); button.click(); button.form.requestSubmit(); }")
    page.locator("#settled .good", has_text="published again").wait_for()
    stage.until_record("m1", lambda record: record.status == SENT)
    stage.assert_nothing_left()
    # The one whose answer was lost, and this one.
    assert [message.raw_text for message in stage.sandbox.messages(chat=7)] == ["hello", "hello"]
    page.get_by_text("Nothing is in doubt").wait_for()


def test_two_tabs_that_resolve_at_once_send_it_once(stage: Stage, console: Console, visit: Any) -> None:
    stage.relay()
    stage.lose("m1", chat="7", text="hello")
    tabs = [visit(f"{console.url}#doubt") for _ in range(2)]
    for tab in tabs:
        card(tab, "m1").locator("[data-how=send-again]").click()
    for tab in tabs:
        tab.get_by_role("dialog").locator("button[type=submit]").evaluate("(button) => button.click()")
    first, second = (tab.locator("#settled li") for tab in tabs)
    first.wait_for()
    second.wait_for()
    kinds = sorted((one.get_attribute("class") or "").split()[-1] for one in (first, second))
    assert kinds == ["good", "warn"]
    late = first if "warn" in (first.get_attribute("class") or "") else second
    assert "somebody else was first; nothing was changed here" in late.inner_text()
    stage.until_record("m1", lambda record: record.status == SENT)
    stage.assert_nothing_left()
    assert len(stage.sandbox.messages(chat=7)) == 2


def test_what_the_command_has_settled_meanwhile_is_told_and_not_done_again(
    stage: Stage, console: Console, visit: Any
) -> None:
    stage.relay()
    key = stage.lose("m1", chat="7").key
    page = visit(f"{console.url}#doubt")
    card(page, "m1").locator("[data-how=send-again]").click()
    env = {"NATS_URL": stage.server.url, "NATS_TELEGRAM_NKEY_SEED": stage.server.operator_seed}
    resolved = CliRunner().invoke(main, ["ledger", "resolve", key, "--cancel", "--yes"], env=env)
    assert resolved.exit_code == 0, resolved.output
    page.get_by_role("dialog").locator("button[type=submit]").click()
    page.locator("#settled .warn", has_text="Cancelled: not sent any more.").wait_for()
    assert len(stage.sandbox.messages(chat=7)) == 1


# Dead letters


def test_bodies_are_hidden_until_somebody_asks(stage: Stage, console: Console, visit: Any) -> None:
    stage.relay()
    stage.bury("m1", kind="alert", parse_mode="HTML", text=f"<b>{SECRET}</b>")
    stage.lose("m2", chat="7")
    page = visit(f"{console.url}#dead")
    details = opened(page, "m1")
    shown = details.inner_text()
    for words in ("Telegram refused it.", "400 Bad Request: no", "alert", "Headers (9)"):
        assert words in shown
    details.locator("summary").click()
    assert "billing" in details.locator(".headers").inner_text()
    assert SECRET not in page.content()
    for view in VIEWS:
        page.goto(f"{console.url}#{view}")
        assert SECRET not in page.content()
    page.goto(f"{console.url}#dead")
    page.locator("#letters .show-text").click()
    page.locator(".bubble strong", has_text=SECRET).wait_for()
    page.get_by_role("button", name="Hide").click()
    assert SECRET not in page.content()
    page.goto(f"{console.url}#doubt")
    card(page, "m2").locator(".show-text").click()
    card(page, "m2").locator(".bubble", has_text=SECRET).wait_for()
    page.goto(f"{console.url}#activity")
    page.locator("#activity li", has_text="dead.show-text").wait_for()
    assert page.locator("#activity li", has_text="ledger.show-text").count() == 1
    assert SECRET not in page.locator("#activity").inner_text()


def test_letters_are_filtered_resent_and_discarded(stage: Stage, console: Console, visit: Any) -> None:
    stage.relay()
    stage.bury("m1", chat="7", text="<b>bold", parse_mode="HTML")
    stage.bury("m2", "expired", 0, "too old", chat="8", text="late")
    page = visit(f"{console.url}#dead")
    page.locator("#dead-reason").select_option("expired")
    row(page, "m1").wait_for(state="detached")
    assert page.locator("#letters .letter").count() == 1
    page.locator("#dead-reason").select_option("")
    row(page, "m1").wait_for()

    opened(page, "m1").get_by_role("button", name="Resend as plain text").click()
    page.get_by_role("dialog").locator("button[type=submit]").click()
    row(page, "m1").locator(".badge", has_text="resent").wait_for()
    stage.sandbox.wait(count=1, timeout_seconds=PATIENCE_SECONDS)
    assert stage.texts(7) == ["bold"]
    row(page, "m1").get_by_role("button", name="Resend again", exact=True).wait_for()

    opened(page, "m2").get_by_role("button", name="Discard…").click()
    page.locator("#discard-why").fill("said by phone")
    page.get_by_role("dialog").locator("button[type=submit]").click()
    row(page, "m2").wait_for(state="detached")
    page.locator("#dead-everything").check()
    row(page, "m2").locator(".badge", has_text="discarded").wait_for()
    assert "said by phone" in opened(page, "m2").inner_text()


def test_many_are_resent_after_their_count_was_typed(stage: Stage, console: Console, visit: Any) -> None:
    stage.relay()
    for number in range(60):
        stage.bury(f"m{number}", chat="7", text=f"text {number}")
    stage.bury("other", "expired", chat="8")
    page = visit(f"{console.url}#dead")
    page.locator("#dead-chat").fill("7")
    page.locator("#dead-sum", has_text="60 letters").wait_for()
    page.locator("#resend-all").click()
    go = page.get_by_role("dialog").locator("button[type=submit]")
    assert go.inner_text() == "Resend 60"
    assert go.is_disabled()
    for typed in ("6", "61"):
        page.locator("#typed-count").fill(typed)
        assert go.is_disabled()
    page.locator("#typed-count").fill("60")
    page.keyboard.press("Enter")
    page.locator("#told", has_text="60 done").wait_for()
    stage.sandbox.wait(count=60, timeout_seconds=PATIENCE_SECONDS)
    assert stage.texts(7) == [f"text {number}" for number in range(60)]
    assert stage.texts(8) == []


def test_a_script_in_a_dead_letter_does_nothing(stage: Stage, console: Console, visit: Any) -> None:
    attacks = [
        "<script>window.hacked = 1</script>",
        '<img src=x onerror="window.hacked=1">',
        '"><svg onload=window.hacked=1>',
        "</div><iframe src=javascript:parent.hacked=1></iframe>",
    ]
    stage.relay()
    for number, attack in enumerate(attacks):
        stage.bury(attack, words=attack, text=attack, kind=attack)
        stage.bury(f"{number}{attack}", "unreadable", payload=attack.encode())
    stage.lose(attacks[1], chat="7", text=attacks[0], route_id=attacks[1], from_member=attacks[2])
    stage.pause("-5", None, attacks[1])
    page = visit(f"{console.url}#dead")
    page.locator("#letters .letter").nth(8).wait_for()
    for summary in page.locator("#letters .summary").all():
        summary.click()
    page.locator("#letters .show-text").nth(8).wait_for()
    page.locator("#letters .show-text").evaluate_all("(all) => all.forEach((one) => one.click())")
    page.locator(".details .source", has_text="<script>").first.wait_for()
    page.goto(f"{console.url}#doubt")
    page.locator(".doubtful .show-text").click()
    page.locator(".doubtful .source", has_text=attacks[0]).wait_for()
    page.goto(f"{console.url}#overview")
    page.locator("#pauses", has_text="onerror").wait_for()
    page.goto(f"{console.url}#messages/{requests.utils.quote(attacks[1], safe='')}")
    page.locator("#history .past").wait_for()
    page.goto(f"{console.url}#preview")
    page.locator("#preview-text").fill("\n".join(attacks))
    page.locator("#preview-result .bubble", has_text="iframe").wait_for()
    page.goto(f"{console.url}#activity")
    page.locator("#activity li").first.wait_for()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main iframe, main img, main script, svg[onload]").count() == 0


# Live


def test_pausing_and_holds_are_seen_in_every_tab(stage: Stage, console: Console, visit: Any) -> None:
    stage.relay()
    stage.publish(TelegramOutbound(msg_id="m0", chat="8", text="which makes it active"))
    tabs = [visit(console.url) for _ in range(3)]
    for tab in tabs:
        tab.locator("#headline.good", has_text="Sending").wait_for()
    tabs[0].keyboard.press("p")
    tabs[0].locator("#pause-chat").fill("7")
    tabs[0].locator("#pause-reason").fill("moving the group")
    tabs[0].keyboard.press("Enter")
    for tab in tabs:
        tab.locator("#pauses", has_text="moving the group").wait_for()
    stage.sandbox.set_fault("flood", chat="9", times=1, retry_after=600)
    stage.publish(TelegramOutbound(msg_id="m1", chat="9", text="too many"))
    for tab in tabs:
        tab.locator("#holds", has_text="Chat 9").wait_for()
    tabs[1].locator("#pauses button").click()
    for tab in tabs:
        tab.locator("#pauses").wait_for(state="detached")
    tabs[2].locator("#pause").click()
    tabs[2].get_by_role("dialog").locator("button[type=submit]").click()
    for tab in tabs:
        tab.locator("#headline.warn", has_text="The bot is paused by an operator").wait_for()


def test_nats_that_is_away_is_shown_and_heals(stage: Stage, console: Console, visit: Any) -> None:
    stage.bury("m1")
    page = visit(console.url)
    page.locator("#count-dead:text-is('1')").wait_for()
    stage.server.kill()
    page.locator("#live.bad", has_text="NATS away").wait_for()
    page.locator("#headline.bad", has_text="NATS does not answer").wait_for()
    page.locator("#trouble", has_text="NATS_URL").wait_for()
    page.goto(f"{console.url}#dead")
    page.locator("#letters .bad", has_text="NATS cannot be reached").wait_for()
    stage.server.start()
    page.locator("#live.good").wait_for()
    row(page, "m1").wait_for()  # asked again by itself
    assert page.locator("#trouble").is_hidden()


def test_live_updates_survive_a_console_that_stops_and_starts(
    stage: Stage, console: Console, visit: Any
) -> None:
    stage.bury("m1")
    page = visit(f"{console.url}#dead")
    row(page, "m1").wait_for()
    console.stop()
    page.locator("#live.warn", has_text="reconnecting").wait_for()
    stage.bury("m2")
    console.start()
    page.locator("#live.good").wait_for()
    row(page, "m2").wait_for()
    # The new run has another secret, of which the page knows by now, or learns.
    opened(page, "m2").get_by_role("button", name="Discard…").click()
    page.get_by_role("dialog").locator("button[type=submit]").click()
    row(page, "m2").wait_for(state="detached")


# The door


def test_the_door_opens_to_the_token_and_closes_behind(stage: Stage, visit: Any) -> None:
    stage.bury("m1")
    with stage.console(token=CONSOLE_TOKEN) as console:
        page = visit(f"{console.url}#dead", ready=LOGIN)
        assert page.locator("#console").is_hidden()
        page.locator("#token").fill("wrong")
        page.keyboard.press("Enter")
        page.locator("#login .bad", has_text="that is not the token of this page").wait_for()
        page.locator("#name").fill("Ada")
        page.locator("#token").fill(CONSOLE_TOKEN)
        page.keyboard.press("Enter")
        row(page, "m1").wait_for()
        page.locator("#live.good").wait_for()
        assert "Ada (console, 127.0.0.1)" in page.locator("#about").inner_text()
        assert page.evaluate("document.cookie") == ""  # no script can read it
        other = page.context.new_page()
        other.goto(console.url)
        other.locator("#live.good").wait_for()
        page.locator("#logout").click()
        page.locator(LOGIN).wait_for()
        assert "m1" not in page.locator("body").inner_text()
        other.locator(LOGIN).wait_for()  # told, though nobody pressed anything there
        page.reload()
        page.locator(LOGIN).wait_for()
        other.close()


def test_no_token_is_in_any_page(stage: Stage, console: Console, visit: Any) -> None:
    a_dozen(stage)
    page = visit(console.url)
    secret = TOKEN.partition(":")[2]
    for view in VIEWS:
        page.goto(f"{console.url}#{view}")
        page.locator("#view section").wait_for()
        assert secret not in page.content()
    assert BOT in requests.get(f"{console.url}api/start", timeout=60).text  # its number is no secret


# Looks


def everywhere(page: Any, url: str, look: Callable[[], None]) -> None:
    """Looks at every view with all that it can have open."""
    page.locator("#holds").wait_for()
    look()
    page.goto(f"{url}#dead")
    opened(page, "order-1234-filled").locator(".show-text").click()
    page.locator(".details mark.fault").wait_for()
    page.locator(".details summary").click()
    look()
    page.locator("#resend-all").click()
    page.get_by_role("dialog").wait_for()
    look()
    page.keyboard.press("Escape")
    page.goto(f"{url}#doubt")
    card(page, "reply-17").locator("dd:text-is('45')").wait_for()
    look()
    card(page, "reply-17").locator("[data-how=sent]").click()
    look()
    page.keyboard.press("Escape")
    settle(page, "invoice-2041", "cancel")
    page.locator("#settled li").wait_for()
    look()
    page.goto(f"{url}#messages/order-1234-filled")
    page.locator("#history .past").wait_for()
    page.locator("#records .summary").first.wait_for()
    page.locator(".link-form summary").click()
    look()
    page.goto(f"{url}#preview")
    page.locator("#verdict.good").wait_for()
    look()
    page.locator("#to").select_option("")
    page.locator("#verdict.warn").wait_for()
    look()
    page.goto(f"{url}#activity")
    page.locator("#activity li").first.wait_for()
    look()
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    look()
    page.keyboard.press("Escape")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_a_contrast_of_at_least_four_and_a_half(
    stage: Stage, console: Console, visit: Any, scheme: str, record_property: Any
) -> None:
    a_dozen(stage)
    page = visit(console.url, scheme=scheme)
    found: list[Any] = []

    def look() -> None:
        found.extend(page.evaluate("contrasts()"))

    everywhere(page, console.url, look)
    assert len(found) > 400
    record_property("lowest contrast", min(found)[0])
    print(f"{scheme}: {len(found)} texts, the lowest contrast {min(found)[0]:.2f}")
    assert sorted({(round(ratio, 2), *what) for ratio, *what in found if ratio < 4.5}) == []


def test_nothing_overflows_a_phone(stage: Stage, console: Console, visit: Any) -> None:
    a_dozen(stage)
    long = "Donaudampfschifffahrtsgesellschaftskapitänswitwenrentenauszahlungsstelle" * 3
    stage.bury(long[:200], words=long, chat=CHAT)
    stage.pause("-100555", None, long[:200])
    page = visit(console.url, width=360, height=740)
    page.locator("#pauses", has_text=long[:20]).wait_for()

    def look() -> None:
        assert page.evaluate("overflowing()") == []

    everywhere(page, console.url, look)
    with stage.console(token=CONSOLE_TOKEN) as door:
        page = visit(door.url, width=360, height=740, ready=LOGIN)
        look()


@pytest.mark.parametrize("width", [1440, 360])
def test_everything_is_reached_by_keyboard(stage: Stage, console: Console, visit: Any, width: int) -> None:
    a_dozen(stage)
    page = visit(console.url, width=width)
    page.locator("#holds").wait_for()
    tabbed(page)
    for number, view in enumerate(VIEWS, 1):
        page.keyboard.press(str(number))
        page.locator(f'#nav [data-view="{view}"][aria-current]').wait_for()
    page.keyboard.press("2")
    row(page, "order-1234-filled").locator(".summary").focus()
    page.keyboard.press("Enter")
    row(page, "order-1234-filled").locator(".acts").wait_for()
    tabbed(page)
    page.keyboard.press("3")
    card(page, "reply-17").locator("dd:text-is('45')").wait_for()
    tabbed(page)
    card(page, "reply-17").locator("[data-how=cancel]").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("order-1234-filled")
    page.keyboard.press("Enter")
    page.locator("#history .past").wait_for()
    page.locator("#records .summary").first.wait_for()
    tabbed(page)
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("5")
    page.locator("#verdict").wait_for()
    tabbed(page)


def test_the_page_is_light(stage: Stage, console: Console, visit: Any) -> None:
    page = visit(console.url)
    names = "performance.getEntriesByType('resource').map((e) => new URL(e.name).pathname)"
    loaded = {"", *(name[1:] for name in page.evaluate(names) if name.startswith("/ui/"))}
    size = sum(len(requests.get(console.url + name, timeout=10).content) for name in loaded)
    print(f"{len(loaded)} files, {size / 1024:.0f} kB")
    assert size < 140 * 1024
