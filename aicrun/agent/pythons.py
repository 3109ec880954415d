"""The interpreters of this host that an environment can be built from. It must not run anything that is a script.

A version is asked once and kept, by the file's identity, in the jobs root.
"""

import os
import re
import sys
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Set

from aicrun.agent import later
from aicrun.agent.home import Home
from aicrun.agent.records import Unreadable, read_json, write_record
from aicrun.wire.facts import Python

if TYPE_CHECKING:
    import subprocess
else:
    subprocess = later.module("subprocess")

USUAL_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
ASK_S = 10.0
# What most of the thousands of names of such a folder do not begin with.
_BEGIN = "python3"
_ASK = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


def pythons(home: Home, env: Mapping[str, str]) -> List[Python]:
    """The agent's own interpreter first, then python3 and python3.N of PATH and the usual folders, newest first.

    Each is a real file outside of virtual environments, listed once. One that gives no version in `ASK_S` is left out.
    """
    own = os.path.realpath(sys.executable)
    places = [own] + sorted(_found(env) - {own})
    cache_path = os.path.join(home.jobs_root, "pythons.json")
    known = _kept(cache_path)
    versions = {place: known.get(_identity(place)) or "" for place in places}
    asked = [place for place in places if not versions[place]]
    versions.update(_asked(asked))
    if asked:
        write_record(cache_path, {_identity(place): version for place, version in versions.items() if version})
    found = [Python(place, versions[place]) for place in places if versions[place]]
    return found[:1] + sorted(found[1:], key=lambda python: _numbers(python.version), reverse=True)


def _found(env: Mapping[str, str]) -> Set[str]:
    found: Set[str] = set()
    for folder in _folders(env):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        likely = [name for name in names if name.startswith(_BEGIN) and _is_plain(name)]
        found.update(os.path.realpath(os.path.join(folder, name)) for name in likely)
    return {place for place in found if os.access(place, os.X_OK) and _is_program(place)}


def _folders(env: Mapping[str, str]) -> Set[str]:
    """Where to look, each once, by its real path: on most systems /bin is /usr/bin, and PATH names both."""
    named = dict.fromkeys(env.get("PATH", "").split(os.pathsep) + list(USUAL_PATH))
    # A venv's interpreter is a link to a real one: it is judged by where it stands.
    return {
        os.path.realpath(folder)
        for folder in named
        if os.path.isabs(folder) and not os.path.exists(os.path.join(os.path.dirname(folder), "pyvenv.cfg"))
    }


def _is_plain(name: str) -> bool:
    """True for `python3` and `python3.N`, which no `python3-config` is."""
    begin, point, minor = name.partition(".")
    return begin == _BEGIN and (minor.isdecimal() or not point)


def _is_program(place: str) -> bool:
    try:
        with open(place, "rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except OSError:
        return False


def _identity(place: str) -> str:
    try:
        state = os.stat(place)
    except OSError:
        return place
    return "%s %d %d" % (place, state.st_size, state.st_mtime_ns)


def _kept(path: str) -> Dict[str, str]:
    try:
        data = read_json(path)
    except Unreadable:
        return {}
    if not isinstance(data, dict):
        return {}
    return {str(key): value for key, value in data.items() if isinstance(value, str)}


def _asked(places: List[str]) -> Dict[str, str]:
    # All at once: on a cold disk one start takes a second.
    running: Dict[str, Optional["subprocess.Popen[bytes]"]] = {}
    for place in places:
        try:
            argv = [place, "-I", "-S", "-c", _ASK]
            running[place] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:
            continue
    found = {}
    for place, child in running.items():
        if child is None:
            continue
        try:
            said = child.communicate(timeout=ASK_S)[0].decode("ascii", "replace").strip()
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            continue
        if re.match(r"3\.\d+\.\d+\Z", said):
            found[place] = said
    return found


def _numbers(version: str) -> List[int]:
    return [int(part) for part in version.split(".")]
