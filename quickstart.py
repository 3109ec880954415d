#!/usr/bin/env python3
"""The first run, from a fresh clone and with nothing but python3: an environment, aicrun in it, and the digit training.

`python3 quickstart.py` does all of it, and says status, loss and where the checkpoint is; again, it does nothing.
Everything it makes lies in `.venv-quickstart` (or the user's cache, when this folder cannot be written) and in the
places that aicrun itself uses (`docs/hosts.md`). It must import nothing that has to be installed, and must parse on
an old Python, so that it can say that it is one.

Exit codes: 0 done or nothing to do; 3 this machine cannot (Python, system, home); 14 the set-up failed; else aicrun's.
"""

import json
import os
import shutil
import ssl
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SPEC = os.path.join("specs", "digits", "run.yaml")
NEEDS = (3, 10)
CANNOT = 3
SETUP_FAILED = 14


class Trouble(Exception):
    """Why the first run cannot go on, as a sentence, and the exit code."""

    def __init__(self, code, message):
        Exception.__init__(self, message)
        self.code = code


def main():
    """Make the environment, apply the spec, say what came out."""
    if sys.version_info < NEEDS:
        raise Trouble(CANNOT, "Python {}.{} or newer is needed; this is {}.{}.".format(*NEEDS, *sys.version_info[:2]))
    if not sys.platform.startswith("linux"):
        raise Trouble(CANNOT, f"the first run trains on this machine, and runs need Linux; this is {sys.platform}.")
    if sys.argv[1:2] == ["--environment"] and len(sys.argv) == 3:
        uv = find_uv(uv_folder(sys.argv[2]))
        make(uv, sys.argv[2])
        with open(os.path.join(sys.argv[2], "uv-path"), "w") as file:
            file.write(uv)
        return 0
    if len(sys.argv) > 1:
        raise Trouble(CANNOT, "python3 quickstart.py takes no arguments.")
    check_home()
    # uv brings certificates of its own; where the system has some, an index behind a company's authority answers too.
    if ssl.get_default_verify_paths().cafile:
        os.environ.setdefault("UV_SYSTEM_CERTS", "1")
    folder = environment_folder()
    install(folder)
    ended = apply(folder)
    if ended == 0:
        say_what_came_out(folder)
    return ended


def check_home():
    """Runs are remembered and checkpoints are uploaded below the home: without it there is nothing to show."""
    home = os.path.expanduser("~")
    if not os.path.isdir(home) or not os.access(home, os.W_OK | os.X_OK):
        raise Trouble(
            CANNOT,
            f"the home folder {home} cannot be written; aicrun keeps its records there.\n"
            "  try another  HOME=$(mktemp -d) python3 quickstart.py",
        )


def environment_folder():
    """`.venv-quickstart` in this checkout, or a folder of the user's cache when the checkout is read-only."""
    if os.access(HERE, os.W_OK):
        return os.path.join(HERE, ".venv-quickstart")
    return os.path.join(cache(), "quickstart-" + fingerprint()[:12])


def cache():
    """The folder for what can be made again; the specification of XDG base directories names it."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "aicrun")


def fingerprint():
    """Changes when the environment must be made anew: the project's packages, the interpreter, the checkout's place."""
    import hashlib

    with open(os.path.join(HERE, "pyproject.toml"), "rb") as file:
        read = file.read()
    return hashlib.sha256(read + repr((sys.version_info[:3], sys.executable, HERE)).encode()).hexdigest()


def install(folder):
    """Put this checkout and its packages into `folder`, unless that was done."""
    mark = os.path.join(folder, "complete")
    wanted = fingerprint()
    if os.path.exists(mark):
        with open(mark) as file:
            if file.read() == wanted:
                return
    tell(f"making an environment in {folder}")
    uv = find_uv(cache())
    shutil.rmtree(folder, ignore_errors=True)
    make(uv, folder)
    # Editable: the checkout is run as it stands, also after a `git pull`.
    run([uv, "pip", "install", "--quiet", "--python", os.path.join(folder, "bin", "python"), "--editable", HERE])
    with open(mark, "w") as file:
        file.write(wanted)


def make(uv, folder):
    """An empty environment at `folder` with the Python that runs this."""
    run([uv, "venv", "--quiet", "--python", sys.executable, folder])


def find_uv(into):
    """The path of uv: the one on PATH, else fetched from the package index and checked by aicrun's own code."""
    found = shutil.which("uv")
    if found:
        return found
    tell("fetching uv from the package index")
    sys.path.insert(0, HERE)
    import platform

    from aicrun.errors import AicrunError
    from aicrun.hosts.uv import fetch_uv

    libc = "glibc" if platform.libc_ver()[0] == "glibc" else "musl"
    try:
        return fetch_uv(into, system="linux", machine=platform.machine(), libc=libc, env=os.environ)
    except (AicrunError, OSError) as error:
        raise Trouble(SETUP_FAILED, f"uv could not be fetched: {error}") from error


def uv_folder(environment):
    """Where uv is kept for an environment that somebody else asked for: beside it, so that nothing else is touched."""
    return os.path.join(os.path.dirname(os.path.abspath(environment)), ".uv")


def run(argv):
    """Run a step of the set-up; its words are shown when it fails."""
    environ = dict(os.environ, UV_PYTHON_DOWNLOADS="never")
    done = subprocess.run(argv, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        words = done.stdout.decode("utf-8", "replace").strip()
        raise Trouble(SETUP_FAILED, " ".join(argv[:3]) + " failed:\n" + words)


def apply(folder):
    """Apply the digits spec and follow it to its end; aicrun's exit code."""
    tell(f"$ aicrun apply {SPEC} --yes --follow")
    return subprocess.call([aicrun(folder), "apply", SPEC, "--yes", "--follow"], cwd=HERE, stdin=subprocess.DEVNULL)


def aicrun(folder):
    """The program in the environment."""
    return os.path.join(folder, "bin", "aicrun")


def say_what_came_out(folder):
    """Status, loss and place, read from aicrun's own record of the run and from the uploaded checkpoint's state."""
    asked = [aicrun(folder), "inspect", "digits", "--json"]
    done = subprocess.run(asked, cwd=HERE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if done.returncode:
        raise Trouble(done.returncode, "the run's record could not be read: aicrun inspect digits")
    told = json.loads(done.stdout.decode("utf-8"))
    place = newest_checkpoint((told["job"].get("upload") or {}).get("destination") or "")
    tell("")
    tell("status      " + told["status"])
    if place:
        with open(os.path.join(place, "trainer_state.json")) as file:
            state = json.load(file)
        tell("loss        {loss:.4f} at step {step}, accuracy {accuracy:.3f}".format(**state))
    tell("checkpoint  " + (place or "none was found"))
    tell("")
    tell("look closer, without installing anything more:")
    tell(f"  export PATH={os.path.dirname(aicrun(folder))}:$PATH")
    tell("  aicrun list")


def newest_checkpoint(folder):
    """The checkpoint of the most steps that lies complete in `folder`; empty: none does."""
    folder = folder[len("file:") :] if folder.startswith("file:") else folder
    found = []
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        word, _, steps = name.partition("-")
        if (
            word == "checkpoint"
            and steps.isdigit()
            and os.path.exists(os.path.join(folder, name, "trainer_state.json"))
        ):
            found.append((int(steps), os.path.join(folder, name)))
    return max(found)[1] if found else ""


def tell(words):
    """One line for the person who waits, in order with what aicrun prints."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        sys.stderr.write(f"quickstart: {trouble}\n")
        sys.exit(trouble.code)
    except KeyboardInterrupt:
        # aicrun has said by itself that the run goes on.
        sys.exit(130)
