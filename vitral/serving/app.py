"""The application: every form of request, on the same classifiers."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from vitral import __version__
from vitral.errors import VitralError
from vitral.serving import open_inference, others, ours, page, probes, review
from vitral.serving.answers import ERRORS
from vitral.serving.gate import Gate
from vitral.serving.reading import SCHEMAS, JsonImages
from vitral.serving.refusals import RequestRefused
from vitral.serving.service import Service
from vitral.serving.tracing import Tracing
from vitral.serving.visit import refused

ROUTERS = (page.router, probes.router, ours.router, review.router, open_inference.router, others.router)
BODIES = (JsonImages, review.PhotoName, others.TaskInput, open_inference.InferenceRequest)
LEFT = 499  # the status in the log of a client that has left, as nginx has it


def application(service: Service, token: str | None, tracing: Tracing | None = None) -> ASGIApp:
    """Return what answers requests; clients must send the token, if there is one, as "Authorization: Bearer TOKEN"."""
    # The documentation's own pages would load their scripts from elsewhere.
    app = FastAPI(title="Vitral", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router, responses=ERRORS)
    app.openapi = partial(_described, app.openapi, token is not None)  # type: ignore[method-assign]
    for kind, answer in ANSWERS.items():
        app.add_exception_handler(kind, answer)
    return Gate(app, service, token, tracing)


def _described(openapi: Callable[[], dict[str, Any]], has_token: bool) -> dict[str, Any]:
    """Return the description of the routes, with the bodies that are read by hand, and the token that the gate wants."""
    described = openapi()
    components = described.setdefault("components", {})
    _, schemas = models_json_schema([(model, "validation") for model in BODIES], ref_template=f"{SCHEMAS}{{model}}")
    components.setdefault("schemas", {}).update(schemas["$defs"])
    if has_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"token": []}]
    return described


def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, text = "no_such_route", "There is nothing at this address; /openapi.json lists the routes."
    if error.status_code == 405:
        code, text = "method", f"{request.method[:20]} is not possible here; /openapi.json says what is."
    answer = refused(request.scope, RequestRefused(error.status_code, code, text))
    answer.headers.update(error.headers or {})  # which methods are possible
    return answer


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return refused(
        request.scope, RequestRefused(422, "invalid", f"{'.'.join(map(str, first['loc']))}: {first['msg']}.")
    )


def _other(request: Request, error: Exception) -> Response:
    return refused(request.scope, error)


ANSWERS = {
    HTTPException: _no_route,
    RequestValidationError: _invalid,
    ClientDisconnect: lambda request, error: Response(status_code=LEFT),  # which nobody gets
    RequestRefused: _other,
    VitralError: _other,
    Exception: _other,
}
