"""How fast a network computes on this machine: every runtime that is installed, in turns in one run."""

import contextlib
import importlib
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, get_args

import torch

from vitral.advice import counted
from vitral.classifier.classifier import Classifier
from vitral.classifier.load import as_classifier
from vitral.errors import ModelError, one_line
from vitral.evaluation.exactness import apart
from vitral.events import Listener, Message, Progress, show
from vitral.inference import runtimes
from vitral.inference.engines import EXTRAS, Engine, Precision, is_installed, precisions_of
from vitral.inference.exported.predictor import ExportedPredictor
from vitral.inference.merging import check_merging
from vitral.inference.runtimes import DTYPES, MERGING, compute_of
from vitral.machine import has_int8, has_native_bf16, keep_freed_memory, peak_memory_of, processor_name, product_speed
from vitral.models.families import count_macs
from vitral.models.model import Images, Logits
from vitral.tasks.shown import NO_VALUE, Presentable, Table
from vitral.tasks.task import Probabilities

BATCH_SIZES = (1, 8)
ROUNDS = 5
TURN_SECONDS = 0.5  # that one contender computes before the next one's turn, one pass at the least
LIMIT_SECONDS = 0.5  # that the products of a round are measured for
CPU = torch.device("cpu")
MEMORY = "MiB: the most by which the process grew while a contender was made and computed the largest batch."
ALIKE = "All random images get the same answer, as of an untrained head: how far the runtimes differ cannot be seen."
DIFFERENCES = (
    "Probabilities of the largest batch, which is random, differ from torch in fp32 (the same most probable class)"
)


@dataclass(frozen=True)
class Speed:
    """How fast one contender computes batches of one size.

    Attributes:
        name: "vitral packed", "timm compiled".
        images_per_second: The images per second at the median pass.
        latency_ms: The milliseconds of a pass by percentile: "50", "90", "99".
        share_of_limit: The share of the images/s that large products of that precision alone would allow; above 1 where the
            machine's pace changed, or where the contender's products are faster than the large ones. None for a file that does
            not say how many operations it takes, and where tokens are merged, which takes fewer.
        memory_bytes: The most by which the process grew as the contender was made and computed the largest batch, beside the
            classifier's own weights; None where the system does not tell.
        largest_difference: The largest difference of a probability from torch in fp32 on the same random images; None for a
            peer, which has other weights.
        same_top: The share of these images whose most probable class is the same; None for a peer.
    """

    name: str
    precision: Precision
    batch_size: int
    images_per_second: float
    latency_ms: Mapping[str, float]
    passes: int
    share_of_limit: float | None
    memory_bytes: int | None
    largest_difference: float | None
    same_top: float | None


@dataclass(frozen=True)
class Bench(Presentable):
    """The speeds of a network on one machine.

    Attributes:
        image_size: Height and width, pixels.
        gmacs: The billions of multiply-accumulates of one image; 0 for a file that does not say.
        limits: FLOP/s of large products by precision, the median of the rounds.
        speeds: The speeds of every contender at every batch size, the fastest first.
        missing: The contenders that could not compute, with the reason.
        alike: Whether torch in fp32 gives all the random images the same answer, so that differences say nothing.
    """

    network: str
    image_size: tuple[int, int]
    gmacs: float
    machine: str
    threads: int
    limits: Mapping[str, float]
    speeds: tuple[Speed, ...]
    missing: Mapping[str, str]
    alike: bool = False

    def lines(self) -> tuple[str, ...]:
        """Return what stands above the table."""
        limits = ", ".join(
            f"{name} {flops / 1e12:.2f} TFLOP/s{self._most(flops)}" for name, flops in self.limits.items()
        )
        size = "x".join(map(str, self.image_size))
        cost = f"{self.gmacs:.3g} GMACs an image" if self.gmacs else "of operations that its file does not tell"
        first = f"{self.network} at {size} pixels, {cost}; {self.machine}, {counted(self.threads, 'thread')}."
        missing = tuple(f"Left out, {name}: {reason}." for name, reason in self.missing.items())
        memory = (MEMORY,) if any(speed.memory_bytes is not None for speed in self.speeds) else ()
        return first, f"Large products here: {limits}.", *memory, *self._above(), *self._apart(), *missing

    def _most(self, flops: float) -> str:
        return f": at most {flops / (2e9 * self.gmacs):,.1f} images/s" if self.gmacs else ""

    def _apart(self) -> tuple[str, ...]:
        """Return how far each engine's probabilities are from those of torch in fp32, where that can be seen."""
        if self.alike:
            return (ALIKE,)
        differences = {
            f"{speed.name} in {speed.precision} by {speed.largest_difference:.1g} ({speed.same_top:.1%})": None
            for speed in sorted(self.speeds, key=lambda speed: (speed.name, speed.precision))
            if speed.largest_difference is not None
        }
        return (f"{DIFFERENCES}: {', '.join(differences)}.",) if differences else ()

    def _above(self) -> tuple[str, ...]:
        """Return what to think of shares above the limit, if there are any."""
        names = ", ".join(
            f"{speed.name} in {speed.precision} at {speed.batch_size} ({speed.share_of_limit:.0%})"
            for speed in self.speeds
            if speed.share_of_limit is not None and speed.share_of_limit > 1
        )
        if not names:
            return ()
        return (f"Above the limit of large products, which is therefore none, or other work slowed it down: {names}.",)

    def tables(self) -> tuple[Table, ...]:
        """Return a row for each contender and batch size."""
        columns = ("Contender", "dtype", "batch", "images/s", "ms p50", "p90", "p99", "of limit", "MiB")
        return (Table("", columns, tuple(map(_row, self.speeds)), names=2),)


def _row(speed: Speed) -> tuple[str, ...]:
    return (
        speed.name,
        speed.precision,
        str(speed.batch_size),
        f"{speed.images_per_second:,.1f}",
        *(f"{speed.latency_ms[name]:.1f}" for name in ("50", "90", "99")),
        NO_VALUE if speed.share_of_limit is None else f"{speed.share_of_limit:.0%}",
        NO_VALUE if speed.memory_bytes is None else f"{speed.memory_bytes / 2**20:,.0f}",
    )


Compute = Callable[[Images], Logits]  # of images in float32, on the CPU
Peer = tuple[str, Precision, Callable[[], Compute]]  # the name of another library's network, and what makes it


class _Wanted(NamedTuple):
    """A contender that is to be made."""

    name: str
    precision: Precision
    make: Callable[[], Compute]
    is_ours: bool = True  # it computes this network's weights
    merges: bool = False  # and so takes fewer operations than the network


class _Contender(NamedTuple):
    """One that was made."""

    wanted: _Wanted
    compute: Compute
    apart: tuple[float, float] | None
    memory: int | None
    seconds: dict[int, list[float]]  # of its passes, by the size of the batch


def bench(
    classifier: Classifier | str | Path,
    *,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    merge: int = 0,
    compile: bool = False,
    peers: Callable[[Classifier, Sequence[Precision]], Iterable[Peer]] | None = None,
    rounds: int = ROUNDS,
    listener: Listener = show,
) -> Bench:
    """Measure how fast a classifier's network computes, by each runtime that is installed.

    All take turns, so that a change of the machine's pace meets all of them; figures are medians over the turns.

    Args:
        classifier: The classifier, or whatever `load` takes; its predictions do not matter. An exported file is measured by
            its own runtime alone.
        batch_sizes: The numbers of images computed at once.
        merge: The tokens that each block of a Vision Transformer merges (ToMe), to measure this too; 0 for none.
        compile: Whether to measure what torch.compile makes, too, which takes minutes to make.
        peers: Gives other libraries' networks, by the classifier and the precisions, to measure these in the same turns, as
            `benchmarks/inference.py` does; None for none.
        rounds: The number of turns that each contender has at each batch size.
        listener: The receiver of progress and of what was left out.

    Raises:
        ModelError: Tokens that cannot be merged; no batch size; one, or the number of rounds, is below 1; a batch that memory
            does not hold; or the network is not on the CPU.
        WeightsError: there is no such classifier, or it cannot be read.
    """
    if not batch_sizes or min(*batch_sizes, rounds) < 1:
        raise ModelError(
            "There is at least one batch size, a batch has at least one image, a contender at least one turn."
        )
    classifier = as_classifier(classifier, listener)
    predictor = classifier.predictor
    if merge:
        check_merging(classifier.model)
    if any(parameter.device != CPU for parameter in classifier.parameters()):
        raise ModelError("Speeds are measured on the CPU; move the network there.")
    keep_freed_memory()  # for all of them
    images = _images(max(2, *batch_sizes), predictor.image_size)  # two at least, to see whether answers differ at all
    precisions = _precisions(classifier)
    exact = classifier.to_probabilities(predictor.exact.logits(images))
    wanted = _wanted(classifier, precisions, merge=merge, compile=compile)
    if peers is not None:
        theirs = [precision for precision in precisions if precision != "int8"]
        wanted += [_Wanted(*peer, is_ours=False) for peer in peers(classifier, theirs)]
    contenders, missing = _made(classifier, wanted, exact, images, batch_sizes, listener)
    limits: dict[Precision, list[float]] = {precision: [] for precision in precisions}
    for number in range(rounds):
        first = number % max(1, len(contenders))  # each comes after another one, should that leave threads behind
        for precision, found in limits.items():
            found.append(product_speed(DTYPES[precision], LIMIT_SECONDS))
        for contender in (*contenders[first:], *contenders[:first]):
            for size in batch_sizes:
                contender.seconds[size] += _turn(contender.compute, images[:size])
        listener(Progress("measure", number + 1, rounds))
    medians = {precision: statistics.median(found) for precision, found in limits.items()}
    macs = predictor.macs if isinstance(predictor, ExportedPredictor) else count_macs(classifier.model.config)
    speeds = [_speed(contender, size, medians, macs) for contender in contenders for size in batch_sizes]
    return Bench(
        network=predictor.describe(),
        image_size=predictor.image_size,
        gmacs=macs / 1e9,
        machine=processor_name(),
        threads=torch.get_num_threads(),
        limits={str(precision): flops for precision, flops in medians.items()},
        speeds=tuple(sorted(speeds, key=lambda speed: (speed.batch_size, -speed.images_per_second))),
        missing=missing,
        alike=bool((exact == exact[0]).all()),
    )


def _precisions(classifier: Classifier) -> list[Precision]:
    """Return those that pay on this machine; int8 for a classifier that has the ranges for it."""
    precisions: list[Precision] = ["fp32"]
    if has_native_bf16(CPU):
        precisions.append("bf16")
    predictor = classifier.predictor
    is_written = isinstance(predictor, ExportedPredictor) and predictor.graph.computes_in == "int8"
    if (classifier.quantization is not None or is_written) and has_int8():
        precisions.append("int8")
    return precisions


def _images(count: int, size: tuple[int, int]) -> Images:
    """Return random images, the same ones each time."""
    try:
        return torch.randn(count, 3, *size, generator=torch.Generator().manual_seed(0))
    except (RuntimeError, TypeError, MemoryError) as error:  # torch raises any of them, as the number is large
        needed = count * 3 * size[0] * size[1] * 4 / 2**30
        raise ModelError(
            f"A batch of {count:,} images takes {needed:,.0f} GiB, which memory does not hold; take a smaller one."
        ) from error


def _made(
    classifier: Classifier,
    wanted: Sequence[_Wanted],
    exact: Probabilities,
    images: Images,
    sizes: Sequence[int],
    listener: Listener,
) -> tuple[list[_Contender], dict[str, str]]:
    """Make each contender and let it compute a batch of each size; return those that can, and why the others cannot."""
    made: list[_Contender] = []
    missing: dict[str, str] = {}
    _import_all()
    for number, candidate in enumerate(wanted):
        try:
            (compute, logits), memory = peak_memory_of(partial(_warmed, candidate.make, images, sizes))
            found = classifier.to_probabilities(max(logits, key=len))
            differences = apart(found, exact[: len(found)]) if candidate.is_ours else None
        except Exception as error:  # a runtime raises anything
            missing[f"{candidate.name} {candidate.precision}"] = one_line(error).rstrip(".")
            listener(Message(f"Left out, {candidate.name} in {candidate.precision}: {one_line(error)}", warning=True))
            continue
        made.append(_Contender(candidate, compute, differences, memory, {size: [] for size in sizes}))
        listener(Progress("prepare", number + 1, len(wanted)))
    return made, missing


def _wanted(classifier: Classifier, precisions: Sequence[Precision], *, merge: int, compile: bool) -> list[_Wanted]:
    """Return the contenders: the engines and those that merge tokens; of an exported file its runtime alone."""
    predictor = classifier.predictor
    if isinstance(predictor, ExportedPredictor):
        graph = predictor.graph
        name = f"{graph.path.name} {graph.engine}"
        return [_Wanted(name, graph.computes_in, lambda: predictor.logits, is_ours=False)]
    ways = [(engine, 0) for engine in get_args(Engine) if is_installed(engine) and (compile or engine != "compiled")]
    ways += [(engine, merge) for engine in MERGING if merge]
    return [way for engine, count in ways for way in _ours(classifier, engine, precisions, count)]


def _import_all() -> None:
    """Import what contenders need, so that the memory of none includes a library's own."""
    for package in (package for engine in EXTRAS if is_installed(engine) for package in EXTRAS[engine]):
        with contextlib.suppress(Exception):  # whose contender says so
            importlib.import_module(package)


def _warmed(make: Callable[[], Compute], images: Images, sizes: Sequence[int]) -> tuple[Compute, list[Logits]]:
    """Make a contender, and let it do what it does once for each size of batch."""
    compute = make()
    return compute, [compute(images[:size]) for size in sizes]


def _ours(classifier: Classifier, engine: Engine, precisions: Sequence[Precision], merge: int) -> Iterator[_Wanted]:
    name = f"vitral {engine} merging {merge}" if merge else f"vitral {engine}"
    for precision in filter(precisions_of(engine).__contains__, precisions):
        form = classifier.quantization if precision == "int8" else None
        make = partial(compute_of, classifier.model, engine, precision, form, merge)
        yield _Wanted(name, precision, partial(_for_logits, make), merges=merge > 0)


def _for_logits(make: Callable[[], runtimes.Compute]) -> Compute:
    compute = make()
    return lambda images: compute(images).logits


def _turn(compute: Compute, images: Images) -> list[float]:
    """Return the seconds of as many passes as a turn holds."""
    seconds: list[float] = []
    while not seconds or sum(seconds) < TURN_SECONDS:
        began = time.perf_counter()
        compute(images)
        seconds.append(time.perf_counter() - began)
    return seconds


def _speed(contender: _Contender, size: int, limits: Mapping[Precision, float], macs: int) -> Speed:
    wanted, seconds = contender.wanted, sorted(contender.seconds[size])
    latency = {str(share): 1e3 * _percentile(seconds, share) for share in (50, 90, 99)}
    difference, same = contender.apart or (None, None)
    pace = 1e3 * size / latency["50"]
    has_limit = bool(macs) and not wanted.merges and wanted.precision in limits
    return Speed(
        name=wanted.name,
        precision=wanted.precision,
        batch_size=size,
        images_per_second=pace,
        latency_ms=latency,
        passes=len(seconds),
        share_of_limit=pace * 2 * macs / limits[wanted.precision] if has_limit else None,
        memory_bytes=contender.memory,
        largest_difference=difference,
        same_top=same,
    )


def _percentile(ranked: Sequence[float], share: int) -> float:
    """Return the value that so many per cent of the ranked ones do not exceed: the nearest rank."""
    return ranked[math.ceil(len(ranked) * share / 100) - 1]
