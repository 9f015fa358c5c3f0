"""Build the API documentation from the docstrings into docs/api."""

import pkgutil
from pathlib import Path

import pdoc
import pdoc.render

import vitral

TARGET = Path(__file__).parent / "api"


def main() -> None:
    """Write one page a module, and an index."""
    for name in vitral.__all__:  # found only when asked for; pdoc reads what is there
        setattr(vitral, name, getattr(vitral, name))
    modules = ["vitral", *(module.name for module in pkgutil.iter_modules(vitral.__path__, "vitral."))]
    pdoc.render.configure(docformat="google", footer_text="Vitral")
    pdoc.pdoc(*(name for name in modules if name != "vitral.__main__"), output_directory=TARGET)
    print(f"{len(list(TARGET.rglob('*.html')))} pages in {TARGET}")


if __name__ == "__main__":
    main()
