"""machines.yaml: where it is found, and the machines it becomes, with the same diagnostics as a spec.

It must not ask a machine whether it is there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from aicrun.errors import Way
from aicrun.spec.diagnostics import Diagnostic, DocumentInvalid
from aicrun.spec.findings import Finding, diagnostics_of, range_of
from aicrun.spec.model import Inventory, LocalReach, Machine, SlurmReach, SshReach
from aicrun.spec.nodes import Node, Path, dotted, texts
from aicrun.spec.opening import contents
from aicrun.spec.secrets import Mask
from aicrun.spec.values import short

FILE = "machines.yaml"
VARIABLE = "AICRUN_MACHINES"
HERE = "here"


def find_inventory(explicit: str, env: Mapping[str, str], spec_folder: str, config_folder: str) -> str:
    """The inventory to use, or "" when there is none.

    In this order: `explicit` (`--machines`), `$AICRUN_MACHINES`, `machines.yaml` in `spec_folder` or above it up to the
    top of its repository, then in `config_folder`. The first two are given back whether or not they are there.
    """
    if explicit or env.get(VARIABLE):
        return explicit or env[VARIABLE]
    for folder in (*_upwards(spec_folder), config_folder):
        path = os.path.join(folder, FILE)
        if folder and os.path.isfile(path):
            return path
    return ""


def _upwards(folder: str) -> tuple[str, ...]:
    """`folder` and those above it up to the one with `.git`; `folder` alone outside any repository."""
    if not folder:
        return ()
    found = [os.path.abspath(folder)]
    while not os.path.exists(os.path.join(found[-1], ".git")):
        above = os.path.dirname(found[-1])
        if above == found[-1]:
            return (found[0],)
        found.append(above)
    return tuple(found)


def load_inventory(path: str) -> tuple[Inventory, tuple[Diagnostic, ...]]:
    """The inventory at `path` and its warnings.

    Raises `UsageError` when it cannot be read, `DocumentInvalid` with all its faults.
    """
    raw = contents(path, Way("begin with one", "aicrun explain machines"))
    return load_inventory_text(raw, path)


def load_inventory_text(raw: bytes, file: str) -> tuple[Inventory, tuple[Diagnostic, ...]]:
    """As `load_inventory`, for bytes in hand."""
    from aicrun.spec.source import read  # yaml's room is not entered before there is a file

    reading = read(raw, file)
    findings = list(reading.findings)
    mask = Mask()
    if not reading.broken:
        from aicrun.spec.check import schema_findings  # the same

        findings += schema_findings(reading, "machines")
        if reading.root is not None and isinstance(reading.root.value, dict):
            findings += _beyond_schema(reading.root, mask)
    diagnostics = diagnostics_of(findings, mask)
    if reading.root is None or any(one.severity == "error" for one in diagnostics):
        raise DocumentInvalid(diagnostics)
    listed = reading.root.at("machines")
    machines = tuple(_machine(node) for node in listed.elements()) if listed else ()
    return Inventory(machines, file, meaning(machines)), diagnostics


def meaning(machines: tuple[Machine, ...]) -> str:
    """The hash of what an inventory says, 64 hex digits: two people with the same hash plan on the same list.

    It is over the values in their order, not over the text: comments, line breaks and ways to write a value are not in
    it. What has its usual value is left out, so that a field of a later version leaves older hashes as they are.
    """
    said = json.dumps(["inventory", 1, [_said(machine) for machine in machines]], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(said.encode("ascii")).hexdigest()


def _said(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = [item for item in dataclasses.fields(value) if item.name != "line"]
        held = {item.name: (getattr(value, item.name), item) for item in fields}
        said = {name: _said(found) for name, (found, item) in held.items() if found != _usual(item)}
        return {"is": type(value).__name__, **said}
    if isinstance(value, Mapping):
        return {key: _said(item) for key, item in value.items()}
    return [_said(item) for item in value] if isinstance(value, tuple) else value


def _usual(item: dataclasses.Field[Any]) -> Any:
    return item.default_factory() if item.default_factory is not dataclasses.MISSING else item.default


def local_inventory() -> Inventory:
    """The machine aicrun runs on, alone and named `here`: what there is without any file."""
    return Inventory((Machine(HERE, LocalReach()),))


def _beyond_schema(root: Node, mask: Mask) -> list[Finding]:
    from aicrun.spec.leaks import leak_findings  # not needed before there is a tree

    findings = list(leak_findings(root, mask))
    machines = root.at("machines")
    nodes = list(machines.elements()) if machines is not None else []
    findings += _names(nodes)
    findings += _locals(nodes)
    for index, node in enumerate(nodes):
        findings += _paths(node, ("machines", index))
        findings += _owned(node, ("machines", index))
    return findings


def _names(nodes: list[Node]) -> Iterator[Finding]:
    first: dict[str, Node] = {}
    for index, node in enumerate(nodes):
        name = node.at("name")
        if name is None or name.text is None:
            continue
        if name.text in first:
            also = (range_of(first[name.text]), "first here")
            message = f'two machines are called "{short(name.text)}"'
            path: Path = ("machines", index, "name")
            yield Finding(
                "AIC-E171", message, range_of(name), path, "again here", helps=("give each its own name",), also=also
            )
        first.setdefault(name.text, name)


def _locals(nodes: list[Node]) -> Iterator[Finding]:
    found = [node for node in nodes if node.at("local") is not None]
    for node in found[1:]:
        also = (range_of(found[0].keys["local"]), "first here")
        where = range_of(node.keys["local"])
        message = "only one machine is the one aicrun runs on"
        yield Finding("AIC-E172", message, where, label="again here", helps=("keep one of the two",), also=also)


def _paths(machine: Node, above: Path) -> Iterator[Finding]:
    data = machine.at("data")
    folders = machine.at("path")
    listed: list[tuple[Path, Node]] = [(("data",), data)] if data is not None else []
    listed += [(("path", index), node) for index, node in enumerate(folders.elements() if folders else ())]
    for path, node in listed:
        text = node.text
        if text and not text.startswith(("/", "~/")):
            message = f'"{dotted((*above, *path))}" is a path on the machine, and "{short(text)}" starts nowhere'
            yield Finding("AIC-E124", message, range_of(node), (*above, *path), helps=("start it with / or ~/",))


def _owned(machine: Node, above: Path) -> Iterator[Finding]:
    env = machine.at("env")
    for name in env.keys if env else ():
        if env is not None and (name.startswith("AICRUN_") or name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")):
            help_ = "use keep_free for cards that runs shall not get" if name.startswith("CUDA") else "use another name"
            path = (*above, "env", name)
            yield Finding("AIC-E129", f"aicrun sets {name} itself", range_of(env.keys[name]), path, helps=(help_,))


def _machine(node: Node) -> Machine:
    keep_free, folders = node.at("keep_free"), node.at("path")
    data, limit = node.at("data"), node.at("max_jobs")
    return Machine(
        name=node.value["name"],
        reach=_reach(node),
        labels=texts(node.at("labels")),
        data=(data.text or "") if data else "",
        keep_free=tuple(_card(item) for item in keep_free.elements()) if keep_free else (),
        env=texts(node.at("env")),
        path=tuple(item.text or "" for item in folders.elements()) if folders else (),
        max_jobs=int(limit.value) if limit else 32,
        down=bool(node.value.get("down", False)),
        sleeps=bool(node.value.get("sleeps", False)),
        line=node.start.line + 1,
        shared_memory=bool(node.value.get("shared_memory", False)),
    )


def _card(node: Node) -> int | str:
    return node.value if isinstance(node.value, str) else int(node.value)


def _reach(node: Node) -> LocalReach | SshReach | SlurmReach:
    slurm = node.at("slurm")
    if slurm is not None:
        partition = slurm.at("partition")
        over = _reach(slurm)
        over = over if isinstance(over, SshReach) else LocalReach()
        return SlurmReach(over, (partition.text or "") if partition else "")
    ssh = node.at("ssh")
    return SshReach(ssh.text or "") if ssh else LocalReach()
