"""Why a machine cannot be reached, as one of few kinds, each with the next step. Pure: text and codes in, errors out.

Both carriers end here, so that a fault reads the same whichever met it. It must not decide to try again; `DROPPED` is
the one kind that may be tried again, for nothing was said on the connection yet.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from aicrun.errors import HostUnreachable, Way
from aicrun.hosts.bootstrap import SHELL_REPLACED
from aicrun.hosts.remote_call import NO_PYTHON
from aicrun.hosts.ssh_route import Route

UNKNOWN_KEY, CHANGED_KEY = "AIC-E501", "AIC-E502"
NO_NAME, REFUSED, TIMEOUT, AUTH = "AIC-E503", "AIC-E504", "AIC-E505", "AIC-E506"
KEY_FILE, JUMP, DROPPED = "AIC-E507", "AIC-E508", "AIC-E520"
LOGIN_SHELL, NO_PYTHON_THERE, ENDED = "AIC-E516", "AIC-E510", "AIC-E511"
NOT_LINUX, NO_ALGORITHM = "AIC-E514", "AIC-E521"


# The words for `JUMP` where no jump host is named.
PROXY = "proxy"
FIRST_LINES = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Which machine is meant, in words: its name in the inventory, and where its route leads."""

    name: str
    route: Route

    @property
    def row(self) -> tuple[str, str]:
        """The `machine` row of an error."""
        route = self.route
        over = f" over {', '.join(jump.host for jump in route.jumps)}" if route.jumps else ""
        return "machine", f"{self.name} (ssh: {route.target.host}), {route.host} port {route.port}{over}"

    @property
    def by_hand(self) -> str:
        """The command with which a person tries the same."""
        return self.route.target.by_hand


# OpenSSH's own words, in the order in which they decide (ssh.c, sshconnect.c, sshconnect2.c of OpenSSH 7.4 to 10).
_SAID = (
    (CHANGED_KEY, r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for \S+ has changed|REVOKED HOST KEY"),
    (UNKNOWN_KEY, r"(?m)^(?:Host key verification failed|No \S+ host key is known)"),
    (NO_ALGORITHM, r"Unable to negotiate|no matching (?:cipher|mac|host key type|key exchange method) found"),
    (JUMP, r"stdio forwarding failed|Connection (?:closed|timed out).*UNKNOWN|channel 0: open failed"),
    (NO_NAME, r"Could not resolve hostname"),
    (AUTH, r"Permission denied|Too many authentication failures|no more authentication methods"),
    (TIMEOUT, r"timed out during banner exchange|Connection to \S+ port \d+ timed out"),
    (DROPPED, r"kex_exchange_identification|ssh_exchange_identification|banner exchange|Exceeded MaxStartups"),
    (REFUSED, r"Connection refused"),
    (TIMEOUT, r"timed out|No route to host|Network is unreachable|Host is down"),
    (ENDED, r"client_loop|Connection reset|Connection to \S+ closed|Timeout, server|mux_client|Broken pipe"),
)


# What the last hop says of the machine that it could not reach (channels.c, in the words of the hop's own system).
_OF_LAST_HOP = re.compile(r"channel 0: open failed: connect failed: ?(.*)")
_SEEN_BY_HOP = (
    (REFUSED, r"Connection refused"),
    (TIMEOUT, r"timed out|No route to host|unreachable|Host is down"),
    (NO_NAME, r"not known|resol|No address"),
)
# What a hop can meet as well as the machine itself.
_OF_EITHER = (REFUSED, TIMEOUT, NO_NAME, AUTH, DROPPED)
# Of cmd and PowerShell, which know no `exec`, and of sshd itself, which both carriers are told.
_WINDOWS = re.compile(r"for_Windows|is not recognized as (?:an internal or external command|the name of a cmdlet)")


def is_windows(said: str) -> bool:
    """True when sshd's version or the words of a shell are those of Windows."""
    return bool(_WINDOWS.search(said))


_OF_SSH = re.compile(r"debug\d:|OpenSSH_|Pseudo-terminal|Authenticated to|Transferred:|Bytes per")
_REASON = r"connect to host|not found|[Nn]o such|refused|resolve|denied|verification failed|timed out"


def without_chatter(said: str) -> str:
    """What a talkative ssh said, without what it says always; only since the login, where it came so far."""
    said = said[said.rfind("Authenticated to ") :] if "Authenticated to " in said else said
    return "\n".join(line for line in said.splitlines() if not _OF_SSH.match(line))


def of_agent_call(place: Place, code: int, said: str, seen: bytes | None = None) -> HostUnreachable | None:
    """What it means that the agent's call ended with `code`; None when it is the agent's own end.

    `seen`: what came on stdout when nothing else did, so that the agent has never spoken; None once it has.
    """
    if code == NO_PYTHON:
        return no_python(place)
    if code == SHELL_REPLACED:
        return login_shell(place, "a start file replaces it (exec)", said)
    if code in (126, 127):
        return login_shell(place, f"it ended with code {code}", said)
    if seen is None or code < 0 or "Traceback (most recent call last)" in said:
        return None
    lines = first_lines(seen.decode("utf-8", "replace") + "\n" + said)
    if is_windows(said):
        return windows(place)
    return login_shell(place, f"it ended with code {code}", "", first=lines)


def first_lines(text: str, count: int = FIRST_LINES) -> tuple[str, ...]:
    """The first lines that say anything, each cut to 300 characters."""
    return tuple(line.strip()[:300] for line in text.splitlines() if line.strip())[:count]


def windows(place: Place) -> HostUnreachable:
    """The machine runs Windows, whose shells understand nothing of what is sent."""
    return HostUnreachable(
        NOT_LINUX,
        f"{place.name} runs Windows; runs need Linux, nothing was started",
        facts=(place.row,),
        ways=(Way("use WSL there, with an sshd of its own, and name that in machines.yaml", "wsl --install"),),
    )


def of_openssh(place: Place, code: int, said: str) -> HostUnreachable | None:
    """What it means that ssh ended with `code` after saying `said`; None when that is nothing of the carrier's."""
    if code != 255:
        return None
    kind = next((kind for kind, words in _SAID if re.search(words, said)), ENDED)
    if (kind == DROPPED and place.route.has_proxy) or (kind in _OF_EITHER and _is_of_jump(place, said)):
        kind = JUMP
    last = _telling(said)
    from_hop = _of_last_hop(said) if kind == JUMP else None
    if from_hop is not None:
        return plain(place, *from_hop)
    if kind == JUMP:
        # What stands in between speaks first, then ssh about what it could not read from it.
        lines = first_lines(without_chatter(said), 99)
        last = next((line for line in lines if re.search(_REASON, line)), lines[0] if lines else last)
    if kind == UNKNOWN_KEY:
        return unknown_key(place, "", said=last)
    if kind == CHANGED_KEY:
        found = re.search(r"(SHA256:\S+?)\.?\s", said + " ")
        line = re.search(r"(\S+known_hosts\S*):(\d+)", said)
        return changed_key(place, found[1] if found else "", f"{line[1]} line {line[2]}" if line else "")
    return plain(place, kind, last)


def _of_last_hop(said: str) -> tuple[str, str] | None:
    """(kind, words) where the last hop was there and could not reach the machine; None where a hop failed itself."""
    told = _OF_LAST_HOP.search(said)
    # Each ssh on the way says that it was closed, the one that wanted the machine last: two, and it was about a hop.
    if told is None or said.count("UNKNOWN port", told.end()) > 1:
        return None
    kind = next((kind for kind, words in _SEEN_BY_HOP if re.search(words, told[1])), "")
    return (kind, told[0].strip()[:300]) if kind else None


def _is_of_jump(place: Place, said: str) -> bool:
    """True when the last words name a jump host, so that the machine itself was never asked."""
    names = (rf"(?<![\w.:-]){re.escape(jump.host)}(?![\w.:-]*\w)" for jump in place.route.jumps)
    return any(re.search(name, said) for name in names) or "UNKNOWN port" in said


def _telling(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith(("@", "**"))]
    # Behind a ProxyCommand ssh knows no address; why it closed stands before.
    known = [line for line in lines if "UNKNOWN port" not in line]
    return (known or lines)[-1][:300] if lines else ""


_WORDS = {
    NO_NAME: "the name of {name} is not known: {host}",
    REFUSED: "{name} refuses connections on port {port}",
    TIMEOUT: "{name} does not answer on port {port}",
    AUTH: "{name} does not let {user} in",
    KEY_FILE: "the key for {name} cannot be used",
    JUMP: "a jump host on the way to {name} failed",
    DROPPED: "{name} dropped the connection before anything was said",
    ENDED: "the connection to {name} ended",
    PROXY: "the ProxyCommand on the way to {name} failed",
    NO_ALGORITHM: "your ssh and {name} have no algorithm in common",
}
# Ways to log in that only a person can go: nothing is asked at a prompt.
_TYPED = {"password", "keyboard-interactive"}


def plain(place: Place, kind: str, said: str) -> HostUnreachable:
    """The error of a kind that needs no more than what was said; `said` is one line, may be empty."""
    route = place.route
    asks = re.search(r"Permission denied \(([\w,-]+)\)", said) if kind == AUTH else None
    if asks and set(asks[1].split(",")) <= _TYPED:
        return _typed(place, said)
    words = _WORDS[PROXY if kind == JUMP and not route.jumps else kind]
    words = words.format(name=place.name, host=route.host, port=route.port, user=route.user or "you")
    facts = [place.row]
    if said:
        facts.append(("key" if kind == KEY_FILE else "ssh says", said))
    return HostUnreachable(kind, words, facts=tuple(facts), ways=_ways(place, kind))


def _typed(place: Place, said: str) -> HostUnreachable:
    """The machine wants a password or a code: a person opens a connection, and it is used."""
    target = place.route.target.host
    ways = [Way("log in once and leave it open", f"{place.by_hand.replace('ssh ', 'ssh -M -f -N ', 1)}")]
    if not place.route.has_control_path:
        ways.insert(0, Way(f"let connections be shared: below Host {target} of ~/.ssh/config", "ControlPath ~/.ssh/%C"))
    facts = (place.row, ("ssh says", said))
    return HostUnreachable(AUTH, f"{place.name} needs an interactive login", facts=facts, ways=tuple(ways))


def _hop(place: Place) -> Way:
    if place.route.jumps:
        return Way("try the hop by hand", f"{place.route.jumps[0].by_hand} exit")
    return Way("see what it says", f"{place.by_hand} -v exit")


def _ways(place: Place, kind: str) -> tuple[Way, ...]:
    look = Way("look closer", f"aicrun doctor {place.name}")
    target = shlex.quote(place.route.target.host)
    ways: dict[str, tuple[Way, ...]] = {
        NO_NAME: (Way("see what ssh makes of it", f"ssh -G {target}"),),
        REFUSED: (Way("try it by hand", f"{place.by_hand} exit"), look),
        TIMEOUT: (
            Way("try it by hand", f"{place.by_hand} exit"),
            Way("it is off for long", f"aicrun machines down {place.name}"),
            Way("this once without it", f"aicrun apply run.yaml --except {place.name}"),
        ),
        AUTH: (
            Way("see what is offered", f"{place.by_hand} -v exit"),
            Way("put your key there", f"ssh-copy-id {target}"),
        ),
        KEY_FILE: (Way("unlock it once", "ssh-add"), Way("see which one is used", f"ssh -G {target}")),
        JUMP: (_hop(place),),
        NO_ALGORITHM: (
            Way("see both lists", f"{place.by_hand} -vv exit"),
            Way(f"allow one of its own in your ssh configuration, below Host {target}", "man ssh_config"),
        ),
        DROPPED: (Way("again in a moment", f"aicrun doctor {place.name}"),),
    }
    return ways.get(kind, (look,))


def unknown_key(place: Place, key: str, said: str = "") -> HostUnreachable:
    """The machine shows a key that no known_hosts file has; `key` is `TYPE SHA256:…`, empty when it is not told."""
    facts = [place.row]
    if key:
        facts.append(("key", key))
    elif said:
        facts.append(("ssh says", _telling(said)))
    return HostUnreachable(
        UNKNOWN_KEY,
        f"the host key of {place.name} is not known, nothing was sent",
        facts=tuple(facts),
        ways=(
            Way(
                f"compare it with the key shown on {place.name} itself",
                "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
            ),
            *_kept(place),
            Way("if they are equal, accept it by", f"{place.by_hand} exit"),
        ),
    )


def _kept(place: Place) -> tuple[Way, ...]:
    if place.route.known_hosts[:1] != ("/dev/null",):
        return ()
    what = f"your configuration keeps no key (/dev/null): below Host {place.route.target.host}, name a file"
    return (Way(what, "UserKnownHostsFile ~/.ssh/known_hosts"),)


def changed_key(place: Place, offered: str, known: str) -> HostUnreachable:
    """The machine shows another key than the accepted one."""
    facts = [place.row]
    if known:
        facts.append(("known", known))
    if offered:
        facts.append(("offered", offered))
    route = place.route
    name = route.host if route.port == 22 else f"[{route.host}]:{route.port}"
    return HostUnreachable(
        CHANGED_KEY,
        f"the host key of {place.name} changed, nothing was sent",
        facts=tuple(facts),
        ways=(
            Way(f"ask whoever runs {place.name} whether it was installed anew; only then", f"ssh-keygen -R '{name}'"),
        ),
    )


def no_python(place: Place) -> HostUnreachable:
    """There is no python3 where the call looked for one."""
    return HostUnreachable(
        NO_PYTHON_THERE,
        f"{place.name} has no python3",
        facts=(place.row, ("looked in", "/usr/bin, the PATH of a login, /usr/local/bin, ~/.local/bin")),
        ways=(Way("install one there", "apt install python3"),),
    )


def login_shell(place: Place, how: str, said: str, first: tuple[str, ...] = ()) -> HostUnreachable:
    """The login shell of the account does not run commands as asked; `first`: its first lines, in place of `said`."""
    facts = [place.row, *(("it said", line) for line in first)]
    if said.strip():
        facts.append(("it said", _telling(said)))
    return HostUnreachable(
        LOGIN_SHELL,
        f"the login shell of {place.name} does not run commands: {how}",
        facts=tuple(facts),
        ways=(Way("see what it does", f"{place.by_hand} true; echo $?"),),
    )
