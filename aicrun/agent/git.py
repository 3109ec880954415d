"""The git of this host, run for a repository somebody named: with the account's own keys and helpers, never asking.

No hook of anybody runs, nothing waits for a terminal, and no agent that a login forwarded is used: what works while
somebody is logged in works in the night too. It must not know about jobs.
"""

import os
import re
import time
from typing import TYPE_CHECKING, Dict, Mapping, NamedTuple, Tuple

from aicrun.agent import later

if TYPE_CHECKING:
    import shutil
    import signal
    import subprocess
else:
    shutil, signal, subprocess = later.module("shutil"), later.module("signal"), later.module("subprocess")

# Ways to a repository that run no command of its address; a submodule may name a path of this host only where the
# repository itself is one.
_PROTOCOLS = "http:https:ssh:git"
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.autocrlf": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "advice.detachedHead": "false",
}
# Without git-lfs a required filter would make every checkout fail; the pointers are told instead.
_NO_LFS = {"filter.lfs.required": "false", "filter.lfs.smudge": "", "filter.lfs.process": ""}
_SSH = "-oBatchMode=yes -oConnectTimeout=20"
_KEPT = ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH")
_SAID_MOST = 65536
# Lines of git that stand under the one that says something.
_FILLING = (
    *("hint:", "warning:", "fatal: Could not read from remote repository", "Please make sure you have the correct"),
    "and the repository exists.",
)
_COMMIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")


class GitFault(Exception):
    """git could not do it; `word` is `no_git`, `unreachable` or `missing`, the text what it said."""

    def __init__(self, word: str, detail: str) -> None:
        super().__init__(detail)
        self.word = word


class Done(NamedTuple):
    """How one call of git ended, with the end of what it said."""

    code: int
    out: str
    err: str

    @property
    def why(self) -> str:
        """The lines of its complaint that tell something, as one."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        told = [line for line in lines if not line.startswith(_FILLING)] or lines
        return (
            "; ".join(line[7:] if line.startswith("fatal: ") else line for line in told[:3])[:600]
            or "git ended with code %d" % self.code
        )


def is_commit(text: str) -> bool:
    """Whether `text` is a whole commit id."""
    return bool(_COMMIT.match(text))


class Git:
    """Runs git until `ends` (monotonic seconds); `held` are locks that live as long as whatever it started."""

    def __init__(self, env: Mapping[str, str], url: str, ends: float) -> None:
        self.program = shutil.which("git", path=env.get("PATH", "")) or ""
        self.has_lfs = bool(shutil.which("git-lfs", path=env.get("PATH", "")))
        if not self.program:
            raise GitFault("no_git", "there is no git on the PATH %s" % env.get("PATH", ""))
        self.ends = ends
        self.held: Tuple[int, ...] = ()
        self._env = _environment(env, url)
        self._env["GIT_SSH_COMMAND"] = "%s %s" % (self._ssh(env), _SSH)

    def _ssh(self, env: Mapping[str, str]) -> str:
        return env.get("GIT_SSH_COMMAND") or self("config", "--get", "core.sshCommand").out.strip() or "ssh"

    def __call__(self, *args: str, at: str = "/") -> Done:
        """`git ARGS` in the folder `at`; raises `GitFault` (unreachable) when its time is over."""
        settings = dict(_SETTINGS, **({} if self.has_lfs else _NO_LFS))
        words = [self.program] + [part for item in settings.items() for part in ("-c", "%s=%s" % item)]
        child = subprocess.Popen(
            words + list(args),
            cwd=at,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=self.held,
            start_new_session=True,
        )
        try:
            out, err = child.communicate(timeout=max(0.1, self.ends - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            raise GitFault("unreachable", "git %s did not end in time" % args[0]) from error
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
        return Done(child.returncode, out.decode("utf-8", "replace"), err[-_SAID_MOST:].decode("utf-8", "replace"))


def _environment(env: Mapping[str, str], url: str) -> Dict[str, str]:
    found = {key: value for key, value in env.items() if not key.startswith("GIT_") or key in _KEPT}
    # A job's caches may lie elsewhere; what keeps the account's credentials for git does not move with them.
    for name in ("SSH_AUTH_SOCK", "SSH_AGENT_PID", "XDG_CACHE_HOME"):
        found.pop(name, None)
    is_here = url.startswith(("/", "file:"))
    # An empty GIT_ASKPASS is one that is set: nothing else is looked for then.
    found.update(GIT_TERMINAL_PROMPT="0", GIT_ASKPASS="", SSH_ASKPASS_REQUIRE="never", LC_ALL="C")
    found["GIT_ALLOW_PROTOCOL"] = _PROTOCOLS + (":file" if is_here else "")
    return found


def checked(done: Done, word: str = "unreachable") -> str:
    """What it printed; raises `GitFault` unless it went well."""
    if done.code:
        raise GitFault(word, done.why)
    return done.out
