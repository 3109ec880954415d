"""What to execute for each step of an attempt: the program, its environment, its folder. It must not run anything."""

import os
import sys
from typing import TYPE_CHECKING, Callable, Dict, Optional, Tuple

from aicrun.agent import brought, later
from aicrun.agent.digest import bundle_root
from aicrun.agent.environment import environment
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused
from aicrun.agent.tree import inside, working_tree
from aicrun.wire import lean
from aicrun.wire.jobs import JobRequest
from aicrun.wire.tools import REMOTE_SCHEMES

if TYPE_CHECKING:
    import shutil
else:
    shutil = later.module("shutil")

OWN_STEPS = ("setup", "upload", "early")
# In front of a preflight that is a command of the person's own, as the request has it.
OF_A_PERSON = "run:"
# Our own programs find the state folder by these.
OWN_VARIABLES = ("HOME", "XDG_STATE_HOME")


@lean.dataclass(frozen=True)
class Program:
    """`argv` with an absolute program wherever one was found, the whole environment, and an existing folder.

    `is_own`: it is our own program, for any step but the command. `here` does the same in the process that would
    execute it, and gives its exit code; None where the program must be executed after all. `is_alone`: it starts none.
    """

    argv: Tuple[str, ...]
    env: Dict[str, str]
    cwd: str
    is_own: bool = False
    here: Optional[Callable[[], Optional[int]]] = None
    is_alone: bool = False

    def given(self, variables: Dict[str, str]) -> "Program":
        """The same with more variables; what a program of ours must find as it is stays."""
        kept = {name: self.env[name] for name in OWN_VARIABLES if name in self.env and self.is_own}
        return lean.replace(self, env=dict(self.env, **dict(variables, **kept)))


def program(home: Home, request: JobRequest, step: str, attempt: int) -> Program:
    """The program of `step`; raises `Refused` (start_failed) when the folder to run in is not there."""
    is_fetched = brought.from_elsewhere(request) or (request.source is not None and bool(request.source.git))
    has_tools = is_fetched or probes_upload(request)
    if step == "setup" and not (request.setup.path or request.setup.run or has_tools):
        # It is never executed, and finds what it needs as its keeper does.
        folder = home.job_dir(request.job_id)
        return Program(boot_argv(step, folder), {}, folder, is_own=True, is_alone=True)
    env = environment(request, attempt)
    if step == "preflight" and request.preflight.startswith(OF_A_PERSON):
        text = request.preflight[len(OF_A_PERSON) :]
        return Program(shell_argv(text, request.shell, env["PATH"]), env, command_folder(request))
    if step == "preflight":
        # In the command's folder: what lies there may stand in front of the environment's own modules.
        return lean.replace(_own(home, request, step, env), cwd=command_folder(request))
    if step in OWN_STEPS:
        return _own(home, request, step, env)
    return Program(_command(request, env["PATH"]), env, command_folder(request))


def probes_upload(request: JobRequest) -> bool:
    """Whether a tool of this host carries the checkpoints, and its target is tried before anything trains."""
    return request.upload is not None and request.upload.scheme in REMOTE_SCHEMES and request.upload.probe


def command_folder(request: JobRequest) -> str:
    """The working tree's folder `request.cwd`; raises `Refused` when it is missing or leaves the tree."""
    tree = working_tree(request)
    folder = os.path.normpath(os.path.join(tree, request.cwd))
    facts = {"tree": tree, "cwd": request.cwd}
    if not inside(os.path.realpath(folder), os.path.realpath(tree)):
        raise Refused("start_failed", "cwd: %s leaves the working tree %s" % (request.cwd, tree), facts)
    if not os.path.isdir(folder):
        raise Refused("start_failed", "cwd: there is no folder %s in %s" % (request.cwd or ".", tree), facts)
    return folder


def shell_argv(text: str, shell: str, path: str) -> Tuple[str, ...]:
    """`text` for the shell: bash that stops at the first failure, also inside a pipe; sh where there is no bash."""
    bash = shutil.which("bash", path=path) if shell != "sh" else None
    if bash:
        return (bash, "-eo", "pipefail", "-c", text)
    return (shutil.which("sh", path=path) or "/bin/sh", "-e", "-c", text)


def boot_argv(*arguments: str) -> Tuple[str, ...]:
    """Our own program with `arguments`, on the interpreter that runs now."""
    boot = os.path.join(bundle_root(), "boot.py")
    if not os.path.exists(boot):
        boot = os.path.join(os.path.dirname(os.path.abspath(__file__)), "boot.py")
    return (sys.executable, "-I", "-S", boot) + arguments


def _command(request: JobRequest, path: str) -> Tuple[str, ...]:
    if not request.is_argv:
        return shell_argv(request.command[0], request.shell, path)
    first = request.command[0]
    found = first if os.sep in first else shutil.which(first, path=path)
    return (found or first,) + tuple(request.command[1:])


def _own(home: Home, request: JobRequest, step: str, env: Dict[str, str]) -> Program:
    # Our own programs must find the state folder that the agent uses, whatever the job's env says.
    for name in OWN_VARIABLES:
        env.pop(name, None)
        if name in os.environ:
            env[name] = os.environ[name]
    folder = home.job_dir(request.job_id)
    return Program(boot_argv(step, folder), env, folder, is_own=True)
