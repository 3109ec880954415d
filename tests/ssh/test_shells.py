"""What stands at the door of an account instead of a shell that runs commands, or before one: told, never waited for.

A `ForceCommand` of the daemon plays the login shell: sshd starts it as it would start that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ssh.conftest import over
from ssh.test_faults import fault, words
from ssh_rig import Sshd
from support import end_processes_with

from aicrun.hosts.agent_backend import AgentBackend
from aicrun.hosts.ssh_route import VARIABLE

CMD = "'exec' is not recognized as an internal or external command,"
POWERSHELL = "exec : The term 'exec' is not recognized as the name of a cmdlet, function, script file, or program."


class Doors:
    """Makes daemons whose account has another door; one at a time is known as `box`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        self._folder, self._set = folder, monkeypatch.setenv
        self._made: list[Sshd] = []

    def daemon(self, script: str, options: str = "") -> None:
        """A daemon that starts `sh SCRIPT` for whatever is asked, as a login shell that is this script."""
        folder = self._folder / f"sshd-{len(self._made)}"
        folder.mkdir()
        (folder / "shell").write_text(script)
        env = {"HOME": str(self.home), "PATH": "/usr/bin:/bin:/usr/sbin"}
        made = Sshd(folder, options=f"ForceCommand exec sh {folder}/shell\n{options}", env=env)
        self._set(VARIABLE, str(made.write_client()))
        self._made.append(made.start())

    def close(self) -> None:
        """End them all."""
        for made in self._made:
            made.close()
        end_processes_with(f"HOME={self.home}\0")


@pytest.fixture
def doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Doors]:
    found = Doors(tmp_path, monkeypatch)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('exec rbash -c "$SSH_ORIGINAL_COMMAND"', "restricted"),
        ("exec nologin", "not available"),
        ("exit 1", ""),
        ("echo; echo 'The cluster is used by'; echo 'the portal alone.'", "The cluster is used by"),
    ],
    ids=["restricted", "nologin", "mute", "polite"],
)
def test_a_shell_that_runs_nothing_is_told_with_its_first_lines(
    doors: Doors, carrier: str, script: str, said: str
) -> None:
    doors.daemon(script)
    error = fault(over(carrier))
    assert (error.code, said in words(error)) == ("AIC-E516", True), words(error)
    assert "ssh box true" in words(error)


def test_a_windows_host_is_recognised_and_nothing_is_started(doors: Doors, carrier: str) -> None:
    """By the words of either shell, or by sshd's own name where the words are in another language."""
    for script, options in (
        (f'echo "{CMD}" >&2; exit 1', ""),
        (f'echo "{POWERSHELL}" >&2; exit 1', ""),
        ('echo "Der Befehl exec ist falsch geschrieben" >&2; exit 1', "VersionAddendum for_Windows_9.5"),
    ):
        doors.daemon(script, options)
        error = fault(over(carrier))
        assert (error.code, error.message[:16]) == ("AIC-E514", "box runs Windows"), words(error)
        assert "WSL" in words(error)
    assert list(doors.home.iterdir()) == []


def test_noise_on_both_streams_before_and_after_hides_nothing(doors: Doors, carrier: str) -> None:
    """Text that looks like ours, colours, no end of line before the answer, and more of it while calls go on."""
    noise = r"""
printf 'welcome\n{"answer": {}}\n\033[31mred\033[0m\n'
printf 'trouble\n' >&2
printf '0123456789abcdef0123456789abcdef 12 0\nno line end'
sh -c "$SSH_ORIGINAL_COMMAND"
code=$?
printf 'bye'
printf 'bye\n' >&2
exit $code
"""
    doors.daemon(noise)
    transport = over(carrier)
    backend = AgentBackend(transport)
    backend.add_note("seen by a noisy shell", "ana")
    assert "seen by a noisy shell" in backend.notes()
    backend.close()
    code, out, _ = over(carrier).run(("/bin/sh", "-c", "echo payload; exit 5"), b"", 30)
    assert (code, b"payload\n" in out) == (5, True)


def test_a_door_that_only_talks_is_cut_off_and_shown(doors: Doors, carrier: str) -> None:
    doors.daemon("exec yes please use the portal, it has what you need")
    error = fault(over(carrier))
    assert (error.code, "please use the portal" in words(error)) == ("AIC-E512", True)
