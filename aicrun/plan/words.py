"""Numbers, sizes, durations and names as every screen prints them (units always, two at most).

Pure text: it must not know where a figure comes from or how wide a terminal is. Views of `cli` use it too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from aicrun.spec.model import Reached
from aicrun.wire.facts import Cards, Drain

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
# Whole ANSI sequences (CSI, OSC, two-character ones) go first, so that their tails do not stay as text.
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_GAPS = str.maketrans("\t\n\r\v\f", "     ")
_VENDORS = ("nvidia ", "geforce ", "tesla ", "quadro ")
NAME_CELLS = 24


def count(number: int) -> str:
    """`1,234`: a comma from a thousand on."""
    return f"{number:,}"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `11th`: a place in line, from 1."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 card`, `2 cards`, `2 copies`."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def mib(amount: int) -> str:
    """`20,480 MiB`."""
    return f"{count(amount)} MiB"


def gib(amount: int) -> str:
    """An amount in MiB as people compare it: GiB with one decimal, MiB below one GiB."""
    return mib(amount) if abs(amount) < 1024 else f"{amount / 1024:,.1f} GiB"


def asked(amount: int) -> str:
    """An amount in MiB as somebody typed it: whole GiB without decimals."""
    return f"{count(amount // 1024)} GiB" if amount and amount % 1024 == 0 else gib(amount)


def apart(first: int, second: int) -> tuple[str, str]:
    """Two different amounts in MiB for one sentence: both in MiB when they would print alike."""
    if first != second and gib(first) == gib(second):
        return mib(first), mib(second)
    return gib(first), gib(second)


def size(amount: int) -> str:
    """Bytes with one decimal from MiB on: `512 B`, `212 KiB`, `1.2 MiB`, `16.1 GiB`."""
    power = 0
    while power < len(_SIZES) - 1 and abs(amount) >= 1024 ** (power + 1):
        power += 1
    if power < 2:
        return f"{count(amount // 1024**power)} {_SIZES[power]}"
    return f"{amount / 1024**power:,.1f} {_SIZES[power]}"


# A number of more digits than this one's is compared in a larger unit.
_READ_AT_ONCE = 10_000


def asked_size(amount: int) -> str:
    """Bytes as somebody typed them: whole units without decimals; as `size` where no number so large is read."""
    for power in range(len(_SIZES) - 1, 0, -1):
        if amount and amount % 1024**power == 0 and amount // 1024**power < _READ_AT_ONCE:
            return f"{count(amount // 1024**power)} {_SIZES[power]}"
    return size(amount)


def duration(seconds: float) -> str:
    """`43s`, `1m 04s`, `12m`, `3h 08m`, `3d 4h`: two units at most, seconds only below ten minutes."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes}m {rest:02d}s" if rest and minutes < 10 else f"{minutes}m"
    if whole < 86400:
        hours, rest = divmod(whole // 60, 60)
        return f"{hours}h {rest:02d}m" if rest else f"{hours}h"
    days, rest = divmod(whole // 3600, 24)
    return f"{count(days)}d {rest}h" if rest else f"{count(days)}d"


def typed(seconds: int) -> str:
    """A duration as somebody typed it: `12h`, `24h`, `90s`, `3d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % length == 0 and seconds // length >= (2 if unit == "d" else 1):
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def took(seconds: float) -> str:
    """A measured duration: with tenths below ten seconds."""
    return f"{seconds:.1f}s" if 0 <= seconds < 9.95 else duration(seconds)


def ago(seconds: float) -> str:
    """An age in its largest unit: `12s ago`, `14m ago`, `9h ago`, `3d ago`."""
    return f"{duration(seconds).split(' ')[0]} ago"


def drained(drain: Drain) -> str:
    """`drained by root 2h ago: new power supply`; who and why are text of others."""
    why = f": {cut(harmless(drain.why), 60)}" if drain.why else ""
    return f"drained by {name(drain.account)} {ago(drain.age_s)}{why}"


def no_answer(why: str, reached: Reached | None) -> str:
    """Why a machine gave no answer, with the address that was tried where that is known."""
    told = harmless(why) or "no answer"
    return told if reached is None or reached.address in told else f"{told} ({harmless(reached.address)})"


def way_there(reached: Reached) -> str:
    """`ana@203.0.113.7:2222 by OpenSSH (proxycommand is set)`."""
    return harmless(f"{reached.address} by {carried_by(reached)}")


def carried_by(reached: Reached) -> str:
    """`OpenSSH (proxycommand is set)`."""
    return reached.carrier + (f" ({reached.why})" if reached.why else "")


def key_lines(reached: Reached) -> tuple[str, ...]:
    """The host key it showed; where it is only known to be one of several, each in a line of its own."""
    first, *others = reached.host_keys or ("host key not known",)
    return (harmless(first), *(f"or {harmless(key)}" for key in others))


def reach_of_names(machines: int, digest: str) -> str:
    """How far the name of a run reaches, in one line; `digest` is the inventory's, empty without one."""
    if not digest:
        return "unique on this machine, for this account"
    return f"unique over the {counted(machines, 'machine')} and accounts of this list ({short(digest)})"


def joined(items: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def some(items: Sequence[str], most: int = 8) -> str:
    """As `joined`; of more than `most` the first three and how many there are besides."""
    return joined(items) if len(items) <= most else f"{', '.join(items[:3])} and {count(len(items) - 3)} more"


def harmless(text: str) -> str:
    """Text of a host or a spec as one line of printable characters: control, bidi and private characters are gone.

    Lines and columns become spaces, so that no word grows into its neighbour.
    """
    if text.isascii() and text.isprintable():
        # Most texts are such, and letter by letter a table of many machines took a large part of the whole survey.
        return text
    shown = _SEQUENCES.sub("", text).translate(_GAPS)
    return "".join(char for char in shown if char == " " or unicodedata.category(char)[0] not in "CZ")


def cells(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_cells(char) for char in text)


def cut(text: str, width: int, mark: str = "…") -> str:
    """`text` in at most `width` columns, the cut told by `mark`."""
    if cells(text) <= width:
        return text
    room = width - len(mark)
    kept = ""
    for char in text:
        room -= _cells(char)
        if room < 0:
            break
        kept += char
    return kept.rstrip() + mark


def name(text: str, mark: str = "…") -> str:
    """A name that a host or another account made: printable, at most 24 columns."""
    return cut(harmless(text), NAME_CELLS, mark)


def card_model(text: str) -> str:
    """A card's model without its vendor: `NVIDIA GeForce RTX 4090` is `RTX 4090`."""
    shown = harmless(text)
    while shown.lower().startswith(_VENDORS):
        shown = shown.split(" ", 1)[1]
    return cut(shown, NAME_CELLS)


def models(found: Cards) -> str:
    """`2 x RTX 3090 and RTX A6000`, or why there are none."""
    if found.state == "unknown":
        return "cards that could not be read"
    each = [card_model(card.model) for card in found.cards]
    told = [f"{each.count(one)} x {one}" if each.count(one) > 1 else one for one in dict.fromkeys(each)]
    return joined(told) or "no card"


def short(hexadecimal: str) -> str:
    """The first eight digits of a hash or id."""
    return hexadecimal[:8]


def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
