"""A driver whose cards a test writes: our own NVML library, loaded by the real pynvml. See the head of `nvml.c`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")
NAME = "libnvidia-ml.so.1"
CUDA = "libcuda.so.1"

TWO_CARDS = """
driver 570.124.06
cuda 12080
card GPU-aaaa NVIDIA GeForce RTX 3090
  total 24576
  reserved 300
  used 100
  utilization 3
  temperature 40
  power 30
  display 1
  bus 00000000:01:00.0
card GPU-bbbb NVIDIA RTX A6000
  total 49140
  reserved 600
  mig 0
  capability 8 9
  bus 00000000:41:00.0
"""


@cache
def _compiled(source: Path = SOURCE, name: str = NAME) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, name)
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{name}"]
        subprocess.run(["gcc", *flags, "-o", str(library), str(source), "-ldl"], check=True)
        return library.read_bytes()


class FakeDriver:
    """A folder with the library and its state; whoever starts with `env` sees these cards and no others."""

    def __init__(self, folder: Path, state: str = TWO_CARDS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / NAME).write_bytes(_compiled())
        self.folder = folder
        self.env = {"LD_LIBRARY_PATH": str(folder)}
        self.write(state)

    def with_cuda(self) -> None:
        """Also a library that programs take memory with, so that they are listed on the card; see `cuda.c`."""
        (self.folder / CUDA).write_bytes(_compiled(SOURCE.with_name("cuda.c"), CUDA))

    def write(self, state: str) -> None:
        """Replace the cards, at once for everybody."""
        fresh = self.folder / "nvml.state.new"
        fresh.write_text(state)
        fresh.replace(self.folder / "nvml.state")

    def add(self, lines: str) -> None:
        """Append lines; they are about the last card, or begin another."""
        self.write((self.folder / "nvml.state").read_text() + lines + "\n")

    def unload(self) -> None:
        """The driver is not loaded any more."""
        (self.folder / "nvml.state").unlink()


def can_be_built() -> bool:
    """Whether there is a C compiler."""
    return shutil.which("gcc") is not None
