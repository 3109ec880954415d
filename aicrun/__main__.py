"""`python -m aicrun` and the `aicrun` script. It imports as little as the answer needs."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process and leave with its exit code."""
    # Here, so that a version that is too old says so instead of failing at newer syntax.
    from aicrun.cli.main import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
