"""The command line in a process that notes every connection that it makes: a server makes none."""

import json
import os
import sys

from tests.forks import command

CALLS = ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname")
OWN = "127.0.0.1"  # the address to listen at, which is looked up


def note(event: str, values: tuple[object, ...]) -> None:
    """Write a line of JSON about a call to elsewhere."""
    if event in CALLS and values[0] != OWN:
        os.write(2, f"{json.dumps({'calls': event, 'to': [repr(value)[:80] for value in values]})}\n".encode())


def audited(arguments: tuple[str, ...]) -> int:
    """Be the command line."""
    sys.addaudithook(note)
    return command(arguments)
