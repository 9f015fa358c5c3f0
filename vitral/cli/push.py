"""`vitral push`: a classifier to the Hugging Face Hub."""

from vitral.cli.process import importing


def push(
    classifier: str,
    name: str,
    /,
    *,
    format: str = "vitral",  # shadows the built-in: other tools use this name
    private: bool = False,
    space: bool = False,
    json: bool = False,
) -> None:
    """Upload a classifier to the Hugging Face Hub.

    Args:
        classifier: a classifier or run folder, a weights file or name, or a Hub id.
        name: the repository, owner/name; created if it does not exist.
        format: vitral, or transformers for a repository that transformers can open.
        private: make a new repository private.
        space: make it a Space: a server of the classifier, which the Hub builds and runs.
        json: print JSON for programs.
    """
    with importing():
        from vitral.classifier.convert import push as send
        from vitral.cli.console import ConsoleListener, print_json, print_lines

    with ConsoleListener() as listener:
        address = send(classifier, name, format=format, private=private, space=space, listener=listener)
    how = address if space else f"vitral.load('hf:{name.removeprefix('hf:')}')"
    if json:
        print_json({"address": address, "open": how})
        return
    print_lines(
        address, "The Hub builds it now; it answers there in some minutes." if space else f"Open it with  {how}"
    )
