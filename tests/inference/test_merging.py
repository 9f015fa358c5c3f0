"""Token merging against a reference written token by token from the paper, and in networks, engines and commands."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vitral
from tests.cases import every_case
from tests.models.test_contract import images, make
from vitral.classifier.load import load
from vitral.cli.main import main
from vitral.errors import ModelError
from vitral.events import Event, Message, ignore
from vitral.inference import choice
from vitral.inference.choice import predictor_in, predictor_of
from vitral.inference.engine_predictor import EnginePredictor
from vitral.inference.engines import Computation, Engine, Precision
from vitral.inference.merging import merged
from vitral.inference.quantization import Quantization
from vitral.inference.ranges import find_ranges
from vitral.inference.torch_predictor import TorchPredictor
from vitral.machine import has_int8, has_native_bf16
from vitral.models.blocks import Block, LayerScale
from vitral.models.model import Model
from vitral.models.vit import ViT


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def merged_by_hand(
    tokens: list[Tensor], sizes: list[float], keys: list[Tensor], count: int, protected: int
) -> tuple[list[Tensor], list[float]]:
    """Merge the tokens of one image one after the other."""
    even, odd = list(range(0, len(tokens), 2)), list(range(1, len(tokens), 2))
    best: list[tuple[float, int, int]] = []
    for one in even[1:]:  # the class token is never merged
        found = [
            (float(keys[one] @ keys[other] / (keys[one].norm() * keys[other].norm())), one, other)
            for other in odd
            if not (protected == 2 and other == 1)  # nothing is merged into the distillation token
        ]
        best.append(max(found))
    best.sort(reverse=True)
    gone = best[: min(count, (len(tokens) - protected) // 2)]
    totals = {index: tokens[index] * sizes[index] for index in range(len(tokens))}
    weights = dict(enumerate(sizes))
    for _, one, other in gone:
        totals[other] = totals[other] + totals.pop(one)
        weights[other] += weights.pop(one)
    order = [index for index in even if index in totals] + odd
    if protected == 2:
        order = [0, 1, *(index for index in order if index > 1)]
    return [totals[index] / weights[index] for index in order], [weights[index] for index in order]


@every_case("count", [1, 3, 50])
@every_case("number", [17, 18])
@every_case("distilled", [False, True])
def test_tokens_are_merged_as_the_paper_says(distilled: bool, number: int, count: int) -> None:
    tokens, keys = drawn(3, number, 8, seed=0), drawn(3, number, 4, seed=1)
    sizes = torch.arange(1.0, number + 1).expand(3, -1)[..., None]
    given, weights = merged(tokens, sizes, keys, count=count, distilled=distilled)
    assert weights is not None
    for image in range(3):
        expected, totals = merged_by_hand(
            list(tokens[image]), sizes[image, :, 0].tolist(), list(keys[image]), count, 1 + distilled
        )
        assert given.shape[1] == len(expected)
        assert (given[image] - torch.stack(expected)).abs().max() < 1e-5
        assert weights[image, :, 0].tolist() == pytest.approx(totals)
        assert (given[image, 0] - tokens[image, 0]).abs().max() < 1e-6


def by_hand(model: ViT, batch: Tensor, count: int) -> Tensor:
    """Return logits, image by image and block by block; attention as a sum over patches (section 3.2)."""
    protected = 1 + bool(model.config.distilled)
    answers = []
    for image in batch:
        tokens = model.embed(model.patches(image[None])).tokens[0]
        sizes = [1.0] * len(tokens)
        for block in model.blocks():
            assert isinstance(block, Block)
            query, key, value = block.attention.project(block.norm1(tokens)[None], None, None)
            weights = torch.exp(query[0] @ key[0].transpose(1, 2) / math.sqrt(query.shape[-1])) * torch.tensor(sizes)
            mixed = (weights / weights.sum(-1, keepdim=True)) @ value[0]
            tokens = tokens + block.scale1(block.attention.out(mixed.transpose(0, 1).flatten(1)))
            pairs = merged_by_hand(list(tokens), sizes, list(key[0].mean(dim=0)), count, protected)
            tokens, sizes = torch.stack(pairs[0]), pairs[1]
            tokens = block.transformed(tokens[None])[0][0]
        tokens = model.norm(tokens)
        logits = model.head(tokens[0])
        if model.distillation_head is not None:
            logits = (logits + model.distillation_head(tokens[1])) / 2
        answers.append(logits)
    return torch.stack(answers)


def learned(name: str) -> ViT:
    model, generator = make(name).eval(), torch.Generator().manual_seed(1)
    assert isinstance(model, ViT)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.normal_(std=module.in_features**-0.5, generator=generator)
            if isinstance(module, LayerScale):
                module.scale.uniform_(0.5, 1.5, generator=generator)
    return model


@every_case("engine", ["torch", "packed"])
@every_case("name", ["deit", "distilled", "deit3", "hybrid"])
def test_a_network_answers_as_one_written_token_by_token(name: str, engine: str) -> None:
    model = learned(name)
    batch = images(model, 3)
    predictor = EnginePredictor(model, engine, "fp32", merge=3)  # type: ignore[arg-type]
    with torch.no_grad():
        expected = by_hand(model, batch, 3)
    exact = TorchPredictor(model).logits(batch)
    for _ in range(2):  # nothing of one pass is left for the next
        logits = predictor.logits(batch)
        assert (logits - expected).abs().max() < 1e-4
    assert (logits - exact).abs().max() > 1e-3
    assert (predictor.logits(batch[:1]) - expected[:1]).abs().max() < 1e-4
    assert torch.equal(TorchPredictor(model).logits(batch), exact)  # the network itself stays as it is


@every_case("kind", [("torch", "bf16"), ("packed", "bf16"), ("packed", "int8")])
def test_other_precisions_merge_the_same_way(kind: tuple[Engine, Precision]) -> None:
    if not (has_int8() if kind[1] == "int8" else has_native_bf16(torch.device("cpu"))):
        pytest.skip(f"needs a CPU with {kind[1]}")
    model = learned("deit")
    batch = images(model, 3)
    form = None
    if kind[1] == "int8":
        layers = {name: found.inputs for name, found in find_ranges(model, iter([batch])).items()}
        form = Quantization(layers, (), model.image_size, "photos", 3, 1.0, 1.0, 1.0)
    exact = EnginePredictor(model, "torch", "fp32", merge=3).logits(batch)
    found = predictor_in(model, Computation(*kind, 3), form).logits(batch)
    plain = predictor_in(model, Computation(*kind), form).logits(batch)
    assert 1e-5 < (found - exact).abs().max() < 0.15 * exact.std()  # it is rounded, and merged
    assert (found - plain).abs().max() > (found - exact).abs().max()


def test_int8_that_is_asked_for_merges_and_says_what_its_score_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_int8():
        pytest.skip("needs a CPU that multiplies 8-bit integers")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(choice, "measured", lambda model, way, form=None: 9.0 if way.precision == "int8" else 1.0)
    model = learned("deit")
    batch = images(model, 3)
    layers = {name: found.inputs for name, found in find_ranges(model, iter([batch])).items()}
    form = Quantization(layers, (), model.image_size, "photos", 3, 1.0, 1.0, 1.0)
    said: list[Event] = []
    predictor = predictor_of(model, "auto", "int8", said.append, form, 3)
    assert torch.equal(
        predictor.logits(batch), predictor_in(model, Computation("packed", "int8", 3), form).logits(batch)
    )
    assert any("That is without merging." in event.text for event in said if isinstance(event, Message))


def test_several_threads_merge_their_own_tokens() -> None:
    model = learned("deit")
    predictor = EnginePredictor(model, "torch", "fp32", merge=3)
    batches = [drawn(number, 3, *model.image_size, seed=number) for number in (1, 2, 3, 4)]
    expected = [predictor.logits(batch) for batch in batches]

    def apart(number: int) -> float:
        return max(float((predictor.logits(batches[number]) - expected[number]).abs().max()) for _ in range(40))

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(apart, range(4))) < 1e-5


def test_sizes_are_counted_beyond_what_bf16_counts() -> None:
    tokens, sizes = torch.ones(1, 3, 4, dtype=torch.bfloat16), None
    keys = torch.ones(1, 3, 2)
    tokens, sizes = merged(tokens, torch.tensor([[[1.0], [300.0], [301.0]]]), keys, count=1)
    assert tokens.dtype == torch.bfloat16
    assert sizes is not None
    assert sizes.flatten().tolist() == [1.0, 601.0]
    _, fresh = merged(tokens, None, keys[:, :2], count=1)
    assert fresh is None or fresh.dtype == torch.float32


def test_merging_no_token_is_the_network() -> None:
    model = learned("deit")
    assert isinstance(predictor_of(model, None, "fp32", ignore, merge=0), TorchPredictor)
    assert (
        predictor_of(model, "packed", "fp32", ignore, merge=2).computed_by == "packed in fp32, 2 tokens merged a block"
    )
    assert predictor_of(model, None, "fp32", ignore, merge=2).computed_by == "torch in fp32, 2 tokens merged a block"


REFUSED = {
    "pooled-norm": "it reads other tokens than its class token",
    "dinov2-registers": "its registers would be merged, too",
    "experts": "its experts would get other tokens",
    "rotary": "its registers would be merged, too",
    "positions-in-layers": "its blocks know where each token lies",
    "resnet-basic": "it is no Vision Transformer",
    "t2t": "it is no Vision Transformer",
}


@every_case("name", REFUSED)
def test_networks_whose_tokens_cannot_be_merged_are_refused_in_one_line(name: str) -> None:
    with pytest.raises(ModelError, match=f"cannot be merged: ({REFUSED[name]})") as caught:
        predictor_of(make(name), None, "fp32", ignore, merge=4)
    assert len(str(caught.value).splitlines()) == 1


def test_engines_that_take_the_network_as_it_is_are_refused() -> None:
    model: Model = make("deit")
    for engine in ("openvino", "onnxruntime", "compiled"):
        with pytest.raises(ModelError, match=f"'{engine}' cannot merge tokens; take torch or packed"):
            predictor_of(model, engine, "fp32", ignore, merge=4)
    with pytest.raises(ModelError, match="0 tokens or more, not -1"):
        predictor_of(model, None, "fp32", ignore, merge=-1)


@pytest.mark.long
def test_the_loss_is_said_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = ["model=vit-mu4", "depth=3", "steps=60", "batch_size=64", "optimizer.lr=0.003", "workers=0"]
    vitral.finetune("digits", recipe="scratch", out=tmp_path / "run", overrides=steps, baselines=False, listener=ignore)
    capsys.readouterr()
    named = ["--data", "digits", "--classifier", str(tmp_path / "run")]
    assert main(["evaluate", *named, "--merge", "6"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Computed by torch in fp32, 6 tokens merged a block; on 256 photos, against torch in fp32" in said
    assert main(["evaluate", *named, "--merge", "6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["difference"]["largest"] > 1e-5
    events: list[Event] = []
    vitral.evaluate(load(tmp_path / "run", merge=6, listener=ignore), "digits", listener=events.append)
    assert any("6 tokens merged" in event.text for event in events if isinstance(event, Message))
    out = tmp_path / "p.csv"
    assert main(["predict", "digits", "--classifier", str(tmp_path / "run"), "--merge", "6", "--out", str(out)]) == 0
    assert len(out.read_text().splitlines()) > 1000
    assert main(["evaluate", *named, "--merge", "6", "--frozen", "knn"]) == 2
    assert "leave --engine, --precision and --merge out" in " ".join(capsys.readouterr().err.split())
