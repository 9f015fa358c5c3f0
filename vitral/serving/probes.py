"""Whether the server lives and is ready, and its figures."""

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from vitral.serving.refusals import RequestRefused
from vitral.serving.service import Service

router = APIRouter(tags=["health"])


def service_of(request: Request) -> Service:
    """Return what answers a request."""
    service: Service = request.app.state.service
    return service


@router.get("/healthz", response_class=PlainTextResponse)
@router.head("/healthz", include_in_schema=False)
async def healthz() -> str:
    """Whether the process lives; needs no token."""
    return "ok"


@router.get("/readyz", response_class=PlainTextResponse)
@router.head("/readyz", include_in_schema=False)
async def readyz(request: Request) -> str:
    """Whether requests are taken: 503 before the first classifier is warm, and from a termination on; needs no token."""
    if not service_of(request).is_ready:
        raise RequestRefused(503, "not_ready", "The server is starting or ending.", retry_after=1)
    return "ok"


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Figures in Prometheus' form."""
    return Response(service_of(request).measures.text(), media_type=CONTENT_TYPE_LATEST)
