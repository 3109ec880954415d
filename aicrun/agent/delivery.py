"""Brings files to a run's target: send, compare everything there, and only then write what the manifest says.

The manifest never says more than was verified, at any moment: what is about to change leaves it first. It must not
choose what is sent.
"""

import json
import os
from typing import Any, Callable, Dict, Iterable, List, Mapping, Tuple

from aicrun.agent.checkpoint_folder import Seen
from aicrun.agent.outputs import Output, Outputs, printable
from aicrun.agent.redact import Redactor
from aicrun.agent.targets import CannotUpload, Sent, Target, target
from aicrun.agent.uploaded import SentCheckpoint, SentFile, Stamp, Uploaded, stamp
from aicrun.wire import lean
from aicrun.wire.hashes import sha256
from aicrun.wire.jobs import JobRequest, Upload
from aicrun.wire.tools import REMOTE_SCHEMES

MANIFEST_SCHEMA = 1
Since = Callable[[Mapping[str, Stamp]], List[str]]


def manifest_of(request: JobRequest, sent: Tuple[Sent, ...]) -> bytes:
    """The bytes of `aicrun-manifest.json`: a frozen format, files sorted by path."""
    files: List[Dict[str, Any]] = [
        {"path": item.path, "bytes": item.size, "sha256": item.sha256} for item in sorted(sent)
    ]
    document = {
        "schema": MANIFEST_SCHEMA,
        "run": request.run,
        "run_id": request.run_id,
        "job_id": request.job_id,
        "files": files,
    }
    # ASCII, so that a file name which is no UTF-8 survives as an escape.
    return (json.dumps(document, indent=1) + "\n").encode("ascii")


def target_of(wanted: Upload, job_id: str, home_folder: str, scratch: str, *, is_early: bool = False) -> Target:
    """The target of a job; an early upload does not wait for one that fails, for it is tried again later.

    Raises `CannotUpload`.
    """
    if wanted.scheme not in REMOTE_SCHEMES:
        return target(wanted, job_id, home_folder)
    # Imported here: a copy to a folder needs none of it.
    from aicrun.agent.remote_targets import PAUSES_S, RemoteTarget

    return RemoteTarget(wanted, scratch, os.environ, () if is_early else PAUSES_S)


def sent_of(files: Tuple[SentFile, ...]) -> Tuple[Sent, ...]:
    """The same as a target knows them."""
    return tuple(Sent(file.path, file.size, file.sha256) for file in files)


def checkpoint_of(seen: Seen, files: Iterable[Output], sent: Mapping[str, SentFile], now: float) -> SentCheckpoint:
    """The record of a checkpoint whose `files` were `sent`, and verified at `now`."""
    kept = tuple(sent[output.path] for output in files)
    return SentCheckpoint(seen.told.name, kept, now - seen.told.age_s, now, seen.told.step)


def tellable(uploaded: Uploaded, redactor: Redactor) -> Uploaded:
    """The same without checkpoints whose names or files' names hold a secret: they may stand in no record."""
    kept = tuple(
        one
        for one in uploaded.checkpoints
        if all(redactor.text(text) == text for text in (one.name, *(file.path for file in one.files)))
    )
    return lean.replace(uploaded, checkpoints=kept, trouble=redactor.text(uploaded.trouble))


class Delivery:
    """Files on their way to one target; `sent` are those that were taken, `gone` what was there before and is not.

    `manifest` is the SHA-256 of the manifest that was written last.
    """

    def __init__(self, goal: Target, request: JobRequest, there: Tuple[Sent, ...]) -> None:
        """`there` is what is verified at the target already, in its manifest."""
        self._goal = goal
        self._request = request
        self._there = {one.path: one for one in there}
        self.sent: List[Sent] = []
        self.gone: Tuple[str, ...] = ()
        self.manifest = ""
        self._stamps: Dict[str, Stamp] = {}

    def bring(self, found: Outputs, changed: Tuple[str, ...], since: Since) -> List[str]:
        """Send `found` and verify it; what is not there whole after all, a line for each. Raises as a target does.

        `changed` are paths of what is there already whose files are others now. `since` tells what changed on this
        host since the stamps that it is given.
        """
        self._stamps = {output.path: stamp(output) for output in found.files}
        self._goal.begin(self._request.checkpoints, keeps=bool(self._there))
        if self._there and changed:
            for path in changed:
                self._there.pop(path, None)
            self._goal.finish(manifest_of(self._request, tuple(self._there.values())))
        missing = self._send(found)
        missing += self._goal.deliver()
        return missing or since(self._stamps) or list(self._goal.faults(tuple(self.sent)))

    def look_again(self) -> None:
        """Compare what was there before and was not sent now; what is not there any more is in no manifest."""
        rest = tuple(one for path, one in sorted(self._there.items()) if path not in {one.path for one in self.sent})
        self.gone = self._goal.faults(rest) if rest else ()
        for one in rest:
            if any(line.startswith(printable(one.path) + ": ") for line in self.gone):
                self._there.pop(one.path)

    def seal(self) -> List[str]:
        """Write the manifest, last of all, and read it back; what is wrong with it."""
        manifest = manifest_of(self._request, self.verified())
        self._goal.finish(manifest)
        self.manifest = sha256(manifest)
        return list(self._goal.faults((), manifest))

    def verified(self) -> Tuple[Sent, ...]:
        """Everything that the manifest names."""
        return tuple(dict(self._there, **{one.path: one for one in self.sent}).values())

    def as_sent(self) -> Dict[str, SentFile]:
        """The files that were sent, with what they were on this host before and what the target tells of them."""
        return {
            one.path: SentFile(
                one.path, one.size, self._stamps[one.path][1], one.sha256, self._goal.told(one.path).mark
            )
            for one in self.sent
        }

    def _send(self, found: Outputs) -> List[str]:
        lost = []
        for output in found.files:
            try:
                self.sent.append(self._goal.send(output))
            except (CannotUpload, PermissionError, FileNotFoundError) as why:
                words = why.strerror if isinstance(why, OSError) else str(why)
                lost.append("%s: %s" % (printable(output.path), words))
        return lost


def moved(now: Outputs, then: Outputs, stamps: Mapping[str, Stamp]) -> List[str]:
    """What somebody wrote meanwhile: what arrived would be of several moments."""
    found = []
    for output in now.files:
        if output.path not in stamps:
            found.append("%s: it was written while the checkpoints were uploaded" % printable(output.path))
        elif stamp(output) != stamps[output.path]:
            found.append("%s: it changed while the checkpoints were uploaded" % printable(output.path))
    gone = set(stamps) - {output.path for output in now.files}
    found += ["%s: it went away while the checkpoints were uploaded" % printable(path) for path in sorted(gone)]
    return found + [line for line in now.missing if line not in then.missing]
