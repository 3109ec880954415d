"""One finding of `doctor`, as the wire carries it. It must not find anything."""

from typing import Dict

OK, NOTE, BAD, UNKNOWN = "ok", "note", "bad", "?"


def row(word: str, topic: str, text: str, way: str = "") -> Dict[str, str]:
    """`word` is one of the four; `text` says what it means; `way` is the command to type next, for all but `ok`."""
    return {"word": word, "topic": topic, "text": text, "help": way}


def counted(number: int, noun: str) -> str:
    """`1 card`, `2 cards`."""
    return "%d %s" % (number, noun if number == 1 else noun + "s")
