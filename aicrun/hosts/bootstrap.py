"""First contact: a short script that finds or unpacks the agent on a host and becomes it, on the same two pipes.

The script parses on Python 3.6, where it says that this is too old. It must not trust an archive: the digest is
computed over what was unpacked before the folder gets its name.
"""

from __future__ import annotations

import json

from aicrun.hosts.bundle import Bundle

# No quotes and nothing a shell would expand, so that any login shell can carry it between single quotes.
ONE_LINER = "import sys;s=sys.stdin.buffer;s.readline();exec(s.read(int(s.readline())))"
ARGV = ("python3", "-I", "-S", "-c", ONE_LINER)
# A start file that replaces the login shell (`exec zsh`) makes the new shell read what is meant for the script: the
# first line ends it at once, with this code.
SHELL_REPLACED = 97

# What every command waits for is short: all else is a text in it, compiled where it is needed.
_SCRIPT = r"""
import gc, json, os, sys
# Nothing of what is imported is ever garbage.
gc.disable()
ASKED = json.loads(%(asked)r)
REST = %(rest)r
os.umask(0o077)
# Read first, so that the client never writes to a pipe that nobody reads.
archive = sys.stdin.buffer.read(ASKED["archive_bytes"])

def known():
    # Where the agent lies already, in the plain case; empty for every other.
    state = os.environ.get("XDG_STATE_HOME") or os.environ.get("HOME", "") + "/.local/state"
    if not state.startswith("/") or sys.version_info < (3, 8):
        return ""
    try:
        with open("/etc/machine-id", errors="replace") as stream:
            host = stream.readline(200).strip().lower()
    except OSError:
        return ""
    target = "%%s/aicrun/%%s/agents/%%s" %% (state.rstrip("/"), host, ASKED["digest"])
    return target if len(host) == 32 and host.isalnum() and os.path.isdir(target) else ""

target = known()
if not target:
    exec(REST)
    target = begin()
if target:
    os.chdir("/")
    sys.argv = [target + "/boot.py", "serve"]
    sys.path[:0] = [target]
    # Imported, not run as a file: then what Python compiled when it was unpacked is used.
    import boot
    boot.leave(boot.main(sys.argv[1:]))
"""


_REST = r"""def tell(word, **facts):
    raw = json.dumps({"bootstrap": dict(facts, word=word, python=sys.executable)}).encode("ascii")
    sys.stdout.buffer.write(b"%s %d 0\n" % (ASKED["marker"].encode("ascii"), len(raw)) + raw)
    sys.stdout.buffer.flush()

def line_of(path):
    try:
        with open(path, errors="replace") as stream:
            return stream.readline(200).strip().lower()
    except OSError:
        return ""

def is_id(text):
    return len(text) == 32 and set(text) <= set("0123456789abcdef") and text != "0" * 32

def host_id(folder):
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id", os.path.join(folder, "host-id")):
        if is_id(line_of(path)):
            return line_of(path)
    kept = os.path.join(folder, "host-id")
    fresh = "%s.%s" % (kept, os.urandom(6).hex())
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(os.urandom(16).hex() + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    try:
        os.link(fresh, kept)
    except FileExistsError:
        pass
    finally:
        os.unlink(fresh)
    return line_of(kept)

def agents_folder():
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):
        home = os.environ.get("HOME", "")
        if not os.path.isabs(home):
            import pwd
            home = pwd.getpwuid(os.getuid()).pw_dir
        state = os.path.join(home, ".local", "state")
    folder = os.path.join(state, "aicrun")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    folder = os.path.join(folder, host_id(folder), "agents")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder

def begin():
    if sys.version_info < (3, 8):
        return tell("too_old", version="%d.%d.%d" % sys.version_info[:3])
    if not sys.platform.startswith("linux"):
        return tell("not_linux", system=sys.platform)
    try:
        target = os.path.join(agents_folder(), ASKED["digest"])
        if not os.path.isdir(target):
            if not archive:
                return tell("need")
            fault = unpack(archive, target)
            if fault:
                return tell("damaged", detail=fault)
    except OSError as error:
        return tell("no_room", detail="%s: %s" % (error.filename, error.strerror))
    return target
"""


# Only with an archive.
_UNPACK = r"""def digest_of(folder):
    import hashlib
    rows = []
    for at, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(at, name), "rb") as stream:
                content = hashlib.sha256(stream.read()).hexdigest()
            rows.append("%s\0f\0%s\n" % (os.path.relpath(os.path.join(at, name), folder), content))
    return hashlib.sha256(("aicrun-tree-1\n" + "".join(sorted(rows))).encode("utf-8")).hexdigest()

def unpack(archive, target):
    import compileall, io, shutil, tarfile, tempfile
    growing = tempfile.mkdtemp(prefix=".unpacking-", dir=os.path.dirname(target))
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            for entry in tar.getmembers():
                parts = entry.name.split("/")
                if not entry.isreg() or os.path.isabs(entry.name) or ".." in parts or "" in parts:
                    return "the archive holds %r" % entry.name
                place = os.path.join(growing, entry.name)
                os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
                with open(place, "wb") as stream:
                    stream.write(tar.extractfile(entry).read())
        if digest_of(growing) != ASKED["digest"]:
            return "what arrived does not have the digest of the agent"
        compileall.compile_dir(growing, ddir=target, quiet=2)
        try:
            os.rename(growing, target)
        except OSError:
            # Another client was faster; the folder's name is its content.
            if not os.path.isdir(target):
                raise
        return ""
    finally:
        shutil.rmtree(growing, ignore_errors=True)

"""


def opening(bundle: Bundle, marker: str, *, with_archive: bool) -> bytes:
    """What the client writes first on the pipe of `ARGV`: the script, and the archive when the host asked for it."""
    archive = bundle.archive if with_archive else b""
    asked = json.dumps({"marker": marker, "digest": bundle.digest, "archive_bytes": len(archive)})
    script = (_SCRIPT % {"asked": asked, "rest": _REST + (_UNPACK if with_archive else "")}).encode("ascii")
    return b"exit %d\n%d\n" % (SHELL_REPLACED, len(script)) + script + archive
