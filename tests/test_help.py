"""What a newcomer reads: help, its examples, and completion in the shells."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from telegram_connector.cli import main
from telegram_connector.cli.manual import EXAMPLES, EXIT_CODES

NAME = "telegram-connector"
PROGRAM = Path(sys.executable).with_name(NAME)
SHELL_SECONDS = 60


def leaves(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that does something, as it is typed."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name)


LEAVES = list(leaves())
GROUPS = [(), *((name,) for name, command in main.commands.items() if isinstance(command, click.Group))]


def command_at(path: tuple[str, ...]) -> click.Command:
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    return command


def help_of(*path: str) -> str:
    result = CliRunner().invoke(main, [*path, "--help"], prog_name=NAME)
    assert result.exit_code == 0, result.output
    return result.output


def listed(text: str, heading: str) -> list[str]:
    """The indented lines under a heading."""
    lines = iter(text.splitlines())
    assert any(line.strip() == heading for line in lines), f"no {heading}"
    found = []
    for line in lines:
        if not line.startswith("    "):
            break
        found.append(line.strip())
    return found


def examples(*path: str) -> list[list[str]]:
    """The arguments of each example of a command; of a pipe those of its last part that is ours."""
    found = []
    for line in listed(help_of(*path), EXAMPLES):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>")
        lexer.whitespace_split = True
        words = list(lexer)
        words = words[len(words) - words[::-1].index(NAME) :]
        end = next((n for n, word in enumerate(words) if set(word) <= set("|<>")), len(words))
        found.append(words[:end])
    return found


def exit_codes(*path: str) -> dict[int, str]:
    """What the help of a command says of its exit codes."""
    lines = [line.split(maxsplit=1) for line in listed(help_of(*path), EXIT_CODES)]
    return {int(code): words for code, words in lines}


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_has_exit_codes_in_few_words(path: tuple[str, ...]) -> None:
    codes = exit_codes(*path)
    assert {0, 2} <= set(codes)
    assert all(len(words) < 72 for words in codes.values())


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_option_and_argument_is_explained(path: tuple[str, ...]) -> None:
    command = command_at(path)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help is not None, parameter.name
            assert parameter.help.endswith("."), parameter.help
        else:
            # An argument has no help of its own: the text must name it.
            name = (parameter.metavar or parameter.name or "").strip("[].").upper()
            assert name in (command.help or ""), name


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_examples_are_commands_that_there_are(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("message.html", "envelope.json", "envelopes.jsonl"):
        (tmp_path / name).write_text("")
    for arguments in examples(*path):
        assert tuple(arguments[: len(path)]) == path
        command_at(path).make_context(path[-1], arguments[len(path) :]).close()


@pytest.mark.parametrize("path", GROUPS, ids=lambda path: " ".join(path) or NAME)
def test_lists_of_commands_are_whole_sentences_on_one_line_each(path: tuple[str, ...]) -> None:
    text = help_of(*path)
    command = command_at(path)
    assert isinstance(command, click.Group)
    for name, one in command.commands.items():
        (line,) = re.findall(rf"^  {name} +(.*)$", text, re.MULTILINE)
        assert line == one.short_help
        assert line.endswith(".")
    assert all(len(line) <= 80 for line in text.splitlines())


def test_every_command_has_its_section() -> None:
    assert sorted(c.name or "" for _, commands in main.sections for c in commands) == sorted(main.commands)


# Completion


COMPLETE_IN_BASH = """
eval "$({program} completion bash)"
function=$(complete -p telegram-connector | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
COMP_LINE="${{COMP_WORDS[*]}}"
COMP_POINT=${{#COMP_LINE}}
"$function" telegram-connector "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("telegram-connector p", {"provision", "pause", "publish"}),
        ("telegram-connector dead re", {"resend"}),
        ("telegram-connector dead list --re", {"--reason"}),
        ("telegram-connector dead list --reason g", {"gave_up"}),
        ("telegram-connector completion ''", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes(words: str, expected: set[str]) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "--norc", "-c", COMPLETE_IN_BASH.format(program=PROGRAM, words=words)],
        env={"PATH": f"{PROGRAM.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=SHELL_SECONDS,
        check=True,
    )
    assert set(done.stdout.split()) == expected, done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_are_told_the_same(shell: str) -> None:
    """What their scripts ask the program, and, where the shell is there, that it reads its script."""
    script = CliRunner().invoke(main, ["completion", shell]).output
    assert f"_TELEGRAM_CONNECTOR_COMPLETE={shell}_complete" in script
    words = "telegram-connector dead re" if shell == "zsh" else "telegram-connector dead"
    env = {"_TELEGRAM_CONNECTOR_COMPLETE": f"{shell}_complete", "COMP_WORDS": words}
    env["COMP_CWORD"] = "2" if shell == "zsh" else "re"
    asked = subprocess.run(
        [PROGRAM], env=env, capture_output=True, text=True, timeout=SHELL_SECONDS, check=True
    )
    assert "resend" in asked.stdout
    assert "list" not in asked.stdout.replace("listed", "")
    found = shutil.which(shell)
    if found is not None:
        subprocess.run([found, "-n"], input=script, text=True, timeout=SHELL_SECONDS, check=True)
