"""What a run names of this host and a plan must know before there is a job: programs, folders of wheels, inputs.

It must not run anything, nor read what is in a file.
"""

import os
import stat
from typing import TYPE_CHECKING, Any, List, Sequence, Tuple

from aicrun.agent import later
from aicrun.wire.facts import InputSeen, Program, WheelFolder

if TYPE_CHECKING:
    import hashlib
else:
    hashlib = later.module("hashlib")

PROGRAMS_MOST = 100
FOLDERS_MOST = 20
ENVIRONMENTS_MOST = 200
INPUTS_MOST = 100
# What uv takes from a folder of wheels.
ARCHIVES = (".whl", ".zip", ".tar.gz")


def programs(asked: Any, machine_path: Sequence[Any], home_folder: str, envs: Tuple[str, List[str]]) -> List[Program]:
    """One answer for each [word, PATH] of `asked`; an empty PATH is the one that every job here has.

    `machine_path` are the machine's own folders; `envs` the folder of built environments and the keys of finished ones.
    """
    folder, keys = envs
    pairs = [pair for pair in asked if isinstance(pair, (list, tuple)) and len(pair) == 2] if asked else []
    if not pairs:
        return []
    # Imported here: what a job would find is asked of few hosts.
    from aicrun.agent.environment import login_environment

    usual = login_environment(tuple(map(str, machine_path)), os.environ)["PATH"]
    found = []
    for word, path in [(str(word), str(path)) for word, path in pairs[:PROGRAMS_MOST]]:
        searched = path or usual
        bins = [(key, os.path.join(folder, key, "bin")) for key in keys[:ENVIRONMENTS_MOST]]
        having = tuple(key for key, place in bins if os.sep not in word and _is_program(os.path.join(place, word)))
        found.append(Program(word, path, _place(word, searched, home_folder), searched, having))
    return found


def wheel_folders(asked: Any, home_folder: str) -> List[WheelFolder]:
    """One answer for each folder of `asked` (may begin with `~/`); one that cannot be listed has no listing."""
    found = []
    for path in [str(path) for path in asked or ()][:FOLDERS_MOST]:
        place = home_folder + path[1:] if path.startswith("~/") else path
        try:
            with os.scandir(place) as entries:
                listed = sorted((one.name, one.stat().st_size) for one in entries if one.name.endswith(ARCHIVES))
        except OSError:
            found.append(WheelFolder(path))
            continue
        text = "".join("%s %d\n" % one for one in listed)
        found.append(WheelFolder(path, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(), len(listed)))
    return found


def inputs(asked: Any, home_folder: str) -> List[InputSeen]:
    """One answer for each path of `asked`, which may begin with `~`."""
    paths = [path for path in asked if isinstance(path, str)] if isinstance(asked, (list, tuple)) else []
    return [InputSeen(path, unreadable(_beyond(path, home_folder))) for path in paths[:INPUTS_MOST]]


def unreadable(place: str) -> str:
    """Why this account cannot read the file or list the folder `place`; empty when it can."""
    try:
        mode = os.stat(place).st_mode
    except OSError as error:
        return error.strerror or "it cannot be looked at"
    if stat.S_ISDIR(mode):
        return "" if os.access(place, os.R_OK | os.X_OK) else "Permission denied"
    if not stat.S_ISREG(mode):
        return "it is neither a file nor a folder"
    return "" if os.access(place, os.R_OK) else "Permission denied"


def _beyond(path: str, home_folder: str) -> str:
    return home_folder + path[1:] if path == "~" or path.startswith("~/") else path


def _place(word: str, searched: str, home_folder: str) -> str:
    """The program's path; empty when there is none."""
    word = _beyond(word, home_folder)
    if os.sep in word:
        return word if _is_program(word) else ""
    places = (os.path.join(folder, word) for folder in searched.split(os.pathsep) if os.path.isabs(folder))
    return next((place for place in places if _is_program(place)), "")


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
