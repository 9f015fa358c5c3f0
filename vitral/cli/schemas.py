"""The form of what each command prints with --json, from the dataclasses that its results are.

Importing this imports every room that has a result.
"""

import dataclasses
from collections.abc import Collection
from operator import getitem
from types import GenericAlias
from typing import Any, NotRequired, cast, get_type_hints

from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from vitral.checks.check_resume import ResumeCheck
from vitral.checks.corrections import Corrected
from vitral.checks.doubtful import DoubtfulLabels
from vitral.checks.findings import DataCheck, Doubts, Suspect
from vitral.classifier.bulk.predict_to_file import WrittenPredictions
from vitral.classifier.bulk.sort_into import SortedPhotos
from vitral.classifier.bulk.write_regions import WrittenRegions
from vitral.classifier.prediction import Prediction
from vitral.cli.runs import ListedRun
from vitral.data.source import BadImage
from vitral.deployment.add_classes import Added
from vitral.deployment.bench import Bench
from vitral.deployment.calibrate import Calibrated
from vitral.deployment.quantize import Quantized
from vitral.deployment.select_images import Selection
from vitral.deployment.tune import Tuned
from vitral.evaluation.aspects import Aspects
from vitral.evaluation.baselines import Baselines
from vitral.evaluation.compare_regions import RegionComparison
from vitral.evaluation.comparison import Comparison
from vitral.evaluation.corruptions import Robustness
from vitral.evaluation.exactness import Difference
from vitral.evaluation.frozen import FrozenScores
from vitral.evaluation.slices import Slices
from vitral.explanation.faithfulness import Faithfulness
from vitral.exporting.export import Exported
from vitral.exporting.parity import Parity
from vitral.inference.quantization import Quantization
from vitral.models.costs import ModelCost
from vitral.report.score_table import ScoreTable
from vitral.report.start_table import StartRow, StartTable
from vitral.report.study import Failure
from vitral.report.vtab import VtabTable
from vitral.studies.distill import Distilled
from vitral.studies.trainings import Repeated
from vitral.tasks.any_right_label import AnyRightLabelEvaluation
from vitral.tasks.metrics import Evaluation
from vitral.tasks.multi_label import MultiLabelEvaluation
from vitral.tasks.overlap import SemanticEvaluation
from vitral.tasks.panoptic_quality import PanopticEvaluation
from vitral.tasks.region_evaluation import RegionEvaluation
from vitral.tasks.unlabelled import Unscored
from vitral.training.candidates.result import Candidate
from vitral.training.clock import Schedule
from vitral.training.plan import ChosenStart, Cost
from vitral.training.settings.headers import Header
from vitral.weights.named.table import PublishedWeights

Figures = dict[str, float]
Values = dict[str, Any]


def of(name: str, /, **fields: Any) -> Any:  # noqa: ANN401  # types
    """Return the type of a JSON object of these fields and no others."""
    kind = cast(Any, TypedDict)(name, fields)  # made when it runs, of what no type checker sees
    kind.__pydantic_config__ = ConfigDict(extra="forbid")
    return kind


def many(kind: Any) -> Any:  # noqa: ANN401  # types
    """Return the type of a list."""
    return GenericAlias(list, (kind,))


def optional(kind: Any) -> Any:  # noqa: ANN401  # types
    """Return the type of a field that may be missing."""
    return getitem(cast(Any, NotRequired), kind)


def result(kind: type, without: Collection[str] = (), /, **others: Any) -> Any:  # noqa: ANN401  # types
    """Return the type of a result's JSON object: the dataclass's fields but for some, and others besides or in their place."""
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else list(hints)
    return of(kind.__name__, **{name: hints[name] for name in names if name not in without} | others)


def maybe(kind: type) -> dict[str, Any]:
    """Return the fields of a dataclass, each of which may be missing."""
    return {name: optional(hint) for name, hint in get_type_hints(kind).items()}


def scores(**others: Any) -> Any:  # noqa: ANN401  # types
    """Return the type of a classifier's scores, by task, with other fields."""
    return (
        result(Evaluation, balanced_accuracy=float, rare_classes=list[str], **others)
        | result(MultiLabelEvaluation, **others)
        | result(AnyRightLabelEvaluation, **others)
        | result(Unscored, **others)
        | result(SemanticEvaluation, **others)
        | result(RegionEvaluation, **others)
        | result(PanopticEvaluation, **others)
    )


ANSWER = of("Answer", label=str, probability=float)
REGION = of(
    "Region",
    **{"label": str, "category_id": int, "bbox": list[float], "area": float, "score": float},
    segmentation=optional(of("RunLengths", size=list[int], counts=str)),
)
IN_ONE_IMAGE = of(
    "PredictedRegions",
    **{"source": str, "height": int, "width": int},
    counts=optional(dict[str, int]),
    shares=optional(Figures),
    regions=many(REGION),
)
EXPLANATION = {
    "label": str,
    "probability": float,
    "top": many(ANSWER),
    "method": str,
    **dict.fromkeys(("part", "reason", "unscored", "nearest_of"), optional(str)),
    "nearest": optional(many(of("Neighbour", name=str, label=str, similarity=float))),
    **maybe(Faithfulness),
    "warning": str,
    "relevance": list[list[float]],
    "contributions": optional(list[list[float]]),
}
FINDING = of("Finding", problem=str, reason=str, command=str, failed=bool)
CHOICE = of("Choice", kept=str, candidates=list[Candidate], sentence=str)
RUN: dict[str, Any] = {
    "diagnosis": many(FINDING),
    "late": str,
    "folder": str,
    "classifier": str,
    "steps": int,
    "seconds": float,
    "baselines": Baselines | None,
    "choice": optional(CHOICE),
    "split": str,
    "evaluation": scores(),
    "report": str,
}
PLAN = of(
    "Plan",
    kind=str,
    data=of("Data", name=str, classes=int, images=dict[str, str]),
    notes=list[str],
    bad_images=list[BadImage],
    network=of("Network", name=str, parameters=int, image_size=list[int], source=str),
    start=ChosenStart | None,
    recipe=Values,
    augmentation=Values,
    reasons=list[str],
    attempts=list[Values],
    cost=Cost | None,
    budget_seconds=float | None,
    schedule=Schedule | None,
)
ARM = of("Arm", name=str, runs=list[Figures], mean=Figures, deviation=Figures)
STUDY = of("Study", title=str, headline=str, arms=many(ARM), failures=list[Failure], left=int)
TRIAL = of(
    "Trial",
    **{"name": str, "label": str, "parameters": int, "tokens": int, "train_images": int},
    **{"macs": int, "images": int, "flops": float},
)
PAPER_STUDY = of(
    "PaperStudy",
    study=str,
    question=str,
    budget=str,
    data=str,
    transfer=str | None,
    seeds=list[int],
    steps=int | None,
    folder=str,
    seconds=float | None,
    trials=many(TRIAL),
    conclusion=optional(str),
    chart=optional(Values),
    result=optional(STUDY),
)
PROBE = of("Probe", accuracy=float, neighbours=optional(int))
FEW_SHOT = of("FewShot", shots=int, mean=float, deviation=float | None, accuracies=list[float], images=int)
REPEATED = result(
    Repeated,
    ("study",),
    folder=str,
    figure=str,
    mean=float,
    deviation=float | None,
    runs=list[Figures],
    failures=list[Failure],
)
WEIGHTS = of(
    "Weights",
    **maybe(PublishedWeights),
    model=str,
    products=str,
    licence_link=str,
    link=str,
    path=str | None,
)
MODEL = of("Model", name=str, published=list[str], **get_type_hints(ModelCost))

RESULTS: dict[str, Any] = {
    "check": result(
        DataCheck,
        ("sheet", "thumbnails"),
        doubts=result(Doubts, ("suspects",)) | None,
        suspects=list[Suspect],
        imbalance=float,
        imbalance_of=str,
        leaks=int,
        problems=list[str],
    )
    | result(ResumeCheck),
    "select": result(Selection),
    "demo": of("Run", **RUN),
    "finetune": of("Run", **RUN) | REPEATED,
    "plan": PLAN,
    "starts": result(StartTable, kind=str, rows=many(result(StartRow, best=bool, tied=bool))),
    "sweep": of("Run", **RUN),
    "pretrain": of("Run", **RUN) | PLAN,
    "distill": of("DistilledRun", **RUN, distilled=result(Distilled, ("result",))),
    "runs": many(result(ListedRun)),
    "status": result(ListedRun),
    "recipes": many(result(Header)) | result(Header, toml=str),
    "models": many(MODEL) | many(WEIGHTS),
    "evaluate": scores(split=str, difference=optional(Difference))
    | result(Slices)
    | result(FrozenScores, few_shot=optional(many(FEW_SHOT)), knn=optional(PROBE), linear=optional(PROBE)),
    "fix": result(DoubtfulLabels, ("thumbnails",)) | result(Corrected),
    "compare": result(Comparison) | result(RegionComparison, verdict=str),
    "explain": of("Drawing", source=str, drawing=str, **EXPLANATION)
    | of("Page", page=str, num_images=int, images=many(of("Explained", source=str, truth=str | None, **EXPLANATION)))
    | of(
        "NetworkAnalysis",
        folder=str,
        network=str,
        shapes=dict[str, list[int]],
        attention_distance=list[list[float]] | None,
        num_images=int,
        position_kind=optional(str),
        position_tables=optional(int),
        missing=list[str],
        warning=str,
    ),
    "robustness": result(Robustness, mean=float, means=Figures, mce=float, corruption_errors=Figures),
    "aspects": result(Aspects),
    "predict": many(
        result(
            Prediction,
            ("pixels",),
            top=many(ANSWER),
            sure=optional(bool),
            known=optional(bool),
            novelty=optional(float),
        )
    )
    | many(IN_ONE_IMAGE)
    | result(WrittenPredictions)
    | result(WrittenRegions)
    | result(SortedPhotos),
    "info": dict[str, Any],
    "add": result(Added),
    "calibrate": result(Calibrated),
    "quantize": result(Quantized, quantization=result(Quantization, layers=list[str])),
    "tune": result(Tuned),
    "bench": result(Bench),
    "convert": of("Converted", path=str, open=str, notes=list[str]),
    "export": result(Exported, path=str, file=str, checks=many(result(Parity, largest=float | None)), holds=bool),
    "push": of("Pushed", address=str, open=str),
    "study": many(of("Question", name=str, question=str)) | PAPER_STUDY,
    "table": result(ScoreTable),
    "vtab": result(VtabTable, kind=str, means=dict[str, float | None], remarks=list[str]),
}


def adapter(command: str) -> TypeAdapter[Any]:
    """Return what checks a command's JSON, and gives its schema."""
    return TypeAdapter(RESULTS[command])


def schema(command: str) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of what a command prints with --json."""
    made = adapter(command).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"vitral {command} --json", **made}
