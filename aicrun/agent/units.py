"""Asks systemd's tools about this host, and has systemd start a program in a unit of its own. It chooses no mode.

Every tool has a deadline and is believed only in what can be read back. After one that gave no answer none is asked
again. Nothing here runs where no systemd does: there the answers are free.
"""

import os
import re
import time
from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from aicrun.agent import hooks, later, machine
from aicrun.agent.survival import Facts, service_of, shall_kill, version_of
from aicrun.wire import lean
from aicrun.wire.patterns import pattern

if TYPE_CHECKING:
    import resource
    import signal
    import socket
    import subprocess
    import tempfile
else:
    resource, signal, socket, subprocess, tempfile = (
        later.module("resource"),
        later.module("signal"),
        later.module("socket"),
        later.module("subprocess"),
        later.module("tempfile"),
    )

SYSTEMD = "/run/systemd/system"
SESSIONS = "/run/systemd/sessions"
LINGER = "/var/lib/systemd/linger"
TOOL_S = 5
# A manager that was asked to linger needs a moment until its socket answers.
MANAGER_COMES_S = 3.0
STOP_MORE_S = 30
STOP_GRACE_MOST_S = 600
# systemctl(1), without `offline` and `unknown`: with these it did not reach its manager.
_STATES = ("initializing", "starting", "running", "degraded", "maintenance", "stopping")
_USUAL_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
_PREFIX = "aicrun-"
_NAMES = pattern(r'"((?:[^"\\]|\\.)*)"')

# What a unit of ours is, each from the release that knows it. `process`: when only the keeper is killed its job goes
# on. Never a Device property: with one, systemd takes the cards away from a running unit at its next reload.
PROPERTIES = (
    (0, "Delegate=yes"),
    (0, "KillMode=process"),
    (0, "Restart=no"),
    (227, "TasksMax=infinity"),
    (236, "StandardInput=null"),
    (236, "StandardOutput=null"),
    (236, "StandardError=null"),
    (243, "OOMPolicy=continue"),
)
TYPE_EXEC_FROM = 240


@lean.dataclass(frozen=True)
class Said:
    """What a tool said: `good` when it ended with 0; `wrong` is one line of what was not."""

    good: bool
    printed: str
    wrong: str


class Tools:
    """systemd's programs under one patience: each has `tool_s`, and the first that hangs is the last one asked."""

    def __init__(self, login: Mapping[str, str], tool_s: float = TOOL_S) -> None:
        self._path = os.pathsep.join(part for part in (login.get("PATH", ""), _USUAL_PATH) if part)
        self._env = {"PATH": self._path, "LC_ALL": "C", "XDG_RUNTIME_DIR": runtime_dir()}
        # A test finds again what its fake tools started; a login has no such names.
        self._env.update((name, value) for name, value in login.items() if name.startswith("AICRUN_TEST_"))
        self._tool_s = min(tool_s, hooks.number("TOOL_S", TOOL_S))
        self._silent = ""

    def ask(self, *argv: str) -> Said:
        """Run one of them to its end, at most `tool_s`."""
        program = machine.program(argv[0], self._path.split(os.pathsep))
        if not program:
            return Said(False, "", "there is no %s" % argv[0])
        if self._silent:
            return Said(False, "", self._silent)
        try:
            # Files, not pipes: whoever inherits them keeps nobody waiting.
            with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
                code = self._run((program,) + argv[1:], out.fileno(), err.fileno())
                printed, said = _text(out.fileno()), _text(err.fileno()).strip().splitlines()
        except OSError as error:
            return Said(False, "", "%s: %s" % (argv[0], error.strerror))
        if code is None:
            self._silent = "%s gave no answer within %g s" % (argv[0], self._tool_s)
            return Said(False, printed, self._silent)
        wrong = said[-1].strip()[:200] if said else "%s ended with %d" % (argv[0], code)
        return Said(code == 0, printed, wrong if code else "")

    def _run(self, argv: Tuple[str, ...], out: int, err: int) -> Optional[int]:
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            # Inherited: the kernel would reap a tool before anybody saw that it failed.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self._env, cwd="/", start_new_session=True
        )
        try:
            return process.wait(self._tool_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None


def here() -> bool:
    """True when systemd is what runs this host; costs no process."""
    found = os.path.isdir(SYSTEMD) and name_of(1) in ("", "systemd")
    return bool(hooks.number("SYSTEMD", int(found)))


def probe(tools: Tools) -> Facts:
    """What can be learned without changing anything; root needs no tool, others one."""
    uid, account = hooks.number("UID", os.geteuid()), machine.account("")[0]
    container = machine.in_container()
    if not here():
        return Facts(uid, account, systemd=False, container=container, other_logind=_has_sessions())
    facts = Facts(uid, account, linger=lingers(account), cgroup=cgroup(), container=container)
    if uid == 0:
        return facts
    return lean.replace(facts, version=version(tools), user_manager=manager_answers())


def with_rules(tools: Tools, facts: Facts) -> Facts:
    """The same with what decides for a session of its own: logind's rule for leftovers, the service's for a restart."""
    if "/session-" in facts.cgroup:
        return lean.replace(facts, kills_session=_kills_session(tools, facts.account, facts.cgroup))
    service = service_of(facts.cgroup)
    if service:
        mode = tools.ask("systemctl", "show", "--property=KillMode", service).printed.strip().partition("=")[2]
        return lean.replace(facts, restart_kills=mode not in ("process", "none") if mode else None)
    return facts


def with_linger(tools: Tools, facts: Facts) -> Facts:
    """The same after lingering was asked for; believed only when it can be read back.

    It changes the machine for the account, so only what looks like a login of that account asks for it.
    """
    own = hooks.text("OWN_HOME", machine.account("")[1])
    if os.environ.get("HOME", "") != own:
        return lean.replace(facts, linger_refused="HOME is not %s, so nobody asked for it" % own)
    said = tools.ask("loginctl", "--no-ask-password", "enable-linger", facts.account)
    if not lingers(facts.account):
        refused = said.wrong or "loginctl said yes, and it is still off"
        return lean.replace(facts, linger=False, linger_refused=refused)
    deadline = time.monotonic() + MANAGER_COMES_S
    while not manager_answers() and time.monotonic() < deadline:
        time.sleep(0.02)
    return lean.replace(facts, linger=True, user_manager=manager_answers())


def version(tools: Tools) -> Tuple[int, int]:
    """Systemd's release as (major, minor), (0, 0) when it cannot be read."""
    said = tools.ask("systemctl", "--version")
    return version_of(said.printed) if said.good else (0, 0)


def lingers(account: str) -> Optional[bool]:
    """Whether this account's manager stays without a login, as logind itself reads it; None when that is hidden."""
    try:
        os.stat(os.path.join(hooks.text("LINGER", LINGER), account))
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return True


def manager_answers() -> bool:
    """True when the account's own manager takes a connection on its private socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe_:
        probe_.settimeout(1.0)
        try:
            probe_.connect(os.path.join(runtime_dir(), "systemd", "private"))
        except OSError:
            return False
    return True


def runtime_dir() -> str:
    """The folder of the account's user manager; a login over su or cron has no variable that names it."""
    return hooks.text("RUNTIME_DIR", "/run/user/%d" % os.geteuid())


def cgroup() -> str:
    """The control group of this process in systemd's tree, "" when it cannot be read."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as stream:
            rows = [line.rstrip("\n").split(":", 2) for line in stream]
    except OSError:
        return ""
    paths = {row[1]: row[2] for row in rows if len(row) == 3}
    # Where systemd has a tree of its own beside version 2's, it is the one that says something.
    found = [paths[tree] for tree in ("name=systemd", "") if tree in paths]
    return hooks.text("CGROUP", next((path for path in found if path != "/"), "/" if found else ""))


def unit_name(role: str, job_dir: str, token: str) -> str:
    """The keeper's unit has the job's name; a later keeper of the same job gets one that was never there."""
    name = _PREFIX + os.path.basename(job_dir)
    return (name if role == "keeper" else "%s-%s-%s" % (name, role, token[:8])) + ".service"


def run(tools: Tools, mode: str, unit: str, argv: Tuple[str, ...], grace_s: int) -> str:
    """Have `argv` run in the new unit `unit` (mode A or B): "" when systemd says that it runs, else what was wrong."""
    release = version(tools)[0]
    words = ["systemd-run", "--quiet", "--no-ask-password", "--unit=" + unit, "--slice=aicrun.slice"]
    words += ["--user"] if mode == "B" else []
    words.append("--service-type=%s" % ("exec" if release >= TYPE_EXEC_FROM else "simple"))
    words.append("--description=aicrun job " + unit[len(_PREFIX) :].partition(".")[0])
    properties = [text for since, text in PROPERTIES if release >= since] + list(_limits(mode))
    properties.append("TimeoutStopSec=%d" % (min(grace_s, STOP_GRACE_MOST_S) + STOP_MORE_S))
    words += ["--property=" + text for text in properties]
    # A dollar in a path is no variable of the unit.
    return tools.ask(*words, "--", *(word.replace("$", "$$") for word in argv)).wrong


def result(mode: str, unit: str, tools: Tools) -> str:
    """What systemd remembers of a unit of ours that failed, in words; "" when it remembers nothing."""
    scope = ("--user",) if mode == "B" else ()
    wanted = "--property=LoadState,ActiveState,Result,ExecMainStatus"
    said = tools.ask("systemctl", *scope, "--no-ask-password", "show", wanted, unit)
    told = dict(line.split("=", 1) for line in said.printed.splitlines() if "=" in line) if said.good else {}
    if told.get("LoadState") != "loaded" or told.get("Result", "success") == "success":
        return ""
    return "its unit %s ended with %s (status %s)" % (unit, told["Result"], told.get("ExecMainStatus", "?"))


def not_executed(mode: str, unit: str, program: str, tools: Tools) -> str:
    """The words for a unit whose `program` systemd could not execute; "" when that was not it, or is not told."""
    scope = ("--user",) if mode == "B" else ()
    said = tools.ask("systemctl", *scope, "--no-ask-password", "show", "--property=ExecMainStatus", unit)
    if "ExecMainStatus=203" not in said.printed.split():
        return ""
    hint = "where SELinux is enforcing, ausearch -m avc -ts recent tells what it denied"
    return "systemd could not execute %s in its unit (203/EXEC); %s" % (program, hint)


def forget_failed(mode: str, unit: str, tools: Tools) -> None:
    """Let systemd forget a unit of ours that failed; one that it does not know any more is no error."""
    scope = ("--user",) if mode == "B" else ()
    tools.ask("systemctl", *scope, "--no-ask-password", "reset-failed", unit)


def stopping(mode: str, tools: Tools) -> Optional[bool]:
    """True when the manager that runs a unit of this mode (C and D: the system's) is shutting down; None: no answer.

    Late in a shutdown it gives none any more.
    """
    scope = ("--user",) if mode == "B" else ()
    # It ends with a code of its own for every state but `running`, so only what it printed counts.
    state = tools.ask("systemctl", *scope, "is-system-running").printed.strip()
    return state == "stopping" if state in _STATES else None


def _limits(mode: str) -> Tuple[str, ...]:
    """Open files and locked memory, as high as this login's own hard limits; root's memory without one."""
    found = []
    files, memory = resource.getrlimit(resource.RLIMIT_NOFILE)[1], resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if files != resource.RLIM_INFINITY:
        found.append("LimitNOFILE=%d" % files)
    endless = mode == "A" or memory == resource.RLIM_INFINITY
    found.append("LimitMEMLOCK=%s" % ("infinity" if endless else memory))
    return tuple(found)


def _kills_session(tools: Tools, account: str, group: str) -> Optional[bool]:
    # A login that became somebody else by su goes by the rule of whoever logged in.
    owner = re.search(r"/user-(\d+)\.slice/", group)
    account = machine.account_of(int(owner.group(1))) if owner else account
    names = ("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")
    place = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
    said = tools.ask("busctl", "--no-pager", "get-property", *place, *names)
    rows = said.printed.strip().splitlines()
    if not said.good or len(rows) != len(names) or not rows[0].startswith("b "):
        return None
    only, excluded = (tuple(_NAMES.findall(row)) for row in rows[1:])
    return shall_kill(account, rows[0] == "b true", only, excluded)


def _has_sessions() -> bool:
    """True where systemd's login manager runs without systemd; its folder alone lies in many images, empty."""
    try:
        return bool(os.listdir(hooks.text("SESSIONS", SESSIONS)))
    except OSError:
        return False


def _text(handle: int) -> str:
    return os.pread(handle, 65536, 0).decode("utf-8", "replace")


def name_of(pid: int) -> str:
    """The name of a process, "" when it cannot be read."""
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as stream:
            return stream.read(64).strip()
    except OSError:
        return ""
