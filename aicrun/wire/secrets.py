"""Which values can be secrets: the one rule, asked by a client before anything is sent and by a host before it starts.

It must not hold a value, nor put one into its answer.
"""

import os

# A shorter text turns up everywhere: hiding it would spoil a log, and tell it by where it is hidden.
LEAST_CHARACTERS = 8
# A variable of an environment may have 128 KiB with its name; the largest tokens in use, keys and accounts, have 4.
MOST_BYTES = 32 * 1024


def fault(value: str) -> str:
    """What is wrong with it, as the end of a sentence about the secret; empty when nothing is."""
    if len(value) < LEAST_CHARACTERS:
        return "has fewer than %d characters: so short a value cannot be hidden in a log" % LEAST_CHARACTERS
    if "\0" in value:
        return "holds a NUL character: no variable can"
    try:
        size = len(os.fsencode(value))
    except UnicodeEncodeError:
        return "holds a character that no variable can"
    return "has more than %d bytes" % MOST_BYTES if size > MOST_BYTES else ""
