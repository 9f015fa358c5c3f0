"""The engines by name, and the runtimes outside torch as they are set here; without torch, which takes seconds to import."""

import contextlib
import functools
import importlib
import importlib.util
import os
import sys
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from vitral.errors import ModelError

Engine = Literal["torch", "packed", "compiled", "openvino", "onnxruntime"]
Precision = Literal["fp32", "bf16", "int8"]
# Engines that are packages of their own, with an extra of that name: the runtime, and what converts a network for it.
EXTRAS: dict[Engine, tuple[str, ...]] = {
    "openvino": ("openvino", "onnxscript"),
    "onnxruntime": ("onnxruntime", "onnxscript"),
}
ENDING_SECONDS = 5.0  # that a run of ONNX Runtime may take to end after it was told to
OPSET = 20  # of ONNX: the first with GELU as one node
EngineChoice = Literal[Engine, "auto"]
PrecisionChoice = Literal[Precision, "auto"]


@dataclass(frozen=True)
class Computation:
    """A runtime and a precision, and how many tokens each block merges."""

    engine: Engine
    precision: Precision
    merge: int = 0

    def __str__(self) -> str:
        """Return them for people and for the cache."""
        merging = f", {self.merge} tokens merged a block" if self.merge else ""
        return f"{self.engine} in {self.precision}{merging}"


def precisions_of(engine: Engine) -> tuple[Precision, ...]:
    """Return the precisions that an engine computes in: ONNX Runtime has no kernels for bf16 on a CPU."""
    if engine == "packed":
        return get_args(Precision)
    return ("fp32",) if engine == "onnxruntime" else ("fp32", "bf16")


def is_installed(engine: Engine) -> bool:
    """Tell whether what an engine needs to compute a network is there."""
    return not _missing(EXTRAS.get(engine, ()))


def check_installed(engine: str, packages: tuple[str, ...]) -> None:
    """Refuse a runtime of which a package is missing, by a ModelError that says what to install."""
    if _missing(packages):
        raise ModelError(f"The engine '{engine}' takes what is not installed: pip install 'vitral[{engine}]'.")


def _missing(packages: tuple[str, ...]) -> list[str]:
    return [package for package in packages if importlib.util.find_spec(package) is None]


def check_able(engine: Engine, precision: str) -> None:
    """Refuse an engine without its package, or one that does not compute in a precision, "auto" for any, by a ModelError."""
    check_installed(engine, EXTRAS.get(engine, ()))
    if precision not in (*precisions_of(engine), "auto"):
        raise ModelError(
            f"The engine '{engine}' computes in {' or '.join(precisions_of(engine))}; take another engine."
        )


def thread_count() -> int:
    """Return how many threads a runtime is given: torch's own where it is loaded, else OMP_NUM_THREADS, or all cores."""
    if (torch := sys.modules.get("torch")) is not None:
        return int(torch.get_num_threads())
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads):
        return int(threads)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def openvino_hints(precision: Precision, threads: int) -> dict[str, str | int]:
    """Return the settings of OpenVINO's plugin for the CPU; without them it computes in bf16 wherever the CPU does."""
    return {"INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[precision], "INFERENCE_NUM_THREADS": threads}


@functools.cache
def openvino_core() -> Any:  # noqa: ANN401  # an openvino.Core
    """Return the one core of this process.

    Each core's plugin for the CPU gives the thread another stack to hear signals on, and as it goes sets the stack that was
    there when it came. Of two the second leaves behind the first one's, but that memory is freed: the next Ctrl-C is a crash.
    """
    return openvino_module().Core()


def openvino_module() -> Any:  # noqa: ANN401  # OpenVINO's package
    """Return OpenVINO's package, without what would report each use to its makers over the network, in a process of its own."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # as if it were not installed
    return importlib.import_module("openvino")


def onnxruntime_module() -> Any:  # noqa: ANN401  # ONNX Runtime's package
    """Return ONNX Runtime's package, without what reports each model to its makers over the network, from 1.29 on Linux too."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # which it reads as it is imported
    return importlib.import_module("onnxruntime")


def onnxruntime_session(model: Path | bytes, threads: int) -> Any:  # noqa: ANN401  # an onnxruntime.InferenceSession
    """Return what computes an ONNX model, a file or its bytes, on the CPU."""
    module = onnxruntime_module()
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # its errors are raised, too, and it would write a file's own text to the terminal
    # Others wait for the cores between two batches.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return module.InferenceSession(model, options, providers=["CPUExecutionProvider"])


_running: set[Any] = set()  # of ONNX Runtime's runs the options, by which they are ended


def run_onnxruntime(session: Any, names: list[str], inputs: dict[str, Any]) -> list[Any]:  # noqa: ANN401  # onnxruntime's
    """Return a session's outputs; Ctrl-C ends even a graph that would never end by itself.

    Python hears a signal in its main thread alone, and not while that computes in C++: there a thread of its own computes.
    """
    options = onnxruntime_module().RunOptions()
    options.log_severity_level = 4
    _running.add(options)
    done: Future[list[Any]] = Future()

    def compute() -> None:
        try:
            done.set_result(session.run(names, inputs, options))
        except BaseException as error:  # raised where it is waited for
            done.set_exception(error)
        finally:
            _running.discard(options)

    if threading.current_thread() is not threading.main_thread():
        compute()
        return done.result()
    threading.Thread(target=compute, name="onnxruntime", daemon=True).start()
    try:
        return done.result()
    except KeyboardInterrupt:
        end_runs()
        with contextlib.suppress(TimeoutError):
            done.exception(ENDING_SECONDS)
        raise


def end_runs() -> None:
    """End what ONNX Runtime computes just now; each run raises an error."""
    for options in tuple(_running):
        options.terminate = True
