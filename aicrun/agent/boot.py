"""The first file of the agent: it parses on Python 3.6, checks the version, finds its own package and calls.

It must not do anything else: a syntax error here would be all that a host with an old Python can show.
"""

import gc
import os
import sys

try:
    from typing import Callable, List, Optional  # noqa: F401  used in type comments
except ImportError:
    # Python 2 has none; it only needs to come as far as the version check.
    pass

TOO_OLD = 69
WRONG_USE = 64


def main(arguments):
    # type: (List[str]) -> int
    """Play the role that `arguments` name (`serve`, `keeper JOBDIR`, `setup JOBDIR` …); the process's exit code."""
    if sys.version_info < (3, 8):
        have = "%d.%d.%d" % sys.version_info[:3]
        sys.stderr.write("aicrun: Python 3.8 or newer is needed here; %s is %s\n" % (sys.executable, have))
        return TOO_OLD
    here = os.path.dirname(os.path.abspath(__file__))
    if not os.path.isdir(os.path.join(here, "aicrun")):
        here = os.path.dirname(os.path.dirname(here))
    if here not in sys.path:
        sys.path.insert(0, here)
    return _play(arguments)


def _play(arguments):
    # type: (List[str]) -> int
    role, rest = (arguments or [""])[0], arguments[1:]
    # Nothing that is imported is garbage: looking for it costs a tenth of a start, and milliseconds again and again.
    gc.disable()
    if role == "serve" and not rest:
        from aicrun.agent import serve

        return serve.main()
    if role == "back" and not rest:
        from aicrun.agent import fetch_back

        return fetch_back.main()
    play = _of_a_job(role) if len(rest) == 1 else None
    gc.freeze()
    gc.enable()
    if play is not None:
        return play(rest[0])
    roles = (
        "keeper | again | unit | trial | sampler | stopper | shell | shell+secrets | setup | preflight | upload | early"
    )
    sys.stderr.write("aicrun: boot.py serve | back | {%s} JOBDIR\n" % roles)
    return WRONG_USE


def _of_a_job(role):
    # type: (str) -> Optional[Callable[[str], int]]
    # Imported in the branch that needs it: each role is a process of its own, and starts as fast as it can.
    if role in ("keeper", "again"):
        from aicrun.agent import keeper

        return lambda folder: keeper.main(folder, role)
    if role == "unit":
        from aicrun.agent import keepers

        return keepers.take_order
    if role == "trial":
        from aicrun.agent import launch_trial

        return launch_trial.main
    if role == "sampler":
        from aicrun.agent import telemetry

        return telemetry.main
    if role == "stopper":
        from aicrun.agent import stopper

        return stopper.main
    if role in ("shell", "shell+secrets"):
        from aicrun.agent import shell

        return lambda folder: shell.main(folder, role != "shell")
    if role == "setup":
        from aicrun.agent import envs

        return envs.main
    if role == "preflight":
        from aicrun.agent import preflight

        return preflight.main
    if role == "upload":
        from aicrun.agent import upload

        return upload.main
    if role == "early":
        from aicrun.agent import early_upload

        return early_upload.main
    return None


def leave(code):
    # type: (int) -> None
    """End this process at once: taking an interpreter apart is time that somebody waits for, and frees nothing."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # Whoever read it is gone.
            pass
    os._exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
