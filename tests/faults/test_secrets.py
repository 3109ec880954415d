"""Secret values of a run: in its environment alone, hidden in every log, gone when nobody needs them any more."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_rig import Refusal, Rig, lives
from support import processes_with, until

from aicrun.agent import log_files
from aicrun.wire import names
from aicrun.wire.calls import ConnectionEnded
from aicrun.wire.codec import to_json
from aicrun.wire.jobs import Retry, Setup, Upload
from aicrun.wire.status import Status, status_of

TOKEN = "hf_PlantedTokenOfAna0123456789"
KEY = "planted/key+of ana="
SECRETS = {
    "HF_TOKEN": TOKEN,
    "UPLOAD_KEY": {"value": KEY, "for": "upload"},
    "INDEX_KEY": {"value": "a" * 9, "for": "setup"},
}
WAITS = "while [ ! -e go ]; do sleep 0.05; done; "

NOISE = """import os, sys, time
token, number = os.environ["HF_TOKEN"], 0
while not os.path.exists("enough"):
    for _ in range(1000):
        # In two writes: the cut falls into the value.
        cut = number % len(token)
        os.write(1, ("line %09d with %s" % (number, token[:cut])).encode())
        os.write(1, ("%s and more text to fill the line\\n" % token[cut:]).encode())
        number += 1
    time.sleep(0.002)
"""


def holding(folder: Path, value: str) -> list[str]:
    """The files below `folder` that hold `value`, also as it stands in an address."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and value.encode() in path.read_bytes():
            found.append(str(path.relative_to(folder)))
    return found


def test_a_planted_value_is_in_the_steps_it_is_for_and_nowhere_else(rig: Rig) -> None:
    checkpoints = rig.home / "checkpoints"
    checkpoints.mkdir()
    (checkpoints / "model").write_bytes(b"x")
    show = 'echo "token ${HF_TOKEN:-none} key ${UPLOAD_KEY:-none} index ${INDEX_KEY:-none}"; '
    job = rig.start(
        "secret-run",
        show + 'env | grep -c AICRUN_JOB_ID; echo "step $HF_TOKEN"; ' + WAITS + "exit 0",
        secrets=SECRETS,
        setup=Setup(run=(show,), timeout_s=60),
        checkpoints=str(checkpoints),
        upload=Upload(f"file:{rig.home}/share", "file", f"file:{rig.home}/share"),
        progress={"step": {"pattern": r"step (\S+)"}},
    )
    main = rig.running(job)
    # Written while the run lasts: what was there before is not uploaded.
    os.utime(checkpoints / "model")
    until(lambda: b"step" in rig.log(job))
    kept = rig.folder(job) / names.SECRETS
    assert kept.stat().st_mode & 0o777 == 0o600
    assert TOKEN.encode() in Path(f"/proc/{main}/environ").read_bytes()
    assert KEY.encode() not in Path(f"/proc/{main}/environ").read_bytes()
    ours = [pid for pid in processes_with(rig.mark) if pid != main]
    assert rig.keeper(job) in ours
    for pid in processes_with(rig.mark):
        assert TOKEN.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    for pid in ours:
        assert TOKEN.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    # Values that are for another step are hidden all the same, and what is not there is not made up.
    assert b"token *** key none index none\n" in rig.log(job)
    assert b"token *** key none index ***\n" in rig.log(job, "setup")
    env = rig.call("environment", job_id=job)["env"]
    assert env["HF_TOKEN"] == "***"
    assert "UPLOAD_KEY" not in env
    # Everything but the one file that keeps them, while the run needs it.
    for value in (TOKEN, KEY):
        assert holding(rig.home, value) == [str(kept.relative_to(rig.home))]
    (rig.home / "work/secret-run/go").touch()
    report = rig.ended(job)
    assert status_of(report).status is Status.SUCCEEDED
    assert report.progress == {"step": "***"}
    until(lambda: not lives(rig.keeper(job)))
    assert not kept.exists()
    for value in (TOKEN, KEY):
        assert holding(rig.home, value) == []
        assert value not in str(to_json(rig.report(job)))


def test_a_value_in_a_variable_of_the_spec_is_not_shown_either(rig: Rig) -> None:
    env = {"ADDRESS": f"https://ana:{TOKEN}@host/", "QUOTED": "key=planted%2Fkey%2Bof%20ana%3D", "PLAIN": "as it is"}
    request = rig.request("address-run", 'echo "$ADDRESS"; echo "$QUOTED"', env=env)
    job = request.job_id
    rig.call("reserve", request=to_json(request), confirm=True, secrets={"A": TOKEN, "B": KEY})
    rig.ended(job)
    shown = rig.call("environment", job_id=job)["env"]
    assert (shown["ADDRESS"], shown["QUOTED"], shown["PLAIN"]) == ("https://ana:***@host/", "key=***", "as it is")
    assert rig.log(job) == b"https://ana:***@host/\nkey=***\n"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_killed_and_stopped_pumps_lose_no_line_and_show_no_value(rig: Rig, how: signal.Signals) -> None:
    path = rig.home / "noise.py"
    path.write_text(NOISE)
    job = rig.start("noisy-run", (sys.executable, "-I", str(path)), secrets={"HF_TOKEN": TOKEN, "OTHER": KEY})
    main = rig.running(job)
    log = rig.step(job) / names.LOG
    until(log.exists)
    for _ in range(20 if how == signal.SIGKILL else 1):
        pump = rig.pump(job, main)
        before = log.stat().st_size
        until(lambda size=before: log.stat().st_size > size)
        os.kill(pump, how)
        until(lambda pid=pump: not lives(pid))
    (rig.home / "work/noisy-run/enough").touch()
    assert status_of(rig.ended(job, 60)).code == 0
    lines = rig.log(job).decode().splitlines()
    assert len(lines) > 10_000
    assert lines == [f"line {number:09d} with *** and more text to fill the line" for number in range(len(lines))]


def test_killed_pumps_past_the_cap_keep_head_and_newest_lines_without_a_value(rig: Rig) -> None:
    path = rig.home / "noise.py"
    path.write_text(NOISE)
    caps = {"AICRUN_TEST_LOG_CAP": str(3 << 16), "AICRUN_TEST_LOG_TAIL": str(1 << 17)}
    job = rig.start("noisy-run", (sys.executable, "-I", str(path)), env=caps, secrets={"HF_TOKEN": TOKEN, "OTHER": KEY})
    main = rig.running(job)
    folder = rig.step(job)

    def total() -> int:
        state = log_files.read_state(str(folder))
        return state.total if state is not None else 0

    until(lambda: total() > 1 << 19, 60)
    for _ in range(10):
        pump, before = rig.pump(job, main), total()
        until(lambda least=before: total() > least)
        os.kill(pump, signal.SIGKILL)
        until(lambda pid=pump: not lives(pid))
    (rig.home / "work/noisy-run/enough").touch()
    assert status_of(rig.ended(job, 60)).code == 0
    state = log_files.read_state(str(folder))
    assert state is not None
    head, _ = log_files.read_bytes(str(folder), 0, state.head_bytes)
    tail, _ = log_files.read_bytes(str(folder), log_files.oldest(state), state.ring_bytes)
    line = "line %09d with *** and more text to fill the line\n"
    assert len(head) == 1 << 16
    assert "".join(line % number for number in range(len(head) // 40)).encode().startswith(head)
    # Whole lines from the first line end on; the last one is the last that was written.
    kept = tail.decode().partition("\n")[2].splitlines(True)
    first = int(kept[0].split()[1])
    assert kept == [line % number for number in range(first, first + len(kept))]
    assert len(tail) > 1 << 16


def test_a_short_beginning_is_shown_when_it_is_quiet_and_a_long_one_at_the_end(rig: Rig) -> None:
    job = rig.start("quiet-run", f"printf 'name: {TOKEN[:4]}'; {WAITS} printf '\\n{TOKEN[:20]}'", secrets={"A": TOKEN})
    until(lambda: rig.log(job) == f"name: {TOKEN[:4]}".encode())
    (rig.home / "work/quiet-run/go").touch()
    rig.ended(job)
    assert rig.log(job) == f"name: {TOKEN[:4]}\n{TOKEN[:20]}".encode()


@pytest.mark.parametrize(
    ("given", "token", "word"),
    [
        ({"A": "short12"}, "secret_refused", "fewer than 8 characters"),
        ({"A": "with\0nul-in-it"}, "secret_refused", "NUL"),
        ({"A": "\ud800" * 9}, "secret_refused", "no variable can"),
        ({"A": "x" * 40_000}, "secret_refused", "32768 bytes"),
        ({"A": ""}, "secret_refused", "fewer than 8"),
        ({"A": {"value": "long enough", "for": "tea"}}, "invalid_request", "secrets.A"),
        ({"A": 12345678}, "invalid_request", "secrets.A"),
        ({"A=B": "long enough"}, "invalid_request", "a name has"),
        (["A"], "invalid_request", "an object"),
    ],
)
def test_what_cannot_be_hidden_is_refused_and_leaves_nothing(rig: Rig, given: Any, token: str, word: str) -> None:
    request = rig.request("refused-run", "true")
    with pytest.raises(Refusal, match=word) as caught:
        rig.call("reserve", request=to_json(request), confirm=True, secrets=given)
    assert caught.value.token == token
    for value in ("short12", "nul-in-it", "long enough", "xxxxxxxx"):
        assert value not in str(caught.value)
        assert value not in str(caught.value.facts)
    assert not rig.folder(request.job_id).exists()


def test_whoever_finds_that_the_keeper_is_gone_removes_the_values(rig: Rig) -> None:
    job = rig.start("lost-run", WAITS + "exit 3", secrets={"A": TOKEN})
    main = rig.running(job)
    kept = rig.folder(job) / names.SECRETS
    os.kill(rig.keeper(job), signal.SIGKILL)
    until(lambda: not lives(rig.keeper(job)))
    assert kept.exists()
    rig.call("gc")
    assert not kept.exists()
    assert lives(main)


def test_the_stop_of_a_job_without_keeper_removes_the_values(rig: Rig) -> None:
    job = rig.start("stopped-run", WAITS + "exit 3", secrets={"A": TOKEN})
    main = rig.running(job)
    os.kill(rig.keeper(job), signal.SIGKILL)
    until(lambda: not lives(rig.keeper(job)))
    rig.call("stop", job_id=job, by="ana", grace_s=0)
    until(lambda: not lives(main))
    until(lambda: not (rig.folder(job) / names.SECRETS).exists())


def test_a_person_s_shell_has_the_values_only_when_asked_and_only_while_they_are_kept(rig: Rig) -> None:
    """`aicrun ssh RUN --secrets`: those of the command, never in an argument; without the word, or afterwards, none."""
    job = rig.start("secret-run", WAITS + "exit 0", secrets=SECRETS)
    rig.running(job)
    argv = rig.call("environment", job_id=job)["shell"]
    shell = rig.home / "shell"
    shell.write_text("#!/bin/sh\ntr '\\0' ' ' < /proc/$$/cmdline\nenv\n")
    shell.chmod(0o755)

    def shown(word: str) -> tuple[str, str]:
        typed = [word if part == "shell" else part for part in argv]
        env = dict(rig.env, SHELL=str(shell))
        done = subprocess.run(typed, env=env, capture_output=True, text=True, timeout=60, check=True)
        assert TOKEN not in " ".join(typed) + done.stdout.partition("\n")[0]
        return done.stdout, done.stderr

    for text in shown("shell"):
        assert "PlantedToken" not in text
    text, said = shown("shell+secrets")
    assert (f"HF_TOKEN={TOKEN}\n" in text, KEY in text, "INDEX_KEY" in text, said) == (True, False, False, "")
    (rig.home / "work/secret-run/go").touch()
    rig.ended(job)
    until(lambda: not (rig.folder(job) / names.SECRETS).exists())
    text, said = shown("shell+secrets")
    assert "PlantedToken" not in text
    assert said == "aicrun: no secret of this run is kept here: none was given, or its keeper is gone\n"
    rig.call("delete", job_id=job, by="ana@laptop")
    assert holding(rig.home, TOKEN) == []


@pytest.mark.parametrize("place", ["reserve.folder", "reserve.record", "reserve.launched", "W1", "W2"])
def test_a_start_that_is_cut_short_keeps_no_value(rig: Rig, place: str) -> None:
    request = rig.request("cut-run", "true")
    with rig.link(AICRUN_TEST_HOOK=f"{place}:kill") as link, contextlib.suppress(Refusal, ConnectionEnded):
        link.call("reserve", request=to_json(request), confirm=True, secrets={"A": TOKEN})
    rig.call("withdraw", job_id=request.job_id, reason="cut short", by="ana")
    rig.call("gc")
    until(lambda: not list(rig.root.rglob(names.SECRETS + "*")))


def test_a_value_as_base64_is_not_known(rig: Rig) -> None:
    """What `docs/promises.md` says is not hidden."""
    coded = base64.b64encode(TOKEN.encode()).decode()
    job = rig.start("coded-run", f'printf %s "$A" | base64; echo {coded}', secrets={"A": TOKEN})
    rig.ended(job)
    assert rig.log(job).decode().split() == [coded, coded]


def test_a_value_in_what_an_upload_complains_of_is_not_kept(rig: Rig) -> None:
    checkpoints = rig.home / "checkpoints"
    checkpoints.mkdir()
    (checkpoints / "model").write_bytes(b"x")
    target = f"file:{rig.home}/share"
    job = rig.start(
        "complaint-run",
        f'mkfifo "{checkpoints}/pipe-$A"',
        secrets={"A": TOKEN},
        checkpoints=str(checkpoints),
        upload=Upload(target, "file", target),
    )
    upload = rig.ended(job).upload
    assert upload is not None
    assert "pipe-***" in str(upload.skipped)
    assert b"skipped pipe-***" in rig.log(job, "upload")
    until(lambda: not lives(rig.keeper(job)))
    assert holding(rig.home, TOKEN) == []


def test_the_values_last_as_long_as_attempts_follow(rig: Rig) -> None:
    command = 'echo "attempt $AICRUN_ATTEMPT with $A"; [ "$AICRUN_ATTEMPT" = 2 ]'
    retry = Retry(most=1, when=("exit",), backoff_s=0)
    job = rig.start("retried-run", command, secrets={"A": TOKEN}, retry=retry)
    assert status_of(rig.ended(job)).status is Status.SUCCEEDED
    for attempt in (1, 2):
        with rig.link() as link:
            _, data = link.call("log", job_id=job, step="command", attempt=attempt, offset=0)
        assert data == b"attempt %d with ***\n" % attempt
    until(lambda: not lives(rig.keeper(job)))
    assert holding(rig.home, TOKEN) == []


def test_an_upload_again_gets_them_again_and_keeps_none(rig: Rig) -> None:
    checkpoints = rig.home / "checkpoints"
    checkpoints.mkdir()
    share = rig.home / "share"
    share.write_text("in the way")
    job = rig.start(
        "again-run",
        f"echo x >{checkpoints}/model",
        secrets={"A": TOKEN},
        checkpoints=str(checkpoints),
        upload=Upload(f"file:{share}", "file", f"file:{share}", probe=False),
    )
    assert status_of(rig.ended(job)).reason == "upload_failed"
    until(lambda: not lives(rig.keeper(job)))
    assert not (rig.folder(job) / names.SECRETS).exists()
    share.unlink()
    rig.call("upload", job_id=job, by="ana", secrets={"A": TOKEN})
    until(lambda: rig.standing(job).status is Status.SUCCEEDED)
    until(lambda: not lives(rig.keeper(job)))
    assert holding(rig.home, TOKEN) == []
