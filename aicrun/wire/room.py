"""How much room one part of a job needs, and where, as a request tells it. It must not know what a disk has."""

from aicrun.wire import lean


@lean.dataclass(frozen=True)
class Room:
    """`bytes` and `files` that will surely be written below `path`, an absolute folder that may not exist yet.

    `what` is the part in words, as in "the environment". Both numbers are lower bounds. `env` is the key of an
    environment that needs no room once it stands; empty for everything else.
    """

    what: str
    path: str
    bytes: int = 0
    files: int = 0
    env: str = ""
