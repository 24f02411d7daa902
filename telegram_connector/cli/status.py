"""``status``: how things stand, from anywhere with NATS access."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click
import msgspec

from telegram_connector.ages import lasting
from telegram_connector.bridge import NatsClient
from telegram_connector.cli.check import printable
from telegram_connector.cli.manual import foot
from telegram_connector.cli.settings import nats_settings
from telegram_connector.errors import BridgeError
from telegram_connector.overview import Observatory, Overview, Queue
from telegram_connector.status import BotHold, Hold, Status

NO_RICH = "--watch needs rich: pip install 'telegram-connector[watch]'"


@click.command(
    short_help="Show how things stand, from anywhere with NATS access.",
    epilog=foot(
        "status",
        "status --watch",
        "status --json | jq .backlog.age_seconds",
        done="shown, also when no connector answers",
        failed="NATS cannot be asked",
    ),
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object; docs/operations.md has its fields.")
@click.option("--watch", is_flag=True, help="A live picture, until Ctrl-C; needs the extra watch.")
@click.option(
    "--wait",
    "wait_seconds",
    type=click.FloatRange(0.1, 30),
    default=1.0,
    show_default=True,
    help="For how many seconds connectors' answers are gathered.",
)
def status(as_json: bool, watch: bool, wait_seconds: float) -> None:
    """Show backlog, outstanding messages, holds, pauses, dead letters, rates, and every connector.

    Asks JetStream and all running connectors, over NATS; when none answers, what JetStream alone knows is
    shown. Needs NATS credentials (TELEGRAM_OPERATOR in deploy/), no bot token. Shows no text of a message.
    """
    if as_json and watch:
        raise click.UsageError("give either --json or --watch")
    settings = nats_settings()
    if watch:
        if not on_terminal():
            raise click.UsageError("--watch draws on a terminal; elsewhere ask for --json again and again")
        try:
            from telegram_connector.cli.watch import watch_for_ever
        except ImportError:
            raise click.ClickException(NO_RICH) from None
        watch_for_ever(settings, wait_seconds)
        return
    try:
        with NatsClient(settings, "telegram_connector status") as client:
            overview = Observatory(client, settings, wait_seconds).look()
    except BridgeError as error:
        click.echo(printable(f"telegram-connector status: {error}"), err=True)
        sys.exit(1)
    text = (
        document(overview) if as_json else "\n".join(f"{name:<13} {words}" for name, words in rows(overview))
    )
    click.echo(printable(text))


def on_terminal() -> bool:
    """Whether what is printed is seen by somebody."""
    return sys.stdout.isatty()


def document(overview: Overview) -> str:
    """What ``--json`` prints."""
    return msgspec.json.format(msgspec.json.encode(overview), indent=2).decode()


def rows(overview: Overview) -> Iterator[tuple[str, str]]:
    """The overview in words: (of what, what); the second of several of a kind has no name."""
    yield "consumer", f"{overview.stream}/{overview.durable} at {overview.at}"
    yield "backlog", _queue(overview.backlog, "waiting")
    redelivered = f"; {overview.redelivered} handed over more than once" if overview.redelivered else ""
    yield "outstanding", _queue(overview.outstanding, "handed over") + redelivered
    yield "dead letters", dead_letters(overview)
    yield "ambiguous", "-" if overview.ambiguous is None else str(overview.ambiguous)
    yield "last send", overview.last_sent_at or "-"
    yield from _named("paused", (_pause(p.chat, p.ends_in_seconds, p.reason) for p in overview.pauses or ()))
    yield "connectors", answered(overview)
    for connector in overview.connectors:
        yield "", f"{name(connector)}: {', '.join(doing(connector))}"
        yield "", f"  {pace(connector)}"
        if connector.work.bot:
            yield "", f"  {bot(connector.work.bot)}"
        for hold in connector.work.holds:
            yield "", f"  {held(hold)}"
        if more := connector.work.holds_in_all - len(connector.work.holds):
            yield "", f"  {more} more chats held"
    yield from _named("not known", iter(overview.unknown))


def _named(name: str, lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        yield name, line
        name = ""


def _queue(queue: Queue | None, words: str) -> str:
    if queue is None:
        return "-"
    age = "" if queue.age_seconds is None else f", the oldest for {lasting(queue.age_seconds)}"
    return f"{queue.count} {words}{age}"


def dead_letters(overview: Overview) -> str:
    """How many, and why."""
    found = overview.dead_letters
    if found is None:
        return "-"
    reasons = ", ".join(f"{count} {reason}" for reason, count in (found.by_reason or {}).items())
    if found.read < found.count and reasons:
        reasons = f"of the newest {found.read}: {reasons}"
    return f"{found.count}{f' ({reasons})' if reasons else ''}"


def answered(overview: Overview) -> str:
    """Who answered, and what it says when nobody did."""
    if overview.connectors:
        active = sum(connector.role == "active" for connector in overview.connectors)
        idle = "" if active else "; the one that is handed the next message becomes active"
        return f"{len(overview.connectors)} answered, {active} active{idle}"
    if overview.pulling or overview.pinned:
        return "none answered, yet one pulls: it is older, or its NATS user lacks the rights (see check)"
    return "none answered; the above is what JetStream alone knows"


def name(connector: Status) -> str:
    """Host and process, enough to tell connectors apart."""
    return f"{connector.host} pid {connector.pid}"


def doing(connector: Status) -> Iterator[str]:
    """What a connector is, and has in hand."""
    yield connector.role
    if connector.role == "active" and not connector.sending:
        yield "sends nothing now"
    yield f"up {lasting(connector.up_seconds)}"
    work = connector.work
    yield f"{work.waiting} waiting, {work.in_flight} in flight, {work.awaited} awaited of {work.limit}"
    if work.unconfirmed:
        yield f"{work.unconfirmed} settlements unconfirmed"


def pace(connector: Status) -> str:
    """Its rates, and what it did since it started."""
    tally = connector.tally
    rates = " ".join(f"{rate:g}" for rate in tally.rates.sent)
    dropped = ", ".join(f"{count} {reason}" for reason, count in tally.dropped.items())
    since = f"sent {tally.sent}, retried {tally.retried}, dropped {dropped or 0} since its start"
    return f"{rates} sent a minute over 1, 5 and 15 minutes; {since}"


def bot(hold: BotHold) -> str:
    """Why the bot sends nothing, and until when."""
    what = "BOT PAUSED, its token or account is refused" if hold.fault else "bot held"
    return (
        f"{what} for {lasting(hold.held_seconds)}: {hold.reason}; next try in"
        f" {lasting(hold.next_try_in_seconds)}"
    )


def held(hold: Hold) -> str:
    """A chat that is held."""
    return f"chat {hold.chat} held for another {lasting(hold.ends_in_seconds)}, {hold.waiting} waiting"


def _pause(chat: str | None, ends_in_seconds: float | None, reason: str) -> str:
    how_long = "until resumed" if ends_in_seconds is None else f"for another {lasting(ends_in_seconds)}"
    whom = f"chat {chat}" if chat else "THE BOT"
    return f"{whom} by an operator {how_long}{': ' if reason else ''}{reason}"
