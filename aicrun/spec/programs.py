"""What the programs that a command names say: read from the source's files here, as far as they are there.

It runs nothing and follows no import. A file that is not there or cannot be read says nothing.
"""

from __future__ import annotations

import os
import re

from aicrun.spec.nodes import Node

_MOST_READ_BYTES = 256 * 1024
_MOST_FILES = 8
_FILE = re.compile(r"(?<![\w./-])(?:\./)?([\w-][\w./-]*\.(?:py|sh|bash|pl|jl|R))(?![\w-])")
_MODULE = re.compile(r"(?:^|\s)-m\s+([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


def programs_read(root: Node, command: str, folder: str, pattern: re.Pattern[str]) -> bool:
    """Whether a program of the source that `command` names holds `pattern`; `folder` is the spec's own."""
    top = _folder(root, folder)
    names = [match[1] for match in _FILE.finditer(command)]
    for match in _MODULE.finditer(command):
        path = match[1].replace(".", "/")
        names += [f"{path}.py", f"{path}/__main__.py", f"{path}/__init__.py"]
    return any(pattern.search(_text(os.path.join(top, name))) for name in names[:_MOST_FILES])


def _folder(root: Node, folder: str) -> str:
    parts = (node.text for node in (root.at("source", "path"), root.at("cwd")) if node is not None and node.text)
    return os.path.join(folder, *parts)


def _text(path: str) -> str:
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, "rb") as stream:
            return stream.read(_MOST_READ_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""
