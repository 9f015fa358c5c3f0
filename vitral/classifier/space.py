"""A classifier behind HTTP in a container, and as a Space of the Hugging Face Hub, which builds that container."""

import re
from pathlib import Path

from vitral.files import write_file
from vitral.machine import vitral_version
from vitral.paths import CARD

EXTRAS = "serve,openvino,onnxruntime,otel"
PORT = 8080
SPACE_PORT = 7860  # which the Hub's proxy expects
MODELS = "/mnt/models"  # where KServe puts what it has fetched
FRONT_MATTER = re.compile(r"---\n.*?\n---\n", re.DOTALL)
CONTAINER = """\
ARG BASE=docker.io/library/python:3.13-slim
FROM $BASE
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir torch torchvision --index-url "$TORCH_INDEX"
ARG VITRAL="vitral[{extras}]{version}"
COPY *file *.whl /wheels/
RUN pip install --no-cache-dir --find-links /wheels "$VITRAL"
RUN useradd --uid 1000 --create-home vitral
{copied}USER 1000
# Nothing is written but into /tmp, and nothing that matters: measured speeds, and the caches of libraries.
ENV HOME=/tmp PYTHONUNBUFFERED=1 NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
EXPOSE {port}
HEALTHCHECK --start-period=120s --timeout=5s \\
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/readyz', timeout=4)"]
ENTRYPOINT ["vitral", "serve"]
CMD [{arguments}]
"""


def containerfile(*more: str, version: str = "", copied: str = "", port: int = PORT) -> str:
    """Return the file from which a container is built that serves the classifiers of a folder.

    Args:
        more: Arguments of the server besides where it listens.
        version: Which Vitral is installed, such as "==1.0"; empty for the newest.
        copied: A classifier's folder beside the file, which goes into the container; empty for what is mounted when it starts.
        port: The port.
    """
    arguments = (MODELS, "--host", "0.0.0.0", "--port", str(port), *more)
    return CONTAINER.format(
        extras=EXTRAS,
        version=version,
        copied=f"COPY {copied} {MODELS}/{copied}\n" if copied else "",
        port=port,
        arguments=", ".join(f'"{word}"' for word in arguments),
    )


def write_space(place: Path, name: str) -> None:
    """Write what makes a Space of the classifier folder `place / name`: the container's file, and its card as the Space's page.

    Raises:
        StorageError: A file cannot be written.
    """
    card = FRONT_MATTER.sub("", (place / name / CARD).read_text(), count=1)
    heading = f"---\ntitle: {name}\nsdk: docker\napp_port: {SPACE_PORT}\npinned: false\n---\n"
    write_file(place / CARD, heading + card)
    made = containerfile("--open", version=f"=={vitral_version()}", copied=name, port=SPACE_PORT)
    write_file(place / "Dockerfile", made)
