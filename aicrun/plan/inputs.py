"""The inputs of a run: what the survey asks for them, where the job finds each, and how those that are brought come.

It must not judge them (`admit.py` does) nor look at a disk.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence

from aicrun.plan import words
from aicrun.plan.model import Wanted
from aicrun.plan.placeholders import escaped, fill, names_in
from aicrun.plan.places import absolute, as_asked, asked_values
from aicrun.plan.places import inputs as inputs_folder
from aicrun.spec.model import InputFrom, Machine, RunSpec
from aicrun.wire import names
from aicrun.wire.facts import HostReading, InputReady
from aicrun.wire.hashes import input_key
from aicrun.wire.jobs import Fetch, JobRequest
from aicrun.wire.tools import CARRIED_BY, REMOTE_SCHEMES

# The one that programs of our ancestor look for by a name of its own.
CHECKPOINT = "checkpoint"
LOCAL = "local"
# Variables by which a tool finds another server, account or remote, and so another thing under the same address.
_OF_AWS = (
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "AWS_REGION"),
    *("AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"),
)
_OF_HF = ("HF_ENDPOINT",)
# What the options of an input go before.
_BY_ENDPOINT = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "RCLONE_S3_ENDPOINT")
_BY_PROFILE = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "RCLONE_S3_PROFILE")
# Of rclone all count but those that tell how fast, how often and how loudly it works.
_NO_MATTER = re.compile(
    r"RCLONE_(?:BWLIMIT|TRANSFERS|CHECKERS|BUFFER_SIZE|MULTI_THREAD|STATS|LOG|USE_JSON_LOG|VERBOSE|QUIET|PROGRESS|RETRIES|"
    r"LOW_LEVEL_RETRIES|TIMEOUT|CONTIMEOUT|TPSLIMIT|USER_AGENT|BIND|ASK_PASSWORD|CACHE_DIR|TEMP_DIR|FAST_LIST)(?:_|$)"
)
# Nothing that may be secret tells a key, which everybody sees.
_MAY_BE_SECRET = re.compile(
    r"(?:KEY(?:_ID|_PEM|_BASE64)?|PASS(?:WORD|WD|PHRASE|CODE)?\d?|SECRET|TOKEN|CREDENTIALS|HEADERS?|COOKIE|SAS_URL)$"
)
_ACCOUNT = re.compile(r"(?<=://)[^\s/@]*@")


def variable(name: str) -> str:
    """The variable that holds an input's path."""
    return f"AICRUN_INPUT_{name.upper()}"


def inputs_to_ask(specs: Sequence[RunSpec], machine: Machine) -> tuple[str, ...]:
    """Paths of `specs` on `machine`, each once, sorted; they may begin with `~`."""
    return tuple(sorted({path for spec in specs for path in _asked(spec, machine).values()}))


def inputs_at(spec: RunSpec, machine: Machine, home: str) -> dict[str, str]:
    """The absolute path of each input that is on the machine already; without a data folder none that names it."""
    return {name: absolute(path, home) for name, path in _asked(spec, machine).items()}


def _asked(spec: RunSpec, machine: Machine) -> dict[str, str]:
    found = {name: as_asked(path, spec, machine) for name, path in spec.inputs.items()}
    return {name: path for name, path in found.items() if path and not names_in(path)}


def brought_to_ask(wanted: Sequence[Wanted], machine: Machine) -> tuple[str, ...]:
    """Keys of the inputs that `wanted` bring to `machine`, each once: one may be there from an earlier run."""
    keys = (_key(one, name, origin, machine) for one in wanted for name, origin in one.spec.brought.items())
    return tuple(dict.fromkeys(key for key in keys if key))


def own_path(spec: RunSpec, machine: Machine) -> str:
    """The PATH that a job of the run sets itself on the machine; empty for the usual one."""
    return _own(spec, machine, "PATH")


def _own(spec: RunSpec, machine: Machine, name: str) -> str:
    """A variable that the job sets itself on the machine, the spec before the machine; else empty."""
    if name in spec.env:
        return fill(spec.env[name], {**asked_values(machine), "run.name": spec.name})
    return escaped(machine.env.get(name, ""))


def fetchers_to_ask(specs: Sequence[RunSpec], machine: Machine) -> tuple[tuple[str, str], ...]:
    """(tool, PATH that the job sets itself) of each tool that fetches an input or carries checkpoints."""
    wanted = ((tool, own_path(spec, machine)) for spec in specs for tool in _tools(spec))
    return tuple(dict.fromkeys(wanted))


def upload_tools(spec: RunSpec) -> tuple[str, ...]:
    """The programs of the machine that carry the checkpoints; none where none is needed."""
    upload = spec.checkpoints.upload
    if upload is None or upload.scheme not in REMOTE_SCHEMES:
        return ()
    return (upload.tool, *CARRIED_BY.get(upload.tool, ()))


def _tools(spec: RunSpec) -> tuple[str, ...]:
    return (*(one.tool for one in spec.brought.values() if one.tool), *upload_tools(spec))


def fetches(wanted: Wanted, machine: Machine, home: str) -> tuple[Fetch, ...]:
    """What is brought to the machine for the run, in the order of the spec."""
    return tuple(_fetch(wanted, name, origin, machine, home) for name, origin in wanted.spec.brought.items())


def _fetch(wanted: Wanted, name: str, origin: InputFrom, machine: Machine, home: str) -> Fetch:
    sent, key = wanted.sent.get(name), _key(wanted, name, origin, machine)
    return Fetch(
        input=name,
        key=key,
        folder=posixpath.join(inputs_folder(machine, home), key),
        name=name_there(name, origin),
        scheme=origin.scheme,
        address=origin.address,
        tool=origin.tool,
        endpoint=origin.endpoint,
        profile=origin.profile,
        revision=origin.revision,
        timeout_s=origin.timeout_s,
        tree=sent.tree if sent is not None else "",
        files=sent.files if sent is not None else 0,
        bytes=sent.bytes if sent is not None else 0,
    )


def _key(wanted: Wanted, name: str, origin: InputFrom, machine: Machine) -> str:
    """The key of one input; empty for one of this client that could not be looked at."""
    if origin.scheme != LOCAL:
        return fetched_key(wanted.spec, name, machine)
    sent = wanted.sent.get(name)
    return input_key({"tree": sent.tree, "name": name_there(name, origin)}) if sent is not None else ""


def fetched_key(spec: RunSpec, name: str, machine: Machine) -> str:
    """The key of an input that `machine` fetches; with which tool is no matter, nor what is secret."""
    origin = spec.brought[name]
    env = {one: _own(spec, machine, one) for one in sorted({*spec.env, *machine.env}) if _decides(one, origin)}
    return key_of_fetched(name, origin, env)


def key_of_fetched(name: str, origin: InputFrom, env: Mapping[str, str]) -> str:
    """As `fetched_key`, where the variables `env` decide what is fetched."""
    tells: dict[str, object] = {"from": origin.address, "name": name_there(name, origin)}
    more = {"endpoint": origin.endpoint, "profile": origin.profile, "revision": origin.revision}
    tells.update({key: value for key, value in more.items() if value})
    told = {key: _ACCOUNT.sub("", value) for key, value in env.items() if value}
    return input_key({**tells, "env": told} if told else tells)


def deciding(spec: RunSpec, origin: InputFrom) -> dict[str, str]:
    """The spec's own variables that decide what is fetched from there, as they are written."""
    return {name: value for name, value in spec.env.items() if _decides(name, origin)}


def _decides(name: str, origin: InputFrom) -> bool:
    if (origin.endpoint and name in _BY_ENDPOINT) or (origin.profile and name in _BY_PROFILE):
        return False
    if _MAY_BE_SECRET.search(name.upper()):
        return False
    if name.startswith("RCLONE_"):
        return origin.tool == "rclone" and not _NO_MATTER.match(name)
    return name in _OF_HF if origin.scheme == "hf" else name in _OF_AWS


def name_there(name: str, origin: InputFrom) -> str:
    """What the file or folder is called on the machine: as it is where it comes from, wherever that can be."""
    place = origin.path or origin.address.partition(":")[2]
    last = posixpath.basename(place.rstrip("/").rpartition(":")[2])
    # A leading dot is for what is ours beside it.
    return last if last and not last.startswith(".") and "\0" not in last and len(last.encode()) <= 200 else name


def ready(fetch: Fetch, reading: HostReading) -> InputReady | None:
    """What the machine says of an input that was brought to it before; None when it is still to come."""
    return next((one for one in reading.inputs_ready if one.key == fetch.key), None)


def input_variables(found: Mapping[str, str]) -> dict[str, str]:
    """The job's variables for its inputs."""
    env = {variable(name): path for name, path in found.items()}
    checkpoint = next((path for name, path in found.items() if name.lower() == CHECKPOINT), "")
    return {**env, names.INPUT_CHECKPOINT: checkpoint} if checkpoint else env


def input_words(found: Mapping[str, str]) -> str:
    """The inputs as a plan's row."""
    return ", ".join(f"{name} from {words.harmless(path)}" for name, path in found.items())


def bringing(draft: JobRequest, reading: HostReading) -> tuple[tuple[str, str], ...]:
    """(step, words) of each input that is brought: what is sent from here first."""
    ordered = sorted(draft.fetches, key=lambda one: one.scheme != LOCAL)
    before = ", before a card is taken" if draft.cards else ""
    return tuple(("push" if one.scheme == LOCAL else "fetch", _told(one, reading, before)) for one in ordered)


def _told(fetch: Fetch, reading: HostReading, before: str) -> str:
    here, address = ready(fetch, reading), words.harmless(fetch.address)
    if fetch.scheme == LOCAL:
        amount = f"input {fetch.input}: {words.counted(fetch.files, 'file')}, {words.size(fetch.bytes)}"
        return f"{amount}: there already" if here is not None else f"{amount}: {address}"
    if here is not None:
        at = f" at {words.harmless(here.revision[:12])}" if here.revision else ""
        amount = f"{words.counted(here.files, 'file')}, {words.size(here.bytes)}"
        return f"input {fetch.input}: {amount}{at}, there already, fetched {words.ago(here.age_s)}"
    at = f" at {words.harmless(fetch.revision)}" if fetch.revision else ""
    via = f" of {words.harmless(fetch.endpoint)}" if fetch.endpoint else ""
    limit = words.typed(fetch.timeout_s)
    return f"input {fetch.input}: {address}{at}{via} with {fetch.tool}, {limit} at most{before}"
