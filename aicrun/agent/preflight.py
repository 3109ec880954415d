"""The preflight step: whether the torch of the run's environment sees exactly the cards that the run holds.

It runs as `boot.py preflight JOBDIR` with the command's environment, on the cards, before the command starts. What is
wrong is said in the step's log, with driver, CUDA and torch side by side. It must not change anything.
"""

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from aicrun.agent import later
from aicrun.agent.card_check import SEEN, Seen
from aicrun.agent.environment import environment
from aicrun.agent.programs import OWN_VARIABLES
from aicrun.agent.records import Unreadable, read_record
from aicrun.agent.torch_verdict import verdict, versions
from aicrun.wire import names
from aicrun.wire.jobs import JobRequest

if TYPE_CHECKING:
    import shutil
    import subprocess
else:
    shutil, subprocess = later.module("shutil"), later.module("subprocess")

_MARK = "aicrun-preflight "
# Runs in the job's own Python, whichever that is, with its folder and path; a tensor is made, for a build of torch may
# list a card that it has no code for.
_PROBE = (
    """import json, sys
told = {"python": sys.version.split()[0], "absent": False, "error": "", "names": []}
try:
    import torch
except ImportError as error:
    told["absent"] = getattr(error, "name", "") == "torch"
    told["error"] = "import torch: %s" % error
except Exception as error:
    told["error"] = "import torch: %s: %s" % (type(error).__name__, error)
else:
    told["torch"] = str(torch.__version__)
    told["cuda"] = getattr(torch.version, "cuda", None) or ""
    told["hip"] = getattr(torch.version, "hip", None) or ""
    if told["cuda"] or told["hip"]:
        try:
            torch.cuda.init()
            for number in range(torch.cuda.device_count()):
                told["names"].append(torch.cuda.get_device_name(number))
                told["card"] = "sm_%d%d" % torch.cuda.get_device_capability(number)
                told["made_for"] = torch.cuda.get_arch_list()
                torch.ones(2, device="cuda:%d" % number).sum().item()
        except Exception as error:
            told["error"] = "%s: %s" % (type(error).__name__, error)
sys.stdout.write("\\n"""
    + _MARK
    + """%s\\n" % json.dumps(told))
"""
)


def main(job_folder: str) -> int:
    """Look for the job whose folder this is: 0, or 1 with what is wrong as the last lines of stderr."""
    try:
        request = read_record(os.path.join(job_folder, names.REQUEST), JobRequest)
    except (OSError, Unreadable) as error:
        return _failed([str(error)])
    if request is None:
        return _failed(["there is no request in %s" % job_folder])
    seen = _seen(os.environ.get(SEEN, ""))
    env = _command_environment(request, os.environ)
    python = _python(request, env)
    if not python:
        return _failed(["no python is on the run's PATH, so that nothing could look"])
    told = _asked(python, env)
    if isinstance(told, str):
        return _failed([told])
    wrong = verdict(request.preflight, told, seen, request.setup)
    _say(versions(told, seen))
    if wrong:
        return _failed(wrong)
    if told["absent"]:
        _say("torch is not in this environment: nothing to look at")
    else:
        _say("torch sees the run's %d: %s" % (len(told["names"]), ", ".join(told["names"])))
    return 0


def _seen(text: str) -> Seen:
    try:
        told = json.loads(text)
        return Seen(tuple(str(model) for model in told["models"]), str(told["driver"]), str(told["cuda"]))
    except (ValueError, KeyError, TypeError):
        return Seen()


def _command_environment(request: JobRequest, mine: Mapping[str, str]) -> Dict[str, str]:
    """What the command will find: ours, with its own HOME in place of that by which we find the state folder."""
    theirs = environment(request, int(mine.get(names.ATTEMPT, "1")))
    env = {name: value for name, value in mine.items() if name not in (SEEN, *OWN_VARIABLES)}
    env.update({name: theirs[name] for name in OWN_VARIABLES if name in theirs})
    return env


def _python(request: JobRequest, env: Mapping[str, str]) -> str:
    if request.setup.path:
        return os.path.join(request.setup.path, "bin", "python")
    return shutil.which("python", path=env["PATH"]) or shutil.which("python3", path=env["PATH"]) or ""


def _asked(python: str, env: Dict[str, str]) -> Any:
    """What the probe told, as a dict; a sentence where it told nothing."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
        )
    except OSError as error:
        return "%s cannot be run: %s" % (python, error.strerror)
    lines = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.startswith(_MARK)]
    told = _parsed(lines[-1][len(_MARK) :]) if lines else None
    if told is None:
        how = "signal %d" % -done.returncode if done.returncode < 0 else "exit code %d" % done.returncode
        return "looking at the cards with torch ended with %s; what it said stands above" % how
    return told


def _parsed(text: str) -> Optional[Dict[str, Any]]:
    try:
        told = json.loads(text)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _failed(lines: List[str]) -> int:
    sys.stdout.flush()
    sys.stderr.write("\n".join(["aicrun: preflight failed: " + lines[0]] + lines[1:]) + "\n")
    return 1
