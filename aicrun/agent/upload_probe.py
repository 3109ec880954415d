"""Before anything trains: whether the upload target takes a file from this host, in the environment of the upload.

A small object is really written, found and removed again. It must not touch any other object.
"""

import os
from typing import Mapping

from aicrun.agent import tool_tries
from aicrun.agent.build import SetupFailed, Workshop
from aicrun.agent.fetch_run import NoRoom, ToolFailed, run
from aicrun.agent.remote_targets import errand, workshop
from aicrun.agent.remote_tools import Store
from aicrun.agent.targets import CannotUpload
from aicrun.wire.jobs import JobRequest, Upload

PAUSES_S = (2.0, 10.0, 30.0)
LIMIT_S = 300.0
_WORDS = b"aicrun: whether this target can be written to; it may be removed\n"


def probe(request: JobRequest, upload: Upload, job_folder: str, env: Mapping[str, str]) -> None:
    """Write, find and remove one object of the job's own name; raises `SetupFailed`, with a way out, when it fails.

    An object that cannot be removed, at a target that only takes more, is told and is no fault.
    """
    name = ".aicrun-probe-%s" % request.job_id
    path = os.path.join(job_folder, name)
    try:
        store, shop = workshop(upload, env, LIMIT_S, "the time for trying the upload target")
        with open(path, "wb") as stream:
            stream.write(_WORDS)
        what = errand(upload, "the upload target %s cannot be used" % upload.destination, PAUSES_S)
        tool_tries.tried(what, shop, lambda: _written(store, shop, path, name))
    except (CannotUpload, NoRoom) as error:
        raise SetupFailed("the upload target %s cannot be used: %s" % (upload.destination, error)) from error
    finally:
        if os.path.exists(path):
            os.unlink(path)
    try:
        store.remove(name, shop, "removing the probe")
    except ToolFailed as error:
        shop.say(
            "the probe %s stays at the target (checkpoints.upload.probe: false writes none): %s" % (name, error.why)
        )
    shop.say("the upload target %s can be written to" % upload.destination)


def _written(store: Store, shop: Workshop, path: str, name: str) -> None:
    if store.makes:
        store.listing(shop, name)
    run(store.putting(path, name), shop, "writing a probe to the upload target")
    found = store.listing(shop, name).get(name)
    if found is None or found.size != len(_WORDS):
        raise ToolFailed("what was written there is not found whole", passing=True)
