"""The names that a user's ssh configuration gives to machines, to be offered. What they mean, only `ssh -G` says."""

from __future__ import annotations

import glob
import os
import re

from aicrun.hosts.ssh_route import configuration

_DEPTH = 8
_LINE = re.compile(r"^[ \t]*(host|include)(?:[ \t]+|[ \t]*=[ \t]*)(\S.*)$", re.IGNORECASE | re.MULTILINE)


def aliases() -> tuple[str, ...]:
    """Names of `Host` lines without a pattern, in the order they are met, each once; empty without a configuration."""
    other = configuration()
    return tuple(dict.fromkeys(_names(other[1] if other else "~/.ssh/config", _DEPTH)))


def _words(rest: str) -> list[str]:
    """The words of a line, those in quotes as they are, up to a comment."""
    words = []
    for quoted, bare in re.findall(r'"([^"]*)"|(\S+)', rest):
        if bare.startswith("#"):
            break
        words.append(quoted or bare)
    return words


def _names(path: str, depth: int) -> list[str]:
    try:
        with open(os.path.expanduser(path), encoding="utf-8", errors="replace") as stream:
            text = stream.read()
    except OSError:
        return []
    # Where ssh looks for what is named without a path (ssh_config(5), Include).
    folder = os.path.expanduser("~/.ssh")
    found: list[str] = []
    for word, rest in _LINE.findall(text):
        for part in _words(rest):
            if word.lower() == "host":
                # What has a space in it is written in quotes, and no machine can have it as a name.
                found += [part] if not set(part) & set("*?! ") else []
            elif depth:
                for one in sorted(glob.glob(os.path.join(folder, os.path.expanduser(part)))):
                    found += _names(one, depth - 1)
    return found
