"""The way in: from a file to checked values, or to all of its faults at once.

It reads the file it is given and looks whether local files that the spec names are there; it never asks a machine.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass

from aicrun.errors import UsageError, Way
from aicrun.spec.build import run_spec
from aicrun.spec.diagnostics import Diagnostic, DocumentInvalid
from aicrun.spec.findings import Finding, diagnostics_of
from aicrun.spec.inventory import find_inventory, load_inventory, load_inventory_text, local_inventory
from aicrun.spec.model import RunSpec
from aicrun.spec.nodes import Node
from aicrun.spec.opening import contents
from aicrun.spec.secrets import Mask

__all__ = [
    "Loaded",
    "find_inventory",
    "find_specs",
    "load_inventory",
    "load_inventory_text",
    "load_run",
    "load_run_text",
    "local_inventory",
]


@dataclass(frozen=True)
class Loaded:
    """The runs of one file, in its order (one, until `params` are supported), and its warnings by line."""

    specs: tuple[RunSpec, ...]
    warnings: tuple[Diagnostic, ...] = ()


def load_run(path: str, *, overrides: tuple[str, ...] = (), strict: bool = False) -> Loaded:
    """The runs in the file at `path`, with `--set` arguments `overrides` in order.

    Raises `UsageError` when there is no such file or it cannot be read, `DocumentInvalid` with every fault otherwise;
    with `strict` a warning is a fault.
    """
    raw = contents(path, _first_one(path))
    folder = os.path.dirname(os.path.abspath(path))
    return load_run_text(raw, path, folder, overrides=overrides, strict=strict)


def load_run_text(
    raw: bytes, file: str, folder: str, *, overrides: tuple[str, ...] = (), strict: bool = False
) -> Loaded:
    """As `load_run`, for bytes in hand: `file` is shown in faults.

    `folder` resolves local paths; they are not looked at when it is empty.
    """
    from aicrun.spec.source import read  # yaml's room is not entered before there is a file

    reading = read(raw, file)
    findings = list(reading.findings)
    mask = Mask()
    root = reading.root
    if not reading.broken:
        from aicrun.spec.check import schema_findings  # the same

        if root is not None and overrides and isinstance(root.value, dict):
            root = reading.root = _overridden(root, overrides, findings)
        findings += schema_findings(reading, "run")
        if root is not None and isinstance(root.value, dict):
            findings += _beyond_schema(root, folder, mask)
    diagnostics = diagnostics_of(findings, mask, strict=strict) if findings else ()
    if root is None or any(one.severity == "error" for one in diagnostics):
        raise DocumentInvalid(diagnostics)
    return Loaded((run_spec(root, file, folder, overrides),), diagnostics)


def find_specs(path: str) -> tuple[str, ...]:
    """The specs that `path` names: itself, or the `.yaml` and `.yml` files of a folder, sorted, without inventories.

    Raises `UsageError` for a folder without any.
    """
    if not os.path.isdir(path):
        return (path,)
    names = sorted(name for name in os.listdir(path) if name.endswith((".yaml", ".yml")))
    found = tuple(os.path.join(path, name) for name in names if name not in ("machines.yaml", "machines.yml"))
    if not found:
        ways = (_first_one(os.path.join(path, "run.yaml")),)
        raise UsageError("AIC-E180", f"the folder {path} holds no spec", ways=ways)
    return found


def _first_one(path: str) -> Way:
    return Way("write a first one", "aicrun init" if path == "run.yaml" else f"aicrun init --to {shlex.quote(path)}")


def _overridden(root: Node, overrides: tuple[str, ...], findings: list[Finding]) -> Node:
    from aicrun.spec.grammar import grammar  # only where something is set
    from aicrun.spec.overrides import overridden

    result = overridden(root, overrides, grammar("run"))
    findings += result.findings
    return result.root


def _beyond_schema(root: Node, folder: str, mask: Mask) -> list[Finding]:
    """What no schema can say. Secrets come first: from then on the mask hides them."""
    from aicrun.spec.leaks import leak_findings
    from aicrun.spec.lints import lint_findings
    from aicrun.spec.placeholders import placeholder_findings
    from aicrun.spec.rules import rule_findings
    from aicrun.spec.unsupported import unsupported_findings

    findings = list(leak_findings(root, mask))
    findings += placeholder_findings(root)
    findings += rule_findings(root, folder)
    findings += unsupported_findings(root)
    findings += lint_findings(root, folder)
    return findings
