"""`vitral push`: a classifier to the Hugging Face Hub."""

from typing import Annotated

from cyclopts import Parameter

from vitral.classifier.push import push as send
from vitral.cli.console import print_line


def push(
    source: str,
    name: str,
    /,
    *,
    format: str = "vitral",  # what every tool calls it
    private: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Put a classifier on the Hugging Face Hub; 'hf auth login' first.

    Example: vitral push runs/photos my-name/my-photos

    Args:
        source: a classifier or run folder, a weights file, or a Hub id.
        name: the repository, owner/name; made if it is not there.
        format: vitral, or transformers for a repository that it opens.
        private: make a new repository private.
    """
    print_line(send(source, name, format=format, private=private))
    print_line(f"Load it with  vitral.load('hf:{name.removeprefix('hf:')}')")
