"""What is wrong with what torch told of the run's cards, and what most likely mends it. Pure.

A mend fits the form of the setup that brought the torch: nobody is told to set a field that is refused there.
"""

from typing import Any, List, Mapping, Tuple

from aicrun.agent.card_check import Seen
from aicrun.wire.jobs import Setup

# The CUDA versions that torch is published for.
_PUBLISHED = ("11.8", "12.1", "12.4", "12.6", "12.8", "12.9", "13.0")
_ROCM = "rocm6.3"
_WHEELS = "https://download.pytorch.org/whl/"


def verdict(kind: str, told: Mapping[str, Any], seen: Seen, setup: Setup) -> List[str]:
    """What is wrong and what most likely mends it, one line each; empty when all is well.

    `kind` is `auto` (only where torch is installed), `cuda` or `rocm`; `told` is what the probe printed.
    """
    if told["absent"]:
        return [] if kind == "auto" else ["torch is not in this environment", "mend: add it to what setup installs"]
    if "torch" not in told:
        return [str(told["error"]), "mend: look at the versions of what setup installs"]
    built = str(told["hip"] if kind == "rocm" else told["cuda"])
    if not built:
        wanted, backend = ("ROCm", _ROCM) if kind == "rocm" else ("CUDA", _backend(seen.cuda))
        return ["torch %s is built without %s" % (told["torch"], wanted), "mend: " + _mend(setup, backend)]
    if told["error"]:
        return [str(told["error"])] + _causes(told, built, seen, setup)
    there = list(told["names"])
    if seen.models and len(there) != len(seen.models):
        lines = ["torch sees %d, the run holds %d" % (len(there), len(seen.models))]
        lines += _newer_than_driver(built, seen, setup)
        return lines + ["see whether the command's environment sets CUDA_VISIBLE_DEVICES: aicrun inspect RUN --env"]
    for number, (name, model) in enumerate(zip(there, seen.models)):
        if model and _plain(name) != _plain(model):
            return ["torch's device %d is a %s, the run holds a %s there" % (number, name, model)]
    return [] if there else ["torch sees no card"] + _newer_than_driver(built, seen, setup)


def versions(told: Mapping[str, Any], seen: Seen) -> str:
    """Driver, CUDA and torch side by side."""
    driver = "driver %s (CUDA up to %s)" % (seen.driver or "unknown", seen.cuda or "unknown")
    torch = "no torch"
    if "torch" in told:
        build = "CUDA %s" % told["cuda"] if told["cuda"] else "ROCm %s" % told["hip"] if told["hip"] else "processors"
        torch = "torch %s for %s" % (told["torch"], build)
    return "%s, %s, python %s" % (driver, torch, told["python"])


def _causes(told: Mapping[str, Any], built: str, seen: Seen, setup: Setup) -> List[str]:
    """What most likely made torch fail, and its mend; empty when nothing of it is known."""
    card, made_for = str(told.get("card", "")), list(told.get("made_for", ()))
    if card and made_for and card not in made_for and "kernel image" in str(told["error"]):
        what = "this torch has code for %s, the card is %s" % (", ".join(map(str, made_for)), card)
        return [what, "mend: " + _mend(setup, _backend(seen.cuda))]
    found = _newer_than_driver(built, seen, setup)
    if not found and seen.driver and "no NVIDIA driver" in str(told["error"]):
        what = "driver %s answers, but torch does not find its libcuda.so.1" % seen.driver
        return [what, "mend: in a container NVIDIA_DRIVER_CAPABILITIES must hold compute; else ldconfig must list it"]
    return found


def _newer_than_driver(built: str, seen: Seen, setup: Setup) -> List[str]:
    if not seen.cuda or _number(built) <= _number(seen.cuda):
        return []
    what = "torch is built for CUDA %s, driver %s offers up to %s" % (built, seen.driver or "of this host", seen.cuda)
    return [what, "mend: %s, or a newer driver" % _mend(setup, _backend(seen.cuda))]


def _mend(setup: Setup, backend: str) -> str:
    """How another build of torch comes into the environment of such a setup; `backend` empty: none is old enough."""
    if not backend:
        return "a newer driver: no torch is published for one as old"
    if setup.lock or setup.project:
        return "take torch from %s%s in pyproject.toml (tool.uv.sources), then uv lock" % (_WHEELS, backend)
    if setup.wheels:
        return "put a torch for %s into %s, and no other" % (backend, setup.wheels)
    if setup.path and not setup.key:
        return "%s/bin/python -m pip install torch --index-url %s%s" % (setup.path, _WHEELS, backend)
    if "+cpu" in setup.requirements or any("+cpu" in package for package in setup.packages):
        return "take +cpu from what %s asks of torch" % (setup.requirements_name or "setup.packages")
    if not setup.key:
        return "setup: {packages: [torch], torch_backend: %s}" % backend
    return "setup.torch_backend: %s" % backend


def _backend(cuda: str) -> str:
    """The newest that a driver offering `cuda` can run; the newest of all where it tells nothing."""
    fits = [one for one in _PUBLISHED if not cuda or _number(one) <= _number(cuda)]
    return "cu" + fits[-1].replace(".", "") if fits else ""


def _number(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _plain(model: str) -> str:
    return " ".join(model.casefold().replace("nvidia", "").split())
