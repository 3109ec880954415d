"""Commands that act on a machine as a shell would: `exec` and `ssh`. Their exit code is the remote program's."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator

import click

from aicrun import api
from aicrun.cli.hosts import machine_of
from aicrun.cli.options import with_json, with_machines
from aicrun.cli.safe_text import Bare
from aicrun.cli.screen import Screen
from aicrun.cli.views.endings import headline
from aicrun.cli.waiting import open_session
from aicrun.errors import Exit, HostUnreachable, UsageError, Way
from aicrun.spec.sizes import duration_s

# As ssh does: the failure is ours, not the program's.
OURS = 255
MOST_S = 3600
# A machine notices that nobody listens between two answers, of 10 s at most, and gives the command 2 s to leave.
ENDED_S = 15
_STDIN_CAP_BYTES = 16 * 1024 * 1024


@click.command("exec", epilog="Example: aicrun exec lab -- df -h /data")
@click.argument("machine")
@click.argument("command", nargs=-1, required=True)
@click.option("--timeout", metavar="DURATION", default="5m", show_default=True, help="Ended after that; at most 1h.")
@click.option("--cwd", metavar="DIR", default="", help="Where it runs; default: the home there.")
@click.option("--env", "pairs", metavar="NAME=VALUE", multiple=True, help="Set a variable.")
@click.option("--shell", type=click.Choice(["bash", "sh"]), default="bash", help="For one word of text.")
@click.option("--stdin", "reads", is_flag=True, help="Give it what is piped in, at most 16 MiB.")
@with_machines
@with_json
@click.pass_obj
def exec_command(screen: Screen, /, machine: str, command: tuple[str, ...], machines: str, **wishes: object) -> int:
    """Run a short command on a machine: one word is text for a shell, several are a program and its words.

    It ends when you are cut off. At most 1 MiB of output is kept. Training belongs into a run.
    """
    wanted = _wanted(command, wishes)
    screen.ours = OURS
    with open_session(screen, machines) as (session, _):
        name = machine_of(session, machine)
        said = _Heard(screen, name)
        screen.interrupted = (f"The command on {name} is ended within {ENDED_S}s, with all that it started.",)
        try:
            for part in api.execute(session, name, wanted):
                said.take(part)
        except HostUnreachable:
            if not said.began:
                raise
            screen.err(
                [
                    f"The connection to {name} was lost: how the command ended is not known. Above is what it said.",
                    f"It is ended there with its connection. See what runs: aicrun exec {shlex.quote(name)} -- ps x",
                ]
            )
    return said.done()


@click.command("ssh", epilog="Example: aicrun ssh sft-run --port 6006")
@click.argument("run")
@click.option(
    "--port",
    "ports",
    metavar="PORT",
    type=click.IntRange(1, 65535),
    multiple=True,
    help="Make a port of the machine answer here.",
)
@click.option("--secrets", is_flag=True, help="Also the run's secrets, while the machine has them.")
@with_machines
@click.pass_obj
def ssh_command(screen: Screen, run: str, ports: tuple[int, ...], secrets: bool, machines: str) -> int:
    """A shell in a run's working tree, with the environment of its command. Also called debug-ssh.

    What you start there is not the run: no stop of the run ends it, and it has no lock on the card.
    """
    with open_session(screen, machines) as (session, _):
        found = api.find(session, run)
        screen.ours = OURS
        argv = api.shell(session, found, secrets, ports)
    if found.standing.status.terminal:
        screen.err([f"{headline(found)}: nothing of it runs any more."])
    return subprocess.run(argv, check=False).returncode


def _wanted(command: tuple[str, ...], wishes: dict[str, object]) -> api.ShortCommand:
    timeout_s = duration_s(str(wishes["timeout"]))
    if timeout_s is None or not 1 <= timeout_s <= MOST_S:
        ways = (Way("write it like", "--timeout 30m"),)
        raise UsageError("AIC-E006", f"--timeout {wishes['timeout']}: 1s to 1h is expected", ways=ways)
    env = {}
    for pair in _texts(wishes["pairs"]):
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UsageError("AIC-E006", f"--env {pair}: NAME=VALUE is expected")
        env[key] = value
    return api.ShortCommand(
        argv=command if len(command) > 1 else (),
        command=command[0] if len(command) == 1 else "",
        shell=str(wishes["shell"]),
        cwd=str(wishes["cwd"]),
        env=env,
        timeout_s=int(timeout_s),
        stdin=sys.stdin.buffer.read(_STDIN_CAP_BYTES) if wishes["reads"] else b"",
    )


def _texts(value: object) -> Iterator[str]:
    yield from map(str, value if isinstance(value, tuple) else ())


class _Heard:
    """What a command says, passed on as it comes, or kept for one document."""

    def __init__(self, screen: Screen, machine: str) -> None:
        self._screen = screen
        self._machine = machine
        self._kept: tuple[list[bytes], list[bytes]] = ([], [])
        self._last: api.Said | None = None
        self._bare = (Bare(), Bare()) if screen.out_terminal else None
        self._at_start = True
        self.began = False

    def take(self, part: api.Said) -> None:
        """One slice."""
        self.began, self._last = True, part
        if self._screen.json:
            self._kept[0].append(part.out)
            self._kept[1].append(part.err)
            return
        if self._bare is None:
            self._screen.raw(part.out)
        else:
            # What a host says is harmless before a terminal sees it; a pipe gets it as it is.
            sys.stdout.write(self._bare[0].feed(part.out) + (self._bare[0].rest() if part.out else ""))
            sys.stdout.flush()
        self._at_start = part.out.endswith(b"\n") if part.out else self._at_start
        self._say(part.err)

    def _say(self, data: bytes) -> None:
        if self._bare is not None and self._screen.err_terminal:
            sys.stderr.write(self._bare[1].feed(data) + (self._bare[1].rest() if data else ""))
            sys.stderr.flush()
            return
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()

    def done(self) -> int:
        """Say what is left to say; the exit code of the command."""
        last = self._last
        ended = last is not None and last.ended
        remarks = last is not None and (last.dropped_bytes or last.timed_out)
        if remarks and self._screen.out_terminal and not self._at_start and not self._screen.json:
            self._screen.err([""])
        if last is not None and last.dropped_bytes:
            self._screen.err([f"{last.dropped_bytes} bytes over 1 MiB of output were not kept; the command went on."])
        if last is not None and last.timed_out:
            self._screen.err([f"Its time was over: it was ended on {self._machine} after {last.duration_s:.0f}s."])
        if self._screen.json:
            out, err = (b"".join(parts).decode("utf-8", "replace") for parts in self._kept)
            body = {"machine": self._machine, "stdout": out, "stderr": err, "ended": ended}
            told = (
                {}
                if last is None
                else {
                    "code": last.code,
                    "signal": last.signal,
                    "timed_out": last.timed_out,
                    "dropped_bytes": last.dropped_bytes,
                    "duration_s": last.duration_s,
                }
            )
            self._screen.document("exec", {**body, **told})
        if last is None or not ended or last.timed_out:
            return OURS
        if last.code is not None:
            return last.code
        return 128 + last.signal if last.signal is not None else int(Exit.OURS)
