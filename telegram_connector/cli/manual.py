"""What stands at the foot of each command's help: examples and exit codes. And the commands by their use."""

from __future__ import annotations

from collections.abc import Sequence

import click

EXIT_CODES = "Exit codes:"
EXAMPLES = "Examples:"

_FORMAT = "\b\n{}\n{}"  # \b: click keeps the lines as they are


def foot(*examples: str, done: str, failed: str = "", needs_settings: bool = True, also: str = "") -> str:
    """The epilog of a command.

    Args:
        examples: Command lines, without the program's name.
        done: What exit code 0 means.
        failed: What exit code 1 means; "" where there is none.
        needs_settings: Whether it reads settings that may be missing or wrong (78).
        also: What exit code 130 means; "" where there is none.
    """
    codes = {0: done, 1: failed, 2: "wrong usage", 78: needs_settings and "settings missing or wrong"}
    codes[130] = also
    listed = "\n".join(f"  {code:<3}  {words}" for code, words in codes.items() if words)
    shown = "\n".join(f"  telegram-connector {example}" for example in examples)
    return f"{_FORMAT.format(EXAMPLES, shown)}\n\n{_FORMAT.format(EXIT_CODES, listed)}"


class Sections(click.Group):
    """A group whose help lists its commands by what they are for."""

    sections: Sequence[tuple[str, Sequence[click.Command]]] = ()

    def add_sections(self, *sections: tuple[str, Sequence[click.Command]]) -> None:
        """Add commands under their headings, in this order."""
        self.sections = sections
        for _, commands in sections:
            for command in commands:
                self.add_command(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click does it, a section each; the columns of all are in line."""
        width = max(map(len, self.commands))
        for title, commands in self.sections:
            with formatter.section(title):
                room = formatter.width - width - 6
                formatter.write_dl(
                    [(f"{c.name or '':<{width}}", c.get_short_help_str(room)) for c in commands]
                )
