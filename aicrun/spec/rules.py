"""Rules that the schema cannot say: between fields, about paths, targets, patterns, and files of this client.

Each rule passes over fields of the wrong type, which the schema has told already. It must not ask a machine.
"""

from __future__ import annotations

import posixpath
import re
import warnings
from collections.abc import Iterator

from aicrun.spec.endings import backoff_s, ending_findings
from aicrun.spec.findings import Finding, range_of
from aicrun.spec.grammar import nearest
from aicrun.spec.inputs import account_findings, input_findings, missing_inputs
from aicrun.spec.nodes import Node, Path, dotted
from aicrun.spec.setups import exclusive, missing_files, setup_findings
from aicrun.spec.sizes import duration_s, size_range_mib, version_range
from aicrun.spec.unsupported import upload_example
from aicrun.spec.values import short

COMMAND_CAP_BYTES = 65536
# The tools of each kind of target, its default first, and how such a target looks.
# No target may put a key into a command line: user:key@bucket, options of a remote.
TARGETS = {
    "s3": (("aws", "rclone"), re.compile(r"s3://[^/\s:@]+(?:/\S*)?")),
    "rclone": (("rclone",), re.compile(r"rclone:[A-Za-z0-9_$][A-Za-z0-9_.+@${}-]*:\S*")),
    "hf": (
        ("hf",),
        re.compile(
            r"hf:(?:(?:models|datasets|spaces)/)?(?!(?:models|datasets|spaces)/)[A-Za-z0-9$][\w.${}-]*/[\w$][\w.${}-]*"
            r"(?:/[^@\s]*)?(?:@[\w./${}-]+)?"
        ),
    ),
    # A host that begins with - would be an option of ssh, and a password no longer be one.
    "ssh": (
        ("rsync",),
        re.compile(
            r"ssh://(?:[A-Za-z0-9_$][\w.${}-]*@)?(?:[A-Za-z0-9_$][\w.${}-]*|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?/\S+",
            re.ASCII,
        ),
    ),
    "file": (("copy",), re.compile(r"file:(?:/|~/|\$\{)[^\n]*|file:~")),
}
# Not all of /dev: /dev/shm is memory that people use as a folder.
_KERNEL = re.compile(r"/(?:proc|sys|dev(?!/shm/))(?:/|\Z)")
_OWNED = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


def rule_findings(root: Node, folder: str) -> Iterator[Finding]:
    """Every fault by these rules; `folder` is the spec's own, empty when no local file is to be looked at."""
    yield from _cards(root)
    yield from _ranges(root)
    yield from _paths(root)
    yield from _too_wide(root)
    yield from setup_findings(root)
    yield from _upload(root)
    yield from _moments(root)
    yield from _patterns(root)
    yield from _command(root)
    yield from _resume(root)
    yield from _owned(root)
    yield from _secrets(root)
    yield from input_findings(root)
    yield from ending_findings(root)
    if folder:
        yield from missing_files(root, folder)
        yield from missing_inputs(root, folder)


def _cards(root: Node) -> Iterator[Finding]:
    gpu = root.at("machine", "gpu")
    if gpu is None or gpu.children is None:
        return
    pins = [key for key in ("uuid", "index") if key in gpu.keys]
    path: Path = ("machine", "gpu")
    if len(pins) == 2:
        yield exclusive(gpu, path, "uuid", "index")
    count = gpu.at("count")
    if pins and count is not None and isinstance(count.value, int) and count.value > 1:
        message = f'"machine.gpu.{pins[0]}" pins one card, and "count" asks for {count.value}'
        also = (range_of(gpu.keys[pins[0]]), "one card")
        help_ = "keep one of the two"
        yield Finding("AIC-E114", message, range_of(count), path, f"{count.value} cards", helps=(help_,), also=also)


def _ranges(root: Node) -> Iterator[Finding]:
    gpu: Path = ("machine", "gpu")
    for key, read in (
        ("total_vram", size_range_mib),
        ("compute_capability", version_range),
        ("driver", version_range),
        ("cuda", version_range),
    ):
        node = root.at(*gpu, key)
        bounds = read(node.text or "") if node is not None else None
        if (
            node is not None
            and bounds is not None
            and None not in (bounds.low, bounds.high)
            and bounds.low > bounds.high
        ):
            yield _upside_down(node, (*gpu, key))
    backoff = root.at("retry", "backoff")
    bounds_s = backoff_s(backoff.text) if backoff is not None and backoff.text else None
    if backoff is not None and bounds_s is not None and bounds_s[0] > bounds_s[1]:
        yield _upside_down(backoff, ("retry", "backoff"))


def _upside_down(node: Node, path: Path) -> Finding:
    low, _, high = (node.text or "").partition("..")
    message = f'"{dotted(path)}" goes from {low} to {high}, which is upside down'
    return Finding("AIC-E123", message, range_of(node), path, helps=(f"write {high}..{low}",))


def _paths(root: Node) -> Iterator[Finding]:
    on_machine: tuple[Path, ...] = (("workspace",), ("machine", "disk", "path"))
    on_machine += (*_secret_files(root), *_input_paths(root), ("setup", "venv"), ("setup", "wheels"))
    in_tree: tuple[Path, ...] = (("cwd",), ("checkpoints", "path"), ("setup", "requirements"), ("setup", "lock"))
    in_tree += (("resume", "from"), ("resume", "complete_when"))
    for path in on_machine:
        node = root.at(*path)
        text = node.text if node is not None else None
        if node is not None and text and not text.startswith(("/", "~/", "${")) and text != "~":
            message = f'"{dotted(path)}" is a path on the machine, and "{short(text)}" starts nowhere'
            yield Finding("AIC-E124", message, range_of(node), path, helps=(f"write ~/{text.removeprefix('./')}",))
    for path in in_tree:
        node = root.at(*path)
        text = node.text if node is not None else None
        if node is None or not text:
            continue
        if text.startswith("/") and path[0] == "checkpoints":
            continue
        if text.startswith(("/", "~")) or ".." in text.split("/"):
            top = "the checkpoint folder" if path[0] == "resume" else "the tree"
            message = f'"{dotted(path)}" stays below {top}, and "{short(text)}" leads out of it'
            help_ = f"write it relative to {'it' if path[0] == 'resume' else 'the top of the tree'}, without .."
            yield Finding("AIC-E124", message, range_of(node), path, helps=(help_,))


def _too_wide(root: Node) -> Iterator[Finding]:
    """Folders that hold far more than a run's own: they would be laid full, or uploaded whole."""
    places: tuple[tuple[Path, str, str], ...] = (
        (("workspace",), "the run's own folder", "~/aic-jobs/sft-run"),
        (("checkpoints", "path"), "the folder of the run's checkpoints", "out, or /data/out/${run.id}"),
    )
    for path, what, instead in places:
        node = root.at(*path)
        text = node.text if node is not None else None
        whole = _whole(text) if text else ""
        if node is not None and whole:
            message = f'"{dotted(path)}" is {what}, and "{short(text or "")}" is {whole}'
            yield Finding("AIC-E124", message, range_of(node), path, helps=(f"write a folder of its own: {instead}",))
    target = root.at("checkpoints", "upload", "to")
    folder = target.text.removeprefix("file:") if target is not None and target.text else ""
    if target is not None and target.text != folder and _whole(folder):
        message = f'"checkpoints.upload.to" is a folder of uploads, and "{short(folder)}" is {_whole(folder)}'
        path = ("checkpoints", "upload", "to")
        yield Finding("AIC-E127", message, range_of(target), path, helps=("write file:~/checkpoints/",))


def _whole(text: str) -> str:
    """What `text` names that is far more than one folder; empty for a folder that a run may have."""
    place = "/" + posixpath.normpath(text).lstrip("/") if text.startswith("/") else posixpath.normpath(text)
    if place == "/":
        return "the whole machine"
    if place == ".":
        return "the whole working tree"
    return "the kernel's" if _KERNEL.match(place) else ""


def _input_paths(root: Node) -> Iterator[Path]:
    inputs = root.at("inputs")
    yield from (("inputs", name, "path") for name in (inputs.keys if inputs is not None else ()))


def _secret_files(root: Node) -> Iterator[Path]:
    secrets = root.at("secrets")
    for number, item in enumerate(secrets.elements() if secrets is not None else ()):
        yield from (("secrets", number, name, "file") for name in item.keys)


def _upload(root: Node) -> Iterator[Finding]:
    above: Path = ("checkpoints", "upload")
    node = root.at(*above, "to")
    if node is None or not node.text:
        return
    scheme, colon, _ = node.text.partition(":")
    path = (*above, "to")
    if not colon or scheme not in TARGETS:
        near = nearest(scheme, tuple(TARGETS)) if colon else ""
        help_ = f"did you mean {near}:?" if near else "targets start with s3://, rclone:, hf:, ssh:// or file:"
        if node.text.startswith(("/", "~/")):
            help_ = f"write file:{node.text}"
        message = f'"{dotted(path)}" is no known target: "{short(node.text)}"'
        yield Finding("AIC-E127", message, range_of(node), path, helps=(help_,))
        return
    tools, form = TARGETS[scheme]
    if not form.fullmatch(node.text):
        message = f'"{dotted(path)}" is no complete {scheme}: target: "{short(node.text)}"'
        yield Finding(
            "AIC-E127", message, range_of(node), path, helps=("the forms: aicrun explain checkpoints.upload.to",)
        )
    yield from _tool(root, scheme, tools)


def _moments(root: Node) -> Iterator[Finding]:
    """What stays on the machine is told apart by what was uploaded; a pause between uploads is one."""
    above = root.at("checkpoints")
    if above is not None and "keep" in above.keys and "upload" not in above.keys:
        message = '"checkpoints.keep" prunes only what is verified uploaded, and nothing is uploaded'
        help_ = f"add upload: {{to: {upload_example()}}}, or let the command prune its checkpoints"
        where = range_of(above.keys["keep"])
        yield Finding("AIC-E133", message, where, ("checkpoints", "keep"), helps=(help_,))
    when = root.at("checkpoints", "upload", "when")
    word, colon, pause = ((when.text or "") if when is not None else "").partition(":")
    if when is not None and word == "every" and colon and duration_s(pause) in (None, 0):
        is_zero = duration_s(pause) == 0
        wrong = "is no pause" if is_zero else "is no duration: w, d, h, m and s stand in this order"
        message = f'"checkpoints.upload.when" says every "{short(pause)}", which {wrong}'
        help_ = "write each, or every:30m" if is_zero else "write every:1h30m"
        path: Path = ("checkpoints", "upload", "when")
        yield Finding("AIC-E117" if is_zero else "AIC-E122", message, range_of(when), path, helps=(help_,))


def _tool(root: Node, scheme: str, tools: tuple[str, ...]) -> Iterator[Finding]:
    above: Path = ("checkpoints", "upload")
    tool = root.at(*above, "with")
    known = [name for names, _ in TARGETS.values() for name in names]
    if tool is not None and tool.text in known and tool.text not in tools:
        message = f"{tool.text} does not carry to {scheme}: targets"
        yield Finding("AIC-E127", message, range_of(tool), (*above, "with"), helps=(f"write {' or '.join(tools)}",))
    for key in ("endpoint", "profile"):
        option = root.at(*above, key)
        if option is not None and scheme != "s3":
            message = f'"{key}" belongs to s3:// targets'
            yield Finding("AIC-E127", message, range_of(option), (*above, key), helps=("remove the line",))
    help_ = "secrets: [{AWS_ACCESS_KEY_ID: {for: upload}}, {AWS_SECRET_ACCESS_KEY: {for: upload}}]"
    yield from account_findings(root, (*above, "endpoint"), "AIC-E127", help_)


def _patterns(root: Node) -> Iterator[Finding]:
    progress = root.at("progress")
    for name, value in progress.items() if progress else ():
        node = value.at("pattern")
        if node is None or not node.text:
            continue
        wrong = _wrong_pattern(node.text)
        if wrong:
            path: Path = ("progress", name, "pattern")
            help_ = "the first group is the value: 'loss=([0-9.]+)'"
            yield Finding("AIC-E126", f'"{dotted(path)}" {wrong}', range_of(node), path, helps=(help_,))


def _wrong_pattern(pattern: str) -> str:
    if len(pattern) > 1000:
        return "has more than 1,000 characters"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            groups = re.compile(pattern).groups
    except (re.error, RecursionError, OverflowError) as error:
        return f"is no regular expression: {short(str(error))}"
    return "" if groups else "has no group ( )"


def _command(root: Node) -> Iterator[Finding]:
    command = root.at("command")
    if command is None or command.text is None:
        return
    size = len(command.text.encode("utf-8", "replace"))
    if size > COMMAND_CAP_BYTES:
        message = f'"command" has {size:,} bytes, {COMMAND_CAP_BYTES:,} at most'
        yield Finding("AIC-E128", message, range_of(command), ("command",), helps=("put it into a file of the source",))
    elif command.text and not command.text.strip():
        yield Finding(
            "AIC-E115", '"command" is empty text', range_of(command), ("command",), helps=("write what runs",)
        )


def _resume(root: Node) -> Iterator[Finding]:
    args, command = root.at("resume", "args"), root.at("command")
    if args is not None and command is not None and command.text is not None:
        message = '"resume.args" are added to a command that is a list, and this one is text'
        help_ = '${AICRUN_RESUME_FROM:+--resume "$AICRUN_RESUME_FROM"} in the text does the same'
        yield Finding("AIC-E114", message, range_of(args), ("resume", "args"), helps=(help_,))


def _owned(root: Node) -> Iterator[Finding]:
    env = root.at("env")
    has_card = root.at("machine", "gpu") is not None
    for name, key in env.keys.items() if env else ():
        if name.startswith("AICRUN_") or (has_card and name in _OWNED):
            help_ = "remove the line; to pin a card: machine.gpu.index" if name in _OWNED else "use another name"
            yield Finding("AIC-E129", f"aicrun sets {name} itself", range_of(key), ("env", name), helps=(help_,))


def _secrets(root: Node) -> Iterator[Finding]:
    """A secret is named once, is no variable of `env` as well, and has one place that its value comes from."""
    secrets, env = root.at("secrets"), root.at("env")
    in_env = env.keys if env is not None else {}
    seen: dict[str, Node] = {}
    for number, item in enumerate(secrets.elements() if secrets is not None else ()):
        path: Path = ("secrets", number)
        for name, key, source in _named(item):
            if name.startswith("AICRUN_") or name in _OWNED:
                message, helps = f"aicrun sets {name} itself", ("use another name",)
                yield Finding("AIC-E129", message, range_of(key), path, helps=helps)
            elif name in in_env:
                also = (range_of(in_env[name]), "a value that anybody may read")
                message, helps = f"{name} is a secret and stands in env too", ("remove it from env",)
                yield Finding("AIC-E114", message, range_of(key), path, "and a secret", helps=helps, also=also)
            # The same name twice as plain text is told by the schema.
            elif name in seen and not (seen[name].value == key.value == item.text):
                also = (range_of(seen[name]), "first here")
                message = f"{name} is named twice"
                yield Finding("AIC-E114", message, range_of(key), path, "and here", helps=("keep one",), also=also)
            seen.setdefault(name, key)
            if source is not None and {"file", "command"} <= set(source.keys):
                yield exclusive(source, (*path, name), "file", "command")


def _named(item: Node) -> list[tuple[str, Node, Node | None]]:
    """(name, where it stands, where its value comes from) of one entry of `secrets`."""
    if item.text:
        return [(item.text, item, None)]
    return [(name, item.keys[name], source) for name, source in item.items()]
