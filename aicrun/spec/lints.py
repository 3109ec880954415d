"""Lints: what is allowed and yet most likely not what was meant. Warnings only; `--strict` makes errors of them.

None of those about cards speaks when no card is asked for. It must not ask a machine.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aicrun.spec.findings import Finding, part_of, range_of
from aicrun.spec.nodes import Node, dotted
from aicrun.spec.placeholders import FORM
from aicrun.spec.secrets import sounds_secret
from aicrun.spec.sizes import cards, duration_s
from aicrun.spec.unsupported import upload_example
from aicrun.spec.values import short

_HOURS_S = 3600
_CHECKPOINTS = re.compile(r"AICRUN_CHECKPOINT_DIR|FLEXAI_OUTPUT_CHECKPOINT_DIR")
_FROM_ZERO = "inside the run the reserved cards are numbered from 0"
_CACHES = (
    "HF_HOME",
    "TORCH_HOME",
    "HF_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "XDG_CACHE_HOME",
    "PIP_CACHE_DIR",
    "TRITON_CACHE_DIR",
)
_SYSTEM = re.compile(r"/(?:tmp|var|root|usr|opt|dev/shm)(?:/|\Z)")
_EXPANDED = re.compile(r"(?<!\$)\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*[}:])|^~(?:/|\Z)")

_ACTIVATE = re.compile(r"(?:conda|mamba|micromamba)\s+activate\b|(?<![\w/.-])(?:source|\.)\s+[^\s;&|]*activate\b")
_PIP = re.compile(r"(?<![\w/.-])(?<!uv )(?:python3?\s+-m\s+)?pip3?\s+install\b|(?:conda|mamba)\s+install\b")
_WRAPPER = re.compile(
    r"(?<![\w/.-])(?:conda|mamba)\s+run\b(?![^\n;&|]{0,300}(?:--no-capture-output|--live-stream|\s-s\s))"
)
_TORCHRUN = re.compile(r"(?<![\w./-])torchrun\b|-m\s+torch\.distributed\.(?:run|launch)\b")
_PORT_GIVEN = re.compile(r"--standalone|--rdzv[-_]endpoint|--master[-_]port|AICRUN_PORT")
_CUDA = re.compile(r"\bcuda:(\d{1,6})\b")
_VISIBLE = re.compile(r"\bCUDA_VISIBLE_DEVICES(?=\s*=)")
_NUMBER = r"[= ]{1,9}(\d{1,6})(?![\w.])"
_NUMBER_FLAG = re.compile(r"(?<!\S)--?(?:gpu[-_]?ids?|gpu|device[-_]?ids?|device|cuda[-_]device)" + _NUMBER)
_COUNT_FLAG = re.compile(
    r"(?<!\S)--?(?:gpus|num[-_]gpus|n[-_]?gpus?|nproc[-_]per[-_]node|devices|num[-_]processes)" + _NUMBER
)
_ASKS = re.compile(
    r"(?:huggingface-cli|hf auth|wandb|docker|gh auth)\s+login\b(?![^\n]{0,200}(?:--token|--password-stdin|\$))"
    r"|(?<![\w/.-])read\s+-\w*p\b|(?<![\w/.-])sudo\b(?!\s+-n)|(?<![\w/.-])ssh-copy-id\b"
    r"|(?<![\w/.-])apt(?:-get)?\s+install\b(?![^\n]{0,200}\s-y)"
)
_HIDES = re.compile(r"(?<!&)&\s*\Z|\|\|\s*(?:true|:)\s*\Z|;\s*true\s*\Z")
# nohup and setsid alone stay in front; they detach with a & behind them or a flag.
_DETACHES = re.compile(
    r"(?:(?<=[;&|(\n])|\A)\s{0,9}(?:tmux|screen|nohup(?=[^\n]{0,999}(?<!&)&(?!&))|setsid\s+(?:-f|--fork))(?=\s)"
    r"|(?<![\w/.-])disown\b"
)


@dataclass(frozen=True)
class _Command:
    """The command as one text, its node, and how many cards it will see (None: no card is asked for)."""

    text: str
    node: Node
    count: int | None


def lint_findings(root: Node, folder: str = "") -> Iterator[Finding]:
    """Every lint of a run, in no particular order; malformed fields are passed over.

    Programs of the source that the command names are read below `folder`, the spec's own; none where it is empty.
    """
    count = _count(root.at("machine", "gpu"))
    node = root.at("command")
    text = "" if node is None else _text(node)
    if node is not None and text:
        command = _Command(text, node, count)
        for lint in _OF_COMMANDS:
            yield from lint(command)
        if count is not None:
            for lint in _OF_CARDS:
                yield from lint(command)
    yield from _setup(root)
    yield from _env(root)
    yield from _result(root, text, folder, has_card=count is not None)


def _text(node: Node) -> str:
    if node.children is None:
        return node.text or ""
    return " ".join(item.text or "" for item in node.elements())


def _count(gpu: Node | None) -> int | None:
    if gpu is None:
        return None
    if gpu.text is not None:
        short_form = cards(gpu.text)
        return short_form[0] if short_form else 1
    count = gpu.at("count")
    return count.value if count is not None and type(count.value) is int else 1


def _at(command: _Command, found: re.Match[str], code: str, message: str, help_: str) -> Finding:
    words = found.group().strip()
    start = found.start() + found.group().index(words)
    nth = command.text.count(words, 0, start)
    where = part_of(command.node, words, nth) if command.node.text is not None else range_of(command.node)
    return Finding(code, message, where, ("command",), helps=(help_,))


def _first(pattern: re.Pattern[str], code: str, message: str, help_: str) -> Callable[[_Command], Iterator[Finding]]:
    def lint(command: _Command) -> Iterator[Finding]:
        found = pattern.search(command.text)
        if found:
            yield _at(command, found, code, message.format(short(found.group().strip(), 40)), help_)

    return lint


def _some(pattern: re.Pattern[str], command: _Command) -> Iterator[re.Match[str]]:
    # A person fixes the first few; a hostile text shall not draw a thousand excerpts of one line.
    return itertools.islice(pattern.finditer(command.text), 20)


def _torchrun(command: _Command) -> Iterator[Finding]:
    found = _TORCHRUN.search(command.text)
    if found and not _PORT_GIVEN.search(command.text):
        help_ = 'add --standalone, or use the free port: --master-port "$AICRUN_PORT"'
        yield _at(command, found, "AIC-W203", "torchrun without --standalone uses a fixed port", help_)


def _cuda(command: _Command) -> Iterator[Finding]:
    count = command.count or 1
    for found in _some(_CUDA, command):
        if int(found[1]) >= count:
            has = (
                "one card, which has only cuda:0"
                if count == 1
                else f"{count} cards, which has cuda:0 to cuda:{count - 1}"
            )
            help_ = "write cuda:0; inside the run the reserved card is device 0" if count == 1 else _FROM_ZERO
            yield _at(command, found, "AIC-W204", f'"{found.group()}" in a run of {has}', help_)


def _flags(command: _Command) -> Iterator[Finding]:
    count = command.count or 1
    cards_words = "one card" if count == 1 else f"{count} cards"
    for found in _some(_NUMBER_FLAG, command):
        if int(found[1]) >= count:
            message = f'"{found.group()}" names a device beyond those of a run of {cards_words}'
            yield _at(command, found, "AIC-W206", message, _FROM_ZERO)
    for found in _some(_COUNT_FLAG, command):
        if int(found[1]) > count:
            message = f'"{found.group()}" asks for more devices than the {cards_words} of the run'
            help_ = f'ask for them: gpu: {found[1]} x 20GiB, or write "$AICRUN_GPU_COUNT"'
            yield _at(command, found, "AIC-W206", message, help_)


def _setup(root: Node) -> Iterator[Finding]:
    run = root.at("setup", "run")
    if run is None or run.children is None or root.at("setup", "venv") is not None:
        return
    for number, node in enumerate(run.elements()):
        found = _PIP.search(node.text or "")
        if found:
            words = found.group().strip()
            message = f"\"{short(words, 40)}\" in setup.run is for the machine's own Python, not the run's environment"
            help_ = "name it in what setup installs: packages: […], or the requirements"
            yield Finding("AIC-W215", message, part_of(node, words), ("setup", "run", number), helps=(help_,))


def _env(root: Node) -> Iterator[Finding]:
    env = root.at("env")
    for name, node in env.items() if env else ():
        value = node.text or ""
        path = ("env", name)
        if name in _CACHES and _SYSTEM.match(value):
            message = f'"env.{name}" lies on the system\'s partition'
            help_ = f'put it on the data volume: "${{machine.data}}/{name.lower().split("_")[0]}"'
            yield Finding("AIC-W208", message, range_of(node), path, helps=(help_,))
        found = _EXPANDED.search(FORM.sub("", value))
        if found:
            message = f'nothing expands "{found.group()}" in "{dotted(path)}"; it reaches the job as typed'
            help_ = "write the path itself, use ${machine.data}, or set it inside the command"
            if sounds_secret(name):
                help_ = f"a secret's value comes from your environment: secrets: [{name}], and no line in env"
            yield Finding("AIC-W212", message, range_of(node), path, helps=(help_,))


def _result(root: Node, command: str, folder: str, *, has_card: bool) -> Iterator[Finding]:
    longest = root.at("limits", "max_duration")
    for_hours = longest is not None and (duration_s(longest.text or "") or 0) >= _HOURS_S
    uses = "AICRUN_CHECKPOINT_DIR" in command or root.at("checkpoints", "path") is not None
    key = root.keys.get("command")
    asked = key is not None and command and (has_card or for_hours) and not uses
    if key is not None and asked and not (folder and _told_by_program(root, command, folder)):
        message = "nothing says where the checkpoints go"
        help_ = "checkpoints: {path: out}, or $AICRUN_CHECKPOINT_DIR in the command or its program"
        yield Finding("AIC-W209", message, range_of(key), ("command",), helps=(help_,))
    if longest is not None and for_hours and root.at("checkpoints", "upload") is None:
        message = "hours of training, and the checkpoint is not uploaded"
        help_ = f"add checkpoints: {{upload: {{to: {upload_example()}}}}}"
        yield Finding("AIC-W210", message, range_of(longest), ("limits", "max_duration"), helps=(help_,))


def _told_by_program(root: Node, command: str, folder: str) -> bool:
    from aicrun.spec.programs import programs_read  # few specs leave it open

    return programs_read(root, command, folder, _CHECKPOINTS)


_OF_COMMANDS = (
    _first(_ACTIVATE, "AIC-W201", '"{}" in a job, which reads no start file', "use setup, or the interpreter's path"),
    _first(_PIP, "AIC-W202", '"{}" at every start of the job', "let setup do it: setup: {packages: […]}"),
    _first(_ASKS, "AIC-W207", '"{}" may ask, and a job has no keyboard', "give the answer as a flag or a variable"),
    _first(_HIDES, "AIC-W211", '"{}" at the end hides a failure', "let the training be the last word of the command"),
    _first(
        _WRAPPER,
        "AIC-W214",
        '"{}" keeps the output to itself, and releases of it ended with 0 whatever failed',
        "add --no-capture-output, or name the environment's own python",
    ),
    _first(
        _DETACHES, "AIC-W213", '"{}" detaches, and the exit code is lost', "remove it: the run outlives the connection"
    ),
)
_OF_CARDS = (
    _torchrun,
    _cuda,
    _first(
        _VISIBLE,
        "AIC-W205",
        "the command sets {} itself",
        "remove it: aicrun sets it to the reserved cards",
    ),
    _flags,
)
