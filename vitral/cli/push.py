"""`vitral push`: a classifier to the Hugging Face Hub."""

from typing import Annotated

from cyclopts import Parameter

from vitral.classifier.push import push as send
from vitral.cli.console import print_json, print_line


def push(
    source: str,
    name: str,
    /,
    *,
    format: str = "vitral",  # what every tool calls it
    private: Annotated[bool, Parameter(negative="")] = False,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Put a classifier on the Hugging Face Hub.

    Args:
        source: a classifier or run folder, a weights file, or a Hub id.
        name: the repository, owner/name; made if it is not there.
        format: vitral, or transformers for a repository that it opens.
        private: make a new repository private.
        json: print JSON for a program.
    """
    address = send(source, name, format=format, private=private)
    how = f"vitral.load('hf:{name.removeprefix('hf:')}')"
    if json:
        print_json({"address": address, "open": how})
        return
    print_line(address)
    print_line(f"Open it with  {how}")
