"""What the preflight makes of torch, CUDA and driver, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from aicrun.agent.card_check import Seen
from aicrun.agent.torch_verdict import verdict, versions
from aicrun.wire.jobs import Setup

A6000 = "NVIDIA RTX A6000"
ONE = Seen((A6000,), "570.124.06", "12.8")
BUILT = Setup(key="k", path="/envs/k")


def told(**more: Any) -> dict[str, Any]:
    found = {"python": "3.12.4", "absent": False, "error": "", "torch": "2.8.0", "cuda": "12.8", "hip": ""}
    return {**found, "names": [A6000], **more}


GONE = {"torch": None}


@pytest.mark.parametrize(
    ("kind", "answer", "seen", "words"),
    [
        ("auto", told(), ONE, ""),
        ("cuda", told(names=["rtx a6000"]), ONE, ""),
        ("rocm", told(cuda="", hip="6.3"), Seen(), ""),
        ("cuda", told(cuda=""), ONE, "built without CUDA | mend: setup.torch_backend: cu128"),
        ("cuda", told(cuda=""), Seen((A6000,), "535.1", "12.2"), "mend: setup.torch_backend: cu121"),
        ("cuda", told(cuda=""), Seen((A6000,), "450.1", "11.0"), "mend: a newer driver: no torch is published"),
        ("rocm", told(), ONE, "built without ROCm | mend: setup.torch_backend: rocm6.3"),
        (
            "auto",
            told(names=[A6000], error="RuntimeError: no kernel image is available", card="sm_120", made_for=["sm_90"]),
            ONE,
            "this torch has code for sm_90, the card is sm_120 | mend: setup.torch_backend: cu128",
        ),
        (
            "auto",
            told(names=[], error="RuntimeError: Found no NVIDIA driver on your system."),
            ONE,
            "torch does not find its libcuda.so.1 | mend: in a container NVIDIA_DRIVER_CAPABILITIES must hold compute",
        ),
        ("auto", told(names=[], error="RuntimeError: no NVIDIA driver"), ONE, "RuntimeError: no NVIDIA driver"),
        (
            "auto",
            told(names=[], error="RuntimeError: driver too old", cuda="13.0"),
            ONE,
            "for CUDA 13.0, driver 570.124.06 offers up to 12.8 | mend: setup.torch_backend: cu128, or a newer driver",
        ),
        ("auto", told(names=[A6000, A6000]), ONE, "torch sees 2, the run holds 1"),
        ("auto", told(names=[]), ONE, "torch sees 0, the run holds 1"),
        ("auto", told(names=[]), Seen(), "torch sees no card"),
        (
            "auto",
            told(names=["NVIDIA RTX 3090"]),
            ONE,
            "device 0 is a NVIDIA RTX 3090, the run holds a NVIDIA RTX A6000",
        ),
    ],
)
def test_a_verdict_names_what_is_wrong_and_what_mends_it(
    kind: str, answer: dict[str, Any], seen: Seen, words: str
) -> None:
    lines = " | ".join(verdict(kind, answer, seen, BUILT))
    assert words in lines if words else not lines, lines


def test_torch_that_is_not_installed_is_wrong_only_where_it_was_asked_for() -> None:
    answer = {"python": "3.12.4", "absent": True, "error": "import torch: No module named 'torch'", "names": []}
    assert verdict("auto", answer, ONE, BUILT) == []
    assert "torch is not in this environment" in verdict("cuda", answer, ONE, BUILT)[0]
    broken = dict(answer, absent=False, error="import torch: libcudart.so.12: cannot open shared object file")
    assert "libcudart" in verdict("auto", broken, ONE, BUILT)[0]


def test_driver_cuda_and_torch_stand_side_by_side() -> None:
    assert versions(told(), ONE) == ("driver 570.124.06 (CUDA up to 12.8), torch 2.8.0 for CUDA 12.8, python 3.12.4")
    assert "torch 2.8.0 for processors" in versions(told(cuda=""), Seen())


@pytest.mark.parametrize(
    ("setup", "mend"),
    [
        (Setup(key="k", path="/envs/k", lock="L"), "whl/cu128 in pyproject.toml (tool.uv.sources), then uv lock"),
        (Setup(key="k", path="/envs/k", project=True), "whl/cu128 in pyproject.toml (tool.uv.sources), then uv lock"),
        (Setup(key="k", path="/envs/k", wheels="/w"), "put a torch for cu128 into /w, and no other"),
        (Setup(path="/v"), "/v/bin/python -m pip install torch --index-url https://download.pytorch.org/whl/cu128"),
        (Setup(key="k", path="/e/k", requirements="torch==2.8+cpu", requirements_name="r.txt"), "+cpu from what r.txt"),
        (Setup(key="k", path="/e/k", packages=("torch==2.8+cpu",)), "take +cpu from what setup.packages asks of torch"),
        (Setup(), "setup: {packages: [torch], torch_backend: cu128}"),
    ],
)
def test_a_mend_fits_what_brought_the_torch(setup: Setup, mend: str) -> None:
    for answer in (told(cuda=""), told(names=[], error="too old", cuda="13.0")):
        assert mend in verdict("auto", answer, ONE, setup)[-1]
