"""The launch mode as a pure function of what was probed: a table of hosts, and laws over all facts there can be."""

from __future__ import annotations

import itertools

import pytest

from aicrun.agent.survival import Facts, choose, service_of, shall_kill, suspect, version_of

SESSION = "/user.slice/user-1000.slice/session-3.scope"
MANAGER = "/user.slice/user-1000.slice/user@1000.service/app.slice/code.scope"
SERVICE = "/system.slice/actions-runner.service"


def facts(**known: object) -> Facts:
    """An ordinary account of an ordinary host over ssh, lingering, but for what is told."""
    usual = {
        "uid": 1000,
        "account": "ana",
        "version": (252, 38),
        "user_manager": True,
        "linger": True,
        "cgroup": SESSION,
    }
    return Facts(**{**usual, "kills_session": False, **known})  # type: ignore[arg-type]


# What is special about the host; the mode; whether it outlives the logout; a word of why it is no better; of a warning.
HOSTS = (
    ({"uid": 0, "account": "root"}, "A", "yes", "", ""),
    ({"uid": 0, "account": "root", "cgroup": SERVICE}, "A", "yes", "", ""),
    ({"uid": 0, "failed": (("A", "systemd-run gave no answer within 5 s"),)}, "C", "yes", "no answer", ""),
    ({}, "B", "yes", "only root", ""),
    ({"cgroup": SERVICE}, "B", "yes", "only root", ""),
    ({"linger": False}, "C", "yes", "lingering is off for ana", ""),
    ({"linger": False, "linger_refused": "Access denied"}, "C", "yes", "Access denied", ""),
    ({"linger": None}, "C", "yes", "could not be read", ""),
    ({"user_manager": False}, "C", "yes", "no user manager", ""),
    ({"version": (0, 0)}, "C", "yes", "version", ""),
    ({"version": (255, 4)}, "C", "yes", "systemd 255.4", ""),
    ({"failed": (("B", "Failed to connect to bus"),)}, "C", "yes", "Failed to connect", ""),
    ({"linger": False, "kills_session": True}, "C", "no", "lingering", "KillUserProcesses=yes"),
    ({"linger": False, "kills_session": None}, "C", "unknown", "lingering", "could not be found out"),
    ({"linger": False, "cgroup": ""}, "C", "unknown", "lingering", "could not be found out"),
    ({"linger": False, "cgroup": MANAGER}, "C", "no", "lingering", "user manager"),
    ({"version": (255, 4), "cgroup": MANAGER}, "C", "unknown", "systemd 255.4", "user manager"),
    ({"linger": False, "cgroup": SERVICE, "restart_kills": True}, "C", "yes", "", "actions-runner.service ends"),
    ({"linger": False, "cgroup": SERVICE, "restart_kills": None}, "C", "yes", "", "actions-runner.service may end"),
    ({"linger": False, "cgroup": "/system.slice/ssh.service", "restart_kills": False}, "C", "yes", "", ""),
    ({"systemd": False}, "D", "yes", "no systemd", ""),
    ({"systemd": False, "uid": 0}, "D", "yes", "no systemd", ""),
    ({"systemd": False, "other_logind": True}, "D", "unknown", "no systemd", "login manager"),
)


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: ",".join(f"{key}={value}" for key, value in host[0].items()))
def test_the_mode_of_a_host(host: tuple[dict[str, object], str, str, str, str]) -> None:
    special, mode, outlives, why, warning = host
    chosen = choose(facts(**special))
    assert (chosen.mode, chosen.outlives_logout) == (mode, outlives)
    assert why in chosen.why
    assert warning in chosen.warning
    assert bool(warning) == bool(chosen.warning)


EVERY = (
    ("uid", (0, 1000)),
    ("systemd", (True, False)),
    ("version", ((0, 0), (239, 0), (252, 38), (255, 4), (256, 3))),
    ("user_manager", (True, False)),
    ("linger", (True, False, None)),
    ("kills_session", (True, False, None)),
    ("cgroup", ("", "/", SESSION, MANAGER, SERVICE)),
    ("restart_kills", (True, False, None)),
    ("failed", ((), (("A", "x"),), (("B", "x"),))),
)


def test_nothing_is_promised_that_was_not_probed() -> None:
    for values in itertools.product(*(values for _, values in EVERY)):
        known = facts(**dict(zip((name for name, _ in EVERY), values, strict=True)))
        chosen = choose(known)
        if chosen.mode == "A":
            assert known.systemd and known.uid == 0 and not known.failed[:0]
        if chosen.mode == "B":
            assert known.linger and known.user_manager and known.version != (0, 0) and not suspect(known.version)
        assert (chosen.mode == "D") == (not known.systemd)
        assert chosen.mode not in dict(known.failed)
        # A logout that is not survived for sure, or a restart that is known to kill, is always told.
        if chosen.outlives_logout != "yes":
            assert chosen.warning and "log out;" not in chosen.promise
        if chosen.mode == "C":
            assert chosen.why
            in_service = known.cgroup == SERVICE and known.restart_kills is not False
            assert ("actions-runner.service" in chosen.warning) == in_service
            if known.cgroup == SESSION:
                assert chosen.outlives_logout == {True: "no", False: "yes", None: "unknown"}[known.kills_session]


def test_the_releases_whose_lingering_is_not_trusted() -> None:
    assert not suspect((254, 99))
    assert suspect((255, 0))
    assert suspect((255, 4))
    assert suspect((255, 22))
    assert suspect((256, 0))
    assert suspect((256, 2))
    assert not suspect((256, 3))
    assert not suspect((257, 0))


# As the packages of Debian 11-13, Ubuntu 22.04 and 24.04, RHEL 8 and 9, Fedora, Arch and CentOS 7 print it.
VERSIONS = (
    ("systemd 247 (247.3-7+deb11u6)\n+PAM +AUDIT", (247, 3)),
    ("systemd 252 (252.38-1~deb12u1)", (252, 38)),
    ("systemd 257 (257.8-1~deb13u2)", (257, 8)),
    ("systemd 249 (249.11-0ubuntu3.16)", (249, 11)),
    ("systemd 255 (255.4-1ubuntu8.10)", (255, 4)),
    ("systemd 239 (239-82.el8_10.3)", (239, 0)),
    ("systemd 252 (252-46.el9_5.3)", (252, 0)),
    ("systemd 256 (v256.2-1.fc41)", (256, 2)),
    ("systemd 256 (256~rc3-3)", (256, 0)),
    ("systemd 256 (256.2-1-arch)", (256, 2)),
    ("systemd 219", (219, 0)),
    ("", (0, 0)),
    ("OpenRC 0.45", (0, 0)),
)


@pytest.mark.parametrize(("text", "version"), VERSIONS)
def test_the_version_that_a_package_prints(text: str, version: tuple[int, int]) -> None:
    assert version_of(text) == version


# account, KillUserProcesses, KillOnlyUsers, KillExcludeUsers, and what logind does.
RULES = (
    ("ana", True, (), ("root",), True),
    ("ana", False, (), ("root",), False),
    ("ana", True, (), ("root", "ana"), False),
    ("ana", True, ("bob",), ("root",), False),
    ("ana", False, ("ana",), ("root",), True),
    ("root", True, (), (), False),
    ("root", True, (), ("ana",), True),
)


@pytest.mark.parametrize("rule", RULES)
def test_whom_logind_kills_at_logout(rule: tuple[str, bool, tuple[str, ...], tuple[str, ...], bool]) -> None:
    account, kills, only, excluded, expected = rule
    assert shall_kill(account, kills, only, excluded) is expected


@pytest.mark.parametrize(
    ("group", "service"),
    (
        (SERVICE, "actions-runner.service"),
        ("/system.slice/system-foo.slice/foo@1.service/job", "foo@1.service"),
        (SESSION, ""),
        (MANAGER, ""),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/code.service", ""),
        ("/docker/0123/system.slice", ""),
        ("/", ""),
        ("", ""),
    ),
)
def test_which_service_a_login_is_inside(group: str, service: str) -> None:
    assert service_of(group) == service
