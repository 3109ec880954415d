"""What was built here before and what builds: finished environments, and the uv of this host.

It must not build anything, nor start uv.
"""

import os
from typing import Sequence, Tuple

from aicrun.agent.home import Home
from aicrun.agent.machine import OTHER_SYSTEM_PATH, SYSTEM_PATH, libc, program
from aicrun.wire.codec import load
from aicrun.wire.tools import UV, UV_VERSION, uv_platform

MARK = "complete"


def is_complete(path: str, key: str) -> bool:
    """True when the environment of `key` at `path` was finished, and the Python below it is there."""
    try:
        with open(os.path.join(path, MARK), "rb") as stream:
            mark = load(stream.read())
    except (OSError, ValueError):
        return False
    if not isinstance(mark, dict) or mark.get("key") != key:
        return False
    # A link to an interpreter of the host, which an upgrade may have taken away.
    return os.path.exists(os.path.join(path, "bin", "python"))


def ready_keys(folder: str) -> Tuple[str, ...]:
    """The keys of finished environments below `folder`, sorted; a missing folder has none."""
    try:
        found = sorted(os.listdir(folder))
    except OSError:
        return ()
    return tuple(name for name in found if is_complete(os.path.join(folder, name), name))


def find_uv(home: Home, account_home: str, extra: Sequence[str] = ()) -> str:
    """The uv of this host: in `extra` folders, the account's, the system's, else the one a client pushed; "" = none."""
    own = [os.path.join(account_home, name) for name in (".local/bin", ".cargo/bin")]
    return program("uv", [*extra, *own, *SYSTEM_PATH, *OTHER_SYSTEM_PATH]) or _pushed_uv(home)


def _pushed_uv(home: Home) -> str:
    place = os.path.join(home.jobs_root, "bin", "uv-" + UV_VERSION)
    if os.access(place, os.X_OK):
        return place
    known = UV.get(uv_platform(os.uname().sysname, os.uname().machine, libc()))
    if known is None:
        return ""
    try:
        with open(home.object_path(known[2]), "rb") as stream:
            raw = stream.read()
    except OSError:
        return ""
    # Imported here: most hosts have a uv of their own, or have had this one checked before.
    from aicrun.wire.hashes import sha256

    if sha256(raw) != known[2]:
        return ""
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    temporary = "%s.%d" % (place, os.getpid())
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o700), "wb") as stream:
        stream.write(raw)
    os.rename(temporary, place)
    return place
