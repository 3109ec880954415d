"""One question, one answer: call names, refusal tokens and the framing on the agent's two pipes.

It must not know who carries the bytes. The framing is frozen (`tests/golden/wire.json`):

    client -> agent   `<json bytes> <payload bytes>\\n` + json + payload                     (any number of times)
    agent -> client   `<marker> <json bytes> <payload bytes>\\n` + json + payload            (one for each request)

The first request is `hello` and carries the marker, 32 hex digits drawn by the client for this connection. What
stands before the first marker line is a banner or a start file's chatter, and is skipped; a payload is raw bytes
(log text, a file), so that nothing is ever base64.
"""

from typing import IO, Any, Dict, List, Optional, Tuple

from aicrun.wire.codec import WireError, dump, load

PROTOCOL_FIRST = 1
PROTOCOL_LAST = 1
JSON_CAP_BYTES = 64 * 1024 * 1024
BANNER_CAP_BYTES = 256 * 1024
# An agent that hears nothing for so long between or in requests goes: its client went without a word. A client that was
# silent for `RENEW_S` opens a new connection for its next request, so that none is on its way to an agent that goes.
IDLE_S = 300
RENEW_S = 120

CALLS = (
    "hello",
    "survey",
    "store_missing",
    "store_put",
    "reserve",
    "look",
    "confirm",
    "withdraw",
    "unqueue",
    "await",
    "touch",
    "jobs",
    "job",
    "environment",
    "wait",
    "log",
    "stop",
    "supervise",
    "upload",
    "delete",
    "forget",
    "notes",
    "note",
    "doctor",
    "gc",
    "drain",
    "exec",
    "exec_more",
    "file_list",
    "file_read",
    "file_hash",
    "file_begin",
    "file_write",
    "file_finish",
    "files_look",
    "files_put",
    "store_part",
    "git_source",
    "source_diff",
    "checkpoints",
    "delete_checkpoints",
    "store_tree",
)

REFUSALS = (
    "busy",
    "gpu_busy",
    "too_many_jobs",
    "not_found",
    "invalid_request",
    "protocol_mismatch",
    "not_finished",
    "nothing_to_upload",
    "newer_record",
    "store_incomplete",
    "state_unusable",
    "no_lock",
    "start_failed",
    "internal",
    "secret_refused",
    "drained",
    "exists",
    "not_a_file",
    "too_large",
    "unreadable",
    "unwritable",
    "transfer_failed",
    "disk_full",
)

_REPLY_HEAD_BYTES = 128
# An answer without a word, as it stands on the wire: what goes on as before is told so, line by line of a log, and
# neither side has to write or read JSON for it.
_NOTHING: Dict[str, Any] = {"answer": {}}
_NOTHING_RAW = b'{"answer":{}}'


class ConnectionEnded(Exception):
    """The other side closed its pipe; `seen` is what had arrived instead of a frame (at most 4 KiB)."""

    def __init__(self, seen: bytes = b"") -> None:
        super().__init__("the connection ended")
        self.seen = seen[:4096]


class NoMarker(WireError):
    """What came was no frame for too long; `seen` is its beginning (at most 4 KiB)."""

    def __init__(self, seen: bytes) -> None:
        super().__init__("no marker within %d bytes" % BANNER_CAP_BYTES)
        self.seen = seen[:4096]


def write_request(stream: IO[bytes], call: str, body: Dict[str, Any], payload: bytes = b"") -> None:
    """Send one request and flush; `body` must not have a key `call`."""
    raw = dump(dict(body, call=call))
    stream.write(b"%d %d\n" % (len(raw), len(payload)) + raw)
    stream.write(payload)
    stream.flush()


def read_request(stream: IO[bytes]) -> Optional[Tuple[str, Dict[str, Any], bytes]]:
    """The next (call, body, payload), or None at the end of input; raises `WireError` on anything else."""
    head = stream.readline(64)
    if not head:
        return None
    json_bytes, payload_bytes = _sizes(head)
    if json_bytes > JSON_CAP_BYTES:
        raise WireError("a request of %d bytes is too large" % json_bytes)
    raw, payload = _exactly(stream, json_bytes), _exactly(stream, payload_bytes)
    body = load(raw)
    if not isinstance(body, dict) or not isinstance(body.get("call"), str):
        raise WireError("a request is an object with a call")
    return body.pop("call"), body, payload


def _sizes(head: bytes) -> Tuple[int, int]:
    # By hand: a pattern would be compiled by every agent for its few requests.
    first, _, second = head.partition(b" ")
    second, end = second[:-1], second[-1:]
    if end != b"\n" or not (first.isdigit() and second.isdigit()) or len(first) > 12 or len(second) > 15:
        raise WireError("a request head is expected")
    return int(first), int(second)


def write_reply(stream: IO[bytes], marker: str, body: Dict[str, Any], payload: bytes = b"") -> None:
    """Send one reply behind the marker and flush."""
    raw = _NOTHING_RAW if body == _NOTHING else dump(body)
    stream.write(b"%s %d %d\n" % (marker.encode("ascii"), len(raw), len(payload)) + raw)
    stream.write(payload)
    stream.flush()


def read_reply(stream: IO[bytes], marker: str) -> Tuple[Dict[str, Any], bytes]:
    """The next reply behind `marker` as (body, payload); raises `ConnectionEnded` when there is none.

    Lines before the marker are skipped up to `BANNER_CAP_BYTES`, past which it is `NoMarker`.
    """
    wanted = marker.encode("ascii") + b" "
    seen, held = b"", b""
    while True:
        line = stream.readline(65536)
        if not line:
            raise ConnectionEnded(seen)
        # A banner without a final newline stands on the marker's own line, and may fill a whole read before it: what
        # a head can begin with is held back then, so that no marker is torn between two reads.
        sizes = _sizes_behind(wanted, held + line)
        held = b"" if line.endswith(b"\n") else line[-_REPLY_HEAD_BYTES:]
        if sizes is not None:
            if max(sizes) > JSON_CAP_BYTES:
                # No answer of ours is so long: a host may lie, and shall not fill the memory of who asks it.
                raise WireError("a reply of %d bytes is too large" % max(sizes))
            raw = _exactly(stream, sizes[0])
            body = {"answer": {}} if raw == _NOTHING_RAW else load(raw)
            if not isinstance(body, dict):
                raise WireError("a reply is an object")
            return body, _exactly(stream, sizes[1])
        seen += line
        if len(seen) > BANNER_CAP_BYTES:
            raise NoMarker(seen)


def _sizes_behind(wanted: bytes, line: bytes) -> Optional[Tuple[int, int]]:
    """The sizes that stand behind the last `wanted` to the end of the line; None when there is no whole head."""
    # By hand as well: each connection has a marker of its own, and a pattern of it serves two replies.
    _, found, rest = line.rpartition(wanted)
    try:
        return _sizes(rest) if found else None
    except WireError:
        return None


def _exactly(stream: IO[bytes], count: int) -> bytes:
    parts: List[bytes] = []
    left = count
    while left:
        part = stream.read(min(left, 1 << 20))
        if not part:
            raise ConnectionEnded(b"".join(parts))
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
