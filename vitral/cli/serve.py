"""`vitral serve`: classifiers behind HTTP."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from vitral.cli.options import Positive
from vitral.cli.process import importing
from vitral.errors import extra_module
from vitral.inference.engines import EngineChoice, PrecisionChoice

Port = Annotated[int, Parameter(validator=Number(gte=0, lte=65535))]
Token = Annotated[str | None, Parameter(env_var="VITRAL_TOKEN", show_env_var=False)]
PORT = 8000
MAX_BYTES = 20_000_000  # as in Python


def serve(
    classifiers: list[str] | None = None,
    /,
    *,
    host: str = "127.0.0.1",
    port: Port = PORT,
    token: Token = None,
    open: bool = False,
    deadline: str = "30s",
    max_bytes: Positive = MAX_BYTES,
    collect: Path | None = None,
    engine: EngineChoice | None = None,
    precision: PrecisionChoice | None = None,
    deterministic: bool = False,
) -> None:
    """Answer over HTTP, and on a page for people, what is in images, with probabilities.

    Args:
        classifiers: Classifier folders, run folders, exported files, weights files or names; a folder of such serves all of
            them; NAME=CLASSIFIER serves one as NAME. The newest run in runs/ if left out. A folder that changes is loaded
            again while requests are answered.
        host: The address to listen at: 127.0.0.1 is reached from this machine alone, 0.0.0.0 from everywhere.
        port: The port; 0 for any that is free.
        token: What clients must send, as "Authorization: Bearer TOKEN"; VITRAL_TOKEN in the environment, which other users
            of the machine do not see, says the same.
        open: Let other machines in without a token.
        deadline: The time in which a request is answered or refused; a client may ask for less.
        max_bytes: The bytes that a request may have.
        collect: The folder for photos that the answers are least sure of, up to 500: at /review a click names them, and
            'finetune' takes the folder. Without it no photo stays.
        engine: The runtime, as 'predict' takes it; the fastest in fp32 if left out.
        precision: The precision, as 'predict' takes it; fp32 if left out.
        deterministic: Compute every image alone: to the same bits in any company, those of 'predict' for that image; slower.
    """
    with importing():
        for module in ("fastapi", "uvicorn", "python_multipart", "prometheus_client"):
            extra_module(module, "serve", "'vitral serve'")
        from vitral.cli.chosen import name_of
        from vitral.cli.console import ConsoleListener
        from vitral.serving.limits import Limits
        from vitral.serving.server import serve as answer
        from vitral.serving.sources import NamedClassifier
        from vitral.training.settings.durations import seconds

    limits = Limits(deadline=seconds(deadline), max_bytes=max_bytes)
    with ConsoleListener() as listener:
        sources = [
            NamedClassifier(name, engine, precision, deterministic) for name in classifiers or [name_of(None, listener)]
        ]
        answer(
            sources,
            host=host,
            port=port,
            token=token,
            open=open,
            limits=limits,
            collect=collect,
            warming=importing,
            listener=listener,
        )
