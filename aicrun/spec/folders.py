"""Where a person's own files of aicrun lie on this machine: configuration, state and cache, as XDG says. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping


def config_folder(env: Mapping[str, str]) -> str:
    """The folder of `machines.yaml` for all projects; it need not be there."""
    return os.path.join(_base(env, "XDG_CONFIG_HOME", ".config"), "aicrun")


def state_folder(env: Mapping[str, str]) -> str:
    """The folder of the ledger; it need not be there."""
    return os.path.join(_base(env, "XDG_STATE_HOME", ".local/state"), "aicrun")


def cache_folder(env: Mapping[str, str]) -> str:
    """The folder of what can be found out or fetched again; it need not be there."""
    return os.path.join(_base(env, "XDG_CACHE_HOME", ".cache"), "aicrun")


def _base(env: Mapping[str, str], name: str, otherwise: str) -> str:
    # A relative one is invalid and passed over (XDG base directory specification).
    folder = env.get(name, "")
    return folder if os.path.isabs(folder) else os.path.join(env.get("HOME") or os.path.expanduser("~"), otherwise)
