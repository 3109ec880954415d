"""Repositories of other places, mirrored in the store so that jobs share what was fetched; and what a name means there.

A mirror is bare, ours, and safe to lose: whoever needs it fetches again. One process at a time changes it. It must not
lay out anything (see `git_tree.py`).
"""

import contextlib
import os
import re
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Optional, Tuple

from aicrun.agent import bodies, later, turns
from aicrun.agent.environment import login_environment
from aicrun.agent.git import Git, GitFault, checked, is_commit
from aicrun.agent.home import Home
from aicrun.agent.refused import Refused
from aicrun.wire import lean
from aicrun.wire.codec import to_json
from aicrun.wire.facts import GitSource, GitText

if TYPE_CHECKING:
    import hashlib
    import shutil
else:
    hashlib, shutil = later.module("hashlib"), later.module("shutil")

TIMEOUT_MOST_S = 3600
# The lock of a large project has some megabytes; what is more is none.
TEXT_MOST_BYTES = 8 * 1024 * 1024
_SHORT_COMMIT = re.compile(r"[0-9a-f]{7,63}\Z")
_REACHED = "HEAD"


def source(home: Home, body: Dict[str, Any], payload: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Call `git_source`: which commit `revision` (empty: the default branch) of the repository `git` is now.

    {git, revision, files, path, timeout_s} -> one `GitSource`, with the texts of `files` in that commit.
    """
    del payload
    url, revision = bodies.text(body, "git"), bodies.text(body, "revision", "")
    files = bodies.texts(body, "files")
    if not url or url.startswith("-") or "\0" in "".join((url, revision, *files)):
        raise Refused("invalid_request", "git is the address of a repository", {"git": url[:200]})
    ends = time.monotonic() + bodies.number(body, "timeout_s", 60, TIMEOUT_MOST_S)
    try:
        git = Git(login_environment(bodies.texts(body, "path"), os.environ), url, ends)
        found = _resolved(home, git, url, revision)
        if files:
            found = lean.replace(found, texts=_texts(home, git, url, found.commit, files))
    except GitFault as error:
        found = GitSource(url, revision, error.word, detail=str(error))
    return {"source": to_json(found)}, b""


def _resolved(home: Home, git: Git, url: str, revision: str) -> GitSource:
    if is_commit(revision):
        with ready(home, git, url, revision):
            return GitSource(url, revision, "ok", revision)
    found = _named(git, url, revision)
    if found is None and _SHORT_COMMIT.match(revision):
        with _locked(home, git, url) as mirror:
            _fetch_all(git, mirror, url)
            done = git("rev-parse", "--verify", "--quiet", revision + "^{commit}", at=mirror)
        if not done.code:
            return GitSource(url, revision, "ok", done.out.strip())
    if found is None:
        raise GitFault("missing", "the repository has no branch, tag or commit %s" % (revision or _REACHED))
    return GitSource(url, revision, "ok", *found)


def _named(git: Git, url: str, revision: str) -> Optional[Tuple[str, str]]:
    """(commit, name) of a branch or tag, the tag first as git does; raises `GitFault` (unreachable)."""
    wanted = [_REACHED]
    if revision:
        wanted = ["refs/tags/" + revision, "refs/heads/" + revision] + [revision] * revision.startswith("refs/")
    asked = [part for name in wanted for part in (name, name + "^{}")]
    refs: Dict[str, str] = {}
    default = ""
    for line in checked(git("ls-remote", "--symref", "--", url, *asked)).splitlines():
        value, _, name = line.partition("\t")
        if value.startswith("ref: "):
            default = value[len("ref: refs/heads/") :]
        else:
            refs[name] = value
    for name in wanted:
        # A tag that has a message is an object of its own; behind ^{} is what it stands for.
        commit = refs.get(name + "^{}") or refs.get(name, "")
        if is_commit(commit):
            return commit, default if name == _REACHED else revision
    return None


@contextlib.contextmanager
def ready(home: Home, git: Git, url: str, commit: str, say: Callable[[str], None] = lambda _: None) -> Iterator[str]:
    """The mirror of `url` with `commit` in it, held so that nobody changes it; raises `GitFault`."""
    with _locked(home, git, url, say) as mirror:
        if not _has(git, mirror, commit):
            say("fetching %s of %s" % (commit[:12], url))
            _fetch(git, mirror, url, commit)
        os.utime(mirror)
        yield mirror


def _fetch(git: Git, mirror: str, url: str, commit: str) -> None:
    # Many servers give a single commit; where not, everything that has a name is fetched.
    one = "+%s:refs/aicrun/%s" % (commit, commit)
    git("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--", url, one, at=mirror)
    if _has(git, mirror, commit):
        return
    try:
        _fetch_all(git, mirror, url)
        is_damaged = git("rev-list", "--objects", "--all", "--quiet", at=mirror).code != 0
    except GitFault:
        # When the repository answers, what stands in the way is our own mirror: a loss of power, a full disk.
        checked(git("ls-remote", "--", url, _REACHED))
        is_damaged = True
    if is_damaged:
        shutil.rmtree(mirror)
        _make(git, mirror)
        _fetch_all(git, mirror, url)
    if not _has(git, mirror, commit):
        raise GitFault("missing", "the repository has no commit %s" % commit)


def _fetch_all(git: Git, mirror: str, url: str) -> None:
    every = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
    checked(git("fetch", "--quiet", "--no-tags", "--prune", "--no-recurse-submodules", "--", url, *every, at=mirror))


def _has(git: Git, mirror: str, commit: str) -> bool:
    """Whether the commit is there with everything that belongs to it."""
    kind = git("cat-file", "-t", commit, at=mirror)
    if kind.out.strip() != "commit":
        return False
    return not git("rev-list", "--objects", "-1", "--quiet", commit, at=mirror).code


def _texts(home: Home, git: Git, url: str, commit: str, files: Tuple[str, ...]) -> Tuple[GitText, ...]:
    found = []
    with ready(home, git, url, commit) as mirror:
        for file in files:
            done = git("cat-file", "blob", "%s:%s" % (commit, os.path.normpath(file)), at=mirror)
            if not done.code and len(done.out) <= TEXT_MOST_BYTES:
                found.append(GitText(file, done.out))
    return tuple(found)


def mirror_path(home: Home, url: str) -> str:
    """Where the mirror of a repository lies, or would lie."""
    return os.path.join(home.store(), "git", hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:32])


@contextlib.contextmanager
def _locked(home: Home, git: Git, url: str, say: Callable[[str], None] = lambda _: None) -> Iterator[str]:
    """The mirror, made when it is not there, for this process and what it starts alone."""
    mirror = mirror_path(home, url)
    os.makedirs(os.path.dirname(mirror), mode=0o700, exist_ok=True)
    handle = os.open(mirror + ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _lock(handle, git, say)
        git.held = (handle,)
        os.utime(handle)
        if not os.path.isdir(mirror):
            _make(git, mirror)
        _unlock_left(mirror)
        yield mirror
    finally:
        git.held = ()
        os.close(handle)


def _lock(handle: int, git: Git, say: Callable[[str], None]) -> None:
    def waits(is_first: bool) -> None:
        if is_first:
            say("another job is fetching from the same repository: waiting for it")
        if time.monotonic() > git.ends:
            raise GitFault("unreachable", "another job was fetching from the same repository all the time")

    turns.take(handle, waits)


def _make(git: Git, mirror: str) -> None:
    growing = mirror + ".new"
    shutil.rmtree(growing, ignore_errors=True)
    checked(git("init", "--quiet", "--bare", "--template=", growing))
    os.chmod(growing, 0o700)
    os.rename(growing, mirror)


def _unlock_left(mirror: str) -> None:
    # Under our lock nobody works here: what git's own lock files say is of a git that was killed.
    for folder, folders, files in os.walk(mirror):
        if folder == mirror and "objects" in folders:
            folders.remove("objects")
        for name in files:
            if name.endswith(".lock"):
                os.unlink(os.path.join(folder, name))
