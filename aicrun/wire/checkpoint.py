"""One checkpoint of a run, as its host sees it. It must not know how that was found out."""

from typing import Optional, Tuple

from aicrun.wire import lean

# Whole by what lies in it, or by its name not; else by time: nothing of it changed for a while, or something just did.
# What lay in the folder before the run began is none of its own, whole or not.
YES, NO, SETTLED, WRITING, OTHER = "yes", "no", "settled", "writing", "other"
COMPLETE = (YES, NO, SETTLED, WRITING, OTHER)
# Whether it lies on the machine: yes, no more since it was pruned, or no more since somebody else removed it.
HERE, PRUNED, GONE = "yes", "pruned", "no"
PLACES = (HERE, PRUNED, GONE)
# The name of what lies at the top of the folder, beside the checkpoints that are folders.
TOP = "."


@lean.dataclass(frozen=True)
class Checkpoint:
    """A file or folder in the run's checkpoint folder; `id` is 8 hex, the same for one name of one run.

    `complete` is one of `COMPLETE`, `why` its reason where it is `no` or `other`. `age_s` since the newest change below
    it. A step or loss that nobody wrote down is absent, a model or version empty. `uploaded_age_s`: since an upload of
    exactly these bytes was verified, absent when there was none. `on_host` is one of `PLACES`.
    """

    id: str
    name: str
    bytes: int = 0
    files: int = 0
    age_s: float = 0.0
    complete: str = SETTLED
    why: str = ""
    step: Optional[int] = None
    train_loss: Optional[float] = None
    eval_loss: Optional[float] = None
    model: str = ""
    version: str = ""
    inference_ready: bool = False
    uploaded_age_s: Optional[float] = None
    on_host: str = HERE


@lean.dataclass(frozen=True)
class Resume:
    """How a run finds its start: the newest checkpoint that is whole, or the one at `path` below the folder.

    `complete_when` is a file that it must have. Each of `args`, added to an argv command, is the pieces between which
    the checkpoint's path stands.
    """

    path: str = ""
    complete_when: str = ""
    args: Tuple[Tuple[str, ...], ...] = ()


@lean.dataclass(frozen=True)
class Checkpointed:
    """The checkpoints in the folder `path`, newest first; `omitted` older ones are not told.

    `free_bytes` is the room that is left beside them, absent when there is no such folder. `elsewhere` are verified at
    `destination` and not there any more, newest first. `keep` is how many stay when others are pruned; 0: none are.
    """

    path: str
    checkpoints: Tuple[Checkpoint, ...] = ()
    omitted: int = 0
    free_bytes: Optional[int] = None
    elsewhere: Tuple[Checkpoint, ...] = ()
    destination: str = ""
    keep: int = 0


@lean.dataclass(frozen=True)
class Removed:
    """What a person removes of a run's checkpoints: entries of the folder `path` by their names, with their bytes.

    `own`: the folder is the run's alone, and goes whole. `left` are others there that stay, each with why.
    """

    path: str
    names: Tuple[str, ...] = ()
    bytes: int = 0
    left: Tuple[str, ...] = ()
    own: bool = False
