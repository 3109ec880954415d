"""What the files of a checkpoint say about it, by the layouts that trainers write: read, never run and never unpickled.

Every file is somebody else's and may be half written, huge or hostile: all reads are bounded, and what cannot be
understood says nothing. Sources of the layouts: `transformers` (trainer_state.json, config.json, *.index.json), `peft`
(adapter_config.json), the safetensors format's own text, and PKWARE's for the archives that `torch.save` writes.
"""

import json
import os
import re
import stat
import struct
from typing import Any, Dict, List, Optional, Tuple

from aicrun.wire import lean

# A state of a long training is some megabytes; a header of a large model is one.
JSON_CAP_BYTES = 64 * 1024 * 1024
HEADER_CAP_BYTES = 100 * 1000 * 1000
_WORDS_CAP_CHARACTERS = 200
_MOST = 1e300
_STEP_MOST = 1 << 62
TRAINER_STATE, CONFIG, ADAPTER_CONFIG = "trainer_state.json", "config.json", "adapter_config.json"
SAFETENSORS = ".safetensors"
INDEXES = (".safetensors.index.json", ".bin.index.json")
ARCHIVES = (".pt", ".pth", ".bin", ".ckpt")
# What a folder holds that is one, also of sharded and other frameworks'.
_PARTS = ARCHIVES + (SAFETENSORS, ".npz", ".h5", ".msgpack", ".gguf", ".distcp", ".index", ".ocdbt", ".params")
# What is a checkpoint when it is a single file.
SINGLE = ARCHIVES + (SAFETENSORS, ".npz", ".npy", ".h5", ".keras", ".msgpack", ".onnx", ".gguf", ".pkl", ".tar")
# The end record of an archive, without its comment, and how long that may be.
_END, _END_BYTES, _COMMENT_BYTES = b"PK\x05\x06", 22, 65535
_BEGIN = b"PK\x03\x04"
# Beside them lie archives of optimizers, schedulers and random states.
_MODEL = re.compile(r"(?:pytorch_model|adapter_model|model|consolidated)\b.*\.(?:pt|pth|bin|ckpt)\Z")
_STEP = re.compile(
    r"(?:^|[^a-z])(?:global_?step|step|checkpoint|ckpt|iter(?:ation)?)s?[-_=]?0*(\d{1,18})(?:\D|$)", re.I
)


@lean.dataclass(frozen=True)
class Said:
    """What files said: `faults` are (file, why the checkpoint is not whole); `is_known`: a reader found it whole."""

    step: Optional[int] = None
    train_loss: Optional[float] = None
    eval_loss: Optional[float] = None
    model: str = ""
    version: str = ""
    faults: Tuple[Tuple[str, str], ...] = ()
    is_known: bool = False
    inference_ready: bool = False


def of_folder(folder: str, names: List[str]) -> Said:
    """What the files `names` at the top of a folder say together."""
    state = _object(folder, TRAINER_STATE, names)
    config = _object(folder, CONFIG, names) or _object(folder, ADAPTER_CONFIG, names)
    faults, weights = _weights(folder, names)
    if TRAINER_STATE in names and state is None:
        faults.append((TRAINER_STATE, "cannot be read whole"))
    step, train_loss, eval_loss = _trained(state or {})
    return Said(
        step=step,
        train_loss=train_loss,
        eval_loss=eval_loss,
        model=_model(config or {}),
        version=_words((config or {}).get("transformers_version") or (config or {}).get("peft_version")),
        faults=tuple(faults),
        is_known=not faults and bool(weights) and (state is not None or config is not None),
        inference_ready=not faults and bool(weights) and config is not None,
    )


def of_file(path: str) -> Said:
    """What a single file says."""
    folder, name = os.path.split(path)
    faults, _ = _weights(folder, [name])
    is_known = not faults and (name.endswith(SAFETENSORS) or (name.endswith(ARCHIVES) and _begins(path, _BEGIN)))
    return Said(step=step_of(name), faults=tuple(faults), is_known=is_known)


def best_of(folder: str) -> str:
    """The path or name of the best checkpoint so far by the state in `folder`; empty when it tells none."""
    return _words((_object(folder, TRAINER_STATE, [TRAINER_STATE]) or {}).get("best_model_checkpoint"))


def is_model(name: str) -> bool:
    """Whether a file of that name holds a model's weights."""
    return name.endswith(SAFETENSORS) or bool(_MODEL.match(name))


def is_part(name: str) -> bool:
    """Whether a file of that name holds weights or a state: its folder is a checkpoint."""
    return name == TRAINER_STATE or name.endswith(_PARTS)


def step_of(name: str) -> Optional[int]:
    """The step that a name tells, as `checkpoint-500`, `step=500.ckpt`, `global_step500`; None when it tells none."""
    found = _STEP.search(name)
    return int(found.group(1)) if found else None


def _trained(state: Dict[str, Any]) -> Tuple[Optional[int], Optional[float], Optional[float]]:
    step = state.get("global_step")
    history = state.get("log_history")
    rows = [row for row in history if isinstance(row, dict)] if isinstance(history, list) else []
    losses = [next((_number(row[key]) for row in reversed(rows) if key in row), None) for key in ("loss", "eval_loss")]
    is_step = isinstance(step, int) and not isinstance(step, bool) and 0 <= step <= _STEP_MOST
    return (step if is_step else None), losses[0], losses[1]


def _model(config: Dict[str, Any]) -> str:
    for key in ("_name_or_path", "base_model_name_or_path", "model_type"):
        if _words(config.get(key)):
            return _words(config[key])
    kinds = config.get("architectures")
    return _words(kinds[0]) if isinstance(kinds, list) and kinds else ""


def _weights(folder: str, names: List[str]) -> Tuple[List[Tuple[str, str]], List[str]]:
    """(faults, files of a model's weights)"""
    faults: List[Tuple[str, str]] = []
    weights = [name for name in names if is_model(name)]
    for name in (name for name in names if name.endswith((SAFETENSORS,) + ARCHIVES)):
        path = os.path.join(folder, name)
        fault = _safetensors_fault(path) if name.endswith(SAFETENSORS) else _archive_fault(path)
        if fault:
            faults.append((name, fault))
    for name in (name for name in names if name.endswith(INDEXES)):
        index = _object(folder, name, names)
        parts = index.get("weight_map") if index is not None else None
        if not isinstance(parts, dict):
            faults.append((name, "cannot be read whole"))
            continue
        wanted = {str(part) for part in parts.values()}
        lacking = len(wanted - set(names))
        if lacking:
            faults.append((name, "names %d files, and %d of them are missing" % (len(wanted), lacking)))
    return faults, weights


def _safetensors_fault(path: str) -> str:
    """Empty when the file is as long as its header says: eight bytes with the header's length, the header, the data."""
    try:
        with _opened(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 0 < length <= HEADER_CAP_BYTES:
                return "has no whole header" if size < 8 or not length else "is no safetensors file"
            if 8 + length > size:
                return "has %d bytes, and its header alone is longer" % size
            header = json.loads(stream.read(length).decode("utf-8"))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        wanted = 8 + length + max([int(end) for end in ends] or [0])
    except OSError as error:
        return error.strerror or "cannot be read"
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError):
        return "has a header that cannot be read"
    return "" if size == wanted else "has %d of %d bytes" % (size, wanted)


def _archive_fault(path: str) -> str:
    """Empty when an archive has its end, and when the file is none: then nothing is known."""
    try:
        with _opened(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if not size:
                return "is empty"
            if stream.read(4) != _BEGIN:
                return ""
            stream.seek(max(0, size - _END_BYTES - _COMMENT_BYTES))
            return "" if _END in stream.read(_END_BYTES + _COMMENT_BYTES) else "is an archive without its end"
    except OSError as error:
        return error.strerror or "cannot be read"


def _object(folder: str, name: str, names: List[str]) -> Optional[Dict[str, Any]]:
    """The JSON object in a file; None when it is not there, is none, or is not whole."""
    if name not in names:
        return None
    try:
        with _opened(os.path.join(folder, name)) as stream:
            raw = stream.read(JSON_CAP_BYTES + 1)
        found = json.loads(raw.decode("utf-8")) if len(raw) <= JSON_CAP_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _begins(path: str, with_: bytes) -> bool:
    try:
        with _opened(path) as stream:
            return bool(stream.read(len(with_)) == with_)
    except OSError:
        return False


def _opened(path: str) -> Any:
    # A pipe in the folder must not stop who looks.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, "is no regular file")
    return os.fdopen(handle, "rb")


def _number(value: Any) -> Optional[float]:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # Neither infinity nor what is no number has a place in JSON; a whole one may be longer than any float.
    return float(value) if is_number and abs(value) <= _MOST else None


def _words(value: Any) -> str:
    return value[:_WORDS_CAP_CHARACTERS] if isinstance(value, str) else ""
