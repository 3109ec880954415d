"""A job's working tree from a repository: the commit that the plan named, its submodules, and no repository in it.

`.git` is left out: the tree is the job's own code at one commit, not a place to commit in, and must not need the
mirror after its start. It runs inside the setup step.
"""

import os
from typing import TYPE_CHECKING, List

from aicrun.agent import git_mirror, later
from aicrun.agent.build import DiskFull, SetupFailed, Workshop
from aicrun.agent.git import Done, Git, GitFault
from aicrun.agent.home import Home
from aicrun.wire.jobs import Source

if TYPE_CHECKING:
    import shutil
else:
    shutil = later.module("shutil")

_POINTER = b"version https://git-lfs.github.com/spec/v1"
_POINTER_MOST_BYTES = 1024
_NAMED = 3


class RevisionMissing(SetupFailed):
    """The commit that the plan named is not there any more."""

    token = "revision_missing"


def check_out(home: Home, source: Source, folder: str, shop: Workshop) -> None:
    """Fill the empty `folder` with `source.commit`; raises `SetupFailed`, or `RevisionMissing`."""
    try:
        git = Git(shop.env, source.git, shop.ends)
        with git_mirror.ready(home, git, source.git, source.commit, shop.say) as mirror:
            _init(git, source, mirror, folder)
            _well(git("checkout", "--quiet", "--detach", source.commit, at=folder), "checking out")
        _submodules(git, folder, shop)
    except GitFault as error:
        if error.word == "missing":
            message = "%s is not in %s any more: plan again, or push it back" % (source.commit[:12], source.git)
            raise RevisionMissing(message) from error
        shop.left_s("fetching %s" % source.git)
        raise _failure("%s: %s" % (source.git, error)) from error
    _tell_pointers(git, folder, shop)
    _without_git(folder)
    _check_links(folder)
    shop.say("checked out %s of %s" % (source.commit[:12], source.git))


def _init(git: Git, source: Source, mirror: str, folder: str) -> None:
    _well(git("init", "--quiet", "--template=", folder), "making the tree")
    with open(os.path.join(folder, ".git", "objects", "info", "alternates"), "w") as stream:
        stream.write(os.path.join(mirror, "objects") + "\n")
    # Addresses of submodules may be relative to it, and git-lfs fetches from it.
    _well(git("config", "remote.origin.url", source.git, at=folder), "making the tree")


def _submodules(git: Git, folder: str, shop: Workshop) -> None:
    if not os.path.exists(os.path.join(folder, ".gitmodules")):
        return
    shop.say("fetching submodules")
    _well(git("submodule", "--quiet", "update", "--init", "--recursive", at=folder), "fetching submodules")


def _well(done: Done, doing: str) -> None:
    if done.code:
        raise _failure("%s: %s" % (doing, done.why))


def _failure(told: str) -> SetupFailed:
    # Imported here: it fails seldom.
    from aicrun.agent.install_faults import is_full

    return (DiskFull if is_full(told) else SetupFailed)(told)


def _tell_pointers(git: Git, folder: str, shop: Workshop) -> None:
    found = _pointers(folder)
    if not found:
        return
    names = ", ".join(found[:_NAMED]) + (", …" if len(found) > _NAMED else "")
    mend = "git lfs install" if git.has_lfs else "install git-lfs, then: git lfs install"
    told = "warning: %d %s of git-lfs without contents: %s; on this machine: %s"
    shop.say(told % (len(found), "file is a pointer" if len(found) == 1 else "files are pointers", names, mend))


def _pointers(folder: str) -> List[str]:
    found = []
    for above, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(files):
            path = os.path.join(above, name)
            if os.path.islink(path) or os.lstat(path).st_size > _POINTER_MOST_BYTES:
                continue
            with open(path, "rb") as stream:
                if stream.read(len(_POINTER)) == _POINTER:
                    found.append(os.path.relpath(path, folder))
    return found


def _without_git(folder: str) -> None:
    for above, folders, files in os.walk(folder):
        if ".git" in folders:
            folders.remove(".git")
            shutil.rmtree(os.path.join(above, ".git"))
        if ".git" in files:
            os.unlink(os.path.join(above, ".git"))


def _check_links(folder: str) -> None:
    top = os.path.realpath(folder)
    for above, folders, files in os.walk(folder):
        for path in (os.path.join(above, name) for name in folders + files):
            if os.path.islink(path):
                target = os.path.realpath(path)
                if os.path.isabs(os.readlink(path)) or not (target == top or target.startswith(top + "/")):
                    told = "the link %s leads out of the source, to %s"
                    raise SetupFailed(told % (os.path.relpath(path, folder), os.readlink(path)))
