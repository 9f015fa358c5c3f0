"""Build the API documentation from the docstrings into docs/api."""

from pathlib import Path

import pdoc
import pdoc.render

TARGET = Path(__file__).parent / "api"


def main() -> None:
    """Write one page a module, and an index."""
    pdoc.render.configure(docformat="google", footer_text="Vitral")
    pdoc.pdoc("vitral", output_directory=TARGET)
    print(f"{len(list(TARGET.rglob('*.html')))} pages in {TARGET}")


if __name__ == "__main__":
    main()
