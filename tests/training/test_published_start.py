"""A run that named no start, beside a mirror of small weights of our own that really are better and worse ones."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import constants
from PIL import Image

import vitral
from tests.weights.hub_server import COMMIT, HubServer, hub
from vitral import distributed
from vitral.errors import WeightsError
from vitral.events import Event, Message, Progress, ignore
from vitral.images.augment import Augmentation
from vitral.training.candidates.result import RunResult
from vitral.training.choose import start
from vitral.training.choose.draft import draft_of
from vitral.training.plan import ChosenStart, Origin, Plan, write_plan
from vitral.training.records.run_folder import begin, note_start
from vitral.training.request import Request
from vitral.training.settings.recipe import load_recipe
from vitral.training.starting import opening, published_start
from vitral.weights import download
from vitral.weights.named import table as find
from vitral.weights.named.table import PublishedWeights as Row
from vitral.weights.named.table import kept

SIZE = 32  # pixels
PLAIN = ("workers=0", "precision=fp32")
BETTER, WORSE = "vit-mu4@better", "vit-mu4@worse"
NOWHERE = "http://127.0.0.1:9"


def row(name: str, score: float) -> Row:
    stem = name.partition("@")[2]
    return Row(
        name,
        f"images of {stem}",
        "Apache-2.0",
        "timm",
        "model.safetensors",
        1,
        "here",
        repository=f"lab/{stem}",
        image_size=SIZE,
        score=score,
        metric="k-NN",
    )


TABLE = {one.name: one for one in (row(BETTER, 70.0), row(WORSE, 90.0))}  # what is published is wrong


def stripes(folder: Path, count: int, seed: int) -> Path:
    """Stripes of four directions and of any phase under much noise: random features hardly tell them apart."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    directions = {"columns": columns, "rows": rows, "falling": rows + columns, "rising": rows - columns}
    for name, along in directions.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            wave = np.sin(2 * np.pi * (along / 6 + random.random()))
            pixels = 128 + 20 * wave[:, :, None] + random.normal(0, 50, (SIZE, SIZE, 3))
            Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """Weights that learned stripes for a moment, and weights that learned nothing."""
    folder = tmp_path_factory.mktemp("published")
    before = stripes(folder / "before", 60, seed=0)
    settings = (*PLAIN, "steps=80", "batch_size=32", "optimizer.lr=0.01")
    learned = vitral.finetune(
        before,
        source="vit-mu4",
        image_size=SIZE,
        recipe="scratch",
        overrides=settings,
        out=folder / "run",
        listener=ignore,
    )
    made: dict[str, tuple[str | Path, int | None]] = {"better": (learned.run.folder, None), "worse": ("vit-mu4", SIZE)}
    published = {}
    for name, (source, size) in made.items():
        written = vitral.convert(
            source, folder / f"{name}.safetensors", format="timm", image_size=size, listener=ignore
        )
        published[f"lab/{name}"] = {"model.safetensors": written.path.read_bytes(), "config.json": b"{}"}
    return published


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stripes(tmp_path_factory.mktemp("data") / "photos", 30, seed=1)


@pytest.fixture
def mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repositories: Mapping[str, dict[str, bytes]]
) -> Iterator[HubServer]:
    """A mirror that has both, a table of both, and an empty cache."""
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    publish(monkeypatch, TABLE)
    with hub() as running:
        running.repositories = {name: dict(files) for name, files in repositories.items()}
        point_to(monkeypatch, running.address)
        yield running


def publish(monkeypatch: pytest.MonkeyPatch, table: Mapping[str, Row]) -> None:
    for room in (find, published_start):
        monkeypatch.setattr(room, "rows", lambda: table)


def point_to(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    )


class Told:
    """What a command says."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Message) and not event.warning]

    @property
    def failures(self) -> list[str]:
        """Warnings of a start that did not come, and not of how good the classifier is."""
        warnings = [event.text for event in self.events if isinstance(event, Message) and event.warning]
        return [text for text in warnings if " So " in text]

    def starting(self, text: str) -> list[str]:
        return [line for line in self.lines if line.startswith(text)]


def tune(photos: Path, out: Path, told: Callable[[Event], None] = ignore, **asked: Any) -> RunResult:  # noqa: ANN401
    """Fine-tune as far as the first classifier."""
    given: dict[str, Any] = {"quick": True, "overrides": PLAIN}
    return vitral.finetune(photos, out=out, listener=told, **(given | asked))


def weights_asked(mirror: HubServer) -> int:
    return len([path for path, _ in mirror.asked if path.endswith("model.safetensors")])


def from_scratch(result: RunResult, told: Told) -> str:
    """Return the one line that says why a run began from scratch."""
    assert result.run.plan.origin == "model"
    assert "random weights" in result.run.classifier.provenance.source
    chosen = result.run.plan.chosen
    assert chosen is not None
    (line,) = chosen.lines
    assert any(line in text for text in told.lines if text.startswith("Model ")), "the user reads why"
    return line


def test_of_two_starts_the_one_with_the_better_features_is_taken_whatever_is_published(
    mirror: HubServer, photos: Path, tmp_path: Path
) -> None:
    told = Told()
    result = tune(photos, tmp_path / "run", told)
    assert result.run.plan.start == BETTER
    assert result.choice is not None
    assert result.choice.best == "linear probe"
    assert result.choice.candidates[-1].figure > 0.7
    (why,) = told.starting("Weights:")
    assert all(fact in why for fact in (BETTER, "linear probes", " 96 "))
    assert WORSE in why
    assert any(line.endswith(" 127.0.0.1: 1 MB, licence Apache-2.0.") for line in told.lines)
    fetched = told.starting("Fetching ")
    assert {line.split()[1] for line in fetched} == {BETTER, WORSE}
    assert told.lines.index(fetched[-1]) < told.lines.index(why)
    assert all("1 MB, licence Apache-2.0" in line for line in fetched)
    assert any(isinstance(event, Progress) and event.task == f"fetch {BETTER}, MB" for event in told.events)
    kept_of_run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert kept_of_run["start"]["name"] == kept_of_run["from"] == BETTER
    assert kept_of_run["start"]["lines"][0] == why
    assert vitral.load(tmp_path / "run").provenance.source == f"{BETTER} (lab/better at {COMMIT})"


def test_without_time_to_compare_the_published_score_decides(
    mirror: HubServer, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "MOST_PROBED", 0)
    told = Told()
    assert tune(photos, tmp_path / "run", told).run.plan.start == WORSE
    assert "90 k-NN" in told.starting("Weights:")[0]
    assert weights_asked(mirror) == 1


def test_what_is_in_the_cache_needs_no_network(
    mirror: HubServer, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(photos, tmp_path / "first")
    point_to(monkeypatch, NOWHERE)
    monkeypatch.setattr(published_start, "answering", None)  # it would be an error to ask
    for run, offline in (("second", False), ("third", True)):
        told = Told()
        assert tune(photos, tmp_path / run, told, offline=offline).run.plan.start == BETTER
        assert "  They are on this machine: 1 MB, licence Apache-2.0." in told.lines
        assert told.failures == []


def test_without_a_network_a_run_begins_from_scratch_and_says_so_in_one_line(
    mirror: HubServer, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_to(monkeypatch, NOWHERE)
    told = Told()
    assert "No internet" in from_scratch(tune(photos, tmp_path / "run", told), told)
    assert told.failures == []


def test_offline_nothing_is_asked_of_the_network(mirror: HubServer, photos: Path, tmp_path: Path) -> None:
    told = Told()
    assert "Downloads are off" in from_scratch(tune(photos, tmp_path / "run", told, offline=True), told)
    with pytest.raises(WeightsError, match="is not on this machine"):
        tune(photos, tmp_path / "named", source=BETTER, offline=True)
    assert (mirror.asked, mirror.unknown) == ([], [])
    assert not constants.HF_HUB_OFFLINE  # afterwards it is allowed again


def test_a_damaged_start_in_the_cache_does_not_hide_a_whole_one(
    mirror: HubServer, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(photos, tmp_path / "first")
    monkeypatch.setattr(start, "MOST_PROBED", 0)
    damaged = kept(TABLE[WORSE])
    assert damaged is not None
    damaged.write_bytes(damaged.read_bytes()[:1000])
    told = Told()
    assert tune(photos, tmp_path / "run", told, offline=True).run.plan.start == BETTER
    (warning,) = told.failures
    assert warning.endswith(f"not start from {WORSE}.")


def test_where_one_process_of_a_job_cannot_have_the_start_all_begin_from_scratch(
    mirror: HubServer, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, told = ChosenStart(WORSE, ("Start: it.",)), Told()
    monkeypatch.setattr(distributed, "gather", lambda mine: [mine, ""])
    taken, loaded = published_start._everywhere(chosen, None, told)
    assert (taken, loaded is None, told.failures) == (chosen, False, [])
    monkeypatch.setattr(distributed, "gather", lambda mine: [mine, f"{WORSE} is not on this machine."])
    taken, loaded = published_start._everywhere(chosen, None, told)
    assert (taken.name, loaded) == ("", None)
    assert told.failures == [f"{WORSE} is not on this machine. So training starts from zero."]


def gate(mirror: HubServer) -> None:
    mirror.gated |= {"lab/worse", "lab/better"}


def cut(mirror: HubServer) -> None:
    mirror.faults = ["cut", *["busy"] * download.TRIES]


def damage(mirror: HubServer) -> None:
    for files in mirror.repositories.values():
        files["model.safetensors"] = files["model.safetensors"][:1000]


def remove(mirror: HubServer) -> None:
    mirror.repositories.clear()


def lie(mirror: HubServer) -> None:
    mirror.lies["model.safetensors"] = "0" * 64


@pytest.mark.parametrize("fault", [gate, cut, damage, remove, lie])
def test_a_download_that_fails_is_one_warning_and_the_run_begins_from_scratch(
    fault: Callable[[HubServer], None], mirror: HubServer, photos: Path, tmp_path: Path
) -> None:
    fault(mirror)
    told = Told()
    assert WORSE in from_scratch(tune(photos, tmp_path / "run", told), told)
    (warning,) = told.failures
    assert warning.endswith(f"not start from {WORSE}.")
    assert "\n" not in warning


def test_a_full_disk_is_one_warning(
    mirror: HubServer, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 0))  # type: ignore[attr-defined]
    told = Told()
    assert "download" in from_scratch(tune(photos, tmp_path / "run", told), told)
    assert "No room for" in told.failures[0]


def test_where_the_second_of_two_does_not_come_the_first_is_taken(
    mirror: HubServer, photos: Path, tmp_path: Path
) -> None:
    mirror.gated.add("lab/better")
    told = Told()
    assert tune(photos, tmp_path / "run", told).run.plan.start == WORSE
    (warning,) = told.failures
    assert warning.endswith(f"So {WORSE} is compared with nothing.")


def test_a_download_that_would_take_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(published_start, "monotonic", lambda: now[0])
    heard: list[Event] = []
    listen = published_start._within(heard.append, 60.0)
    listen(Progress("fetch", 1, 88))
    now[0] = 6.0
    listen(Progress("fetch", 10, 88))
    now[0] = 12.0
    with pytest.raises(WeightsError, match="too slow: 11 of 88 MB came in 12 s"):
        listen(Progress("fetch", 11, 88))
    assert len(heard) == 3


def test_a_plan_fetches_nothing_and_says_what_would_be_fetched(
    mirror: HubServer, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = vitral.plan(photos, overrides=PLAIN, listener=ignore)
    assert weights_asked(mirror) == mirror.sent == 0
    assert kept(TABLE[WORSE]) is None
    assert plan.plan.start == WORSE
    assert plan.plan.origin == "weights"
    assert plan.classifier.model.image_size == (SIZE, SIZE)
    told = plan.to_json()["start"]
    assert told["name"] == WORSE
    assert "from 127.0.0.1: 1 MB, licence Apache-2.0" in told["lines"][1]
    assert BETTER in told["lines"][1]
    assert set(told["lines"]) <= set(repr(plan).splitlines())
    tune(photos, tmp_path / "run")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert vitral.plan(photos, overrides=PLAIN, listener=ignore).plan.start == BETTER


class Killed(BaseException):
    """Stands for the end of a process."""


def killed_at(step: int) -> Callable[[Event], None]:
    def listen(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "train" and event.done == step:
            raise Killed

    return listen


def bits(run: Path) -> list[bytes]:
    return [(run / name).read_bytes() for name in ("classifier/weights.safetensors", "metrics.jsonl", "recipe.toml")]


def forbid_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "find_start", None)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def test_a_run_that_was_killed_goes_on_with_the_start_that_it_began_with_to_the_same_bits(
    mirror: HubServer, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training: dict[str, Any] = {"quick": False, "overrides": (*PLAIN, "steps=8", "checkpoint.every_steps=3")}
    tune(photos, tmp_path / "whole", **training)
    with pytest.raises(Killed):
        tune(photos, tmp_path / "killed", killed_at(5), **training)
    forbid_to_choose(monkeypatch)
    publish(monkeypatch, {BETTER: replace(TABLE[BETTER], licence="CC-BY-NC-4.0"), WORSE: TABLE[WORSE]})
    result = vitral.finetune(out=tmp_path / "killed", resume=True, listener=ignore)
    assert result.run.plan.start == BETTER
    assert bits(tmp_path / "whole") == bits(tmp_path / "killed")


def planned_with(chosen: ChosenStart) -> Plan:
    """Return a plan of a run that trained nothing yet, with a start that was chosen."""
    origin: Origin = "weights" if chosen.name else "model"
    start = chosen.name or "conv-vit-8"
    return Plan(start, origin, load_recipe("scratch"), Augmentation(), chosen.lines, chosen=chosen)


@pytest.mark.parametrize("note", [note_start, lambda run, chosen: write_plan(run, planned_with(chosen))])
@pytest.mark.parametrize("name", [WORSE, ""])
def test_a_run_that_was_killed_before_it_trained_does_not_choose_anew(
    note: Callable[[Path, ChosenStart], None],
    name: str,
    mirror: HubServer,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vitral.load(WORSE, listener=ignore)
    run = tmp_path / "run"
    run.mkdir()
    begin(run, Request("fine-tune", str(photos), overrides=PLAIN, quick=True))
    note(run, ChosenStart(name, ("Start: as it was chosen.",)))
    forbid_to_choose(monkeypatch)
    told = Told()
    result = vitral.finetune(out=run, resume=True, quick=True, listener=told)
    assert result.run.plan.start == (name or "conv-vit-8")
    assert sum("Start: as it was chosen." in line for line in told.lines) == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"source": "vit-mu4"},
        {"recipe": "scratch"},
        {"sweep": True},
        {"overrides": ("model=vit-mu4",)},
        {"overrides": ("patch_size=8",)},
        {"overrides": ("method.name=masked-patches",)},
    ],
)
def test_who_says_a_network_gets_that_network(asked: dict[str, Any]) -> None:
    def begins_freely(kind: str = "fine-tune", **given: Any) -> bool:  # noqa: ANN401
        return draft_of(Request(kind, "photos", **given)).begins_freely

    assert begins_freely()
    assert begins_freely(overrides=("optimizer.lr=0.1", "steps=3"), time="5m")
    assert not begins_freely(**asked)
    assert not begins_freely("pre-train")


def test_what_is_not_free_for_products_is_never_chosen(
    mirror: HubServer, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vitral.load(WORSE, listener=ignore)
    publish(
        monkeypatch,
        {WORSE: replace(TABLE[WORSE], licence="DINOv3"), BETTER: replace(TABLE[BETTER], unverified=("score",))},
    )
    told = Told()
    from_scratch(tune(photos, tmp_path / "run", told), told)


def test_images_of_a_few_pixels_ask_for_no_start(mirror: HubServer, tmp_path: Path) -> None:
    told = Told()
    assert "8 pixels" in from_scratch(tune(Path("digits"), tmp_path / "run", told), told)
    assert (mirror.asked, mirror.unknown) == ([], [])
