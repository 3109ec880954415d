"""The house as data: rooms, the arrows allowed between them, the doors of third parties, the limits of size.

A change of the picture is a change of this file, in a commit that says so, and of `docs/architecture.md` with it.
It must not read anything; `rules.py` does.
"""

from __future__ import annotations

# From a room to the modules it may import: a name admits the module and all below it. A room may import itself, and
# everybody may import `aicrun` for its version. What is not in this table is forbidden.
ARROWS = {
    "main": ("aicrun.cli",),
    "cli": ("aicrun.api", "aicrun.lifecycle.events", "aicrun.plan", "aicrun.spec", "aicrun.errors", "aicrun.codes"),
    "api": (
        "aicrun.lifecycle",
        "aicrun.plan",
        "aicrun.hosts",
        "aicrun.spec",
        "aicrun.wire",
        "aicrun.errors",
        "aicrun.codes",
    ),
    "lifecycle": (
        "aicrun.plan",
        "aicrun.hosts.backend",
        "aicrun.spec.model",
        "aicrun.wire",
        "aicrun.errors",
        "aicrun.codes",
    ),
    "plan": ("aicrun.spec.model", "aicrun.wire"),
    "hosts": ("aicrun.spec.model", "aicrun.wire", "aicrun.errors", "aicrun.codes"),
    "agent": ("aicrun.wire",),
    "spec": ("aicrun.errors", "aicrun.codes"),
    "wire": (),
    "errors": ("aicrun.errors", "aicrun.codes", "aicrun.codes_of_files"),
    "version": (),
}

# Single files of the package that are a room, or belong to one, though they lie at the top.
FILES = {
    "aicrun/__init__.py": "version",
    "aicrun/__main__.py": "main",
    "aicrun/api.py": "api",
    "aicrun/errors.py": "errors",
    "aicrun/codes.py": "errors",
    "aicrun/codes_of_files.py": "errors",
}

# Each third-party package has one door: a file, or a folder when it ends with a slash.
DOORS = {
    "yaml": "aicrun/spec/source.py",
    "jsonschema": "aicrun/spec/check.py",
    "referencing": "aicrun/spec/check.py",
    "fabric": "aicrun/hosts/ssh.py",
    "invoke": "aicrun/hosts/ssh.py",
    "paramiko": "aicrun/hosts/ssh.py",
    "pynvml": "aicrun/agent/cards.py",
    "click": "aicrun/cli/",
    "rich": "aicrun/cli/views/",
}

# Packages that may be missing where the code runs, so that only a function may import them.
ONLY_IN_A_FUNCTION = ("pynvml",)

# Rooms and files that run where nothing is installed.
STANDARD_LIBRARY_ONLY = (
    "aicrun/agent/",
    "aicrun/wire/",
    "aicrun/errors.py",
    "aicrun/codes.py",
    "aicrun/codes_of_files.py",
    "aicrun/hosts/uv.py",
)

# Modules of the standard library that came after Python 3.8.
NEWER_THAN_38 = ("tomllib", "zoneinfo", "graphlib", "compression", "annotationlib")

# The oldest Python that must parse a file: what is shipped to hosts, and the very first file of it.
SYNTAX = (
    ("quickstart.py", (3, 6)),
    ("aicrun/agent/boot.py", (3, 6)),
    ("aicrun/agent/", (3, 8)),
    ("aicrun/wire/", (3, 8)),
)

# Methods and arguments that parse on Python 3.8 and fail when they run there.
NEWER_METHODS = ("removeprefix", "removesuffix", "is_relative_to", "pairwise", "bit_count", "batched")
NEWER_ARGUMENTS = (("zip", "strict"), ("dataclass", "slots"), ("dataclass", "kw_only"))

# What `plan` must not touch: the clock, the disk, other processes, chance, the network, logs.
IMPURE_MODULES = (
    "asyncio",
    "concurrent",
    "datetime",
    "fcntl",
    "glob",
    "http",
    "io",
    "locale",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "platform",
    "pwd",
    "random",
    "secrets",
    "select",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uuid",
)
IMPURE_CALLS = ("open", "input", "print", "exec", "eval", "__import__", "breakpoint")

FORBIDDEN_NAMES = ("utils", "util", "common", "helpers", "helper", "base", "misc", "stuff")
NAMED_ALL_THE_SAME = ("aicrun/cli/views/base.py",)

# First words of a function's name that say nothing about what it gives back or changes.
EMPTY_VERBS = ("get_", "handle_", "process_", "do_", "manage_")

FILE_LINES = 400
FUNCTION_LINES = 45
PARAMETERS = 6

# Where a test may wait by the clock.
SLEEPS = ("tests/support.py",)

# Programs that job commands run; they are what is tested, so they may sleep.
PROGRAMS = "/programs/"
