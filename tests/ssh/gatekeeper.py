"""What a test's sshd runs in place of every command: the same command, with somebody who reads along on its pipes.

It tells the test (`trap.py`, by a port of loopback or the path of a socket) of each request and each answer of the
agent before it passes them on, and does with it what the test says: `go`, `withhold`, or `hold SECONDS`. It must not
change a byte of what passes. Standard library only; started as `python3 -I -S gatekeeper.py PORT_OR_PATH`.
"""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading

PIECE = 65536
AGENT = "import sys;s=sys.stdin.buffer"


def reached(where):
    """A connection to the test: from another network only a path leads to it."""
    if where.isdigit():
        return socket.create_connection(("127.0.0.1", int(where)))
    way = socket.socket(socket.AF_UNIX)
    way.connect(where)
    return way


def asked(place, side):
    """What the test wants done with what came to this place; `go` when nobody is there to say."""
    try:
        with reached(sys.argv[1]) as way:
            way.sendall(f"{place} {side}\n".encode())
            return way.makefile("rb").readline().decode().strip() or "go"
    except OSError:
        return "go"


class Input:
    """The client's bytes, as they come, and what has been passed on of them."""

    def __init__(self, target):
        self.target = target

    def exactly(self, count):
        """That many bytes, or fewer at the end of input."""
        found = b""
        while len(found) < count:
            part = os.read(0, min(PIECE, count - len(found)))
            if not part:
                break
            found += part
        return found

    def line(self):
        """One line, byte by byte: what follows is not for us to hold."""
        found = b""
        while not found.endswith(b"\n"):
            part = os.read(0, 1)
            if not part:
                break
            found += part
        return found

    def passed(self, data):
        """Hand it on to the agent."""
        view = memoryview(data)
        while view:
            view = view[os.write(self.target, view) :]


def judged(place, side, pass_on):
    """Let the test say what becomes of a message; False when nothing may follow it any more."""
    word = asked(place, side)
    if word == "withhold":
        return False
    if word.startswith("hold "):
        threading.Event().wait(float(word.split()[1]))
    pass_on()
    return True


def requests(source, places, know_marker):
    """Read the opening and each request; returns at the end of input, or when the rest is withheld."""
    head = source.line()
    size = source.line()
    script = source.exactly(int(size or b"0"))
    told = json.loads(re.search(rb"ASKED = json.loads\('(.*)'\)", script).group(1))
    know_marker(told["marker"].encode())
    archive = source.exactly(told["archive_bytes"] // 2)
    place = "push" if told["archive_bytes"] else "bootstrap"
    places.append(place)
    opening = head + size + script + archive
    if not judged(place, "request", lambda: source.passed(opening)):
        return
    source.passed(source.exactly(told["archive_bytes"] - len(archive)))
    while True:
        head = source.line()
        if not head:
            asked("close", "request")
            return
        sizes = [int(word) for word in head.split()]
        body = source.exactly(sizes[0])
        call = json.loads(body).get("call", "?") if len(body) == sizes[0] else "?"
        payload = source.exactly(sizes[1])
        if call == "hello":
            source.passed(head + body + payload)
            continue
        places.append(call)
        if not judged(call, "request", lambda whole=head + body + payload: source.passed(whole)):
            return


def answers(child, places, marker):
    """Pass on what the agent says, each answer after the test was told of it."""
    while True:
        line = child.stdout.readline()
        if not line:
            return
        found = re.search(rb"^" + (marker() or b"-") + rb" (\d+) (\d+)\n\Z", line)
        whole = line + (child.stdout.read(int(found.group(1)) + int(found.group(2))) if found else b"")

        def pass_on(whole=whole):
            sys.stdout.buffer.write(whole)
            sys.stdout.buffer.flush()

        if not found:
            pass_on()
        elif not judged(places.pop(0) if places else "?", "answer", pass_on):
            return


def main():
    """Run the command that was asked for; its exit code."""
    command = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    if AGENT not in command:
        os.execv("/bin/sh", ["sh", "-c", command] if command else ["sh"])
    child = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    places, marker = [], []

    def speak():
        with contextlib.suppress(OSError, ValueError, AttributeError):
            requests(Input(child.stdin.fileno()), places, marker.append)
            # What is withheld, or at its end: the agent hears the end when the client's side has ended.
            while os.read(0, PIECE):
                pass
        with contextlib.suppress(OSError):
            child.stdin.close()

    threading.Thread(target=speak, daemon=True).start()
    with contextlib.suppress(OSError):
        answers(child, places, lambda: marker[0] if marker else b"")
    child.stdout.close()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main())
