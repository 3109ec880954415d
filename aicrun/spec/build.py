"""From a checked tree to the values of a `RunSpec`. It must not check: every field here is known to be valid."""

from __future__ import annotations

import os
from typing import Any

from aicrun.spec.endings import backoff_s
from aicrun.spec.inputs import scheme_of, tools_of
from aicrun.spec.model import (
    FETCH_TIMEOUT_S,
    RETRY_BACKOFF,
    RETRY_WHEN,
    CardDemand,
    CheckpointSpec,
    DiskDemand,
    InputFrom,
    LimitsSpec,
    ProgressSpec,
    ResumeSpec,
    RetrySpec,
    RunSpec,
    Selector,
    SetupSpec,
    SourceSpec,
    UploadSpec,
)
from aicrun.spec.nodes import Node, texts, written
from aicrun.spec.placeholders import filled
from aicrun.spec.rules import TARGETS
from aicrun.spec.sizes import (
    cards,
    duration_s,
    headroom_mib,
    percent,
    size_bytes,
    size_mib,
    size_range_mib,
    version_range,
)

# The classes of fields of design section 5. What is in neither of the first two selects machines.
EXECUTION = ("command", "cwd", "shell", "env", "secrets", "source", "setup", "inputs", "resume", "params")
SUPERVISION = ("limits", "retry", "queue", "progress", "notify", "notes", "description", "labels")


class _Tree:
    """Reads optional fields of the tree by path, with `${run.name}` filled in."""

    def __init__(self, root: Node, name: str) -> None:
        self.root = root
        self.name = name

    def text(self, *path: str, default: str = "") -> str:
        node = self.root.at(*path)
        return default if node is None else filled(node.text or "", self.name)

    def texts(self, *path: str) -> dict[str, str]:
        return {key: filled(text, self.name) for key, text in texts(self.root.at(*path)).items()}

    def list(self, *path: str) -> tuple[str, ...]:
        """The items as text; one text stands for a list of one."""
        node = self.root.at(*path)
        if node is None:
            return ()
        nodes = node.elements() if node.children is not None else (node,)
        return tuple(filled(item.text or "", self.name) for item in nodes)

    def number(self, *path: str) -> int | None:
        node = self.root.at(*path)
        return None if node is None else int(node.value)

    def flag(self, *path: str, default: bool) -> bool:
        node = self.root.at(*path)
        return default if node is None else bool(node.value)

    def seconds(self, *path: str) -> int | None:
        return duration_s(self.text(*path)) if self.root.at(*path) is not None else None

    def written(self, *path: str) -> Any:
        node = self.root.at(*path)
        return None if node is None else _filled(written(node), self.name)


def run_spec(root: Node, file: str, folder: str, overrides: tuple[str, ...]) -> RunSpec:
    """The run in `root`; `folder` is the spec's, against which local paths are resolved."""
    name = root.value["name"]
    tree = _Tree(root, name)
    gpu = _demand(tree)
    command = root.at("command")
    wait = tree.seconds("queue", "wait")
    return RunSpec(
        name=name,
        file=file,
        folder=folder,
        command=tree.list("command"),
        execution=_execution(tree),
        supervision=_supervision(tree),
        selector=_selector(tree),
        is_argv=command is not None and command.children is not None,
        shell=tree.text("shell", default="bash"),
        description=tree.text("description"),
        labels=tree.texts("labels"),
        machine=_machine(tree, gpu),
        workspace=tree.text("workspace", default=f"~/aic-jobs/{name}"),
        cwd=tree.text("cwd"),
        source=_source(tree, folder),
        setup=_setup(tree, has_card=gpu is not None),
        env=tree.texts("env"),
        limits=_limits(tree),
        queue_wait_s=86400 if wait is None else wait,
        queue_priority=tree.number("queue", "priority") or 0,
        checkpoints=CheckpointSpec(
            tree.text("checkpoints", "path"), _upload(tree), tree.number("checkpoints", "keep") or 0
        ),
        progress=_progress(root),
        notes=tree.text("notes"),
        overrides=overrides,
        retry=_retry(tree),
        inputs=_inputs(tree),
        brought=_brought(tree, folder),
        resume=_resume(tree),
    )


def _filled(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, name) for item in value]
    return filled(value, name) if isinstance(value, str) else value


def _execution(tree: _Tree) -> dict[str, Any]:
    fields = {key: tree.written(key) for key in EXECUTION if key in tree.root.keys}
    if "secrets" in fields:
        fields["secrets"] = [_shared(item) for item in fields["secrets"]]
    if tree.root.at("machine", "gpu") is not None:
        fields["gpu"] = tree.written("machine", "gpu")
    if tree.root.at("checkpoints", "path") is not None:
        fields["checkpoints"] = {"path": tree.written("checkpoints", "path")}
    return fields


def _supervision(tree: _Tree) -> dict[str, Any]:
    fields = {key: tree.written(key) for key in SUPERVISION if key in tree.root.keys}
    checkpoints = tree.written("checkpoints") or {}
    checkpoints.pop("path", None)
    if checkpoints:
        fields["checkpoints"] = checkpoints
    fetched = _fetched(tree.written("secrets"))
    if fetched:
        fields["secrets"] = fetched
    return fields


def _shared(item: Any) -> Any:
    """A secret without where its value is fetched from: that differs between people, and the run stays the same."""
    if not isinstance(item, dict):
        return item
    name, more = next(iter(item.items()))
    return {name: {"for": more["for"]}} if "for" in more else name


def _fetched(items: Any) -> dict[str, Any]:
    """{NAME: {file | command}} of the secrets whose value is not in the caller's environment."""
    found = {}
    for item in items or ():
        for name, more in item.items() if isinstance(item, dict) else ():
            source = {key: value for key, value in more.items() if key != "for"}
            found.update({name: source} if source else {})
    return found


def _selector(tree: _Tree) -> dict[str, Any]:
    machine = tree.written("machine") or {}
    machine.pop("gpu", None)
    fields = {"machine": machine} if machine else {}
    if "workspace" in tree.root.keys:
        fields["workspace"] = tree.written("workspace")
    return fields


def _machine(tree: _Tree, gpu: CardDemand | None) -> Selector:
    disk = None
    if tree.root.at("machine", "disk") is not None:
        disk = DiskDemand(tree.text("machine", "disk", "path"), size_bytes(tree.text("machine", "disk", "free")) or 0)
    return Selector(
        names=tree.list("machine", "name"),
        labels=tree.texts("machine", "labels"),
        gpu=gpu,
        cpus=tree.number("machine", "cpus"),
        memory_mib=size_mib(tree.text("machine", "memory")),
        disk=disk,
    )


def _demand(tree: _Tree) -> CardDemand | None:
    node = tree.root.at("machine", "gpu")
    if node is None:
        return None
    path = ("machine", "gpu")
    if node.text is not None:
        count, size = cards(node.text) or (1, "")
        vram = size_mib(size) or 0
        return CardDemand(vram, headroom_mib(None, vram), count)
    vram = size_mib(tree.text(*path, "vram")) or 0
    headroom = tree.text(*path, "headroom") if node.at("headroom") else None
    most_busy = percent(tree.text(*path, "max_utilization", default="10%"))
    return CardDemand(
        vram_mib=vram,
        headroom_mib=headroom_mib(headroom, vram),
        count=tree.number(*path, "count") or 1,
        models=tree.list(*path, "model"),
        total_vram_mib=size_range_mib(tree.text(*path, "total_vram")),
        uuid=tree.text(*path, "uuid"),
        index=tree.number(*path, "index"),
        max_utilization_percent=round(most_busy or 0),
        foreign_allowed=tree.text(*path, "foreign") == "allow",
        compute_capability=version_range(tree.text(*path, "compute_capability")),
        driver=version_range(tree.text(*path, "driver")),
        cuda=version_range(tree.text(*path, "cuda")),
        same_model=tree.flag(*path, "same_model", default=True),
    )


def _source(tree: _Tree, folder: str) -> SourceSpec | None:
    path, git = tree.text("source", "path"), tree.text("source", "git")
    if git:
        return SourceSpec("", git=git, revision=tree.text("source", "revision"))
    if not path:
        return None
    absolute = os.path.normpath(os.path.join(folder, os.path.expanduser(path)))
    return SourceSpec(absolute, tree.list("source", "include"), tree.list("source", "exclude"))


def _setup(tree: _Tree, *, has_card: bool) -> SetupSpec | None:
    node = tree.root.at("setup")
    if node is None:
        return None
    timeout = tree.seconds("setup", "timeout")
    # A lock, a folder of wheels or an index says itself which build of torch there is.
    settled = any(key in node.keys for key in ("lock", "project", "wheels", "index", "venv"))
    return SetupSpec(
        python=tree.text("setup", "python"),
        packages=tree.list("setup", "packages"),
        requirements=tree.text("setup", "requirements"),
        torch_backend=tree.text("setup", "torch_backend", default="auto" if has_card and not settled else "none"),
        run=tree.list("setup", "run"),
        timeout_s=1800 if timeout is None else timeout,
        preflight=tree.text("setup", "preflight"),
        lock=tree.text("setup", "lock"),
        project=tree.flag("setup", "project", default=False),
        venv=tree.text("setup", "venv"),
        wheels=tree.text("setup", "wheels"),
        index=tree.list("setup", "index"),
    )


def _resume(tree: _Tree) -> ResumeSpec | None:
    if tree.root.at("resume") is None:
        return None
    path = tree.text("resume", "from", default="latest")
    complete_when, args = tree.text("resume", "complete_when"), tree.list("resume", "args")
    return ResumeSpec("" if path == "latest" else path, complete_when, args)


def _inputs(tree: _Tree) -> dict[str, str]:
    inputs = tree.root.at("inputs")
    names = inputs.keys if inputs is not None else ()
    return {name: tree.text("inputs", name, "path") for name in names if tree.root.at("inputs", name, "path")}


def _brought(tree: _Tree, folder: str) -> dict[str, InputFrom]:
    inputs, found = tree.root.at("inputs"), {}
    for name in inputs.keys if inputs is not None else ():
        address = tree.text("inputs", name, "from")
        if not address:
            continue
        scheme = scheme_of(address)
        place = os.path.normpath(os.path.join(folder, os.path.expanduser(address))) if scheme == "local" else ""
        timeout = tree.seconds("inputs", name, "timeout")
        found[name] = InputFrom(
            address=address,
            scheme=scheme,
            tool=tree.text("inputs", name, "with", default=next(iter(tools_of(scheme)), "")),
            endpoint=tree.text("inputs", name, "endpoint"),
            profile=tree.text("inputs", name, "profile"),
            revision=tree.text("inputs", name, "revision"),
            timeout_s=FETCH_TIMEOUT_S if timeout is None else timeout,
            path=place,
        )
    return found


def _limits(tree: _Tree) -> LimitsSpec:
    grace = tree.seconds("limits", "grace")
    return LimitsSpec(
        max_duration_s=tree.seconds("limits", "max_duration"),
        grace_s=30 if grace is None else grace,
        stall_s=tree.seconds("limits", "stall"),
    )


def _retry(tree: _Tree) -> RetrySpec | None:
    if tree.root.at("retry") is None:
        return None
    pause = backoff_s(tree.text("retry", "backoff", default=RETRY_BACKOFF)) or (0, 0)
    return RetrySpec(tree.number("retry", "max") or 0, tree.list("retry", "when") or RETRY_WHEN, *pause)


def _upload(tree: _Tree) -> UploadSpec | None:
    path = ("checkpoints", "upload")
    if tree.root.at(*path) is None:
        return None
    to, when = tree.text(*path, "to"), tree.text(*path, "when", default="success")
    scheme, pause = to.partition(":")[0], when.partition(":")[2]
    return UploadSpec(
        to=to,
        scheme=scheme,
        tool=tree.text(*path, "with", default=TARGETS[scheme][0][0]),
        layout=tree.text(*path, "layout", default="exact" if scheme == "hf" else "run"),
        when=when,
        required=tree.flag(*path, "required", default=True),
        endpoint=tree.text(*path, "endpoint"),
        profile=tree.text(*path, "profile"),
        every_s=(duration_s(pause) or 0) if pause else 0,
        probe=tree.flag(*path, "probe", default=True),
    )


def _progress(root: Node) -> tuple[ProgressSpec, ...]:
    progress = root.at("progress")
    return tuple(
        ProgressSpec(name, value["pattern"].text or "", value["goal"].text or "" if "goal" in value else "")
        for name, node in (progress.items() if progress else ())
        for value in (dict(node.items()),)
    )
