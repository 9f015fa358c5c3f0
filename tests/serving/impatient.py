"""The command line, with less time for headers and bodies to come: what takes half a minute is proved in seconds."""

from tests.serving.audited import audited
from vitral.serving import server, visit

SECONDS = 2.0


def impatient(arguments: tuple[str, ...]) -> int:
    """Be the command line."""
    vars(server)["HEADER_SECONDS"] = vars(visit)["BODY_SECONDS"] = SECONDS
    return audited(arguments)
