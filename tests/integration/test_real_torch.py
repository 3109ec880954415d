"""The preflight with the torch that people use, on a simulated card: a build without CUDA, one that finds no driver.

`make slow` runs it where such a torch is at hand: `AICRUN_TEST_TORCH_CPU` and `AICRUN_TEST_TORCH_CUDA` name virtual
environments; for the first one is made where pip finds a wheel of a build for processors without asking an index.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import packages
import pytest
from fake_nvml.driver import can_be_built
from integration.project import Project
from integration.test_cards import CARD

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_be_built(), reason="no C compiler for the simulated driver"),
]


@pytest.fixture(scope="module")
def for_processors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a torch that is built without CUDA, kept between sessions."""
    if named := os.environ.get("AICRUN_TEST_TORCH_CPU"):
        return Path(named)
    kept = packages.kept_folder() / f"torch-cpu-{sys.version_info.minor}"
    if not (kept / "complete").exists():
        wheels = tmp_path_factory.mktemp("wheels")
        pip = [sys.executable, "-m", "pip"]
        found = [*pip, "download", "-q", "--no-deps", "--no-index", "-d", str(wheels), "torch"]
        subprocess.run(found, capture_output=True, check=False)
        wheel = next(wheels.glob("torch-*cpu-*.whl"), None)
        if wheel is None:
            pytest.skip("no torch for processors here: name an environment in AICRUN_TEST_TORCH_CPU")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(kept)], check=True)
        subprocess.run([str(kept / "bin/pip"), "install", "-q", str(wheel)], check=True)
        (kept / "complete").touch()
    return kept


def apply(box: Project, setup: str) -> tuple[int, str]:
    box.write("python work.py 0", more=f"{CARD}setup: {{{setup}}}\n")
    done = box.apply("--follow", "--again")
    return done.returncode, box.run("logs", "quick", "--step", "preflight").stdout


def test_a_torch_for_processors_is_told_as_one_beside_the_driver(box: Project, for_processors: Path) -> None:
    code, said = apply(box, f"venv: {for_processors}")
    assert code == 10
    version = _asked(for_processors, "torch.__version__")
    assert f"driver 570.124.06 (CUDA up to 12.8), torch {version} for processors, python 3." in said
    assert f"aicrun: preflight failed: torch {version} is built without CUDA" in said
    assert f"mend: {for_processors}/bin/python -m pip install torch --index-url https://download.pytorch.org/" in said
    assert box.starts() == []
    code, said = apply(box, f"venv: {for_processors}, preflight: rocm")
    assert (code, "is built without ROCm" in said) == (10, True), said
    # Whoever knows better says so.
    assert apply(box, f"venv: {for_processors}, preflight: none")[0] == 0
    assert len(box.starts()) == 1


def test_a_torch_for_cuda_that_finds_no_driver_trains_nothing(box: Project) -> None:
    named = Path(os.environ.get("AICRUN_TEST_TORCH_CUDA", ""))
    if not (named / "bin/python").exists():
        pytest.skip("no torch for CUDA here: name an environment in AICRUN_TEST_TORCH_CUDA")
    code, said = apply(box, f"venv: {named}")
    assert code == 10
    version, cuda = _asked(named, "torch.__version__"), _asked(named, "torch.version.cuda")
    assert f"torch {version} for CUDA {cuda}, python 3." in said
    assert "aicrun: preflight failed: RuntimeError: Found no NVIDIA driver" in said
    assert said.splitlines()[-1].startswith("mend: ")
    assert box.starts() == []


def _asked(environment: Path, what: str) -> str:
    argv = [str(environment / "bin/python"), "-W", "ignore", "-c", f"import torch; print({what})"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
