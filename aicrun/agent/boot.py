"""The first file of the agent: it parses on Python 3.6, checks the version, finds its own package and calls.

It must not do anything else: a syntax error here would be all that a host with an old Python can show.
"""

import gc
import os
import sys

try:
    from typing import List  # noqa: F401  used in type comments
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
    # Imported in the branch that needs it: each role is a process of its own, and starts as fast as it can.
    role, rest = (arguments or [""])[0], arguments[1:]
    if role == "serve" and not rest:
        _serve()
    if role in ("keeper", "again") and len(rest) == 1:
        gc.disable()
        from aicrun.agent import keeper

        gc.enable()
        return keeper.main(rest[0], role)
    if role == "unit" and len(rest) == 1:
        from aicrun.agent import keepers

        return keepers.take_order(rest[0])
    if role == "trial" and len(rest) == 1:
        from aicrun.agent import launch_trial

        return launch_trial.main(rest[0])
    if role == "sampler" and len(rest) == 1:
        from aicrun.agent import telemetry

        return telemetry.main(rest[0])
    if role == "stopper" and len(rest) == 1:
        from aicrun.agent import stopper

        return stopper.main(rest[0])
    if role in ("shell", "shell+secrets") and len(rest) == 1:
        from aicrun.agent import shell

        return shell.main(rest[0], role != "shell")
    if role == "setup" and len(rest) == 1:
        from aicrun.agent import envs

        return envs.main(rest[0])
    if role == "upload" and len(rest) == 1:
        from aicrun.agent import upload

        return upload.main(rest[0])
    roles = "keeper | again | unit | trial | sampler | stopper | shell | shell+secrets | setup | upload"
    sys.stderr.write("aicrun: boot.py serve | {%s} JOBDIR\n" % roles)
    return WRONG_USE


def _serve():
    # type: () -> None
    # Nothing that is imported is garbage; `serve` collects it again when it has what it needs.
    gc.disable()
    from aicrun.agent import serve

    code = serve.main()
    sys.stderr.flush()
    # Nothing is left to be written, and taking an interpreter apart is time that a client waits.
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
