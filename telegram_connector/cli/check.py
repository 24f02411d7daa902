"""``check``: everything that a worker needs, looked at one by one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import click

from telegram_connector.checkup import SETTINGS, Finding, Severity, check_up, not_checked
from telegram_connector.cli.logs import Scrubber
from telegram_connector.cli.manual import foot
from telegram_connector.cli.settings import EXIT_SETTINGS, misspelt
from telegram_connector.errors import SettingsError
from telegram_connector.settings import Settings

EXIT_FAULT = 1

_MARKS: dict[Severity, str] = {"ok": "✓", "note": "·", "warning": "!", "fault": "✗", "skipped": "-"}
_PLAIN_MARKS: dict[Severity, str] = {"ok": "+", "note": ".", "warning": "!", "fault": "x", "skipped": "-"}


@click.command(
    short_help="Look whether a worker could do its work.",
    epilog=foot(
        "check",
        "check --json | jq -r '.checks[] | select(.ok | not) | .detail'",
        done="no fault; there may be warnings",
        failed="a fault, or dormant",
    ),
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object: {ok, checks: [...]}.")
def check(as_json: bool) -> None:
    """Look whether a worker could do its work, without doing any of it.

    One line each for settings, Bot API, token, default chat, NATS, permissions, stream, consumer, dead
    letters, subjects, bucket, ledger (with TG_LEDGER=kv) and clock. Sends no message and creates nothing;
    uses the worker's variables and the worker's NATS permissions; may run beside it. Takes 20 seconds at
    most.

    \b
    As a gate before each release on Heroku, in the Procfile:
      release: telegram-connector check
    """
    code = 0
    scrub = Scrubber(())
    found: list[Finding] = []
    try:
        settings = Settings.from_env(os.environ)
    except SettingsError as error:
        code = EXIT_SETTINGS
        findings = _unsound(error)
    else:
        scrub = Scrubber(settings.secrets)
        findings = _sound(settings)
    for finding in findings:
        found.append(finding)
        if not as_json:
            click.echo(printable(scrub(_line(finding))))
            sys.stdout.flush()
    faults = sum(finding.severity == "fault" for finding in found)
    if as_json:
        click.echo(printable(scrub(_document(found))))
    elif faults:
        click.echo(f"{faults} fault{'s' if faults > 1 else ''}")
    else:
        click.echo("no fault")
    sys.exit(code or (EXIT_FAULT if faults else 0))


def _unsound(error: SettingsError) -> Iterator[Finding]:
    for fault in error.faults:
        yield Finding(SETTINGS, "fault", fault)
    yield from not_checked("settings are wrong")


def _sound(settings: Settings) -> Iterator[Finding]:
    if settings.dormant:
        yield Finding(SETTINGS, "fault", f"dormant: {' and '.join(settings.dormant)} not set")
        yield from not_checked("a dormant worker does nothing")
        return
    yield Finding(SETTINGS, "ok", "complete")
    for name in misspelt():
        yield Finding(SETTINGS, "warning", f"{name} is not a setting of this version")
    yield from check_up(settings)


def _line(finding: Finding) -> str:
    marks = _MARKS if printable("✓✗·") == "✓✗·" else _PLAIN_MARKS
    return f"{marks[finding.severity]} {finding.name:<12}  {finding.detail}"


def _document(findings: list[Finding]) -> str:
    checks = [{"name": f.name, "ok": f.ok, "severity": f.severity, "detail": f.detail} for f in findings]
    well = not any(finding.severity == "fault" for finding in findings)
    return json.dumps({"ok": well, "checks": checks}, ensure_ascii=False, indent=2)


def printable(text: str) -> str:
    """The text as stdout's encoding can show it."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    return text.encode(encoding, "replace").decode(encoding)
