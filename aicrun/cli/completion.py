"""`completion`: the script that teaches a shell aicrun's commands and options."""

from __future__ import annotations

import click

from aicrun.cli.screen import COMPLETE, Screen
from aicrun.errors import Exit

_SHELLS = ("bash", "zsh", "fish")
_HOW = (
    'Example: eval "$(aicrun completion bash)" in ~/.bashrc, the same with zsh in ~/.zshrc, '
    "or aicrun completion fish | source in config.fish"
)


@click.command("completion", epilog=_HOW)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> int:
    """Print the completion script of a shell; with it, Tab knows commands, options and files."""
    # Loaded here: completion classes are of no use to any other command.
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    screen: Screen = context.obj
    screen.raw(kind(context.find_root().command, {}, "aicrun", COMPLETE).source().encode("utf-8"))
    return Exit.DONE
