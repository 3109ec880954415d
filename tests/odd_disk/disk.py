"""A disk that refuses or writes down what is done to it: our own library in front of the C library. See `disk.c`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("disk.c")
NAME = "odd-disk.so"


def can_be_built() -> bool:
    """True where there is a C compiler."""
    return shutil.which("gcc") is not None


@cache
def _compiled() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, NAME)
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run(["gcc", *flags, "-o", str(library), str(SOURCE), "-ldl"], check=True)
        return library.read_bytes()


@dataclass(frozen=True)
class Change:
    """One change that was made: by which process, what, to which path, and the second path of a rename or link."""

    pid: int
    what: str
    path: str
    to: str


class OddDisk:
    """Whoever is started with `env` finds the files below `root` on a disk that obeys this object."""

    def __init__(self, folder: Path, root: Path) -> None:
        folder.mkdir()
        (folder / NAME).write_bytes(_compiled())
        (folder / "root").write_text(str(root))
        self.folder = folder
        self.env = {"LD_PRELOAD": str(folder / NAME), "AICRUN_TEST_DISK": str(folder)}

    def refuse(self, number: int) -> None:
        """From now on every change ends with this error number."""
        fresh = self.folder / "errno.new"
        fresh.write_text(str(number))
        fresh.rename(self.folder / "errno")

    def allow(self) -> None:
        """Everything works again."""
        (self.folder / "errno").unlink()

    def watch(self) -> None:
        """From now on write down every change."""
        (self.folder / "journal").touch()

    def changes(self) -> list[Change]:
        """What was written down, in order."""
        rows = [line.split("\t") for line in (self.folder / "journal").read_text().splitlines()]
        return [Change(int(pid), what, path, to) for pid, what, path, to in rows]
