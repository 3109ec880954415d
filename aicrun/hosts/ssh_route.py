"""How a machine behind ssh is to be reached: what the user's configuration says of it, and which carrier can obey.

Pure but for `ask`, which lets the system's own `ssh -G` resolve the configuration: it is never parsed here. fabric
carries a machine only when everything that its configuration says is understood below; else OpenSSH itself does.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache

from aicrun.errors import HostUnreachable, Way
from aicrun.hosts.known_hosts import text_of
from aicrun.spec.model import Reached

VARIABLE = "AICRUN_SSH_CONFIG"
FABRIC, OPENSSH = "fabric", "OpenSSH"
ASK_DEADLINE_S = 10.0

Answer = Mapping[str, tuple[str, ...]]

_ONCE = threading.Lock()
# So many at once keep all processors busy; more would only take memory. A configuration may have each wait for a name
# service or a program of its own.
_AT_ONCE = threading.BoundedSemaphore(8)

# Keys of `ssh -G` whose value changes nothing that matters for a program on pipes.
_HARMLESS = """
host sendenv setenv hashknownhosts forwardx11 forwardx11trusted forwardx11timeout visualhostkey loglevel logverbose
addkeystoagent tcpkeepalive compression gssapikexalgorithms gssapidelegatecredentials gssapikeyexchange
gssapirenewalforcesrekey gssapitrustdns updatehostkeys fingerprinthash escapechar requesttty casignaturealgorithms
hostbasedacceptedalgorithms xauthlocation syslogfacility ipqos exitonforwardfailure permitlocalcommand
numberofpasswordprompts stricthostkeychecking batchmode checkhostip kbdinteractiveauthentication
passwordauthentication forwardagent enableescapecommandline requiredrsasize connectionattempts controlpersist
stdinnull forkafterauthentication sessiontype
"""
# What would take the pipes away from a program, with the value that does not; newer versions know them alone.
PLAIN_SESSION = {"stdinnull": "no", "forkafterauthentication": "no", "sessiontype": "default"}
# What fabric is told in its own words.
_OBEYED = """
user hostname port identityfile identitiesonly proxyjump userknownhostsfile globalknownhostsfile
serveraliveinterval serveralivecountmax connecttimeout
"""
# What OpenSSH refuses in names since they end in commands of a shell (valid_ruser, valid_hostname in ssh.c, 9.6).
_IN_NO_NAME = "'`\";&<>|(){}"
_NOT_IN_A_HOST = _IN_NO_NAME + "$\\,"
# Lists of algorithms: fabric takes of them what it knows.
ALGORITHMS = ("ciphers", "macs", "kexalgorithms", "hostkeyalgorithms", "pubkeyacceptedalgorithms")


@dataclass(frozen=True, slots=True)
class Target:
    """What the inventory wrote: a name of the user's configuration, or user, host and port (0: not given)."""

    host: str
    user: str = ""
    port: int = 0

    @property
    def by_hand(self) -> str:
        """The command with which a person tries the same; words for what it does there follow."""
        port = f"-p {self.port} " if self.port else ""
        return f"ssh {port}{shlex.quote(f'{self.user}@{self.host}' if self.user else self.host)}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """As arguments of ssh; nothing in them can be taken for an option."""
        port = ("-p", str(self.port)) if self.port else ()
        user = ("-l", self.user) if self.user else ()
        return (*port, *user, "--", self.host)


@dataclass(frozen=True, slots=True)
class Route:
    """Where a machine is and who carries: `why` says what fabric could not obey; empty when it can.

    `host`, `user`, `port` are as resolved; `jumps` are targets in the order they are passed through;
    `has_own_identities`: the key files are named in the configuration, not the usual ones.
    `has_own_agent`: the configuration names one, or forbids it; `has_proxy`: it has a ProxyCommand.
    `known_as`: the name that its keys are listed under, where that is another (HostKeyAlias).
    `session`: the keys of `PLAIN_SESSION` that the configuration sets to something else.
    `algorithms` holds those lists of `ALGORITHMS` that differ from OpenSSH's own; after `keepalive_s` of silence (0:
    not configured) the machine is asked, and after `keepalive_most` times without an answer it counts as gone.
    """

    target: Target
    carrier: str
    why: str = ""
    host: str = ""
    user: str = ""
    port: int = 22
    identities: tuple[str, ...] = ()
    has_own_identities: bool = False
    identities_only: bool = False
    known_hosts: tuple[str, ...] = ()
    jumps: tuple[Target, ...] = ()
    connect_timeout_s: int = 0
    has_control_path: bool = False
    session: tuple[str, ...] = ()
    has_own_agent: bool = False
    has_proxy: bool = False
    known_as: str = ""
    keepalive_s: int = 0
    keepalive_most: int = 3
    algorithms: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def address(self) -> str:
        """`user@host` as a person reads it, with the port where it is not 22."""
        return self.reached().address

    def reached(self, host_keys: tuple[str, ...] = ()) -> Reached:
        """What is told of it, with the keys that it showed or may have shown."""
        return Reached(self.user, self.host, self.port, self.carrier, self.why, host_keys)


def target_of(text: str) -> Target:
    """`alias`, `user@host:port`, `[v6]:port`, a bare IPv6 literal or `ssh://…`, taken apart; raises `ValueError`."""
    rest = text.removeprefix("ssh://").rstrip("/") if text.startswith("ssh://") else text
    user, _, rest = rest.rpartition("@")
    port = ""
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise ValueError(f"{text} has a bracket that does not close before the port")
        port = tail[1:]
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    else:
        # More than one colon outside of brackets: an IPv6 literal, which has no port.
        host = rest
    if not host or host.startswith("-") or user.startswith("-"):
        raise ValueError(f"{text} names no host")
    odd = [letter for letter in host if letter in _NOT_IN_A_HOST] + [letter for letter in user if letter in _IN_NO_NAME]
    odd += [letter for letter in text if letter.isspace() or not letter.isprintable()]
    if odd:
        raise ValueError(f"{text!r} has {odd[0]!r} in it, which ssh takes in no name")
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{text} has the port {port}, which is none")
    return Target(host, user, int(port or 0))


def parsed(text: str) -> Answer:
    """The output of `ssh -G`: key to its values, in their order."""
    found: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        if key:
            found[key.lower()] = (*found.get(key.lower(), ()), value)
    return found


def route_of(target: Target, said: Answer, plain: Answer, has_ticket: bool) -> Route:
    """The route to `target` when `ssh -G` says `said` of it and `plain` of a host that nothing is configured for.

    `has_ticket`: a Kerberos ticket may be there, which only OpenSSH uses.
    """
    why = _not_obeyed(said, plain, has_ticket)
    jumps: tuple[Target, ...] = ()
    try:
        jumps = tuple(target_of(hop) for hop in _one(said, "proxyjump").split(",") if hop and hop != "none")
    except ValueError as error:
        why = why or f"ProxyJump: {error}"
    return Route(
        target,
        OPENSSH if why else FABRIC,
        why,
        host=_one(said, "hostname") or target.host,
        user=_one(said, "user") or target.user,
        port=int(_one(said, "port") or target.port or 22),
        identities=said.get("identityfile", ()),
        has_own_identities=set(said.get("identityfile", ())) != set(plain.get("identityfile", ())),
        identities_only=_one(said, "identitiesonly") == "yes",
        known_hosts=(*_one(said, "userknownhostsfile").split(), *_one(said, "globalknownhostsfile").split()),
        jumps=jumps,
        connect_timeout_s=_number(said, "connecttimeout", 0),
        has_control_path=_one(said, "controlpath") not in ("", "none"),
        has_own_agent="identityagent" in said,
        has_proxy=_one(said, "proxycommand") not in ("", "none"),
        known_as=_one(said, "hostkeyalias").removeprefix("none"),
        session=tuple(key for key, value in PLAIN_SESSION.items() if _one(said, key) not in ("", value)),
        keepalive_s=_number(said, "serveraliveinterval", 0),
        keepalive_most=max(1, _number(said, "serveralivecountmax", 3)),
        algorithms=tuple((key, _list(said, key)) for key in ALGORITHMS if _list(said, key) != _list(plain, key)),
    )


def _not_obeyed(said: Answer, plain: Answer, has_ticket: bool) -> str:
    understood = {*_HARMLESS.split(), *_OBEYED.split(), *ALGORITHMS}
    for key in sorted({*said, *plain} - understood):
        if said.get(key) == plain.get(key):
            continue
        if key == "gssapiauthentication" and not has_ticket:
            continue
        # Off is how it is without being named, but for an agent, which is asked unless that is forbidden.
        if key not in said or (_one(said, key) == "none" and key not in plain and key != "identityagent"):
            continue
        return f"{key} is set"
    return ""


def _one(said: Answer, key: str) -> str:
    return (said.get(key) or ("",))[0]


def _number(said: Answer, key: str, otherwise: int) -> int:
    value = _one(said, key)
    return int(value) if value.isdigit() else otherwise


def _list(said: Answer, key: str) -> tuple[str, ...]:
    return tuple(_one(said, key).split(","))


def with_markers(route: Route, read: Callable[[str], str]) -> Route:
    """`route`, carried by OpenSSH when a file of its known hosts names authorities or revoked keys."""
    for path in route.known_hosts:
        if _has_markers(read(path)):
            return replace(route, carrier=OPENSSH, why=f"{path} has @cert-authority or @revoked")
    return route


# Many machines have the same few files.
@lru_cache(maxsize=8)
def _has_markers(text: str) -> bool:
    return any(line.lstrip().startswith("@") for line in text.splitlines())


def ask(target: Target) -> Route:
    """The route to `target` as this machine's ssh resolves it; without an ssh program fabric takes it as it stands.

    Raises `HostUnreachable` (AIC-E508) when the configuration cannot be read.
    """
    if shutil.which("ssh") is None:
        why = "there is no ssh program here"
        usual = tuple(f"~/.ssh/id_{kind}" for kind in ("ed25519", "ecdsa", "rsa"))
        known = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")
        host, user, port = target.host, target.user, target.port or 22
        return Route(target, FABRIC, why, host, user, port, identities=usual, known_hosts=known)
    said, plain = _told((*configuration(), *target.arguments)), _plain()
    route = route_of(target, said, plain, _has_ticket())
    return with_markers(_with_files(route, said, plain), text_of)


def _with_files(route: Route, said: Answer, plain: Answer) -> Route:
    """`route`, carried by OpenSSH where a file of known hosts is named that is not there as it is told.

    A name with a space looks like two, and one with `%h` in it is filled in by ssh alone.
    """
    key = "userknownhostsfile"
    paths = _one(said, key).split() if said.get(key) != plain.get(key) else []
    if route.carrier == FABRIC and not all(os.path.exists(os.path.expanduser(path)) for path in paths):
        return replace(route, carrier=OPENSSH, why="userknownhostsfile is set")
    return route


def usual(key: str) -> tuple[str, ...]:
    """What OpenSSH itself says for `key`, a list, where nobody configures anything."""
    return _list(_plain(), key)


def _plain() -> Answer:
    # Many machines are asked for at the same moment, and a cache alone would let each of them ask.
    with _ONCE:
        return _plain_once()


@cache
def _plain_once() -> Answer:
    return _told(("-F", "none", "--", "a-host-of-nobody"))


def configuration() -> tuple[str, ...]:
    """The arguments of ssh that name another configuration than the user's own; empty without `$AICRUN_SSH_CONFIG`."""
    path = os.environ.get(VARIABLE, "")
    return ("-F", path) if path else ()


def _told(arguments: tuple[str, ...]) -> Answer:
    done = _asked(arguments)
    forks: Answer = {}
    if done.returncode and "Cannot fork into background" in done.stderr:
        # It refuses to tell anything then, for want of a command.
        forks = {"forkafterauthentication": ("yes",)}
        done = _asked(("-o", "ForkAfterAuthentication=no", *arguments))
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip() and not line.startswith("debug")]
        # The place in a file where there is one; the last words only count what is wrong.
        placed = [line for line in lines if re.search(r"\bline \d+", line)]
        raise _unreadable(arguments, (placed or lines[-1:] or ["ssh -G failed"])[0])
    return {**parsed(done.stdout), **forks}


def _asked(arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    try:
        with _AT_ONCE:
            return subprocess.run(
                ("ssh", "-G", *arguments),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=ASK_DEADLINE_S,
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise _unreadable(arguments, f"ssh -G gave no answer within {ASK_DEADLINE_S:.0f}s") from error


def _unreadable(arguments: tuple[str, ...], said: str) -> HostUnreachable:
    ways = (Way("see it whole", f"ssh -G {shlex.quote(arguments[-1])}"),)
    return HostUnreachable("AIC-E509", "your ssh configuration cannot be read", facts=(("ssh says", said),), ways=ways)


def _has_ticket() -> bool:
    return bool(os.environ.get("KRB5CCNAME")) or os.path.exists(f"/tmp/krb5cc_{os.getuid()}")  # noqa: S108
