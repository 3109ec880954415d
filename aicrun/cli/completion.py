"""`completion`: the script that teaches a shell aicrun's commands and options."""

from __future__ import annotations

import click

from aicrun.cli.screen import COMPLETE, Screen
from aicrun.errors import Exit

_HOW = {
    "bash": 'eval "$(aicrun completion bash)"',
    "zsh": 'eval "$(aicrun completion zsh)"',
    "fish": "aicrun completion fish | source",
}


@click.command("completion", epilog='Example: eval "$(aicrun completion bash)"')
@click.argument("shell", type=click.Choice(tuple(_HOW)))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> int:
    """Print the completion script of a shell; with it, Tab knows commands and options."""
    # Loaded here: completion classes are of no use to any other command.
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    screen: Screen = context.obj
    screen.raw(kind(context.find_root().command, {}, "aicrun", COMPLETE).source().encode("utf-8"))
    return Exit.DONE
