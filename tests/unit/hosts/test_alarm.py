"""What is due is done, once, whatever else is due; what was cancelled is not, and waits in nobody's memory."""

from __future__ import annotations

import gc
import threading
import weakref

from support import until

from aicrun.hosts.alarm import after


def test_deeds_are_done_in_the_order_of_their_times_whatever_the_order_of_asking() -> None:
    done: list[int] = []
    # Far enough apart for a busy machine, and the earliest is asked for last.
    after(3.0, lambda: done.append(3))
    after(1.5, lambda: done.append(2))
    after(0.01, lambda: done.append(1))
    until(lambda: len(done) == 3)
    assert done == [1, 2, 3]


def test_one_that_does_not_end_delays_no_other() -> None:
    held, done = threading.Event(), threading.Event()
    after(0.0, lambda: held.wait(60) and None)
    after(0.05, done.set)
    assert done.wait(30)
    held.set()


def test_one_that_fails_ends_no_other() -> None:
    done = threading.Event()
    failed: list[threading.ExceptHookArgs] = []
    before, threading.excepthook = threading.excepthook, failed.append
    try:
        after(0.0, lambda: [][0])
        after(0.05, done.set)
        assert done.wait(30)
        until(lambda: bool(failed))
    finally:
        threading.excepthook = before


def test_a_cancelled_one_is_never_done_and_is_kept_by_nobody() -> None:
    class Deed:
        done = False

        def __call__(self) -> None:
            Deed.done = True

    deed, later = Deed(), threading.Event()
    gone = weakref.ref(deed)
    alarm = after(0.3, deed)
    alarm.cancel()
    del alarm, deed
    gc.collect()
    assert gone() is None
    after(0.6, later.set)
    assert later.wait(30) and not Deed.done


def test_many_that_wait_need_no_thread_each() -> None:
    before = threading.active_count()
    alarms = [after(600.0, lambda: None) for _ in range(100)]
    assert threading.active_count() <= before + 1
    for alarm in alarms:
        alarm.cancel()
