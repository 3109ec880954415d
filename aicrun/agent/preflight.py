"""The preflight step: whether the torch of the run's environment sees exactly the cards that the run holds.

It runs as `boot.py preflight JOBDIR` with the command's environment, on the cards, before the command starts. What is
wrong is said in the step's log, with driver, CUDA and torch side by side. It must not change anything.
"""

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from aicrun.agent import later
from aicrun.agent.card_check import SEEN, Seen
from aicrun.agent.environment import environment
from aicrun.agent.programs import OWN_VARIABLES
from aicrun.agent.records import Unreadable, read_record
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
    wrong = verdict(request.preflight, told, seen)
    _say(versions(told, seen))
    if wrong:
        return _failed(wrong)
    if told["absent"]:
        _say("torch is not in this environment: nothing to look at")
    else:
        _say("torch sees the run's %d: %s" % (len(told["names"]), ", ".join(told["names"])))
    return 0


def verdict(kind: str, told: Mapping[str, Any], seen: Seen) -> List[str]:
    """What is wrong and what most likely mends it, one line each; empty when all is well. Pure.

    `kind` is `auto` (only where torch is installed), `cuda` or `rocm`; `told` is what the probe printed.
    """
    if told["absent"]:
        return [] if kind == "auto" else ["torch is not in this environment", "mend: add it to what setup installs"]
    if "torch" not in told:
        return [str(told["error"]), "mend: look at the versions of what setup installs"]
    built = str(told["hip"] if kind == "rocm" else told["cuda"])
    if not built:
        wanted, backend = ("ROCm", "rocm6.3") if kind == "rocm" else ("CUDA", _backend(seen.cuda) or "auto")
        return ["torch %s is built without %s" % (told["torch"], wanted), "mend: setup.torch_backend: %s" % backend]
    if told["error"]:
        return [str(told["error"])] + _newer_than_driver(built, seen)
    there = list(told["names"])
    if seen.models and len(there) != len(seen.models):
        lines = ["torch sees %d, the run holds %d" % (len(there), len(seen.models))] + _newer_than_driver(built, seen)
        return lines + ["see whether the command's environment sets CUDA_VISIBLE_DEVICES: aicrun inspect RUN --env"]
    for number, (name, model) in enumerate(zip(there, seen.models)):
        if model and _plain(name) != _plain(model):
            return ["torch's device %d is a %s, the run holds a %s there" % (number, name, model)]
    return [] if there else ["torch sees no card"] + _newer_than_driver(built, seen)


def versions(told: Mapping[str, Any], seen: Seen) -> str:
    """Driver, CUDA and torch side by side."""
    driver = "driver %s (CUDA up to %s)" % (seen.driver or "unknown", seen.cuda or "unknown")
    torch = "no torch"
    if "torch" in told:
        build = "CUDA %s" % told["cuda"] if told["cuda"] else "ROCm %s" % told["hip"] if told["hip"] else "processors"
        torch = "torch %s for %s" % (told["torch"], build)
    return "%s, %s, python %s" % (driver, torch, told["python"])


def _newer_than_driver(built: str, seen: Seen) -> List[str]:
    backend = _backend(seen.cuda)
    if not backend or _number(built) <= _number(seen.cuda):
        return []
    what = "torch is built for CUDA %s, driver %s offers up to %s" % (built, seen.driver or "of this host", seen.cuda)
    return [what, "mend: setup.torch_backend: auto or %s, or a newer driver" % backend]


def _backend(cuda: str) -> str:
    return "cu" + cuda.replace(".", "") if cuda else ""


def _number(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _plain(model: str) -> str:
    return " ".join(model.casefold().replace("nvidia", "").split())


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
