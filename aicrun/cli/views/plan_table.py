"""The table of cards (or machines) of a plan: grouped by verdict, folded, capped at 18 lines.

It must not decide or judge: verdicts come from the plan, here they are sorted, folded and laid out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from aicrun.cli.views.plan_page import Page, wrapped
from aicrun.plan.model import Candidate, CardOn, Fleet, RunPlan, Sign, Verdict
from aicrun.plan.nearest import index_ranges, later_spare
from aicrun.plan.words import card_model, cells, count, counted, cut, gib, joined

LINES_MOST = 18
ROWS_MOST = {"fits": 3, "now": 4, "unknown": 1, "lasting": 4}
NAME_LEAST, MODEL_LEAST = 10, 11
# A list of machines gives way to a count past this column, and later where there is room.
NAMES_MOST, NAMES_MOST_WIDE = 24, 46
REASON_LEAST = 23
MODEL_NARROW = 9
WIDE = 120
# Of the reasons that hold now, those that explain the others stand alone.
_EXPLAINS = ("held", "taken_by_plan")
_STRONGEST = ("held", "taken_by_plan", "foreign", "utilization", "compute_mode")
_NOT_ASKED = frozenset(("down", "excepted"))
_NO_ANSWER = frozenset(("silent", "unsupported"))
_APART = _NOT_ASKED | _NO_ANSWER | {"twin"}


@dataclass(frozen=True, slots=True)
class Row:
    """One printed row: the places it stands for, and its columns.

    `reasons` are forms of one text, longest first; `brief` are forms that leave reasons out, for a capped table.
    """

    places: tuple[Candidate, ...]
    name: str
    model: str
    figure: str
    reasons: tuple[str, ...]
    is_chosen: bool
    verdict: Verdict
    brief: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Looks:
    """How the rows of one table are laid out."""

    name: int
    model: int
    figure: int
    indent: int
    wraps: bool


class Table:
    """The verdicts of one run, sorted into groups."""

    def __init__(self, page: Page, item: RunPlan, fleet: Fleet) -> None:
        self.page, self.item, self.fleet = page, item, fleet
        self.views = {view.machine.name: view for view in fleet.machines}
        self.order = {view.machine.name: place for place, view in enumerate(fleet.machines)}
        self.chosen = frozenset(item.chosen)
        self.groups: dict[str, list[Verdict]] = {"fits": [], "now": [], "unknown": [], "lasting": []}
        # Machines that are no rows, by the reason for it.
        self.silent: dict[str, list[str]] = {}
        self.not_asked: dict[str, list[str]] = {}
        self.twins: dict[str, list[str]] = {}
        for verdict in item.verdicts:
            self._sort_in(verdict)
        self.groups["fits"].sort(key=lambda one: (one.candidate not in self.chosen, *_fit_key(one)))
        self.groups["now"].sort(key=lambda one: (one.candidate not in self.chosen, _later_key(one)))
        self.groups["lasting"].sort(key=lambda one: (-(one.room_mib or 0) // 512, one.need_mib or 0))
        self.is_cards = item.spec.machine.gpu is not None
        every = [one for group in self.groups.values() for one in group]
        self.total = len([one for one in every if isinstance(one.candidate, CardOn) or not self.is_cards])

    def add(self, verbose: bool) -> None:
        """Lay the table out: whole where it is short, else folded further and capped."""
        rows = {name: self._rows(group, fold=not verbose) for name, group in self.groups.items()}
        looks = self._looks(rows, wraps=True)
        if not verbose and self._lines(rows, looks) > LINES_MOST:
            rows = {name: self._folded_by_kind(group) for name, group in rows.items()}
            if self.page.width < WIDE:
                rows = {name: [_narrow(row) for row in group] for name, group in rows.items()}
            looks = self._looks({name: group[: ROWS_MOST[name]] for name, group in rows.items()}, wraps=False)
        for name, group in rows.items():
            most = len(group) if verbose or looks.wraps else ROWS_MOST[name]
            self._add_group(name, group[:most], looks)
            rest = sum(len(row.places) for row in group[most:])
            if rest:
                noun = "card" if self.is_cards else "machine"
                self.page.add(("  ", ""), (f"{self.page.mark} {counted(rest, noun)} more", "dim"))
        if self.silent:
            self.page.sentence("no answer: " + _with_reasons(self.silent), "yellow", 2)
        if self.not_asked:
            self.page.sentence("not asked: " + _with_reasons(self.not_asked), "dim", 2)
        if self.twins:
            self.page.sentence("counted once: " + _with_reasons(self.twins), "yellow", 2)

    def is_folded(self) -> bool:
        """Whether some card has no row of its own."""
        return any(len(row.places) > 1 for group in self.groups.values() for row in self._rows(group, fold=True))

    def _sort_in(self, verdict: Verdict) -> None:
        tokens = {reason.token for reason in verdict.rejections}
        words = "; ".join(reason.words for reason in verdict.rejections if reason.token in _APART)
        if "twin" in tokens:
            self.twins.setdefault(words, []).append(verdict.candidate.machine)
        elif tokens & _NOT_ASKED:
            self.not_asked.setdefault(words, []).append(verdict.candidate.machine)
        elif tokens & _NO_ANSWER:
            self.silent.setdefault(words, []).append(verdict.candidate.machine)
        elif verdict.unknown:
            self.groups["unknown"].append(verdict)
        elif verdict.fits:
            self.groups["fits"].append(verdict)
        else:
            self.groups["lasting" if verdict.lasting else "now"].append(verdict)

    def _rows(self, group: list[Verdict], fold: bool) -> list[Row]:
        folded: dict[object, list[Verdict]] = {}
        for verdict in group:
            alone = not fold or verdict.candidate in self.chosen
            size = round((verdict.total_mib or 0) / 1024, 1)
            key = verdict.candidate if alone else (self._model(verdict), size, self._reasons(verdict))
            folded.setdefault(key, []).append(verdict)
        return [self._row(verdicts) for verdicts in folded.values()]

    def _row(self, verdicts: list[Verdict], reasons: tuple[str, ...] = ()) -> Row:
        best = max(verdicts, key=lambda one: one.free_mib or 0)
        places = tuple(one.candidate for one in verdicts)
        is_chosen = best.candidate in self.chosen
        return Row(
            places,
            self._names(places),
            self._model(best),
            self._figure(best),
            self._with_gap(verdicts, reasons or self._reasons(best)),
            is_chosen,
            best,
            () if reasons else self._brief(best),
        )

    def _brief(self, verdict: Verdict) -> tuple[str, ...]:
        """The strongest reason alone, and its first clause."""
        first = self._reasons(verdict)[-1].partition("; ")[0]
        return (first, first.partition(", ")[0]) if verdict.rejections else ()

    def _folded_by_kind(self, rows: list[Row]) -> list[Row]:
        """Rows of one model and machine that different runs hold become one: `8 runs of 3 accounts`."""
        folded: dict[object, list[Row]] = {}
        for place, row in enumerate(rows):
            held = [reason for reason in row.verdict.rejections if reason.token == _EXPLAINS[0]]
            is_held = bool(held) and not row.verdict.lasting and not row.is_chosen
            machines = {candidate.machine for candidate in row.places}
            folded.setdefault((row.model, *sorted(machines)) if is_held else place, []).append(row)
        return [group[0] if len(group) == 1 else self._many_held(group) for group in folded.values()]

    def _many_held(self, group: list[Row]) -> Row:
        best = max(group, key=lambda row: row.verdict.free_mib or 0)
        places = tuple(place for row in group for place in row.places)
        holders = [row.verdict.rejections for row in group]
        words = [reason.words for reasons in holders for reason in reasons if reason.token == _EXPLAINS[0]]
        accounts = sorted({text.rpartition(" of ")[2].partition(",")[0] for text in words})
        whose = accounts[0] if len(accounts) == 1 else counted(len(accounts), "account")
        reasons = (f"{counted(len(places), 'run')} of {whose}",)
        return Row(places, self._names(places), best.model, best.figure, reasons, False, best.verdict)

    def _names(self, places: tuple[Candidate, ...]) -> str:
        by_machine: dict[str, list[int]] = {}
        for place in places:
            by_machine.setdefault(place.machine, []).extend([place.index] if isinstance(place, CardOn) else [])
        shown = [f"{name}[{index_ranges(found)}]" if found else name for name, found in by_machine.items()]
        most = NAMES_MOST if self.page.width < WIDE else NAMES_MOST_WIDE
        text = ", ".join(shown)
        if cells(text) <= most or len(by_machine) == 1:
            return cut(text, most, self.page.mark)
        cards = len([place for place in places if isinstance(place, CardOn)])
        tail = f", {counted(cards, 'card')}" if cards else ""
        return counted(len(by_machine), "machine") + tail

    def _model(self, verdict: Verdict) -> str:
        if isinstance(verdict.candidate, CardOn):
            return card_model(verdict.candidate.model)
        reading = self.views[verdict.candidate.machine].reading
        if self.is_cards or reading is None:
            return "no card" if not verdict.unknown else "-"
        free = "" if reading.cpus_free is None else f"{reading.cpus_free:.1f} of "
        return f"{free}{counted(reading.cpus, 'core')}"

    def _figure(self, verdict: Verdict) -> str:
        free, total = verdict.free_mib, verdict.total_mib
        if not self.is_cards:
            reading = self.views[verdict.candidate.machine].reading
            free, total = (reading.memory_free_mib, reading.memory_mib) if reading is not None else (None, None)
        if total is None:
            return "-"
        if free is None:
            return gib(total) if not self.is_cards else "-"
        return f"{free / 1024:.1f} of {total / 1024:.1f} GiB"

    def _reasons(self, verdict: Verdict) -> tuple[str, ...]:
        """The text of the last column, in forms from the longest to the shortest."""
        if verdict.unknown:
            return (verdict.unknown,)
        if verdict.fits:
            spare = f"{gib(verdict.spare_mib)} spare" if verdict.spare_mib is not None else ""
            chosen = "chosen" if verdict.candidate in self.chosen else ""
            first = ", ".join(part for part in (chosen, spare) if part)
            long = "; ".join(part for part in (first, *verdict.remarks) if part)
            return (long, long.replace("display, so last", "display"))
        reasons = [reason for reason in verdict.rejections if reason.lasting == verdict.lasting]
        if not verdict.lasting and any(reason.token in _EXPLAINS for reason in reasons):
            # A drain stays when the holder is gone.
            reasons = [reason for reason in reasons if reason.token in (*_EXPLAINS, "drained")]
        reasons.sort(key=lambda one: _STRONGEST.index(one.token) if one.token in _STRONGEST else len(_STRONGEST))
        long = "; ".join(reason.words for reason in reasons)
        return (long, long.replace("held by run ", "held by "), long.replace("held by run ", ""))

    def _nearest_lasting(self) -> Verdict | None:
        lasting = self.groups["lasting"]
        return lasting[0] if lasting and self.item.sign is Sign.REFUSE and not self.groups["now"] else None

    def _with_gap(self, verdicts: list[Verdict], reasons: tuple[str, ...]) -> tuple[str, ...]:
        """How much too small the nearest card is, said once."""
        verdict = self._nearest_lasting()
        if verdict is None or verdict not in verdicts:
            return reasons
        gap = self._gap(verdict)
        return (*(form + gap for form in reasons), *reasons)

    def _gap(self, verdict: Verdict) -> str:
        if verdict.need_mib is None or verdict.total_mib is None or verdict.need_mib <= verdict.total_mib:
            return ""
        return f", {gib(verdict.need_mib - verdict.total_mib)} too small"

    def _looks(self, rows: dict[str, list[Row]], wraps: bool) -> Looks:
        every = [row for group in rows.values() for row in group]
        name = max([NAME_LEAST, *(cells(row.name) for row in every)])
        figure = max([0, *(cells(row.figure) for row in every)])
        model = max([0, *(cells(row.model) for row in every)])
        if self.page.width - (name + max(model, MODEL_LEAST) + figure + 8) >= REASON_LEAST:
            model = max(model, MODEL_LEAST)
        return Looks(name, model, figure, name + model + figure + 8, wraps)

    def _lines(self, rows: dict[str, list[Row]], looks: Looks) -> int:
        shown = [row for group in rows.values() for row in group]
        heads = len([group for group in rows.values() if group])
        heads += bool(self.silent) + bool(self.not_asked) + bool(self.twins)
        return heads + sum(len(self._reason_lines(row, looks)) for row in shown)

    def _reason_lines(self, row: Row, looks: Looks) -> list[str]:
        room = self.page.width - looks.indent
        forms = row.reasons if looks.wraps else (*row.reasons, *row.brief)
        for form in forms:
            if cells(form) <= room:
                return [form]
        if not looks.wraps:
            return [cut(forms[-1], room, self.page.mark)]
        return list(self._wrapped(row.reasons[min(1, len(row.reasons) - 1)], room))

    def _wrapped(self, text: str, room: int) -> Iterator[str]:
        """Broken behind `;` where that is enough, so that each reason has its own line."""
        line = ""
        for part in text.split("; "):
            tried = f"{line}; {part}" if line else part
            if line and cells(tried) > room:
                yield from wrapped(line + ";", room, room)
                line = part
            else:
                line = tried
        yield from wrapped(line, room, room)

    def _add_group(self, name: str, rows: list[Row], looks: Looks) -> None:
        verdicts = self.groups[name]
        if not verdicts and not (name == "fits" and self.total):
            return
        word, style = {
            "fits": ("fits", "green" if verdicts else ""),
            "now": ("rejected now", "yellow"),
            "unknown": ("unknown", "yellow"),
            "lasting": ("rejected, lasting", "red" if self._all_lasting() else "dim"),
        }[name]
        # A card's figure is its memory, as asked for above; that of a machine is told once.
        figures = " (figures: idle cores, free memory)" if name == "fits" and not self.is_cards else ""
        counts = f": {self._counted(verdicts)}{figures}"
        self.page.add(("  ", ""), (word, style), (counts, "dim" if style == "dim" else ""))
        dim = "dim" if name == "lasting" else ""
        for row in rows:
            self._add_row(row, looks, dim)

    def _all_lasting(self) -> bool:
        return self.item.sign is Sign.REFUSE and len(self.groups["lasting"]) == sum(map(len, self.groups.values()))

    def _counted(self, verdicts: list[Verdict]) -> str:
        if not self.is_cards:
            return f"{count(len(verdicts))} of {counted(self.total, 'machine')}"
        cards = len([one for one in verdicts if isinstance(one.candidate, CardOn)])
        bare = len(verdicts) - cards
        told = [f"{count(cards)} of {counted(self.total, 'card')}"] if cards or not bare else []
        told += [f"{counted(bare, 'machine')} without a card"] if bare and told else []
        told += [counted(bare, "machine")] if bare and not cards else []
        return ", ".join(told)

    def _add_row(self, row: Row, looks: Looks, style: str) -> None:
        lines = self._reason_lines(row, looks)
        sign = self.page.sign(self.item.sign) if row.is_chosen else ("  ", "")
        style = sign[1] if row.is_chosen and self.item.sign is not Sign.REFUSE else style
        name = row.name + " " * (looks.name - cells(row.name))
        pad = " " * (looks.model - cells(row.model))
        model = row.model + pad if self.is_cards else pad + row.model
        figure = " " * (looks.figure - cells(row.figure)) + row.figure
        self.page.add(
            sign, (name, style or "bold" if row.is_chosen else style), (f"  {model}  {figure}  {lines[0]}", style)
        )
        for line in lines[1:]:
            self.page.add((" " * looks.indent, ""), (line, style))


def _narrow(row: Row) -> Row:
    """For a table without room: a long model goes without its family's name."""
    return replace(row, model=row.model.removeprefix("RTX ")) if cells(row.model) > MODEL_NARROW else row


def _fit_key(verdict: Verdict) -> tuple[bool, int]:
    is_display = any(remark.startswith("display, ") for remark in verdict.remarks)
    return is_display, verdict.spare_mib or 0


def _later_key(verdict: Verdict) -> int:
    spare = later_spare(verdict)
    return spare if spare is not None else 1 << 40


def _with_reasons(machines: dict[str, list[str]]) -> str:
    """`home and attic (down: true in machines.yaml), lab (left out by --except)`."""
    return ", ".join(f"{joined(names)} ({words})" for words, names in machines.items())
