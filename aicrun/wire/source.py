"""Where the code of a job is from, as a request and its records tell it. It must not know how it gets to a host."""

from typing import Tuple

from aicrun.wire import lean


@lean.dataclass(frozen=True)
class Source:
    """The source tree of a job: its hash in the store, and where it came from (`commit` empty outside git).

    With `git` the host fetches `commit` from that address itself; `tree` then only tells commits apart, `branch` is
    what the plan found it by, and `revision` is as written.
    """

    tree: str
    files: int
    bytes: int
    commit: str = ""
    branch: str = ""
    dirty: Tuple[str, ...] = ()
    git: str = ""
    revision: str = ""
