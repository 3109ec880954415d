"""The store keeps what it can prove and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable

import pytest

from aicrun.agent import store
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused
from aicrun.wire.jobs import Source

ONE = b"print(1)\n"
HASH = hashlib.sha256(ONE).hexdigest()


def test_what_is_pushed_is_not_missing_any_more(home: Home) -> None:
    assert store.missing(home, {"tree": "", "hashes": [HASH, HASH]}, b"")[0] == {"missing": [HASH]}
    store.put(home, {"hash": HASH}, ONE)
    assert store.missing(home, {"tree": "", "hashes": [HASH]}, b"")[0] == {"missing": []}
    assert os.stat(store.object_path(home, HASH)).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "A" * 64, HASH[:-1], HASH + "0"])
def test_a_name_that_is_no_hash_is_refused_and_leaves_nothing(home: Home, name: str) -> None:
    with pytest.raises(Refused, match="hash"):
        store.put(home, {"hash": name}, ONE)
    assert not os.path.exists(home.store())


def test_bytes_that_do_not_have_their_hash_are_refused(home: Home) -> None:
    with pytest.raises(Refused) as caught:
        store.put(home, {"hash": HASH}, ONE + b"\n")
    assert caught.value.token == "invalid_request"


def test_a_manifest_under_a_wrong_tree_is_refused(home: Home) -> None:
    with pytest.raises(Refused, match="hash of its tree"):
        store.missing(home, {"tree": "0" * 64, "hashes": []}, json.dumps([["a", "f", HASH, 9]]).encode())


def test_a_tree_is_complete_when_manifest_and_contents_are_here(home: Home, push: Callable[..., Source]) -> None:
    assert store.complete(home, "0" * 64) == ("0" * 64,)
    source = push({"a.py": ONE, "b/c.py": ONE})
    assert store.complete(home, source.tree) == ()
    os.unlink(store.object_path(home, HASH))
    assert store.complete(home, source.tree) == (HASH,)


def test_a_manifest_that_was_changed_on_disk_counts_as_gone(home: Home, push: Callable[..., Source]) -> None:
    source = push({"a.py": ONE})
    with open(store.manifest_path(home, source.tree), "wb") as stream:
        stream.write(json.dumps([["a.py", "x", HASH, 9]]).encode())
    assert store.manifest(home, source.tree) is None
    assert store.complete(home, source.tree) == (source.tree,)
