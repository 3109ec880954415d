"""First contact, by real interpreters: unpacked once, whole or not at all, however many come at once."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import P38, REPOSITORY

from aicrun.hosts.bootstrap import ARGV, ONE_LINER, opening
from aicrun.hosts.bundle import Bundle, build
from aicrun.wire.calls import read_reply, write_request

MARKER = "0123456789abcdef" * 2
P36 = next((path for path in (Path.home() / ".pyenv/versions").glob("3.6.*/bin/python3.6")), None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


def start(home: Path, python: str, first: bytes, umask: int = 0o022, **more: str) -> subprocess.Popen[bytes]:
    going = subprocess.Popen(
        [python, *ARGV[1:]],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", **more},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        umask=umask,
    )
    assert going.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        going.stdin.write(first)
        write_request(going.stdin, "hello", {"marker": MARKER, "protocol": [1, 1], "digest": ""})
    return going


def reply(going: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert going.stdout is not None
    try:
        answer, _ = read_reply(going.stdout, MARKER)
    finally:
        with contextlib.suppress(BrokenPipeError):
            going.communicate(timeout=30)
    return answer


def first_word(
    home: Path, bundle: Bundle, python: str = sys.executable, *, with_archive: bool = True
) -> dict[str, Any]:
    return reply(start(home, python, opening(bundle, MARKER, with_archive=with_archive)))


def agents(home: Path) -> list[str]:
    return sorted(path.name for path in home.glob(".local/state/aicrun/*/agents/*"))


def test_the_one_liner_passes_any_login_shell_between_single_quotes() -> None:
    assert not set(ONE_LINER) & set("'\"!$`\\\n*?~#&|<>{}[]")
    assert ARGV[:3] == ("python3", "-I", "-S")


@pytest.mark.parametrize("python", [sys.executable, *([str(P38)] if P38 else [])])
def test_a_host_without_the_agent_asks_for_it_then_keeps_it(home: Path, python: str) -> None:
    assert first_word(home, build(), python, with_archive=False)["bootstrap"]["word"] == "need"
    assert agents(home) == []
    assert first_word(home, build(), python)["answer"]["digest"] == build().digest
    assert first_word(home, build(), python, with_archive=False)["answer"]["digest"] == build().digest
    assert agents(home) == [build().digest]


@pytest.mark.parametrize("state", ["", "state", "~/.local/state", "/.local/state/", "/.local/../.local/state"])
def test_the_agent_is_found_again_however_its_place_is_said(home: Path, state: str) -> None:
    first_word(home, build())
    said = f"{home}{state}" if state.startswith("/") else state
    going = start(home, sys.executable, opening(build(), MARKER, with_archive=False), XDG_STATE_HOME=said)
    assert reply(going)["answer"]["digest"] == build().digest
    assert agents(home) == [build().digest]


def test_an_agent_elsewhere_is_not_taken_for_one_that_is_here(home: Path, tmp_path: Path) -> None:
    first_word(home, build())
    first = opening(build(), MARKER, with_archive=False)
    going = start(home, sys.executable, first, XDG_STATE_HOME=str(tmp_path / "other"))
    assert reply(going)["bootstrap"]["word"] == "need"


def test_what_is_unpacked_is_private_and_compiled(home: Path) -> None:
    first_word(home, build())
    (folder,) = home.glob(".local/state/aicrun/*/agents/*")
    modes = {path.stat().st_mode & 0o777 for path in (folder, folder.parent, folder.parent.parent, *folder.rglob("*"))}
    assert modes <= {0o700, 0o600}
    assert list((folder / "aicrun/agent/__pycache__").glob("serve.*.pyc"))


@pytest.mark.skipif(P36 is None, reason="no Python 3.6 here")
def test_an_old_python_says_so_instead_of_a_syntax_error(home: Path) -> None:
    told = first_word(home, build(), str(P36))["bootstrap"]
    assert (told["word"], told["version"][:3]) == ("too_old", "3.6")
    assert agents(home) == []


def test_an_archive_with_other_bytes_gets_no_folder(home: Path) -> None:
    files = dict(build().files)
    files["aicrun/agent/serve.py"] += b"# planted\n"
    changed = replace(build(), files=tuple(sorted(files.items())))
    told = first_word(home, changed)["bootstrap"]
    assert (told["word"], told["detail"]) == ("damaged", "what arrived does not have the digest of the agent")
    assert agents(home) == []
    assert not list(home.glob(".local/state/aicrun/*/agents/.*"))


@pytest.mark.parametrize("path", ["../outside.py", "/tmp/aicrun-outside.py", "a/../../outside.py"])
def test_an_archive_that_reaches_out_is_refused(home: Path, path: str) -> None:
    changed = replace(build(), files=(*build().files, (path, b"1")))
    assert first_word(home, changed)["bootstrap"]["word"] == "damaged"
    assert not Path("/tmp/aicrun-outside.py").exists()
    assert not list(home.rglob("outside.py"))


def test_six_clients_at_once_all_get_the_agent(home: Path) -> None:
    raw = opening(build(), MARKER, with_archive=True)
    answers = [reply(going) for going in [start(home, sys.executable, raw) for _ in range(6)]]
    assert [answer["answer"]["digest"] for answer in answers] == [build().digest] * 6
    assert agents(home) == [build().digest]


def test_a_home_that_cannot_be_written_is_said(home: Path) -> None:
    (home / ".local").write_text("a file")
    told = first_word(home, build())["bootstrap"]
    assert told["word"] == "no_room"
    assert ".local" in told["detail"]


def test_both_sides_find_one_state_folder(home: Path) -> None:
    answer = first_word(home, build())["answer"]
    (folder,) = (home / ".local/state/aicrun").iterdir()
    assert folder.name == answer["host_id"]
    assert (folder / "runs").is_dir()


def test_a_checkout_and_a_host_run_the_same_boot_file(home: Path) -> None:
    first_word(home, build())
    (folder,) = home.glob(".local/state/aicrun/*/agents/*")
    assert (folder / "boot.py").read_bytes() == (REPOSITORY / "aicrun/agent/boot.py").read_bytes()
    done = subprocess.run([sys.executable, "-I", "-S", str(folder / "boot.py")], capture_output=True, check=False)
    assert done.returncode == 64
    assert os.fsencode("boot.py serve") in done.stderr
