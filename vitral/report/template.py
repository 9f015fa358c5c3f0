"""Pages made from templates: every user text escaped, the look of all of them in one style sheet."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vitral.advice import printable
from vitral.explanation.drawing import colour_scale
from vitral.tasks.shown import percent


def mark(kind: str) -> bytes:
    """Return the mark of a page of a kind ("run", "scores", "check"), by which a page of the same kind may replace it."""
    return f'<meta name="generator" content="Vitral {kind}">'.encode()


def render_page(template: str, kind: str, **values: object) -> str:
    """Return a page of a kind as HTML, made from a template and its values; what is unsafe in a terminal is escaped."""
    page = _environment().get_template(template).render(kind=kind, style=page_style(), **values)
    return printable(page, lines=True)


def page_style() -> Markup:
    """Return the style sheet of every page."""
    return as_written("report.css")


@cache
def as_written(*names: str) -> Markup:
    """Return files beside the templates, one after the other, as they are."""
    environment = _environment()
    assert environment.loader is not None
    return Markup("".join(environment.loader.get_source(environment, name)[0] for name in names))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vitral.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = percent
    environment.filters["count"] = "{:,}".format
    return environment


def scale() -> str:
    """Return the colours of the maps as the stops of a CSS gradient."""
    return ", ".join(f"rgb({red} {green} {blue})" for red, green, blue in colour_scale()[::15].tolist())
