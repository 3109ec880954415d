"""Foreign programs: uv, which we may put on a host, in one pinned version; those a host must have, to fetch and upload.

It must not fetch or run anything.

The client fetches the wheel (`hosts/uv.py`) and pushes the binary inside it through the store; the host finds it
there by its SHA-256 (`agent/envs.py`). Both read this table, so neither has to tell the other.
"""

from typing import Dict, Tuple

from aicrun.wire import lean

UV_VERSION = "0.13.9"

# (system, machine, C library) -> (wheel's tag, SHA-256 of the wheel, SHA-256 of the binary in it).
# Source: the simple index of pypi.org for uv 0.13.9; binaries hashed from those wheels.
UV: Dict[Tuple[str, str, str], Tuple[str, str, str]] = {
    ("linux", "x86_64", "glibc"): (
        "manylinux_2_17_x86_64.manylinux2014_x86_64",
        "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
        "b73acdf73b96c3ac9e56d2fa933427b3ee6a901e3cce6ba1e3ecb3f91ca0d86a",
    ),
    ("linux", "x86_64", "musl"): (
        "musllinux_1_1_x86_64",
        "2c45530751517d6c3bbc69a19473f6effe47cce047bede01ffd8af7ea7b36b25",
        "edbfb9a3d00dc84148e6691cd8740781fdc32db6505d7ef88ba6c3e569d5bec9",
    ),
    ("linux", "aarch64", "glibc"): (
        "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
        "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
        "bbecb5ac518030bb5e84f1999c577228460192832ac24a92bd772735682979f4",
    ),
    ("linux", "aarch64", "musl"): (
        "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
        "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
        "bbecb5ac518030bb5e84f1999c577228460192832ac24a92bd772735682979f4",
    ),
    ("darwin", "x86_64", ""): (
        "macosx_10_12_x86_64",
        "c16ed11e013557536b3e60065f1b912f6407bd6518e041b961e23ef9e6b4fbf5",
        "9d275208c058354f9b300ea46a499c7a29de3249ae839503cadff2c01c159d69",
    ),
    ("darwin", "arm64", ""): (
        "macosx_11_0_arm64",
        "66c512266d633bef48384a1f53003f41f2a8e7b36fe6e7fbfd3e0fd52d96fa63",
        "0e17c316d23b33b4e840669f516f5cb7f5c1faa816ebd3824052ab50082ecefb",
    ),
}


def uv_platform(system: str, machine: str, libc: str) -> Tuple[str, str, str]:
    """The key of `UV` for words as `uname` and a survey say them (`Linux`, `amd64`, `glibc 2.36`)."""
    machine = {"amd64": "x86_64", "AMD64": "x86_64"}.get(machine, machine)
    system = system.lower()
    if system == "darwin":
        return system, "arm64" if machine == "aarch64" else machine, ""
    return system, "aarch64" if machine == "arm64" else machine, "musl" if libc.startswith("musl") else "glibc"


@lean.dataclass(frozen=True)
class Fetcher:
    """A tool that fetches inputs and uploads: how an account of a host gets it, and how it gets its credentials.

    `login % step` names the step whose secrets they may be.
    """

    get: str
    login: str


FETCHERS: Dict[str, Fetcher] = {
    "aws": Fetcher(
        "uv tool install awscli",
        "aws configure on that host, or secrets AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for: %s",
    ),
    "rclone": Fetcher(
        "apt install rclone, or https://rclone.org/install/",
        "rclone config on that host; for s3:// also secrets AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for: %s",
    ),
    "hf": Fetcher("uv tool install huggingface_hub", "hf auth login on that host, or the secret HF_TOKEN for: %s"),
    "rsync": Fetcher(
        "apt install rsync",
        "a job is detached and has no ssh agent: ssh must find a key without a passphrase on that host for: %s",
    ),
    "ssh": Fetcher("apt install openssh-client", ""),
}

# What a tool needs beside itself.
CARRIED_BY: Dict[str, Tuple[str, ...]] = {"rsync": ("ssh",)}

# Upload targets that a tool of the host writes to.
REMOTE_SCHEMES = ("s3", "rclone", "ssh", "hf")
