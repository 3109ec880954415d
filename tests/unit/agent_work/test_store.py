"""The store keeps what it can prove and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable

import pytest

from aicrun.agent import store, store_parts
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused
from aicrun.wire.jobs import Source

ONE = b"print(1)\n"
HASH = hashlib.sha256(ONE).hexdigest()


def test_what_is_pushed_is_not_missing_any_more(home: Home) -> None:
    assert store.missing(home, {"tree": "", "hashes": [HASH, HASH]}, b"")[0] == {"missing": [HASH]}
    store.put(home, {"hash": HASH}, ONE)
    assert store.missing(home, {"tree": "", "hashes": [HASH]}, b"")[0] == {"missing": []}
    assert os.stat(home.object_path(HASH)).st_mode & 0o777 == 0o600


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
    os.unlink(home.object_path(HASH))
    assert store.complete(home, source.tree) == (HASH,)


def test_a_manifest_that_was_changed_on_disk_counts_as_gone(home: Home, push: Callable[..., Source]) -> None:
    source = push({"a.py": ONE})
    with open(store.manifest_path(home, source.tree), "wb") as stream:
        stream.write(json.dumps([["a.py", "x", HASH, 9]]).encode())
    assert store.manifest(home, source.tree) is None
    assert store.complete(home, source.tree) == (source.tree,)


def parts_of(home: Home) -> list[str]:
    folder = os.path.join(home.store(), "objects", LARGE_HASH[:2])
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


LARGE = os.urandom(300_000)
LARGE_HASH = hashlib.sha256(LARGE).hexdigest()


def piece(home: Home, start: int, end: int) -> None:
    body = {"hash": LARGE_HASH, "bytes": len(LARGE), "offset": start}
    store.put_part(home, body, LARGE[start:end])


def here(home: Home) -> int:
    return int(store.put_part(home, {"hash": LARGE_HASH, "bytes": len(LARGE)}, b"")[0]["offset"])


def test_many_contents_come_in_one_request_and_those_before_a_wrong_one_are_kept(home: Home) -> None:
    two = hashlib.sha256(b"").hexdigest()
    store.put(home, {"hashes": [HASH, two], "sizes": [len(ONE), 0]}, ONE)
    assert store.missing(home, {"tree": "", "hashes": [HASH, two]}, b"")[0] == {"missing": []}
    three = hashlib.sha256(b"3").hexdigest()
    with pytest.raises(Refused, match="hash they came under"):
        store.put(home, {"hashes": [three, HASH], "sizes": [1, 1]}, b"34")
    assert store.missing(home, {"tree": "", "hashes": [three]}, b"")[0] == {"missing": []}


@pytest.mark.parametrize(
    "body",
    [{"hashes": [HASH], "sizes": []}, {"hashes": [HASH], "sizes": [len(ONE) + 1]}, {"hashes": [HASH], "sizes": [-1]}],
)
def test_sizes_that_are_not_those_of_the_bytes_are_refused(home: Home, body: dict[str, object]) -> None:
    with pytest.raises(Refused, match="sizes"):
        store.put(home, body, ONE)


def test_a_large_content_goes_on_where_it_was_cut_off(home: Home) -> None:
    assert here(home) == 0
    piece(home, 0, 100_000)
    store_parts._forget()  # the connection is lost: its process is gone
    assert here(home) == 100_000
    piece(home, 100_000, 200_000)
    piece(home, 200_000, 300_000)
    assert parts_of(home) == [LARGE_HASH]
    assert here(home) == len(LARGE)


def test_what_lies_there_and_is_no_beginning_of_it_is_noticed_at_the_end_and_removed(home: Home) -> None:
    here(home)
    piece(home, 0, 100_000)
    store_parts._forget()
    (path,) = parts_of(home)
    with open(os.path.join(home.store(), "objects", LARGE_HASH[:2], path), "r+b") as stream:
        stream.write(b"\0" * 4096)
    assert here(home) == 100_000
    with pytest.raises(Refused) as caught:
        piece(home, 100_000, 300_000)
    assert caught.value.token == "transfer_failed"
    assert parts_of(home) == []
    assert here(home) == 0


def test_a_piece_that_is_not_the_next_one_is_refused(home: Home) -> None:
    with pytest.raises(Refused, match="is not the one that is due"):
        piece(home, 0, 100)
    here(home)
    for start, end in ((100, 200), (0, len(LARGE) + 1)):
        with pytest.raises(Refused, match="is not the one that is due"):
            store.put_part(home, {"hash": LARGE_HASH, "bytes": 1000, "offset": start}, LARGE[start:end])


def test_two_connections_that_bring_the_same_content_do_not_share_a_file(home: Home) -> None:
    here(home)
    piece(home, 0, 100_000)
    first = dict(store_parts._arriving)
    store_parts._arriving.clear()  # a second process begins, while the first one lives
    assert here(home) == 0
    piece(home, 0, 300_000)
    assert LARGE_HASH in parts_of(home)
    store_parts._arriving.update(first)
    piece(home, 100_000, 300_000)
    assert parts_of(home) == [LARGE_HASH]


def test_a_tree_that_is_known_need_not_be_listed_again(home: Home, push: Callable[..., Source]) -> None:
    assert store.missing(home, {"tree": "0" * 64}, b"")[0] == {"missing": [], "known": False}
    source = push({"a.py": ONE})
    assert store.missing(home, {"tree": source.tree}, b"")[0] == {"missing": [], "known": True}
    os.unlink(home.object_path(HASH))
    assert store.missing(home, {"tree": source.tree}, b"")[0] == {"missing": [HASH], "known": True}


def test_a_tree_is_listed_while_it_is_here_and_is_what_its_name_says(home: Home, push: Callable[..., Source]) -> None:
    tree = push({"a.py": b"1\n"}).tree
    answer, listing = store.listing(home, {"tree": tree}, b"")
    assert answer == {"known": True} and [row[0] for row in json.loads(listing)] == ["a.py"]
    for name in ("../" + tree, "f" * 64, "", tree.upper()):
        assert store.listing(home, {"tree": name}, b"") == ({"known": False}, b"")
    with open(store.manifest_path(home, tree), "ab") as stream:
        stream.write(b" ")
        stream.seek(0)
        stream.truncate(5)
    assert store.listing(home, {"tree": tree}, b"") == ({"known": False}, b"")
