"""From probed facts of a host to how a run is kept alive there, what that promises, and why not better. Pure.

It must not probe anything (`units.py` does) and never promises what a fact did not show. The modes: A a unit of the
system, B a unit of the account's own manager, C a session of its own under systemd, D the same where no systemd runs.
In none of them logind removes a run's shared memory at logout: it spares root's (A), a lingering account's (B), and
that of an account with something left in a session (C).
"""

import re
from typing import Optional, Tuple

from aicrun.wire import lean
from aicrun.wire.facts import Survival
from aicrun.wire.patterns import pattern

# Releases on which logind was reported to stop a lingering user's services at the last logout, first and last
# (systemd issue 43361; the repair of 256.3 was not taken back to 255). Shortened versions compare as (major, minor).
SUSPECT_LINGER = ((255, 0), (256, 2))

_END = "a restart of this %s ends it"
_UNIT = "goes on when you disconnect, log out or restart sshd; "
_SERVICE = pattern(r"/([^/]+\.service)(?:/|\Z)")
_USER_MANAGER = pattern(r"/user@\d+\.service(?:/|\Z)")
_SESSION = pattern(r"/session-[^/]+\.scope(?:/|\Z)")


@lean.dataclass(frozen=True)
class Facts:
    """What was probed; None: could not be read. Defaults describe an ordinary login under systemd.

    `linger_refused` is what was said when it could not be turned on, empty when nobody tried; `cgroup` is the group of
    the process that asks; `kills_session`: logind ends what a session leaves behind, for this account;
    `restart_kills`: a restart of the service that `cgroup` lies in ends what is inside; `other_logind`: a login
    manager without systemd. `failed` are modes that were tried in vain, each with what was said.
    """

    uid: int
    account: str = ""
    systemd: bool = True
    version: Tuple[int, int] = (0, 0)
    user_manager: bool = False
    linger: Optional[bool] = None
    linger_refused: str = ""
    kills_session: Optional[bool] = None
    cgroup: str = ""
    restart_kills: Optional[bool] = None
    container: bool = False
    other_logind: bool = False
    failed: Tuple[Tuple[str, str], ...] = ()


def choose(facts: Facts) -> Survival:
    """The best mode that these facts allow, with its promise; every set of facts has exactly one."""
    if not facts.systemd:
        return _without_systemd(facts)
    failed = dict(facts.failed)
    if facts.uid == 0 and "A" not in failed:
        return Survival("A", _UNIT + _end(facts), "yes")
    # Root's own user manager is no better than what was just refused.
    why = failed["A"] if facts.uid == 0 else failed.get("B") or _not_b(facts)
    if not why:
        return Survival("B", _UNIT + _end(facts), "yes", "only root gets a unit of the system")
    return _in_session(facts, why)


def suspect(version: Tuple[int, int]) -> bool:
    """True for releases whose lingering is not to be trusted; an unread version (0, 0) is not among them."""
    return SUSPECT_LINGER[0] <= version <= SUSPECT_LINGER[1]


def version_of(text: str) -> Tuple[int, int]:
    """(major, minor) from the first line of `systemctl --version`; (0, 0) when it says nothing of the kind.

    The minor number stands in brackets, as the package names it: `systemd 255 (255.4-1ubuntu8)`.
    """
    line = text.split("\n", 1)[0]
    major = re.match(r"systemd (\d+)", line)
    if major is None:
        return (0, 0)
    minor = re.search(r"\(v?%s\.(\d+)" % major.group(1), line)
    return (int(major.group(1)), int(minor.group(1)) if minor else 0)


def shall_kill(account: str, kills: bool, only: Tuple[str, ...], excluded: Tuple[str, ...]) -> bool:
    """Logind's rule whether it ends what a session of `account` leaves: exclusions first, then the list, then yes/no.

    With an empty list of exclusions logind spares root.
    """
    if account in excluded or (not excluded and account == "root"):
        return False
    return account in only if only else kills


def service_of(cgroup: str) -> str:
    """The system's service that this group lies in, "" for none; a user's manager and its services are not meant."""
    if _USER_MANAGER.search(cgroup) or _SESSION.search(cgroup):
        return ""
    found = _SERVICE.search(cgroup)
    return found.group(1) if found else ""


def _without_systemd(facts: Facts) -> Survival:
    if facts.other_logind:
        told = "goes on when you disconnect; " + _end(facts)
        return Survival("D", told, "unknown", "no systemd runs here", "its login manager may end it when you log out")
    return Survival("D", "goes on when you disconnect and log out; " + _end(facts), "yes", "no systemd runs here")


def _not_b(facts: Facts) -> str:
    """Why a unit of the account's own manager is not to be had, "" when it is."""
    if facts.version == (0, 0):
        return "the version of systemd could not be read"
    if suspect(facts.version):
        return "systemd %d.%d may stop lingering services at your last logout" % facts.version
    if not facts.linger:
        if facts.linger is None:
            return "whether %s lingers could not be read" % facts.account
        said = ": " + facts.linger_refused if facts.linger_refused else "; a start asks for it"
        return "lingering is off for %s%s" % (facts.account, said)
    if not facts.user_manager:
        return "no user manager answers here"
    return ""


def _in_session(facts: Facts, why: str) -> Survival:
    outlives, warning = _logout(facts)
    service = service_of(facts.cgroup)
    if service and facts.restart_kills is not False:
        certain = "ends" if facts.restart_kills else "may end"
        warning = "a restart of %s %s the run: this login is inside that service" % (service, certain)
    return Survival("C", _session_promise(facts, outlives), outlives, why, warning, _better(facts))


def _session_promise(facts: Facts, outlives: str) -> str:
    if outlives == "yes":
        return "goes on when you disconnect and log out; " + _end(facts)
    if outlives == "no":
        return "goes on until your login here ends, and no longer"
    return "goes on when you disconnect, as far as the rules for logins here allow; " + _end(facts)


def _logout(facts: Facts) -> Tuple[str, str]:
    """(whether it outlives the logout, the warning that belongs to it)."""
    if not facts.cgroup:
        return "unknown", "whether your logout ends the run could not be found out"
    if _SESSION.search(facts.cgroup):
        if facts.kills_session is None:
            return "unknown", "whether your logout ends the run could not be found out"
        if facts.kills_session:
            return "no", "your logout ends the run: KillUserProcesses=yes in its logind.conf"
    elif _USER_MANAGER.search(facts.cgroup):
        if not facts.linger:
            return "no", "your last logout ends the run: your user manager does not linger"
        if suspect(facts.version):
            return "unknown", "your last logout may end the run: it lives below your user manager"
    return "yes", ""


def _better(facts: Facts) -> str:
    """The command that makes a better mode possible, "" where none is known."""
    if facts.uid == 0 or suspect(facts.version) or facts.linger is not False:
        return ""
    return "%sloginctl enable-linger %s" % ("sudo " if facts.linger_refused else "", facts.account)


def _end(facts: Facts) -> str:
    return _END % ("container" if facts.container else "machine")
