"""The command line: one group whose commands are loaded when they are typed, and the one edge where errors end.

`--help` and `--version` import click and nothing of ours but this file. Every exit code is decided here or returned
by a command.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import click

from aicrun import __version__
from aicrun.cli.screen import COMPLETE, Screen, fill_streams, of_environment, writing
from aicrun.errors import AicrunError, Exit, UsageError, Way

# name: (module of aicrun.cli, what the list of commands says)
COMMANDS = {
    "init": ("files", "Write a run.yaml for this folder"),
    "validate": ("files", "Check run files, all faults at once"),
    "schema": ("files", "Print a JSON Schema"),
    "explain": ("files", "Explain a field or a code"),
    "plan": ("plans", "Show what apply would do, and why"),
    "show": ("plans", "Show a saved plan"),
    "apply": ("applies", "Start, change or keep what the files say"),
    "list": ("looks", "List runs of all machines"),
    "inspect": ("looks", "Everything about one run, as YAML"),
    "logs": ("looks", "Print a run's log"),
    "wait": ("looks", "Wait until a run ended; exit as it ended"),
    "checkpoints": ("checkpoints", "List a run's checkpoints, whole or not"),
    "fetch": ("checkpoints", "Bring a run's checkpoint here"),
    "stop": ("verbs", "Stop a run with its whole process tree"),
    "upload": ("verbs", "Upload an ended run's checkpoints again"),
    "delete": ("verbs", "Remove an ended run's records and logs"),
    "machines": ("machines", "Every machine and card as it is now"),
    "ssh": ("remote", "A shell where a run works, with its environment"),
    "push": ("transfers", "Send a file or folder to a machine"),
    "pull": ("transfers", "Bring a file or folder from a machine"),
    "exec": ("remote", "Run a short command on a machine"),
    "notes": ("hosts", "Read or add to a machine's notes"),
    "doctor": ("hosts", "Look for what is wrong with a machine"),
    "gc": ("hosts", "Remove logs and files that no run needs any more"),
    "completion": ("completion", "Teach your shell to complete commands and files"),
}

# What people of other tools type first, when no name is near.
MEANT = {
    **dict.fromkeys(("status", "ls", "ps", "queue", "jobs", "runs", "squeue", "top"), "list"),
    **dict.fromkeys(("run", "start", "submit", "launch", "up", "sbatch", "train", "resume", "retry"), "apply"),
    **dict.fromkeys(("cancel", "kill", "abort", "scancel", "down"), "stop"),
    **dict.fromkeys(("describe", "info", "get"), "inspect"),
    **dict.fromkeys(("tail", "attach", "follow", "output"), "logs -f"),
    **dict.fromkeys(("rm", "remove", "destroy", "purge"), "delete"),
    **dict.fromkeys(("download", "cp", "scp"), "pull"),
    **dict.fromkeys(("gpus", "hosts", "nodes", "fleet"), "machines"),
    **dict.fromkeys(("check", "lint"), "validate"),
    "version": "--version",
    "help": "--help",
}

# Names that a command had elsewhere; not listed.
ALIASES = {"debug-ssh": "ssh"}


# How a file or folder refuses; anything else is no word of a file's.
_OF_FILES = frozenset(
    getattr(errno, name)
    for name in (
        *("EACCES", "EPERM", "ENOENT", "ENOTDIR", "EISDIR", "EEXIST", "ENOSPC", "EDQUOT", "EROFS", "ELOOP"),
        *("ENAMETOOLONG", "EIO", "EFBIG", "ENOTEMPTY", "ETXTBSY"),
    )
)


class Terminated(BaseException):
    """SIGTERM arrived."""


class Group(click.Group):
    """Loads a command's module only when the command was typed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """All commands, in the order people meet them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's
        """The command, loaded now, or None."""
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"aicrun.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command typed; an unknown one is refused with the nearest name."""
        if args and args[0] not in {**COMMANDS, **ALIASES} and not args[0].startswith("-"):
            import difflib  # Only for a mistake: it costs more than the rest of the answer.

            near = MEANT.get(args[0]) or next(iter(difflib.get_close_matches(args[0], COMMANDS, 1)), "")
            ways = (Way("did you mean", f"aicrun {near}"),) if near else ()
            raise UsageError(
                "AIC-E006", f"there is no command {args[0]}", ways=(*ways, Way("see all", "aicrun --help"))
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's
        """The table of commands, from the words here: no module is loaded for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: aicrun init && aicrun plan && aicrun apply --follow",
)
@click.version_option(__version__, message="aicrun %(version)s")
@click.option("--debug", is_flag=True, help="Show the traceback of a fault of aicrun.")
@click.pass_obj
def cli(screen: Screen, debug: bool) -> None:
    """Train on the GPU machines you already own: one run.yaml, a plan to read, a run that outlives your laptop."""
    screen.debug = debug


def run(argv: Sequence[str]) -> int:
    """Run `aicrun ARGV` and return its exit code; prints every error in our form and never a traceback unasked."""
    fill_streams()
    # A command lives for seconds and leaves few cycles: with a large fleet looking for them cost half of its time.
    gc.set_threshold(100_000, 20, 100)
    screen = of_environment(os.environ)
    if COMPLETE in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "aicrun", COMPLETE, os.environ[COMPLETE])
    # Before anything is parsed: what goes wrong while parsing wants to know already.
    screen.json, screen.debug = "--json" in argv, "--debug" in argv
    screen.typed = shlex.join(["aicrun", *argv])
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        return _ended(screen, list(argv))
    except BrokenPipeError:
        # Whoever read a log has seen enough. Python would complain once more while closing it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.DONE
    finally:
        signal.signal(signal.SIGTERM, previous)


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    raise Terminated


def _ended(screen: Screen, argv: list[str]) -> int:
    try:
        with writing():
            code = _invoked(screen, argv)
            sys.stdout.flush()
    except (KeyboardInterrupt, click.Abort):
        screen.err(["", *(screen.interrupted or ("Interrupted.",))])
        return Exit.INTERRUPTED
    except Terminated:
        screen.err(screen.interrupted or ("Terminated.",))
        return Exit.TERMINATED
    except AicrunError as error:
        return _told(screen, error)
    except BrokenPipeError:
        raise
    except Exception as fault:  # the one edge: a fault of ours ends here as a sentence
        if screen.debug:
            raise
        return _told(screen, _of_a_file(fault) or _fault(screen, fault))
    return code


def _invoked(screen: Screen, argv: list[str]) -> int:
    try:
        with cli.make_context("aicrun", argv, obj=screen) as context:
            code = cli.invoke(context)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        screen.out([error.format_message()])
        return Exit.DONE
    except click.ClickException as error:
        raise _usage(error, argv) from error
    return int(code or 0)


def _usage(error: click.ClickException, argv: list[str]) -> UsageError:
    context = getattr(error, "ctx", None)
    # click forgets the command where an option lacks its value.
    typed = next((f"aicrun {word}" for word in argv[:2] if word in COMMANDS), "aicrun")
    path = context.command_path if context is not None else typed
    message = error.format_message().rstrip(".")
    return UsageError("AIC-E006", message[:1].lower() + message[1:], ways=(Way("see", f"{path} --help"),))


def _of_a_file(fault: Exception) -> AicrunError | None:
    """What a file or folder of the person's refuses; None for whatever else happened, and for files of our own."""
    if not isinstance(fault, OSError) or not isinstance(fault.filename, str) or fault.errno not in _OF_FILES:
        return None
    if fault.filename.startswith(os.path.dirname(os.path.dirname(__file__))):
        return None
    name = fault.filename
    look = (
        f"ls -ld {shlex.quote(name)}"
        if os.path.lexists(name)
        else f"ls -la {shlex.quote(os.path.dirname(name) or '.')}"
    )
    return UsageError("AIC-E027", f"{name} cannot be used: {fault.strerror}", ways=(Way("look at it", look),))


def _fault(screen: Screen, fault: Exception) -> AicrunError:
    words = f"{type(fault).__name__}: {fault}".splitlines()[0]
    return AicrunError(
        "AIC-E001",
        f"a fault of aicrun itself: {words}",
        facts=(("runs", "no run is touched by it: aicrun list shows them"),),
        ways=(
            Way("see where it broke", screen.typed.replace("aicrun", "aicrun --debug", 1)),
            Way("report it, with what that prints, as CONTRIBUTING.md says"),
        ),
    )


def _told(screen: Screen, error: AicrunError) -> int:
    # Only now: the views are not needed by a command that went well.
    from aicrun.cli.views.trouble import document, lines

    if not error.ways and error.exit is not Exit.INVALID:
        # Faults of files have their own; nobody is left with a sentence alone.
        error.ways = (Way("what it means", f"aicrun explain {error.code}"),)
    if screen.json:
        screen.document("error", document(error))
    screen.err(lines(error))
    # A wrong command line is one also where a program's own code is passed on.
    return screen.ours if screen.ours and not isinstance(error, UsageError) else error.exit
