"""The setup step: working tree, environment, the person's own setup commands, in this order.

It runs as `boot.py setup JOBDIR`, a process of its own with its own log; what fails is said in the last line there.
"""

import os
import sys
import time
from typing import Any, Callable, Dict, Optional, Tuple

from aicrun.agent import brought, build, built, lookup, vault
from aicrun.agent.environment import environment
from aicrun.agent.finding import counted
from aicrun.agent.home import Home, open_home
from aicrun.agent.programs import OWN_VARIABLES, command_folder, probes_upload, shell_argv
from aicrun.agent.records import Unreadable, read_json, read_record, write_record
from aicrun.agent.refused import Refused
from aicrun.agent.tree import lay_out
from aicrun.wire import names
from aicrun.wire.jobs import SCHEMA, JobRequest, Upload
from aicrun.wire.status import SETUP_CODES

# A data set may have millions of files on a slow disk; the run must not wait for a number.
WEIGH_S = 5.0


def main(job_folder: str) -> int:
    """Set up the job whose folder this is: 0, or 1 with a plain message as the last line of stderr."""
    try:
        home = open_home(os.environ)
        request = read_record(os.path.join(job_folder, names.REQUEST), JobRequest)
        if request is None:
            raise build.SetupFailed("there is no request in %s" % job_folder)
        set_up(home, request, job_folder)
    except (build.SetupFailed, Refused, Unreadable) as error:
        return _failed(str(getattr(error, "message", "") or error), _code(getattr(error, "token", "")))
    except OSError as error:
        return _refused_by_disk(error)
    return 0


def is_ready(request: JobRequest) -> bool:
    """True when no environment has to be built, or tried, for this job, and no other program has to bring its code."""
    setup = request.setup
    if is_fetched(request) or brought.waits_for(request) or probes_upload(request):
        return False
    return not setup.path or (bool(setup.key) and built.is_complete(setup.path, setup.key))


def is_fetched(request: JobRequest) -> bool:
    """Whether the host itself fetches the job's code."""
    return request.source is not None and bool(request.source.git)


def set_up(home: Home, request: JobRequest, job_folder: str) -> Dict[str, Any]:
    """Do everything the step does and write `SETUP_RESULT`; raises `SetupFailed` or `Refused`.

    A job that was set up before, by an earlier attempt, keeps its tree: only the environment is looked at again.
    """
    began = time.monotonic()
    result_path = os.path.join(job_folder, names.SETUP_RESULT)
    is_first = read_json(result_path) is None
    env = dict(environment(request, 1), **vault.read(job_folder).variables("setup"))
    shop = build.Workshop(env, request.setup.timeout_s)
    tree = lay_out(home, request, _fetching(home, request, shop))
    command_folder(request)
    shop.say("working tree %s" % tree)
    # Before anything takes long: who has the wrong keys shall not wait for gigabytes to be told.
    _probe(request, job_folder, shop)
    inputs = weighed(request.inputs, shop, _brought(home, request, shop))
    is_built, uv = False, ""
    if request.setup.key:
        uv = built.find_uv(home, env["HOME"], request.path)
        is_built = build.ensure(request.setup, uv, shop, job_folder, tree)
        if not is_built:
            shop.say("the environment %s is ready" % request.setup.path)
    elif request.setup.path:
        _try(request.setup.path, shop)
    if is_first:
        _run_commands(request, tree, shop)
    took_s = round(time.monotonic() - began, 3)
    result = {"schema": SCHEMA, "tree": tree, "env": request.setup.path, "built": is_built, "uv": uv, "took_s": took_s}
    result["inputs"] = inputs
    if request.setup.reads:
        # What the environment was made of: the next plan tells by it why another one is built.
        result["reads"] = request.setup.reads
    write_record(result_path, result)
    return result


def _brought(home: Home, request: JobRequest, shop: build.Workshop) -> Dict[str, Dict[str, Any]]:
    """Bring what the job reads and this host has not got; the time is not that of the setup."""
    if not request.fetches:
        return {}
    # Imported here: most jobs read what is here already.
    from aicrun.agent import bringing

    began = time.monotonic()
    found = bringing.bring_all(home, request, shop.env)
    shop.ends += time.monotonic() - began
    return found


def _probe(request: JobRequest, job_folder: str, shop: build.Workshop) -> None:
    """Try the upload target with what the upload itself will find; the time is not that of the setup."""
    upload = request.upload
    if upload is not None and upload.scheme == "file" and upload.probe:
        _try_folder(request, upload, shop)
    if upload is None or not probes_upload(request):
        return
    # Imported here: few jobs upload by a tool.
    from aicrun.agent import upload_probe

    began = time.monotonic()
    env = dict(environment(request, 1), **vault.read(job_folder).variables("upload"))
    env.update({name: os.environ[name] for name in OWN_VARIABLES if name in os.environ})
    upload_probe.probe(request, upload, job_folder, env)
    shop.ends += time.monotonic() - began


def _try_folder(request: JobRequest, upload: Upload, shop: build.Workshop) -> None:
    # Imported here: most jobs upload elsewhere, or nowhere.
    from aicrun.agent.targets import CannotUpload, target

    cannot = "the upload target %s cannot be used: " % upload.destination
    try:
        target(upload, request.job_id, os.environ.get("HOME", "/")).try_out(request.checkpoints)
    except CannotUpload as error:
        raise build.SetupFailed(cannot + str(error)) from error
    except OSError as error:
        raise build.SetupFailed(cannot + "%s: %s" % (error.filename or "it", error.strerror)) from error
    shop.say("the upload target %s can be written to" % upload.destination)


def _try(path: str, shop: build.Workshop) -> None:
    """See that the python of an environment that is used as it is runs; nothing in it is changed."""
    python = os.path.join(path, "bin", "python")
    shop.say("using the environment %s as it is" % path)
    shop.run((python, "-I", "-S", "-c", ""), "/", "trying %s of setup.venv" % python)


def weighed(
    inputs: Dict[str, str], shop: build.Workshop, was_brought: Optional[Dict[str, Dict[str, Any]]] = None
) -> Dict[str, Any]:
    """What lies at each input now: files and bytes, never hashed here.

    `was_brought` is what is known of those that were brought. Raises `SetupFailed` for one that cannot be read, or that
    was brought and is not whole any more.
    """
    found = {}
    for name, path in sorted(inputs.items()):
        why = lookup.unreadable(path)
        if why:
            raise build.SetupFailed("input %s: %s: %s" % (name, path, why))
        files, size, is_whole = _weight(path)
        known = (was_brought or {}).get(name, {})
        if known and not is_whole:
            # Counted to its end when it was brought; nobody waits for that twice.
            files, size, is_whole = known["files"], known["bytes"], True
        if is_whole and (files < known.get("files", 0) or size < known.get("bytes", 0)):
            kept = os.path.dirname(path)
            told = "input %s: %s is not what was brought there (%s, %s then): remove it with rm -r %s, and apply again"
            then = (counted(known["files"], "file"), counted(known["bytes"], "byte"))
            raise build.SetupFailed(told % ((name, path) + then + (kept,)))
        found[name] = dict(known, path=path, files=files, bytes=size, whole=is_whole)
        least = "" if is_whole else "at least "
        words = (name, least, counted(files, "file"), counted(size, "byte"), path)
        shop.say("input %s: %s%s, %s in %s" % words)
    return found


def _weight(path: str) -> Tuple[int, int, bool]:
    """(files, bytes, whether that is all); what takes longer than `WEIGH_S` is not counted to its end."""
    if not os.path.isdir(path):
        return 1, os.stat(path).st_size, True
    files = size = 0
    until = time.monotonic() + WEIGH_S
    for folder, _, listed in os.walk(path):
        for name in listed:
            try:
                size += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                # A link to nothing counts as a file without bytes.
                pass
            files += 1
            if time.monotonic() > until:
                return files, size, False
    return files, size, True


def _fetching(home: Home, request: JobRequest, shop: build.Workshop) -> Optional[Callable[[str], None]]:
    source = request.source
    if source is None or not source.git:
        return None
    # Imported here: most sources come from the client.
    from aicrun.agent.git_tree import check_out

    return lambda folder: check_out(home, source, folder, shop)


def _run_commands(request: JobRequest, tree: str, shop: build.Workshop) -> None:
    total = len(request.setup.run)
    for number, text in enumerate(request.setup.run, 1):
        first = text.strip().split("\n")[0]
        shop.say("setup.run %d of %d: %s" % (number, total, first))
        argv = shell_argv(text, request.shell, shop.env["PATH"])
        shop.run(argv, tree, "setup.run %d of %d (%s)" % (number, total, first[:80]))


def _code(token: str) -> int:
    return next((code for code, known in SETUP_CODES.items() if known == token), 1)


def _refused_by_disk(error: OSError) -> int:
    # Imported here: a setup fails seldom.
    from aicrun.agent import install_faults

    told = "%s: %s" % (error.filename or "input or output", error.strerror)
    if error.errno not in install_faults.NO_ROOM:
        return _failed(told)
    place = os.path.dirname(error.filename or "")
    while place and not os.path.isdir(place):
        # What was half laid out is removed already.
        place = os.path.dirname(place)
    place = place or "one of its folders"
    return _failed("%s; %s" % (told, install_faults.make_room(place)), _code("disk_full"))


def _failed(why: str, code: int = 1) -> int:
    sys.stdout.flush()
    sys.stderr.write("aicrun: setup failed: %s\n" % why)
    return code
