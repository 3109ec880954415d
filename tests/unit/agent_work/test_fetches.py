"""How the tools that fetch are spoken to, and how what they brought is checked. The real tools run in integration."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aicrun.agent import bringing, brought, fetch_check, fetching, tool_tries
from aicrun.agent.build import DiskFull, SetupFailed, Workshop
from aicrun.agent.fetch_run import ToolFailed
from aicrun.agent.fetch_tools import Aws, Hf, Listing, Rclone
from aicrun.agent.home import Home
from aicrun.agent.transfer_tools import AwsCli, Remote
from aicrun.wire.jobs import Fetch, JobRequest, Source
from aicrun.wire.tools import FETCHERS

MIB = 1 << 20
# Stands in for the tool of the hub, as its help describes it; nothing here was tried against the service.
STAND_IN = """#!/bin/sh
echo "$@" >> "$ASKED"
[ -z "$SAYS" ] || { echo "$SAYS" >&2; exit 1; }
while [ "$1" != --local-dir ]; do shift; done
mkdir -p "$2/data" "$2/.cache/huggingface/download/data"
printf small > "$2/README.md"; printf large > "$2/data/large.bin"; printf other > "$2/data2"
told() { printf '%s\\n%s\\n0\\n' c0ffee "$2" > "$1.metadata"; }
cd "$2/.cache/huggingface/download"
told README.md "$BLOB"; told data/large.bin "$SHA"
"""


def fetch(**how: Any) -> Fetch:
    given = {"input": "corpus", "key": "0" * 16, "folder": "/data/aicrun/inputs/" + "0" * 16, "name": "corpus", **how}
    return Fetch(**given)


def multipart(raw: bytes, part: int) -> str:
    sums = [hashlib.md5(raw[at : at + part]).digest() for at in range(0, len(raw), part)]
    return f"{hashlib.md5(b''.join(sums)).hexdigest()}-{len(sums)}"


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    (tmp_path / "bin").mkdir()
    return Workshop({"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}, 60, "inputs.corpus.timeout")


class Encrypted(Rclone):
    """A server that encrypts some: what stands for their MD5 is none."""

    def is_opaque(self, remote: Remote, shop: Workshop) -> bool:
        return remote.path.startswith("plain")


def rclone(kind: type[Rclone] = Rclone) -> Rclone:
    return kind(fetch(scheme="s3", tool="rclone", address="s3://bucket/corpus/"), "/bin/rclone")


def test_what_was_fetched_is_compared_by_size_and_by_every_hash_that_is_known(tmp_path: Path, shop: Workshop) -> None:
    place = tmp_path / "part" / "corpus"
    (place / "a").mkdir(parents=True)
    parts, plain = os.urandom(9 * MIB), b"plain"
    (place / "a" / "parts.bin").write_bytes(parts)
    (place / "plain.txt").write_bytes(plain)
    (place / "odd.bin").write_bytes(parts)
    (place / "half.bin.x7.partial").write_bytes(b"left by a fetch that was killed")
    listing = Listing(
        (
            Remote("a/parts.bin", len(parts), multipart(parts, 8 * MIB)),
            Remote("odd.bin", len(parts), multipart(parts, 7 * MIB)),
            Remote("plain.txt", len(plain), hashlib.md5(plain).hexdigest()),
        )
    )
    looked = fetch_check.settled(rclone(), str(place), listing, shop)
    # Parts of a size that nobody sends prove nothing, and are no fault.
    assert (looked.faults, looked.record["hashed"], looked.record["listed"]) == ((), 2, 3)
    assert sorted(path.name for path in place.rglob("*") if path.is_file()) == ["odd.bin", "parts.bin", "plain.txt"]
    (place / "plain.txt").write_bytes(b"PLAIN")
    assert fetch_check.settled(rclone(Encrypted), str(place), listing, shop).faults == ()
    assert fetch_check.settled(rclone(), str(place), listing, shop).faults == ("plain.txt",)
    assert not (place / "plain.txt").exists()
    (place / "a" / "parts.bin").write_bytes(parts[:-1])
    assert fetch_check.settled(rclone(), str(place), listing, shop).faults == ("a/parts.bin", "plain.txt")


def test_one_object_that_is_encrypted_leaves_the_others_to_be_checked(tmp_path: Path, shop: Workshop) -> None:
    md5 = hashlib.md5(b"12345").hexdigest()
    listing = Listing(tuple(Remote(name, 5, md5) for name in ("plain", "second", "third")))
    for name, held in (("plain", "xxxxx"), ("second", "xxxxx"), ("third", "12345")):
        (tmp_path / name).write_text(held)
    looked = fetch_check.settled(rclone(Encrypted), str(tmp_path), listing, shop)
    assert (looked.faults, looked.record["hashed"]) == (("second",), 1)


@pytest.mark.parametrize(
    ("said", "is_encrypted"),
    [
        ('["AES256",null]', False),
        ("[null,null]", False),
        ('["aws:kms",null]', True),
        ('["aws:kms:dsse",null]', True),
        ('[null,"AES256"]', True),
    ],
)
def test_what_an_encrypting_server_tells_is_no_md5(
    tmp_path: Path, shop: Workshop, said: str, is_encrypted: bool
) -> None:
    """By a stand-in that says what the command line documents; no server with such keys is at hand."""
    program = tmp_path / "aws"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    assert AwsCli(str(program), "bucket", "", "").is_encrypted("a/b", shop) is is_encrypted


def test_a_listing_is_taken_as_it_is_told(tmp_path: Path, shop: Workshop) -> None:
    md5 = hashlib.md5(b"x").hexdigest()
    rows = [[1, f'"{md5}"', "c/a b\t.txt"], [0, '"x"', "c/folder/"], [2, f'"{md5}-3"', "c/d/e"], [3, '"weak"', "c/f"]]
    program = tmp_path / "aws"
    program.write_text(f"#!/bin/sh\ncat <<'E'\n{json.dumps(rows)}\nE\n")
    program.chmod(0o755)
    found = AwsCli(str(program), "bucket", "", "").objects("c/", shop, "asking")
    assert found == [Remote("a b\t.txt", 1, md5), Remote("d/e", 2, f"{md5}-3"), Remote("f", 3)]
    program.write_text("#!/bin/sh\necho null\n")
    assert AwsCli(str(program), "bucket", "", "").objects("c/", shop, "asking") == []


def test_no_command_line_holds_what_is_secret_and_an_address_is_one_word() -> None:
    aws = Aws(fetch(scheme="s3", tool="aws", address="s3://b/a b/c", endpoint="http://e", profile="lab"), "/bin/aws")
    folder = Listing((Remote("x", 1),))
    told = ["/bin/aws", "s3", "sync", "--endpoint-url", "http://e", "--profile", "lab", "--no-progress"]
    assert aws.copying("/d", folder) == [*told, "s3://b/a b/c/", "/d"]
    assert aws.copying("/d", Listing((Remote("", 1),), is_file=True))[-2:] == ["s3://b/a b/c", "/d"]
    assert rclone().copying("/d", folder)[-2:] == [":s3:bucket/corpus/", "/d"]
    hub = Hf(fetch(scheme="hf", tool="hf", address="hf:datasets/me/set/sub/a[1]", revision="v2"), "/bin/hf")
    kind = ["--repo-type", "dataset", "--revision", "v2", "--include", "sub/a[[]1]*"]
    assert hub.copying("/d", None) == ["/bin/hf", "download", "me/set", *kind, "--local-dir", "/d.whole"]
    assert Hf(fetch(scheme="hf", tool="hf", address="hf:me/model"), "hf").copying("/d", None)[2:] == [
        *("me/model", "--local-dir", "/d")
    ]


@pytest.fixture
def hub(tmp_path: Path, shop: Workshop) -> Path:
    """A machine with the stand-in for the hub's tool; what it was asked is in the file."""
    program = tmp_path / "bin" / "hf"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    shop.env.update(
        ASKED=str(tmp_path / "asked"),
        BLOB=hashlib.sha1(b"blob 5\0small").hexdigest(),
        SHA=hashlib.sha256(b"large").hexdigest(),
    )
    return tmp_path / "asked"


def test_a_repository_of_the_hub_is_checked_by_what_the_tool_leaves_there(
    tmp_path: Path, shop: Workshop, hub: Path
) -> None:
    growing = tmp_path / "growing"
    growing.mkdir()
    found = fetching.fetch(fetch(scheme="hf", tool="hf", address="hf:datasets/me/set"), str(growing), shop)
    assert (found["revision"], found["hashed"], found["listed"]) == ("c0ffee", 2, 3)
    assert sorted(path.name for path in (growing / "corpus").iterdir()) == ["README.md", "data", "data2"]
    below = fetch(scheme="hf", tool="hf", address="hf:datasets/me/set/data", name="data")
    (tmp_path / "below").mkdir()
    assert fetching.fetch(below, str(tmp_path / "below"), shop)["listed"] == 1
    assert [path.name for path in (tmp_path / "below" / "data").iterdir()] == ["large.bin"]
    assert "download me/set --repo-type dataset --local-dir" in hub.read_text()


@pytest.mark.parametrize(("below", "name"), [("data", "data"), ("data/large.bin", "large.bin")])
def test_of_a_path_in_a_repository_a_fetch_that_was_killed_at_any_moment_leaves_nothing_in_the_way(
    tmp_path: Path, shop: Workshop, hub: Path, below: str, name: str
) -> None:
    growing, wanted = tmp_path / "growing", fetch(scheme="hf", tool="hf", address=f"hf:me/m/{below}", name=name)
    scratch = growing / f"{name}.whole"

    def is_right() -> bool:
        found = fetching.fetch(wanted, str(growing), shop)
        files = [path for path in growing.rglob("*") if path.is_file()]
        assert ([path.read_text() for path in files], found["hashed"], found["revision"]) == (["large"], 1, "c0ffee")
        return True

    growing.mkdir()
    assert is_right()
    # Killed after the move: what was asked for is in its place, without what is remembered of it.
    assert is_right()
    # Killed before what is beside it was removed.
    scratch.mkdir()
    (scratch / "README.md").write_text("small")
    assert is_right()
    # Killed just before the move, and the repository has another file of that name since then.
    (growing / name).rename(growing / "kept")
    (scratch / below).parent.mkdir(parents=True)
    (growing / "kept").rename(scratch / below)
    ((scratch / below / "gone.txt") if below == "data" else scratch / "gone.txt").write_text("of an older revision")
    assert is_right()
    # Killed while it was fetched: it goes on.
    (scratch / ".cache/huggingface/download").mkdir(parents=True)
    (scratch / ".cache/huggingface/download/half.incomplete").write_text("half")
    assert is_right()


def test_hosts_that_share_a_volume_and_see_no_lock_of_each_other_bring_one_input(
    tmp_path: Path, shop: Workshop, hub: Path, home: Home, job: Callable[..., JobRequest]
) -> None:
    key = "0" * 16
    inputs = tmp_path / "nfs" / brought.BELOW
    ready = inputs / key
    wanted = fetch(scheme="hf", tool="hf", address="hf:me/model", folder=str(ready))
    other = Path(brought.growing(wanted, "b" * 32))
    other.mkdir(parents=True)
    (other / "half").write_text("of the other host")
    # While this host fetches, the other one is done.
    other_is_done = f"mkdir {ready}; cp {tmp_path}/mark {ready}/{brought.MARK}"
    (tmp_path / "mark").write_text(f'{{"schema": 1, "key": "{key}", "files": 7, "bytes": 1, "scheme": "hf"}}')
    (tmp_path / "bin" / "hf").write_text(STAND_IN + other_is_done)
    found = bringing.bring_all(home, job(fetches=(wanted,)), shop.env)["corpus"]
    assert (found["new"], found["files"]) == (False, 7)
    assert sorted(path.name for path in inputs.iterdir() if not path.name.startswith(".")) == [key, other.name]
    assert (other / "half").exists()
    # What is in the way and is no input stays an error.
    (ready / brought.MARK).write_text("{}")
    with pytest.raises(SetupFailed, match="is in the way, and is not whole"):
        bringing.bring_all(home, job(fetches=(wanted,)), shop.env)


def test_what_this_client_sent_is_laid_out_before_anything_is_fetched(
    tmp_path: Path, shop: Workshop, home: Home, job: Callable[..., JobRequest], push: Callable[..., Source]
) -> None:
    inputs = tmp_path / brought.BELOW
    tree = push({"weights/a.bin": b"a"}).tree
    sent = {"scheme": "local", "address": "weights", "name": "weights", "tree": tree}
    local = fetch(input="weights", key="1" * 16, folder=f"{inputs}/{'1' * 16}", **sent)
    # The fetch comes first in the spec; it may take hours, or fail, as here.
    far = fetch(scheme="hf", tool="hf", address="hf:me/model", folder=f"{inputs}/{'0' * 16}")
    with pytest.raises(SetupFailed, match="there is no hf on this host"):
        bringing.bring_all(home, job(fetches=(far, local)), shop.env)
    assert (inputs / ("1" * 16) / "weights/a.bin").read_bytes() == b"a"


def test_what_changes_while_it_is_fetched_is_listed_and_fetched_again(
    tmp_path: Path, shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PAUSES_S", (0.0, 0.0))
    # Stands in for rclone, whose remote grows after it was listed for the first time.
    program, there = tmp_path / "bin" / "rclone", tmp_path / "there"
    there.write_text("old")
    rows = '[{"Path":"a","Size":%s}]'
    program.write_text(
        f"""#!/bin/sh
[ "$1" = lsjson ] && {{ printf '{rows}' "$(wc -c < {there})"; printf longer > {there}; exit; }}
for last in "$@"; do :; done
mkdir -p "$last" && cp {there} "$last/a"
"""
    )
    program.chmod(0o755)
    (tmp_path / "growing").mkdir()
    wanted = fetch(scheme="rclone", tool="rclone", address="rclone:nas:x")
    assert fetching.fetch(wanted, str(tmp_path / "growing"), shop)["listed"] == 1
    assert (tmp_path / "growing" / "corpus" / "a").read_text() == "longer"


def test_a_repository_whose_revision_moved_is_fetched_anew(
    tmp_path: Path, shop: Workshop, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PAUSES_S", (0.0,))
    left = tmp_path / "growing" / "corpus"
    (left / ".cache/huggingface/download").mkdir(parents=True)
    (left / "gone.txt").write_text("of an older revision, left by a fetch that was killed")
    (left / ".cache/huggingface/download/gone.txt.metadata").write_text("0lder\netag\n0\n")
    wanted = fetch(scheme="hf", tool="hf", address="hf:datasets/me/set")
    assert fetching.fetch(wanted, str(tmp_path / "growing"), shop)["revision"] == "c0ffee"
    assert not (left / "gone.txt").exists() and len(hub.read_text().splitlines()) == 2


def test_what_will_not_pass_is_tried_once_and_says_what_to_do(
    tmp_path: Path, shop: Workshop, hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = fetch(scheme="hf", tool="hf", address="hf:me/model")
    shop.env["SAYS"] = "401 Client Error: Invalid user token"
    with pytest.raises(SetupFailed, match=r"hf says: 401 .*; hf auth login on that host, or the secret HF_TOKEN"):
        fetching.fetch(wanted, str(tmp_path), shop)
    assert len(hub.read_text().splitlines()) == 1
    shop.env["SAYS"] = "Error: Repository not found\nHint: set HF_DEBUG=1"
    with pytest.raises(SetupFailed, match=r"hf says: Error: Repository not found; look at the address hf:me/model"):
        fetching.fetch(wanted, str(tmp_path), shop)
    assert len(hub.read_text().splitlines()) == 2
    monkeypatch.setattr(fetching, "PAUSES_S", (0.0, 0.0))
    shop.env["SAYS"] = "Connection reset by peer"
    with pytest.raises(SetupFailed, match=r"input corpus: hf says: Connection reset by peer; this host does not reach"):
        fetching.fetch(wanted, str(tmp_path), shop)
    assert len(hub.read_text().splitlines()) == 5
    (tmp_path / "bin" / "hf").unlink()
    with pytest.raises(SetupFailed, match="there is no hf on this host: uv tool install huggingface_hub"):
        fetching.fetch(wanted, str(tmp_path), shop)


# As the tools said it: aws 1.45, rclone 1.75, hf 2.4.
@pytest.mark.parametrize(
    ("said", "lasts", "way"),
    [
        ("An error occurred (NoSuchBucket) when calling the ListObjectsV2 operation: The specified", True, "address"),
        (
            "An error occurred (InvalidAccessKeyId) when calling the ListObjectsV2 operation: The AWS",
            True,
            "for: setup",
        ),
        ('Unable to locate credentials. You can configure credentials by running "aws configure".', True, "for: setup"),
        ("An error occurred (404) when calling the HeadObject operation: Not Found", True, "address"),
        ("The config profile (nope) could not be found", True, "for: setup"),
        ('Could not connect to the endpoint URL: "http://127.0.0.1:9/bucket?list-type=2"', False, "does not reach it"),
        ("ERROR : error listing: directory not found", True, "address"),
        ("https response error StatusCode: 403, RequestID: , HostID: , api error AccessDenied", True, "for: setup"),
        ('request send failed, Get "http://x": dial tcp 127.0.0.1:9: connect: connection refused', False, "reach"),
        ("CRITICAL: Failed to create file system: didn't find section in config file (nope)", True, "address"),
        ("Error: Local entry not found. [Errno -2] Name or service not known", False, "does not reach it"),
        ("Error: unknown flag: --stat", True, ""),
        ("read tcp: unexpected EOF", False, "reach"),
        ("http: server gave a 503", False, ""),
    ],
)
def test_what_a_tool_says_decides_whether_it_is_tried_again(said: str, lasts: bool, way: str) -> None:
    assert tool_tries.lasts(said) is lasts
    errand = tool_tries.Errand("input corpus", "s3://b", FETCHERS["rclone"].login % "setup", ())
    told = tool_tries.help_for(errand, said)
    assert way in told and bool(told) == bool(way)


def test_a_tool_that_takes_too_long_is_ended_with_the_fields_name(tmp_path: Path) -> None:
    program = tmp_path / "hf"
    program.write_text("#!/bin/sh\nexec sleep 100\n")
    program.chmod(0o755)
    shop = Workshop({"PATH": f"{tmp_path}:/bin:/usr/bin"}, 1, "inputs.corpus.timeout")
    with pytest.raises(SetupFailed, match=r"inputs\.corpus\.timeout passed \(1 s\) while fetching input corpus"):
        fetching.fetch(fetch(scheme="hf", tool="hf", address="hf:me/model"), str(tmp_path), shop)


def test_a_folder_that_is_not_of_inputs_is_refused() -> None:
    class Asked:
        fetches = (
            fetch(scheme="s3"),
            fetch(scheme="s3", folder="/etc/aicrun/other/" + "0" * 16),
            fetch(scheme="s3", name="../x"),
        )

    said = brought.faults(Asked())  # type: ignore[arg-type]
    assert said == ["the folder of input corpus is not one of inputs", "the name of input corpus is no name"]


def test_a_full_disk_tells_where_and_how_much_is_free(tmp_path: Path) -> None:
    told = bringing.full(fetch(scheme="s3", folder=f"{tmp_path}/aicrun/inputs/{'0' * 16}"), "it needs 9 bytes more")
    assert isinstance(told, DiskFull) and f"does not fit into {tmp_path}: it needs 9 bytes more; " in str(told)


def test_a_folder_of_somebody_else_or_a_link_is_no_place_for_inputs(tmp_path: Path) -> None:
    wanted = fetch(scheme="s3")
    (tmp_path / "mine").mkdir()
    bringing.check_owner(wanted, f"{tmp_path}/mine")
    (tmp_path / "link").symlink_to("mine")
    with pytest.raises(SetupFailed, match="link is no folder of this account"):
        bringing.check_owner(wanted, f"{tmp_path}/link")
    if os.getuid() == 0:
        os.chown(tmp_path / "mine", 12345, 12345)
        with pytest.raises(SetupFailed, match="mine is no folder of this account"):
            bringing.check_owner(wanted, f"{tmp_path}/mine")


def test_what_is_shared_is_read_only_and_keeps_what_can_be_executed(tmp_path: Path) -> None:
    for name, mode in (("plain", 0o644), ("program", 0o755)):
        (tmp_path / name).write_text("12345")
        (tmp_path / name).chmod(mode)
    (tmp_path / "link").symlink_to("plain")
    assert bringing._made_read_only(str(tmp_path)) == (3, 15)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "program")]
    assert modes == [0o444, 0o555]


def test_a_tool_says_why_in_its_last_words(shop: Workshop) -> None:
    from aicrun.agent.fetch_run import run

    with pytest.raises(ToolFailed) as caught:
        run(("sh", "-c", "echo first; echo; echo the last one >&2; exit 3"), shop, "trying")
    assert caught.value.why == "sh says: the last one"
    assert run(("sh", "-c", "echo out; echo err >&2"), shop, "trying", captures=True) == b"out\n"
