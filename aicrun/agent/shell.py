"""A person's shell where a job works, with what its command found in its environment. Not a process of the job.

It runs as `boot.py shell JOBDIR` or `boot.py shell+secrets JOBDIR` in a terminal. It does not carry the job's mark, so
that no stop of the job ends it; what is started in it has no lock on the job's cards.
"""

import os
import shutil
import sys
from typing import Dict, Tuple

from aicrun.agent import vault
from aicrun.agent.environment import login_environment
from aicrun.agent.records import Unreadable, read_json, read_record
from aicrun.agent.tree import working_tree
from aicrun.wire import names
from aicrun.wire.jobs import JobRequest

FAILED = 255
# No start file may change what the job had.
_PLAIN = {"bash": ("--noprofile", "--norc"), "zsh": ("-f",), "fish": ("--no-config",), "tcsh": ("-f",), "csh": ("-f",)}


def main(job_dir: str, with_secrets: bool) -> int:
    """Become the shell; only a failure returns."""
    try:
        request = read_record(os.path.join(job_dir, names.REQUEST), JobRequest)
        if request is None:
            raise Unreadable(job_dir, "it is no job of this account")
        env = _environment(job_dir, with_secrets)
        os.chdir(_folder(request))
        shell = _shell()
        env.update(SHELL=shell[0], PS1="(%s) \\w $ " % request.run, TERM=os.environ.get("TERM", "dumb"))
        os.execve(shell[0], list(shell), env)  # noqa: S606  a shell is the point
    except (OSError, Unreadable) as error:
        sys.stderr.write("aicrun: %s\n" % error)
    return FAILED


def _environment(job_dir: str, with_secrets: bool) -> Dict[str, str]:
    kept = read_json(os.path.join(job_dir, names.ENVIRONMENT))
    found = kept.get("env") if isinstance(kept, dict) else None
    env = {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
    if not env:
        env = login_environment((), os.environ)
    env = {name: value for name, value in env.items() if value != vault.HIDDEN and name != names.JOB_ID}
    if not with_secrets:
        return env
    kept = vault.read(job_dir).variables("command")
    if not kept:
        sys.stderr.write("aicrun: no secret of this run is kept here: none was given, or its keeper is gone\n")
    return dict(env, **kept)


def _folder(request: JobRequest) -> str:
    for folder in (os.path.join(working_tree(request), request.cwd), working_tree(request), request.workspace):
        if os.path.isdir(folder):
            return folder
    return os.path.expanduser("~")


def _shell() -> Tuple[str, ...]:
    own = os.environ.get("SHELL", "")
    shell = own if os.access(own, os.X_OK) else shutil.which("bash") or "/bin/sh"
    return (shell, *_PLAIN.get(os.path.basename(shell), ()))
