"""Rules of `inputs`: where one may come from, which options belong to which place, and local files that must be there.

Each rule passes over fields of the wrong type, which the schema has told already. It must not ask a machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from aicrun.spec.findings import Finding, range_of
from aicrun.spec.grammar import nearest
from aicrun.spec.nodes import Node, Path, dotted
from aicrun.spec.setups import missing
from aicrun.spec.values import short

LOCAL = "local"
# The tools of each place that a machine fetches from, its default first, and how such an address looks. What would
# put a key into a command line (user@bucket, options of a remote) is no address.
_ADDRESSES = {
    "s3": (("aws", "rclone"), re.compile(r"s3://[A-Za-z0-9][A-Za-z0-9._-]+(?:/[^\n]*)?")),
    "rclone": (("rclone",), re.compile(r"rclone:[A-Za-z0-9_][A-Za-z0-9_.+@ -]*:[^\n]*")),
    "hf": (
        ("hf",),
        re.compile(
            r"hf:(?:(?:models|datasets|spaces)/)?(?!(?:models|datasets|spaces)/)[\w][\w.-]*/[\w.-]+(?:/[^\n]+)?"
        ),
    ),
}
_OPTIONS = {"endpoint": ("s3",), "profile": ("s3",), "revision": ("hf",), "timeout": tuple(_ADDRESSES)}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FORMS = "s3://bucket/prefix/, rclone:remote:path, hf:user/repo, or a file or folder of this computer"


def scheme_of(address: str) -> str:
    """`s3`, `rclone` or `hf`, else `local`; of a valid address."""
    head = address.partition(":")[0]
    return head if head in _ADDRESSES and ":" in address else LOCAL


def tools_of(scheme: str) -> tuple[str, ...]:
    """The tools that fetch from there, the default first; none for what this client sends."""
    return _ADDRESSES[scheme][0] if scheme in _ADDRESSES else ()


def input_findings(root: Node) -> Iterator[Finding]:
    """Every fault between the fields of `inputs`."""
    inputs, seen = root.at("inputs"), dict[str, Node]()
    for name, key in inputs.keys.items() if inputs is not None else ():
        # Two whose names differ in case only would share one variable.
        first = seen.setdefault(name.upper(), key)
        if first is not key:
            message = f"two inputs would be AICRUN_INPUT_{name.upper()}"
            also = (range_of(first), "first here")
            yield Finding("AIC-E114", message, range_of(key), ("inputs", name), "and here", also=also)
        yield from _address(root, name)


def missing_inputs(root: Node, folder: str) -> Iterator[Finding]:
    """A finding for each file or folder of this client that is an input of the spec in `folder`, and is not there."""
    inputs = root.at("inputs")
    for name in inputs.keys if inputs is not None else ():
        node = root.at("inputs", name, "from")
        text = node.text if node is not None else None
        if node is None or not text or _SCHEME.match(text) or "${" in text:
            continue
        place = os.path.join(folder, os.path.expanduser(text))
        if not os.path.exists(place):
            yield missing(range_of(node), ("inputs", name, "from"), text, "is not there", place)


def _address(root: Node, name: str) -> Iterator[Finding]:
    path: Path = ("inputs", name, "from")
    node = root.at(*path)
    if node is None or not node.text:
        yield from _options(root, name, "")
        return
    text, found = node.text, _SCHEME.match(node.text)
    scheme = found[1] if found else LOCAL
    if scheme != LOCAL and scheme not in _ADDRESSES:
        near = nearest(scheme, tuple(_ADDRESSES))
        help_ = f"did you mean {near}:?" if near else f"it is {_FORMS}"
        if scheme == "file":
            help_ = "a path alone is one of this computer; path: in place of from: is one of the machine"
        message = f'"{dotted(path)}" is no place that inputs come from: "{short(text)}"'
        yield Finding("AIC-E134", message, range_of(node), path, helps=(help_,))
        return
    if scheme != LOCAL and not _ADDRESSES[scheme][1].fullmatch(text):
        message = f'"{dotted(path)}" is no complete {scheme}: address: "{short(text)}"'
        helps = ("the forms: aicrun explain inputs",)
        yield Finding("AIC-E134", message, range_of(node), path, helps=helps)
    yield from _options(root, name, scheme)


def _options(root: Node, name: str, scheme: str) -> Iterator[Finding]:
    above: Path = ("inputs", name)
    tool = root.at(*above, "with")
    known = {one for tools, _ in _ADDRESSES.values() for one in tools}
    if tool is not None and tool.text in known and tool.text not in tools_of(scheme):
        helps = (f"write {' or '.join(tools_of(scheme))}",) if tools_of(scheme) else ("remove the line",)
        place = f"{scheme}: addresses" if tools_of(scheme) else "what is there already, or on this computer"
        yield Finding("AIC-E134", f"{tool.text} does not fetch {place}", range_of(tool), (*above, "with"), helps=helps)
    for key, schemes in _OPTIONS.items():
        option = root.at(*above, key)
        if option is not None and scheme not in schemes:
            forms = " and ".join(f"{one}:" for one in schemes)
            message = f'"{key}" belongs to {forms} addresses'
            yield Finding("AIC-E134", message, range_of(option), (*above, key), helps=("remove the line",))
    help_ = "name the keys under secrets: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    yield from account_findings(root, (*above, "endpoint"), "AIC-E134", help_)


def account_findings(root: Node, path: Path, code: str, help_: str) -> Iterator[Finding]:
    """A finding where the address of a server at `path` carries an account."""
    node = root.at(*path)
    if node is not None and node.text and "@" in node.text.partition("//")[2].partition("/")[0]:
        message = f'"{path[-1]}" carries an account, which any process list would show'
        yield Finding(code, message, range_of(node), path, helps=(help_,))
