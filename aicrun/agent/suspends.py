"""Whether this host goes to sleep by itself, by logind's files: a run sleeps with it. It must not change them."""

import glob
import os
from typing import Dict, Tuple

ACTIONS = ("suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate", "sleep")
_FILE = "systemd/logind.conf"
_TOPS = ("usr/lib", "run", "etc")


def sleeps(root: str = "/") -> Tuple[str, str]:
    """(what puts the host to sleep, "" for nothing; what keeps it awake, "" when nothing had to be found).

    `root` is where its files lie; a masked target, one that is a link to the null device, can never be reached.
    """
    for target in ("sleep.target", "suspend.target"):
        if os.path.realpath(os.path.join(root, "etc/systemd/system", target)) == os.devnull:
            return "", "%s is masked" % target
    settings = _settings(root)
    action = settings.get("IdleAction", "ignore")
    if action in ACTIONS:
        return "logind does %s when nobody types here" % action, ""
    # systemd's own default for a lid; a docked or powered laptop may have another.
    lid = settings.get("HandleLidSwitch", "suspend")
    if lid in ACTIONS and glob.glob(os.path.join(root, "proc/acpi/button/lid/*")):
        return "closing its lid does %s" % lid, ""
    return "", ""


def _settings(root: str) -> Dict[str, str]:
    """What the files say, the later over the earlier: the main file of each folder, then all drop-ins by name."""
    paths = [os.path.join(root, top, _FILE) for top in _TOPS]
    more = [path for top in _TOPS for path in glob.glob(os.path.join(root, top, _FILE + ".d", "*.conf"))]
    found: Dict[str, str] = {}
    for path in paths + sorted(more, key=os.path.basename):
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                lines = [line.strip() for line in stream]
        except OSError:
            continue
        for line in lines:
            name, equals, value = line.partition("=")
            if equals and not line.startswith(("#", ";")):
                found[name.strip()] = value.strip()
    return found
