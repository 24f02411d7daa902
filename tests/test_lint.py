"""``lint``: refusals with a mark under the spot, warnings, preview, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from telegram_connector.cli import main
from telegram_connector.cli.lint import excerpt


def lint(source: str | bytes, *options: str) -> Result:
    return CliRunner().invoke(main, ["lint", "-", *options], input=source)


def html(source: str | bytes, *options: str) -> Result:
    return lint(source, "--parse-mode", "HTML", *options)


def test_a_clean_text_says_nothing():
    result = html("<b>hi</b>\n")
    assert (result.exit_code, result.output) == (0, "")


def test_a_refusal_in_telegrams_words_with_a_mark_under_the_spot():
    result = html("one\n\t漢字 e\u0301<foo>\n")
    said = 'Bad Request: can\'t parse entities: Unsupported start tag "foo" at byte offset 15'
    assert result.exit_code == 1
    # The tab is four cells wide, each of the two characters two, the accent none.
    assert result.output == f"<stdin>:2:7: {said}\n      漢字 e\u0301<foo>\n  {' ' * 10}^\n"


def test_a_file_is_named(tmp_path: Path):
    path = tmp_path / "message.md"
    path.write_text("v1.2")
    result = CliRunner().invoke(main, ["lint", str(path), "--parse-mode", "markdownv2"])
    said = "Character '.' is reserved and must be escaped with the preceding '\\'"
    assert result.output == f"{path}:1:3: Bad Request: can't parse entities: {said}\n  v1.2\n    ^\n"


def test_warnings_leave_the_exit_code_0():
    result = html('see <a href="http://grafana/">it</a>')
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "<stdin>:1:5: warning: the link is lost, its text stays: its host has no dot",
        '  see <a href="http://grafana/">it</a>',
        "      ^",
    ]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "<stdin>: Bad Request: message text is empty\n"),
        ("<" * 40_000, "<stdin>: Bad Request: text is too long\n"),
        ("x" * 4097, "<stdin>: Bad Request: message is too long\n"),
    ],
)
def test_faults_of_the_whole_have_no_place(source, said):
    result = html(source)
    assert (result.exit_code, result.output) == (1, said)


def test_bytes_that_are_no_text():
    result = html(b"ok\na\xff")
    assert result.exit_code == 1
    assert result.output.startswith("<stdin>:2:2: Bad Request: text must be encoded in UTF-8\n")


def test_preview():
    result = lint(">*a*\nb", "--parse-mode", "MarkdownV2", "--preview")
    assert (result.exit_code, result.output) == (0, "│ a\nb\n")


def test_nothing_of_a_text_moves_the_terminal():
    result = html("<x\x1b[2J\x9b>\r\n\x1b<", "--preview")
    assert result.exit_code == 1
    assert not {"\x1b", "\x9b", "\r"} & set(result.output)


@pytest.mark.parametrize(
    ("envelope", "code", "said"),
    [
        ('{"msg_id": "1", "text": "a.b", "parse_mode": "MarkdownV2"}', 1, "Character '.' is reserved"),
        ('{"msg_id": "1", "text": "<b>"}', 0, ""),
        ('{"msg_id": "1"}', 2, "not an envelope: text"),
    ],
)
def test_an_envelope_is_checked_in_its_own_parse_mode(envelope, code, said):
    result = lint(envelope, "--envelope")
    assert result.exit_code == code
    assert said in result.output


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--parse-mode", "HTML", "--envelope"),
        ("--parse-mode", "bbcode"),
        ("--parse-mode", "HTML", "--json", "--preview"),
    ],
)
def test_wrong_usage(options):
    assert lint("x", *options).exit_code == 2


def test_a_missing_file_is_wrong_usage():
    assert CliRunner().invoke(main, ["lint", "/no/such/file", "--parse-mode", "HTML"]).exit_code == 2


def test_json_of_a_clean_text():
    document = json.loads(html("<b>é</b>\n", "--json").output)
    assert document == {
        "ok": True,
        "fault": None,
        "warnings": [],
        "text": "é",
        "entities": [{"type": "bold", "offset": 0, "length": 1}],
    }


def test_json_of_a_refused_text():
    result = html("é\n<b", "--json")
    assert result.exit_code == 1
    assert json.loads(result.output)["fault"] == {
        "description": "Bad Request: can't parse entities: Unclosed start tag at byte offset 3",
        "position": 2,
        "line": 2,
        "column": 1,
        "byte_offset": 3,
    }


@pytest.mark.parametrize(
    ("line", "index", "source", "spaces"),
    [
        ("abc", 3, "abc", 3),
        ("\tb", 1, "    b", 4),
        ("x" * 300, 0, "x" * 50 + "…", 0),
        ("x" * 300, 150, "…" + "x" * 100 + "…", 51),
        ("x" * 300, 299, "…" + "x" * 51, 51),
        ("漢" * 300, 150, "…" + "漢" * 50 + "…", 51),
        ("a\r", 1, "a", 1),
    ],
)
def test_a_window_around_the_spot(line, index, source, spaces):
    assert excerpt(line, index) == (source, " " * spaces + "^")
