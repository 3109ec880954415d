"""What every way to reach a machine promises: bytes on pipes as they are, an end that is seen, no shell in between."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.conftest import LOCAL, OVER_SSH, Account, reached
from support import until

from aicrun.errors import HostUnreachable
from aicrun.hosts.local import carried, system_python

ALL_BYTES = bytes(range(256)) * 4096


@pytest.fixture(params=[LOCAL, *OVER_SSH])
def account(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Account]:
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    with reached(request.param, env) as found:
        yield found


@pytest.fixture
def here(tmp_path: Path) -> Account:
    return Account(tmp_path, {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HF_TOKEN": "hunter2hunter2"})


def test_bytes_arrive_as_they_are(account: Account) -> None:
    code, out, err = account.transport().run(("/bin/cat",), ALL_BYTES, 30)
    assert (code, out == ALL_BYTES, err) == (0, True, b"")


def test_exit_code_and_stderr_are_the_programs(account: Account) -> None:
    assert account.transport().run(("/bin/sh", "-c", "echo why >&2; exit 7"), b"", 30) == (7, b"", b"why\n")


def test_arguments_are_no_shell_text(account: Account) -> None:
    arguments = ("a b", "$HOME", "*", "'", "", "zeile\nzwei")
    out = account.transport().run(("/usr/bin/printf", "%s|", *arguments), b"", 30)[1]
    assert out.decode() == "".join(f"{item}|" for item in arguments)


def test_a_program_that_takes_too_long_is_unreachable_in_time(account: Account) -> None:
    began = time.monotonic()
    with pytest.raises(HostUnreachable, match="no answer within"):
        account.transport().run(("/bin/sleep", "60"), b"", 0.3)
    assert time.monotonic() - began < 10


def test_a_program_that_is_not_there_is_told(account: Account) -> None:
    """Here nothing starts; behind a shell it is the shell's own code."""
    if account.way == LOCAL:
        with pytest.raises(HostUnreachable):
            account.transport().open(("/nowhere/program",))
        with pytest.raises(HostUnreachable):
            account.transport().run(("/nowhere/program",), b"", 60)
    else:
        code, _, said = account.transport().run(("/nowhere/program",), b"", 60)
        assert (code, b"/nowhere/program" in said) == (127, True)


def test_a_channel_is_a_conversation(account: Account) -> None:
    channel = account.transport().open(("/bin/cat",))
    for line in (b"one\n", b"two\n"):
        channel.stdin.write(line)
        channel.stdin.flush()
        assert channel.stdout.readline() == line
    assert channel.close() == 0


def test_closing_waits_only_so_long_and_leaves_the_program_alone(account: Account) -> None:
    channel = account.transport().open(("/bin/sh", "-c", "echo up; exec sleep 30"))
    assert channel.stdout.readline() == b"up\n"
    began = time.monotonic()
    assert channel.close(0.2) is None
    assert time.monotonic() - began < 5


def test_aborting_ends_a_read(account: Account) -> None:
    channel = account.transport().open(("/bin/sleep", "60"))
    channel.abort()
    assert channel.stdout.readline() == b""
    assert channel.close() != 0


def test_what_a_program_says_on_stderr_is_kept_up_to_a_limit(account: Account) -> None:
    channel = account.transport().open(("/bin/sh", "-c", "yes why | head -c 100000 >&2; echo done"))
    assert channel.stdout.readline() == b"done\n"
    # Two streams of one connection: what is said on one may come later than what follows it on the other.
    until(lambda: len(channel.stderr_text()) == 4096)
    assert channel.stderr_text().startswith("why\nwhy\n")
    channel.close()


def test_credentials_of_this_process_do_not_travel(here: Account) -> None:
    out = here.transport().run(("/usr/bin/env",), b"", 30)[1]
    assert b"hunter2" not in out
    assert b"HOME=" in out
    login = {
        "AWS_SECRET_ACCESS_KEY": "x",
        "WANDB_API_KEY": "x",
        "AICRUN_TOKEN": "x",
        "EDITOR": "x",
        "SSL_CERT_FILE": "x",
    }
    assert list(carried(login)) == ["SSL_CERT_FILE"]


def test_python3_is_a_real_one_outside_of_environments(here: Account, tmp_path: Path) -> None:
    venv, shims = tmp_path / "venv/bin", tmp_path / "shims"
    for folder in (venv, shims):
        folder.mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    (venv / "python3").symlink_to(Path(sys.executable).resolve())
    (shims / "python3").write_text('#!/bin/sh\nexec /usr/bin/python3 "$@"\n')
    (shims / "python3").chmod(0o755)
    found = system_python(f"{venv}:{shims}")
    assert not found.startswith(str(tmp_path))
    code, out, _ = here.transport().run(("python3", "-I", "-S", "-c", "import sys; print(sys.prefix)"), b"", 30)
    assert (code, ".venv" in out.decode()) == (0, False)
