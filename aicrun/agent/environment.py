"""The environment a job finds: computed from the request and the host, the same at every start.

It must not read a shell's start file and never passes on a credential of the login. `programs.py` hands the result
to the keeper; `inspect --env` shows it.
"""

import os
import pwd
import re
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from aicrun.agent import later, ownership
from aicrun.agent.machine import OTHER_SYSTEM_PATH, SYSTEM_PATH
from aicrun.agent.tree import working_tree
from aicrun.wire import names
from aicrun.wire.jobs import JobRequest
from aicrun.wire.patterns import pattern

if TYPE_CHECKING:
    import socket
else:
    socket = later.module("socket")

CUDA_BIN = "/usr/local/cuda/bin"

# fmt: off
_KEPT = frozenset((
    "http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY",
    "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "AWS_CA_BUNDLE", "NIX_SSL_CERT_FILE", "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_CACHE_DIR", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_INSECURE_HOST",
    "UV_HTTP_TIMEOUT", "UV_OFFLINE", "UV_LINK_MODE", "UV_CONSTRAINT", "TZ",
))
# fmt: on
_KEPT_PREFIXES = ("PIP_", "UV_INDEX")
_CREDENTIAL = pattern(r"TOKEN|SECRET|PASSW|PASSWD|CREDENTIAL|USERNAME|_KEY(_|\Z)", re.IGNORECASE)


def kept(login: Mapping[str, str]) -> Dict[str, str]:
    """The proxy, certificate and package index variables of `login`; nothing that is named like a credential."""
    return {
        name: value
        for name, value in login.items()
        if (name in _KEPT or name.startswith(_KEPT_PREFIXES)) and not _CREDENTIAL.search(name)
    }


def environment(request: JobRequest, attempt: int, login: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """Everything the steps of `request` find in their environment; `login` is the agent's own (default: the process's).

    The request's own `env` is laid on top, so a value a person wrote always wins.
    """
    login = os.environ if login is None else login
    found = dict(kept(login), **_account(login))
    owner = ownership.owner(request)
    if owner is not None:
        found["HOME"] = owner.home
    found["PATH"] = os.pathsep.join(search_path(request, found["HOME"]))
    found.update(LANG="C.UTF-8", TMPDIR=_folder(login.get("TMPDIR", "")) or "/tmp", PYTHONUNBUFFERED="1")  # noqa: S108
    if request.setup.path:
        found["VIRTUAL_ENV"] = request.setup.path
    if request.setup.key:
        # An environment of ours has no pip: the next one on PATH would install into the system's or conda's Python.
        found.setdefault("PIP_REQUIRE_VIRTUALENV", "1")
    if not request.cards:
        # A card that nobody asked for is somebody else's: no lock of ours would keep two programs off it.
        found["CUDA_VISIBLE_DEVICES"] = ""
    found.update(_ours(request, attempt, found["HOME"]))
    for name, value in _more_caches(request.env).items():
        # One that the login has set is the account's own wish.
        found.setdefault(name, value)
    if owner is not None:
        # What root installs is no business of the owner's own uv, who could not use it.
        found.setdefault("UV_CACHE_DIR", os.path.join(_account(login)["HOME"], ".cache/uv"))
    found.update(request.env)
    token = os.path.join(found["HOME"], ".cache/huggingface/token")
    if found["HF_HOME"] != os.path.dirname(token) and "HF_TOKEN" not in found and os.path.exists(token):
        # A login made before the cache moved would be lost with it.
        found.setdefault("HF_TOKEN_PATH", token)
    return found


def login_environment(path: Tuple[str, ...], login: Mapping[str, str]) -> Dict[str, str]:
    """What a short command finds: the account's part of a job's environment, without a run; `path` stands first."""
    found = dict(kept(login), **_account(login))
    folders = [_expanded(folder, found["HOME"]) for folder in path] + _usual_path(found["HOME"])
    return dict(found, PATH=os.pathsep.join(folders), LANG="C.UTF-8", PYTHONUNBUFFERED="1")


def search_path(request: JobRequest, account_home: str) -> List[str]:
    """The folders of PATH in order: environment, the machine's own, the account's, CUDA's, the system's."""
    folders: List[str] = []
    if request.setup.path:
        folders.append(os.path.join(request.setup.path, "bin"))
    folders += [_expanded(folder, account_home) for folder in request.path]
    return folders + _usual_path(account_home)


def _usual_path(account_home: str) -> List[str]:
    folders = [os.path.join(account_home, ".local/bin"), os.path.join(account_home, ".cargo/bin")]
    folders += [folder for folder in (CUDA_BIN,) if os.path.isdir(folder)]
    folders += SYSTEM_PATH
    folders += [folder for folder in OTHER_SYSTEM_PATH if os.path.isdir(folder)]
    return folders


def caches(data: str, account_home: str) -> Tuple[str, str, str]:
    """(cache folder, HF_HOME, TORCH_HOME): below the data volume, else what the user has filled in the home."""
    if data:
        return os.path.join(data, "cache"), os.path.join(data, "hf"), os.path.join(data, "torch")
    cache = os.path.join(account_home, ".cache")
    return cache, os.path.join(cache, "huggingface"), os.path.join(cache, "torch")


def _more_caches(env: Mapping[str, str]) -> Dict[str, str]:
    """Where other programs keep what they can get again: below the data volume, where this account may write there.

    uv links what it installs out of its cache, which it can on one file system alone.
    """
    data = env.get(names.VARIABLES["machine.data"], "")
    base = env.get("XDG_CACHE_HOME", "") or (os.path.join(data, "cache") if data else "")
    if not data or not os.access(_nearest(base), os.W_OK):
        return {}
    kinds = {"UV_CACHE_DIR": "uv", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}
    return dict({name: os.path.join(base, kind) for name, kind in kinds.items()}, XDG_CACHE_HOME=base)


def _nearest(path: str) -> str:
    """The folder, or the one above it that is there."""
    while not os.path.isdir(path) and path not in ("", "/"):
        path = os.path.dirname(path.rstrip("/"))
    return path or "/"


def _ours(request: JobRequest, attempt: int, account_home: str) -> Dict[str, str]:
    data = request.env.get(names.VARIABLES["machine.data"], "")
    cache, hf_home, torch_home = caches(data, account_home)
    variables = names.VARIABLES
    return {
        "HF_HOME": hf_home,
        "TORCH_HOME": torch_home,
        variables["run.name"]: request.run,
        variables["run.id"]: request.run_id,
        variables["run.dir"]: working_tree(request),
        variables["machine.name"]: request.machine,
        variables["machine.data"]: data,
        variables["machine.cache"]: cache,
        variables["gpu.count"]: str(len(request.cards)),
        names.JOB_ID: request.job_id,
        names.ATTEMPT: str(attempt),
        names.CHECKPOINT_DIR: request.checkpoints,
        "FLEXAI_OUTPUT_CHECKPOINT_DIR": request.checkpoints,
        names.INPUT_CHECKPOINT: "",
        names.RESUME_FROM: "",
        names.PORT: str(_free_port()),
    }


def _account(login: Mapping[str, str]) -> Dict[str, str]:
    try:
        entry: Optional[pwd.struct_passwd] = pwd.getpwuid(os.geteuid())
    except KeyError:
        entry = None
    user = entry.pw_name if entry else login.get("USER", "") or str(os.geteuid())
    home = _folder(login.get("HOME", "")) or (entry.pw_dir if entry else "/")
    shell = (entry.pw_shell if entry else "") or login.get("SHELL", "") or "/bin/sh"
    return {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": shell}


def _folder(path: str) -> str:
    return path if os.path.isabs(path) and os.path.isdir(path) else ""


def _expanded(folder: str, account_home: str) -> str:
    return account_home + folder[1:] if folder == "~" or folder.startswith("~/") else folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return int(port)
