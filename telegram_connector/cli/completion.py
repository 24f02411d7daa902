"""``completion``: a shell that completes commands, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from telegram_connector.cli.manual import foot

PROGRAM = "telegram-connector"
VARIABLE = "_TELEGRAM_CONNECTOR_COMPLETE"  # click's own name for it, made of the program's


@click.command(
    short_help="Print the script that completes commands in your shell.",
    epilog=foot(
        "completion bash > ~/.local/share/bash-completion/completions/telegram-connector",
        "completion zsh > ~/.zfunc/_telegram-connector",
        "completion fish > ~/.config/fish/completions/telegram-connector.fish",
        done="the script is printed",
        needs_settings=False,
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands, options and their values.

    For the shell at hand: source <(telegram-connector completion bash). For all to come, save it where the
    shell looks for such scripts, as below; zsh wants its folder in fpath before compinit runs. The script
    asks the program each time, so it need not be made anew after an upgrade. bash 4.4 or later.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    made = kind(ctx.find_root().command, {}, PROGRAM, VARIABLE)
    # Not source(): it would start the shell to ask for its version.
    click.echo(made.source_template % made.source_vars())
