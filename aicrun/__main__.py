"""`python -m aicrun` and the `aicrun` script. It imports as little as the answer needs."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line of this process and leave with its exit code."""
    # Here, so that a version that is too old says so instead of failing at newer syntax.
    from aicrun.cli.main import run

    code = run(sys.argv[1:])
    # All of it goes with the process: looking for cycles on the way out took a seventh of a short command's time.
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
