"""The cards of one job in the hands of its keeper: a place in line, then the cards, then none.

It must not run anything of the job. A card is the job's from the write-once mark `go` in `names.LEFT` on; before it,
whoever takes the job out of the line writes `no` there.
"""

import os
import time
from typing import Dict, Optional, Tuple

from aicrun.agent import card_check, drain_marks, hooks, leases, line, lock_folder, tickets
from aicrun.agent.card_users import account
from aicrun.agent.history import note
from aicrun.agent.home import Home
from aicrun.agent.records import Unreadable, place_once, read_record, write_record
from aicrun.agent.refused import Refused
from aicrun.wire import lean, names
from aicrun.wire.jobs import Decision, JobRequest
from aicrun.wire.seen import InLine

FIRST_TICK_S = 0.1
OTHERS_TICK_S = 1.0
RECHECK_S = 2.0
DRAIN_S = 30.0
# Why a job that came too late never started: one word for both ways to wait.
TOO_LATE = "queue timeout"
# Of what speaks against a card: they change with each look while the same ones are on it, and are no news.
_AMOUNTS = ("vram", "free_mib")


class CardHold:
    """What stands between a job and its cards; without cards every question has the answer yes.

    While it `is_paused` others may have its cards, its place in line is kept, and its time to wait does not run.
    """

    def __init__(self, home: Home, request: JobRequest) -> None:
        self._request = request
        self._job_dir = home.job_dir(request.job_id)
        self._record_dir = home.record_dir(request.run, request.job_id)
        self._ticket: Optional[tickets.Held] = None
        self._lease: Optional[leases.Lease] = None
        self._said: Optional[InLine] = None
        self._since = time.monotonic()
        self._checked_at = 0.0
        self._first = False
        # What speaks against the held cards, and why the disk refused the mark that makes them the job's.
        self._against: Dict[str, str] = {}
        self._unwritten: Optional[OSError] = None
        self.is_paused = False
        self.env: Dict[str, str] = {}
        self.seen = card_check.Seen()

    @property
    def handles(self) -> Tuple[int, ...]:
        """The descriptors that pump and command inherit, so that the cards stay held as long as these live."""
        if self._lease is None or self._ticket is None:
            return ()
        return self._lease.handles + (self._ticket.handle,)

    @property
    def tick_s(self) -> float:
        """How long to wait until the next try."""
        return FIRST_TICK_S if self._first else OTHERS_TICK_S

    def stand(self, not_yet: str = "") -> None:
        """Join the line, and take the cards if they are free now; for `not_yet`, in words, only its place is taken.

        Raises `Refused`: for a job that does not wait gpu_busy (with the holder) or drained; too_many_jobs, no_lock.
        """
        request = self._request
        if not request.cards:
            return
        folder = lock_folder.open_folder(lock_folder.here())
        tickets.clean(folder)
        # One that does not wait must know now whether its cards are free.
        self.is_paused = bool(not_yet) and request.queue_wait_s > 0
        says = line.PAUSES if self.is_paused else line.WAITING
        words = (request.job_id, request.run, says, tuple(sorted(request.cards)), os.getpid(), request.priority)
        self._ticket = tickets.take(folder, tickets.Words(*words))
        try:
            drained = drain_marks.seen(folder)
            if drained is not None and request.queue_wait_s <= 0:
                raise drain_marks.refusal(drained, "queue.wait is 0, so that the run does not wait")
            if not self._taken() and request.queue_wait_s <= 0 and not self._held_by_named():
                raise self._busy()
            if self._lease is not None and request.queue_wait_s <= 0 and not self.check():
                raise self._unwritten or self._busy()
            if not_yet:
                self.pause(not_yet)
        except Refused:
            self.release()
            raise
        if self._lease is None:
            note(self._job_dir, "queued", detail=self._said.why if self._said is not None else "")

    def take(self) -> bool:
        """Try for the cards when it is this job's turn; True once they are its. Cheap; raises `Refused` (no_lock).

        What cannot be looked at now is no refusal: the next call looks again.
        """
        try:
            return self._taken()
        except OSError:
            return False

    def _taken(self) -> bool:
        if self._ticket is not None:
            self._ticket.repeat()
        if self._lease is not None or self._ticket is None:
            return True
        if self.is_paused:
            return False
        folder, mine = self._ticket.folder, self._ticket.seen
        seen = tickets.read(folder)
        turn = line.may_try(seen, mine)
        drained = drain_marks.seen(folder)
        self._first = turn.ahead is None and drained is None
        if drained is not None:
            why = "this machine is drained by %s%s" % (drained.account, ": " + drained.why if drained.why else "")
            self._say(InLine(mine.cards, turn.position, why, reason="drained"))
            return False
        if turn.holder is not None:
            self._check_holder(turn.holder)
        if not turn.may_try or not self._locked(mine.cards):
            self._say(self._waiting(turn))
            return False
        self._ticket.say(line.HOLDS)
        note(self._job_dir, "card_taken", detail=", ".join(mine.cards))
        self._say(InLine(mine.cards, granted=True, folder=folder.path, scope=folder.scope))
        hooks.reached("card_taken")
        return True

    def check(self) -> bool:
        """True when the driver lists nobody on the held cards, which makes them the job's; every `RECHECK_S` at most.

        One that holds them behind a stranger still waits, and can be taken out of the line.
        """
        if self._lease is None or self._ticket is None:
            return not self._request.cards
        if self.env:
            return True
        now = time.monotonic()
        if self._checked_at and now - self._checked_at < RECHECK_S:
            return False
        leases.check(self._ticket.folder, self._lease)
        found = card_check.check(self._lease.uuids, self._request, os.environ)
        self._checked_at = time.monotonic()
        if not found.why and not self._is_mine():
            return False
        self.env, self.seen = found.env, found.seen
        before, self._against = self._against, {key: told for key, told in found.facts.items() if key not in _AMOUNTS}
        self._say(lean.replace(self._granted(), why=found.why))
        if found.why and self._against != before:
            note(self._job_dir, "card_busy", detail=found.why)
        elif found.unverified:
            note(self._job_dir, "card_unverified", detail=found.unverified)
        return not found.why

    def left(self) -> bool:
        """True when somebody took the job out of the line, or it has waited for as long as it may."""
        if not self._request.cards:
            return False
        if self._mark() == "no":
            return True
        if self._is_over() and self._lease is None and not self.take():
            try:
                return self._write("no", TOO_LATE) == "no"
            except OSError:
                # It stays in line until the disk takes the mark.
                return False
        return False

    def why_left(self) -> str:
        """What to say of a job that `left` the line."""
        return self._late() if self._is_over() else "it left the line"

    def waited_out(self) -> str:
        """Why a job that holds its cards cannot start on them although its time to wait is over; "" while it may."""
        return self._late() if self._is_over() and not self.env else ""

    def _is_over(self) -> bool:
        return not self.is_paused and time.monotonic() - self._since > self._request.queue_wait_s

    def _late(self) -> str:
        held = self._said.why if self._said is not None else ""
        return "its cards did not come free within queue.wait (%d s)%s" % (
            self._request.queue_wait_s,
            ": " + held if held else "",
        )

    def drain(self) -> None:
        """Wait, at most `DRAIN_S`, until the driver lists nobody on the cards; the job's tree is gone by then."""
        until = time.monotonic() + DRAIN_S
        while self._lease is not None and time.monotonic() < until:
            if card_check.drained(self._lease.uuids, os.environ):
                return
            time.sleep(FIRST_TICK_S)

    def pause(self, why: str) -> None:
        """Free the cards for others and keep the place in line; `take` and `check` begin anew after `go_on`."""
        self.env, self._checked_at = {}, 0.0
        if self._ticket is None:
            return
        # The words first, so that a ticket never says more than is held.
        self._ticket.say(line.PAUSES)
        self.is_paused = True
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
            note(self._job_dir, "card_released")
        self._say(InLine(tuple(sorted(self._request.cards)), why=why))

    def go_on(self) -> None:
        """The pause is over: stand in line again, at the old place and with the whole time to wait."""
        self._since = time.monotonic()
        if self._ticket is not None:
            self._ticket.say(line.WAITING)
        self.is_paused = False

    def release(self) -> None:
        """Free the cards and leave the line; the words first, so that a ticket never says more than is held."""
        lease, ticket = self._lease, self._ticket
        self._lease = self._ticket = None
        if ticket is not None:
            ticket.say("")
        if lease is not None:
            lease.release()
            note(self._job_dir, "card_released")
        if ticket is not None:
            ticket.end()
            ticket.folder.close()

    def _locked(self, cards: Tuple[str, ...]) -> bool:
        if self._ticket is None:
            return False
        try:
            self._lease = leases.acquire(self._ticket.folder, cards)
        except leases.Busy:
            return False
        return True

    def _is_mine(self) -> bool:
        """The cards are held and free: settle against whoever takes the job out of the line at this moment."""
        try:
            decision = self._write("go", "")
        except OSError as error:
            # A disk that refuses the mark is no loss of the cards: they stay held, and it is tried again.
            self._unwritten = error
            self._say(lean.replace(self._granted(), why="its record cannot be written: %s" % (error.strerror or error)))
            return False
        if decision == "go":
            return True
        if self._ticket is not None and self._lease is not None:
            self._ticket.say("")
            self._lease.release()
            self._lease = None
        return False

    def _check_holder(self, holder: line.Ticket) -> None:
        """A live ticket says that it holds a card whose lock is free: somebody took the lock's file away."""
        if self._ticket is None:
            return
        folder = self._ticket.folder
        for uuid in set(holder.cards) & set(self._request.cards):
            if leases.is_held(folder, uuid):
                continue
            now = tickets.still(folder, holder)
            if now is not None and now.says == line.HOLDS and not leases.is_held(folder, uuid):
                path = leases.path_of(folder, uuid)
                message = "the lock %s was unlinked or replaced while run %s of %s holds its card" % (
                    (path, now.run) + (account(now.uid),)
                )
                raise Refused("no_lock", message, {"path": path, "run": now.run, "account": account(now.uid)})

    def _waiting(self, turn: line.Turn) -> InLine:
        cards = tuple(sorted(self._request.cards))
        one = turn.holder or turn.ahead
        if one is None:
            return InLine(cards, turn.position, "its cards are held by somebody who stands in no line")
        age_s = max(0.0, tickets.now_s() - one.since_s)
        verb = "holds" if one.says == line.HOLDS else "is ahead in line for"
        told = (one.run, account(one.uid), one.job_id, round(age_s, 1))
        why = "run %s of %s %s it" % (one.run or "(unnamed)", account(one.uid), verb)
        return InLine(cards, turn.position, why, turn.ahead.job_id if turn.ahead is not None else "", *told)

    def _granted(self) -> InLine:
        return self._said if self._said is not None else InLine(tuple(sorted(self._request.cards)), granted=True)

    def _held_by_named(self) -> bool:
        """The job that this one replaces holds the cards still, and is stopped before this one starts."""
        return self._said is not None and self._said.holder_job_id in self._request.named

    def _busy(self) -> Refused:
        said = self._said if self._said is not None else InLine(self._request.cards)
        facts = {"cards": ", ".join(said.cards), "why": said.why, "run": said.holder_run}
        facts.update(account=said.holder_account, job=said.holder_job_id)
        if said.holder_age_s is not None:
            facts["age_s"] = "%.0f" % said.holder_age_s
        facts.update(pid=self._holder_pid(said.holder_job_id))
        message = "the card is busy and queue.wait is 0: %s" % said.why
        return Refused("gpu_busy", message, {name: value for name, value in facts.items() if value})

    def _holder_pid(self, job_id: str) -> str:
        seen = tickets.read(self._ticket.folder) if self._ticket is not None else ()
        return next((str(one.pid) for one in seen if one.job_id == job_id and one.pid), "")

    def _mark(self) -> str:
        try:
            found = read_record(os.path.join(self._record_dir, names.LEFT), Decision)
        except Unreadable:
            found = None
        return found.decision if found is not None else ""

    def _write(self, decision: str, reason: str) -> str:
        # A mark that stands needs no room on the disk: each attempt of a run comes by here.
        stands = self._mark()
        if stands:
            return stands
        place_once(os.path.join(self._record_dir, names.LEFT), Decision(decision, reason, "keeper", time.time()))
        return self._mark()

    def _say(self, said: InLine) -> None:
        """Keep it for reports; ages alone are no news."""
        before = self._said
        if before is not None and lean.replace(before, holder_age_s=said.holder_age_s) == said:
            return
        self._said = said
        try:
            write_record(os.path.join(self._job_dir, names.LINE), said)
        except OSError:
            # A courtesy: a full disk hides the place in line, it does not lose it.
            pass
