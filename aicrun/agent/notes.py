"""The notes of a host: a plain text file that people write, and one marked block for each job below their lines.

It must not touch a line of a person, follow a link, or believe anything it reads.
"""

import os
import re
import time
from typing import Any, Dict, List, Tuple

from aicrun.agent.home import Home
from aicrun.agent.records import sync_folder
from aicrun.agent.refused import Refused
from aicrun.wire import facts as wire_facts
from aicrun.wire.jobs import JobReport, JobRequest
from aicrun.wire.patterns import pattern

READ_CAP_BYTES = 1024 * 1024
BLOCKS_MOST = 64
WORDS_CAP_CHARACTERS = 2000
WORDS_CAP_LINES = 20
HEAD_LINES = 24
HEAD_CAP_CHARACTERS = 4096

_BEGIN = "<!-- aicrun job %s -->\n"
_END = "<!-- end of aicrun job %s -->\n"
_BLOCK = pattern(r"<!-- aicrun job ([0-9a-f]{16}) -->\n.*?<!-- end of aicrun job \1 -->\n", re.DOTALL)
_CONTROL = pattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")


def record(home: Home, request: JobRequest, report: JobReport, facts: Dict[str, Any]) -> None:
    """Put the block of an ended job in place, replacing an earlier one of the same job; raises `OSError`, `Refused`.

    At most `BLOCKS_MOST` blocks are kept, the newest; everything outside of blocks stays as it is, byte by byte.
    """
    block = _BEGIN % request.job_id + _words(request, report, facts) + _END % request.job_id
    with home.host_lock():
        text = _read(home)
        match = next((found for found in _BLOCK.finditer(text) if found.group(1) == request.job_id), None)
        before, after = (text[: match.start()], text[match.end() :]) if match else (_ended(text), "")
        _write(home, _pruned(before + block + after))


def read(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `notes`: the file's bytes, at most 1 MiB of its end."""
    del body, payload
    return {}, _raw(home)[-READ_CAP_BYTES:]


def add(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `note`: one line of a person, behind the other lines that people wrote."""
    del payload
    line = _clean(str(body.get("text", "")).replace("\n", " ")).strip()
    if not line:
        raise Refused("invalid_request", "a note needs a text")
    line = line[:WORDS_CAP_CHARACTERS]
    with home.host_lock():
        text = _read(home)
        first = _BLOCK.search(text)
        above, below = (text[: first.start()], text[first.start() :]) if first else (text, "")
        _write(home, _ended(above) + line + "\n" + below)
    return {}, b""


def head(home: Home) -> wire_facts.Notes:
    """What of the notes a plan may show, without our markers, and counts; empty without any.

    The first lines of people, then the newest block of each run, the newest first: what was learned last tells most.
    """
    try:
        text = _raw(home).decode("utf-8", "replace")
    except OSError:
        return wire_facts.Notes()
    if not text:
        return wire_facts.Notes()
    blocks = list(_BLOCK.finditer(text))
    people = [line for line in _BLOCK.sub("", text).splitlines() if line.strip() and not _is_marker(line)]
    newest: Dict[str, List[str]] = {}
    for block in reversed(blocks):
        lines = [line for line in block.group(0).splitlines() if not _is_marker(line)]
        newest.setdefault(lines[0].partition(", job ")[0] if lines else "", lines)
    learned = [line for lines in newest.values() for line in lines]
    shown = [*people[: HEAD_LINES - min(len(learned), HEAD_LINES // 2)], *learned][:HEAD_LINES]
    whole = len(people) + sum(len(block.group(0).splitlines()) - 2 for block in blocks)
    return wire_facts.Notes("\n".join(shown)[:HEAD_CAP_CHARACTERS], len(people), len(blocks), whole)


def _words(request: JobRequest, report: JobReport, facts: Dict[str, Any]) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(facts.get("at") or time.time()))
    lines = ["aicrun: run %s, job %s, %s" % (request.run, request.job_id, day)]
    ended = str(facts.get("status", "ended"))
    if facts.get("reason"):
        ended += " (%s)" % facts["reason"]
    for name in ("code", "signal"):
        if facts.get(name):
            ended += ", %s %s" % (name, facts[name])
    if facts.get("wall_s") is not None:
        ended += " in %s" % _spoken(float(facts["wall_s"]))
    if max(report.attempt, report.attempts_most) > 1:
        ended += ", attempt %d of %d" % (report.attempt, max(report.attempt, report.attempts_most))
    used = _used(facts)
    lines.append("  " + ", ".join([ended, used]) if used else "  " + ended)
    if report.next_attempt is not None:
        # Imported here: who only reads needs no word of a status.
        from aicrun.wire.status import next_words

        lines.append("  " + next_words(report.next_attempt))
    made = [("torch", facts.get("torch")), ("python", facts.get("python")), ("env", str(facts.get("env_key", ""))[:8])]
    made_with = ["%s %s" % (name, value) for name, value in made if value]
    if facts.get("steps_per_s"):
        made_with.append("%s steps/s" % facts["steps_per_s"])
    made_with += ["%s %s" % (name, value) for name, value in sorted(report.progress.items()) if name != "step"]
    if made_with:
        lines.append("  " + ", ".join(made_with))
    upload = facts.get("upload")
    if upload:
        word = "uploaded, verified" if upload.get("verified") else "upload failed (%s)" % upload.get("error")
        lines.append("  %s: %s" % (word, upload.get("destination")))
    elif report.checkpoints is not None and report.checkpoints.newest:
        lines.append("  checkpoint: %s" % report.checkpoints.newest)
    said = _clean(request.notes[:WORDS_CAP_CHARACTERS]).strip("\n").split("\n")[:WORDS_CAP_LINES]
    lines += ["  > " + line for line in said if line.strip()]
    return "".join(_clean(line) + "\n" for line in lines)


def _used(facts: Dict[str, Any]) -> str:
    parts = []
    if facts.get("vram_peak_mib") is not None:
        parts.append("peak %.1f GiB" % (facts["vram_peak_mib"] / 1024.0))
        if facts.get("card_model"):
            parts[-1] += " on " + str(facts["card_model"])
    elif facts.get("memory_peak_mib"):
        parts.append("peak %d MiB of memory" % facts["memory_peak_mib"])
    if facts.get("utilization_mean_percent") is not None:
        parts.append("%.0f%% utilization" % facts["utilization_mean_percent"])
    if facts.get("energy_wh"):
        parts.append("%.0f Wh" % facts["energy_wh"])
    return ", ".join(parts)


def _spoken(seconds: float) -> str:
    whole = int(seconds)
    for unit, size, small, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return "%d%s %d%s" % (whole // size, unit, rest, small) if rest else "%d%s" % (whole // size, unit)
    return "%ds" % whole if whole else "%.1fs" % seconds


def _clean(text: str) -> str:
    # A text of ours must not look like a marker, nor move a terminal's cursor.
    return _CONTROL.sub("", text.replace("\r\n", "\n")).replace("<!--", "< !--")


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _is_marker(line: str) -> bool:
    return bool(re.match(r"<!-- (end of )?aicrun job [0-9a-f]{16} -->\Z", line))


def _pruned(text: str) -> str:
    surplus = len(list(_BLOCK.finditer(text))) - BLOCKS_MOST
    # From the top, where the oldest stand.
    return _BLOCK.sub("", text, count=surplus) if surplus > 0 else text


def _raw(home: Home) -> bytes:
    try:
        handle = os.open(home.notes_path(), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    with open(handle, "rb") as stream:
        return stream.read()


def _read(home: Home) -> str:
    # Bytes that are no text of a person's editor come back as they were.
    return _raw(home).decode("utf-8", "surrogateescape")


def _write(home: Home, text: str) -> None:
    path = home.notes_path()
    temporary = "%s.%s.new" % (path, os.urandom(6).hex())
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "wb") as stream:
            stream.write(text.encode("utf-8", "surrogateescape"))
            stream.flush()
            os.fsync(handle)
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    sync_folder(os.path.dirname(path))
