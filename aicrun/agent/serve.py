"""Answers one connection: a request on stdin, a reply on stdout, until the input ends; then this process is gone.

The table below is all that can be asked. A no is data; what nobody expected is the refusal `internal` with its type
and place, never with its text, which may hold what is private. It must not know what a call does.
"""

import fcntl
import gc
import importlib
import os
import sys
import time
from typing import IO, Any, Callable, Dict, Optional, Tuple

from aicrun import __version__
from aicrun.agent import bodies
from aicrun.agent.digest import agent_digest, bundle_root
from aicrun.agent.home import Home, open_home
from aicrun.agent.listener import heard
from aicrun.agent.records import NewerRecord, Unreadable
from aicrun.agent.refused import Refused
from aicrun.wire.calls import PROTOCOL_FIRST, PROTOCOL_LAST, ConnectionEnded, read_request, write_reply
from aicrun.wire.codec import WireError

Handler = Callable[[Home, Dict[str, Any], bytes], Tuple[Dict[str, Any], bytes]]

# F_SETPIPE_SZ of the kernel's include/uapi/linux/fcntl.h; Python names it from 3.10 on.
SET_PIPE_SIZE = 1031
PIPE_BYTES = 1024 * 1024
SWEEP_EVERY_S = 3600.0
_SWEPT = "swept"

# Call -> (file, function). Loaded when asked: a process answers a few calls, and its start is what a user waits for.
TABLE: Dict[str, Tuple[str, str]] = {
    "survey": ("survey", "survey"),
    "store_missing": ("store", "missing"),
    "store_put": ("store", "put"),
    "store_part": ("store", "put_part"),
    "store_tree": ("store", "listing"),
    "reserve": ("reserve", "reserve"),
    "look": ("jobs", "look"),
    "confirm": ("decide", "confirm"),
    "withdraw": ("decide", "withdraw"),
    "unqueue": ("decide", "unqueue"),
    "await": ("decide", "await_decision"),
    "touch": ("decide", "touch"),
    "jobs": ("jobs", "jobs"),
    "job": ("jobs", "job"),
    "environment": ("jobs", "environment"),
    "source_diff": ("source_diff", "read"),
    "wait": ("jobs", "wait"),
    "log": ("logs", "log"),
    "stop": ("stop", "stop"),
    "supervise": ("changes", "supervise"),
    "upload": ("changes", "upload"),
    "delete": ("changes", "delete"),
    "forget": ("changes", "forget"),
    "notes": ("notes", "read"),
    "note": ("notes", "add"),
    "doctor": ("doctor", "doctor"),
    "gc": ("sweep", "gc"),
    "drain": ("drains", "drain"),
    "file_list": ("files", "listing"),
    "file_read": ("file_moving", "read"),
    "file_hash": ("file_moving", "digest"),
    "file_begin": ("file_moving", "begin"),
    "file_write": ("file_moving", "write"),
    "file_finish": ("file_moving", "finish"),
    "files_look": ("file_batches", "look"),
    "files_put": ("file_batches", "put"),
    "git_source": ("git_mirror", "source"),
    "checkpoints": ("checkpoints", "checkpoints"),
    "delete_checkpoints": ("deleting", "delete_checkpoints"),
    "exec": ("execute", "start"),
    "exec_more": ("execute", "more"),
}


def main() -> int:
    """Serve stdin and stdout to the end of input; always 0, for every fault of a call is an answer."""
    source = heard(sys.stdin.buffer)
    # Nothing but replies may reach the client: whatever prints goes to stderr from here on.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for handle in (sys.stdin.fileno(), replies.fileno()):
        widen(handle)
    try:
        home = _converse(source, replies)
    finally:
        if "aicrun.agent.execute" in sys.modules:
            sys.modules["aicrun.agent.execute"].end()
    try:
        replies.close()
    except BrokenPipeError:
        # The client left before it had read all.
        pass
    if home is not None:
        _sweep(home)
    return 0


def _converse(source: IO[bytes], replies: IO[bytes]) -> Optional[Home]:
    marker, home = "", None
    try:
        while True:
            request = read_request(source)
            if request is None:
                return home
            call, body, payload = request
            if call == "hello" and not marker:
                marker = str(body.get("marker", ""))
            if not marker.isalnum() or len(marker) != 32:
                # Not one of our clients: there is no marker that an answer could stand behind.
                return home
            answer, data, home = _answer(home, call, body, payload)
            write_reply(replies, marker, answer, data)
            if call != "hello" and not gc.isenabled():
                # The room of the first question is loaded: from here on a process that lives long must not grow.
                gc.freeze()
                gc.enable()
    except (ConnectionEnded, BrokenPipeError):
        return home
    except WireError as error:
        # The stream is out of step: no later byte of it can be trusted.
        if marker:
            write_reply(replies, marker, _refusal(Refused("invalid_request", str(error))))
        return home


def _answer(
    home: Optional[Home], call: str, body: Dict[str, Any], payload: bytes
) -> Tuple[Dict[str, Any], bytes, Optional[Home]]:
    try:
        home = home or open_home(os.environ)
        found, data = handler(call)(home, body, payload)
    except Refused as error:
        return _refusal(error), b"", home
    except NewerRecord as error:
        return _refusal(Refused("newer_record", str(error), {"file": error.path})), b"", home
    except Unreadable as error:
        return _refusal(Refused("state_unusable", str(error), {"file": error.path})), b"", home
    except OSError as error:
        where = str(error.filename or "")
        message = "%s: %s" % (where or call, error.strerror or type(error).__name__)
        return _refusal(Refused("state_unusable", message, {"file": where} if where else {})), b"", home
    except Exception as error:  # noqa: BLE001  the edge of this process
        return _refusal(Refused("internal", "%s in %s" % (type(error).__name__, _place(error)))), b"", home
    return {"answer": found}, data, home


def widen(handle: int) -> None:
    """Let a pipe hold more, so that whoever is at its other end need not wait for each piece; elsewhere nothing."""
    try:
        fcntl.fcntl(handle, SET_PIPE_SIZE, PIPE_BYTES)
    except OSError:
        # No pipe, or the account's pipes hold all that they may.
        return


def handler(call: str) -> Handler:
    """The function that answers `call`; raises `Refused` (invalid_request) for a call that this agent lacks."""
    if call == "hello":
        return hello
    if call not in TABLE:
        raise Refused("invalid_request", "this agent has no call %s" % call[:40], {"call": call[:40]})
    file, function = TABLE[call]
    found: Handler = getattr(importlib.import_module("aicrun.agent." + file), function)
    return found


def hello(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """{marker, protocol: [first, last], digest} -> {protocol, digest, version, python, host_id, hostname}.

    Raises `Refused` (protocol_mismatch) when no version is common, or the client means another agent than this one.
    """
    protocol = _common(body.get("protocol"))
    digest: str = agent_digest(bundle_root())
    wanted = bodies.text(body, "digest", "")
    if wanted and wanted != digest:
        raise Refused("protocol_mismatch", "this agent is not the one that was sent", {"have": digest, "sent": wanted})
    told = {"protocol": protocol, "digest": digest, "version": __version__, "host_id": home.host_id}
    return dict(told, python="%d.%d.%d" % sys.version_info[:3], hostname=os.uname().nodename), b""


def _common(offered: Any) -> int:
    if not isinstance(offered, list) or len(offered) != 2 or not all(isinstance(one, int) for one in offered):
        raise Refused("invalid_request", "protocol: [first, last] is expected", {"field": "protocol"})
    first: int = max(offered[0], PROTOCOL_FIRST)
    last: int = min(offered[1], PROTOCOL_LAST)
    if first > last:
        facts = {"client": "%d..%d" % (offered[0], offered[1]), "agent": "%d..%d" % (PROTOCOL_FIRST, PROTOCOL_LAST)}
        raise Refused("protocol_mismatch", "client and agent have no protocol version in common", facts)
    return last


def _refusal(error: Refused) -> Dict[str, Any]:
    return {"refused": {"token": error.token, "message": error.message, "facts": error.facts}}


def _place(error: BaseException) -> str:
    # Imported here: it is dear, and mostly nothing goes wrong.
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    return "%s:%d" % (os.path.basename(frames[-1].filename), frames[-1].lineno or 0) if frames else "?"


def _sweep(home: Home) -> None:
    """At most hourly, when nobody waits for us any more; a fault in it is the next call's to meet."""
    mark = os.path.join(home.jobs_root, _SWEPT)
    try:
        if time.time() - os.stat(mark).st_mtime < SWEEP_EVERY_S:
            return
    except OSError:
        pass
    try:
        with open(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w"):
            pass
        importlib.import_module("aicrun.agent.sweep").sweep(home, time.time())
    except Exception:  # noqa: BLE001  the edge of this process
        # The last edge of this process: nobody listens any more, and no run may suffer from a sweep.
        return
