"""The page at / and the owner's at /review: files with nothing of a classifier in them, which therefore need no token.

What they show they ask this server for, with the token that a person has given them.
"""

from functools import cache

from fastapi import APIRouter, Response

from vitral.report.template import as_written, page_style, render_page, scale

# Its own scripts and styles alone; data are fetched from here alone. Photos are shown from memory.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob: data:; connect-src 'self'; form-action 'none'; "
    "base-uri 'none'"
)
UNFRAMED = "; frame-ancestors 'none'"  # a click there writes; the other page may stand in another, as on a Space
STYLE = "/page/style.css"
SCRIPTS = {
    "/page/classify.js": ("elements.js", "browser_served.js", "browser.js", "browser_regions.js"),
    "/page/review.js": ("elements.js", "browser_served.js", "review.js"),
}
PAGES = {"/": ("browser.html", "Classifier"), "/review": ("review.html", "Photos to name")}
PATHS = (*PAGES, *SCRIPTS, STYLE)

router = APIRouter(include_in_schema=False)


@cache
def content(path: str) -> tuple[str, str]:
    """Return the media type and the text of one of `PATHS`."""
    if path in SCRIPTS:
        return "text/javascript", str(as_written(*SCRIPTS[path]))
    if path == STYLE:
        return "text/css", str(page_style() + as_written("browser.css"))
    template, title = PAGES[path]
    return "text/html", render_page(template, "served page", title=title, served=True, scale=scale())


def _answering(path: str) -> None:
    async def page() -> Response:
        kind, text = content(path)
        policy = POLICY + (UNFRAMED if path == "/review" else "")
        return Response(
            text, media_type=kind, headers={"content-security-policy": policy, "referrer-policy": "no-referrer"}
        )

    router.add_api_route(path, page, methods=["GET", "HEAD"])


for each in PATHS:
    _answering(each)
