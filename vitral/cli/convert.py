"""`vitral convert`: the same classifier in another library's files."""

from pathlib import Path

from vitral.cli.options import Positive, Settings
from vitral.cli.process import importing


def convert(
    classifier: str,
    target: Path,
    /,
    *,
    format: str,  # shadows the built-in: other tools use this name
    image_size: Positive | None = None,
    overrides: Settings = (),
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write a classifier in another library's format, or read one from it.

    Args:
        classifier: a weights file of any known library, published weights by name, a classifier or run folder, or a Hub id.
        target: a folder for vitral and transformers; a file for original, big_vision and timm.
        format: vitral, original, big_vision, timm or transformers.
        image_size: pixels; the position embedding is resized to it.
        overrides: KEY=VALUE of the architecture that a weights file does not tell, such as num_heads=8; may be repeated.
        overwrite: replace what is at the target; never the source, nor a folder that holds anything else.
        json: print JSON for programs.
    """
    with importing():
        from vitral.classifier.convert import convert as write
        from vitral.classifier.convert import settings
        from vitral.cli.console import ConsoleListener, print_json, print_lines

    with ConsoleListener() as listener:
        written = write(
            classifier,
            target,
            format=format,
            image_size=image_size,
            architecture=settings(overrides),
            overwrite=overwrite,
            listener=listener,
        )
    if json:
        print_json({"path": str(written.path), "open": written.how, "notes": list(written.notes)})
        return
    notes = (f"Note: {note}" for note in written.notes)
    print_lines(f"Wrote {written.path}", f"Open it with  {written.how}", *notes)
