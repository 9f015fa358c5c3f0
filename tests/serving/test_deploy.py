"""The files in deploy/: their fields are those of the published schemas, and their values those of the server."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import text_format

from tests.cases import every_case
from tests.forks import Fork, command
from tests.serving.conftest import Running, encoded
from vitral.classifier.space import EXTRAS, MODELS, PORT, containerfile
from vitral.inference.exported.format import IMAGES, PROBABILITIES
from vitral.inference.exported.open import FORMATS
from vitral.serving import gate, limits, server, tracing

PROJECT = Path(__file__).parents[2]
DEPLOY = PROJECT / "deploy"
FILES = ("kubernetes.yaml", "kserve.yaml")
READ_ONLY = (  # a container's disk: nothing of it can be written but one folder, and the classifiers are where they belong
    "mount --make-rprivate / && mount -t tmpfs tmpfs /mnt && mkdir -m 777 /mnt/models /mnt/tmp && "
    'mount --bind "$0" /mnt/models && mount -o remount,bind,ro / && '
    "exec setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps=-all,+dac_read_search "
    '--ambient-caps=-all,+dac_read_search "$@"'  # the tests' own Python may lie in a folder of root's
)


def resources(name: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / name).read_text())}


def pod(name: str) -> dict[str, Any]:
    """Return what a file says of the server's pod."""
    every = resources(name)
    spec: dict[str, Any] = (
        every["Deployment"]["spec"]["template"]["spec"]
        if "Deployment" in every
        else every["ClusterServingRuntime"]["spec"]
    )
    return spec


def container(name: str) -> dict[str, Any]:
    (found,) = pod(name)["containers"]
    return dict(found)


def instructions(text: str) -> list[tuple[str, str]]:
    """Return a container file's instructions with their arguments."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^#.*\n", "", text))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def instruction(name: str) -> str:
    (found,) = [rest for word, rest in instructions(containerfile()) if word == name]
    return found


def test_the_container_file_is_that_of_a_space() -> None:
    assert (DEPLOY / "Containerfile").read_text().endswith(containerfile())
    known = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS.split(",")) <= set(known)
    assert (instruction("USER"), instruction("EXPOSE")) == ("1000", str(PORT))


def starts() -> Iterator[tuple[str, list[str]]]:
    """Give every list of arguments that a server is started with."""
    yield "Containerfile", json.loads(instruction("CMD"))
    for name in FILES:
        yield name, container(name)["args"]


@every_case(("name", "arguments"), list(starts()), ids=lambda case: str(case[0]))
def test_the_server_takes_the_arguments(name: str, arguments: list[str], tmp_path: Path) -> None:
    assert any(MODELS in word for word in arguments)
    assert arguments[arguments.index("--port") + 1] == str(PORT)
    words = ("serve", *(word.replace(MODELS, "nowhere").replace("{{.Name}}", "photos") for word in arguments))
    done = Fork(command, words, folder=tmp_path, environment={"VITRAL_TOKEN": "a-secret"}).ended()
    assert done.returncode == 1, done.stderr  # 2 would be a flag that is not there
    assert "nowhere" in done.stderr.splitlines()[-1]


@every_case("name", FILES)
def test_a_pod_is_looked_after_as_the_server_wants_it(name: str) -> None:
    one = container(name)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert ("GET", one[probe]["httpGet"]["path"]) in gate.OPEN_ROUTES  # a probe has no token
    assert one["livenessProbe"]["httpGet"]["path"] != one["readinessProbe"]["httpGet"]["path"]
    assert {each["containerPort"] for each in one["ports"]} == {PORT}
    secured = pod(name).get("securityContext", {}) | one["securityContext"]
    assert (secured["runAsNonRoot"], secured["runAsUser"], secured["readOnlyRootFilesystem"]) == (True, 1000, True)
    assert "/tmp" in {each["mountPath"] for each in one["volumeMounts"]}
    assert re.search(r"[^.]/vitral:", one["image"])


def test_a_pod_has_time_to_answer_what_it_has_taken() -> None:
    needed = server.LEAVING_SECONDS + server.LAST_SECONDS + limits.DRAIN_SECONDS + tracing.LAST_SECONDS
    kserve = resources("kserve.yaml")["InferenceService"]["spec"]["predictor"]
    own = pod("kubernetes.yaml")
    waits = container("kubernetes.yaml")["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert own["terminationGracePeriodSeconds"] > waits + needed
    assert kserve["terminationGracePeriodSeconds"] > needed


def test_the_parts_name_one_another(server: Running) -> None:
    every = resources("kubernetes.yaml")
    labels = every["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert (
        every["Service"]["spec"]["selector"]
        == labels
        == every["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
    )
    scaler = every["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == every["Deployment"]["metadata"]["name"]
    figures = server.get("/metrics").body.decode()
    assert all(f"\n{each['pods']['metric']['name']} " in figures for each in scaler["metrics"])
    runtime, service = (
        resources("kserve.yaml")[kind]["spec"] for kind in ("ClusterServingRuntime", "InferenceService")
    )
    assert service["predictor"]["model"]["modelFormat"]["name"] in {
        each["name"] for each in runtime["supportedModelFormats"]
    }
    assert service["predictor"]["model"]["protocolVersion"] in runtime["protocolVersions"]
    one = container("kserve.yaml")
    assert {each["value"] for each in one["env"]} == {one["resources"]["limits"]["cpu"]}


def test_kubernetes_knows_every_field() -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    for resource in resources("kubernetes.yaml").values():
        validate(resource, "1.30", strict=True)


def test_triton_reads_the_description_of_the_page() -> None:
    schema = pytest.importorskip("tritonclient.grpc.model_config_pb2")
    text = (PROJECT / "docs" / "how-to" / "deploy.md").read_text()
    (block,) = re.findall(r"```protobuf\n(.*?)```", text, re.DOTALL)
    config = text_format.Parse(block, schema.ModelConfig())
    (given,), (answered,) = config.input, config.output
    assert (given.name, given.data_type, len(given.dims)) == (
        IMAGES,
        schema.TYPE_UINT8,
        len(("height", "width", "colours")),
    )
    assert (answered.name, answered.data_type) == (PROBABILITIES, schema.TYPE_FP32)
    assert "model.onnx" in {name for row in FORMATS.values() for name in row.files}


@pytest.mark.long
def test_the_container_s_server_writes_nothing(served_home: Path) -> None:
    if subprocess.run([shutil.which("unshare") or "false", "-m", "true"], capture_output=True).returncode:
        pytest.skip("a disk that cannot be written takes a superuser on Linux")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    environment = dict(word.split("=", 1) for word in shlex.split(instruction("ENV")))
    ours = {
        "PATH": os.environ["PATH"],
        "TMPDIR": "/mnt/tmp",
        "PYTHONPATH": ":".join(sys.path),
        "VITRAL_TOKEN": "a-secret",
    }
    words = [word.replace(str(PORT), port) for name in ("ENTRYPOINT", "CMD") for word in json.loads(instruction(name))]
    assert words.pop(0) == "vitral"
    started = ["unshare", "-m", "sh", "-c", READ_ONLY, str(served_home), sys.executable, "-m", "vitral", *words]
    process = subprocess.Popen(started, env=environment | ours, stderr=subprocess.PIPE, text=True)
    try:
        looked = json.loads(instruction("HEALTHCHECK").partition("CMD ")[2].replace(str(PORT), port))
        assert _becomes_healthy(process, looked)
        assert "Uid:\t1000\t1000" in Path(f"/proc/{process.pid}/status").read_text()
        reply = Running(process, int(port)).post("/v1/predict", encoded(1), Authorization="Bearer a-secret")  # type: ignore[arg-type]
        assert (reply.status, reply.json["model"]) == (200, "noise")
    finally:
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in said) == (0, False), said


def _becomes_healthy(process: "subprocess.Popen[str]", looked: list[str]) -> bool:
    for _ in range(240):
        if process.poll() is not None:
            return False
        if subprocess.run([sys.executable, *looked[1:]], capture_output=True).returncode == 0:
            return True
        time.sleep(1)
    return False
