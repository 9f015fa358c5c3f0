"""The families of published starts through their files and back, without the libraries that publish them."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitral
from tests.cases import every_case
from tests.models.test_contract import VIT, images, make
from vitral.errors import WeightsError
from vitral.images.preprocessing import PHOTOS
from vitral.models.families import build
from vitral.weights.save import write_weights

NAMES = ("ape", "bee", "cat")
WRITTEN = [
    ("dinov2", "original"),
    ("dinov2-registers", "original"),
    ("dinov2", "timm"),
    ("dinov2-registers", "timm"),
    ("dinov2-classifier", "transformers"),
    ("dinov2-registers", "transformers"),
    ("clip", "original"),
    ("clip", "timm"),
    ("clip", "transformers"),
    ("map", "transformers"),
    ("rotary", "original"),
    ("rotary", "timm"),
    ("rotary", "transformers"),
    ("pooled", "timm"),
    ("eva02", "timm"),
    ("eva02-norm", "timm"),
    ("pooled", "original"),
]
EVA02 = dataclasses.replace(
    VIT,
    pooling="gap",
    norm_pooled=True,
    registers=1,
    rotary="eva02",
    mlp="swiglu",
    gelu="exact",
    position_resize="bicubic-antialias",
    initialization="deit",
)
CONFIGS: dict[str, Any] = {
    "eva02": EVA02,
    "eva02-norm": dataclasses.replace(EVA02, mlp="swiglu-norm"),
    "map": dataclasses.replace(VIT, pooling="map", initialization="big_vision"),
    "pooled": dataclasses.replace(
        VIT,
        pooling="gap",
        norm_pooled=True,
        registers=1,
        gelu="exact",
        position_resize="bicubic",
        initialization="deit",
    ),
}
# Formats without a head, and with one that has no biases.
HEADLESS = {("rotary", "transformers"), ("map", "transformers")}
UNBIASED = {("clip", "original"), ("clip", "transformers")}


def network(name: str) -> Any:  # noqa: ANN401  # a ViT, whose parts are modules without types
    if name not in CONFIGS:
        return make(name)
    model = build(CONFIGS[name], seed=3)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(0.1 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0)))
    return model


def written(name: str, format_name: str, folder: Path) -> tuple[Any, Path]:
    model = network(name)
    if (name, format_name) in HEADLESS:
        model.head.weight.data.zero_()
    if (name, format_name) in HEADLESS | UNBIASED:
        model.head.bias.data.zero_()
    if model.config.rotary != "none":  # keys have no biases there
        for block in model.encoder:
            block.attention.qkv.bias.data[32:64] = 0
    target = {"transformers": "folder", "timm": "weights.safetensors"}.get(format_name, "weights.pth")
    return model, write_weights(model, PHOTOS.with_size(32), NAMES, folder / target, format_name).path


@every_case(("name", "format_name"), WRITTEN)
def test_what_is_written_gives_the_same_logits_when_read(name: str, format_name: str, tmp_path: Path) -> None:
    model, path = written(name, format_name, tmp_path)
    back = vitral.load(path)
    batch = images(model)
    with torch.inference_mode():
        headless = (name, format_name) in HEADLESS  # such a file says nothing of a head
        compared = (back.features, model.features) if headless else (back, model)
        torch.testing.assert_close(compared[0](batch), compared[1](batch), atol=1e-5, rtol=1e-5)
    ours, theirs = model.state_dict(), back.model.state_dict()
    same = [key for key in ours if ours[key].shape == theirs[key].shape]
    assert all(torch.equal(ours[key], theirs[key]) for key in same)
    assert set(ours) - set(same) <= {"head.weight", "head.bias"}


@every_case(("name", "format_name"), WRITTEN)
@every_case("damage", ["missing", "extra", "misshaped"])
def test_a_tensor_that_does_not_belong_is_named(name: str, format_name: str, damage: str, tmp_path: Path) -> None:
    _, path = written(name, format_name, tmp_path)
    file = path / "model.safetensors" if path.is_dir() else path
    torch_file = file.suffix == ".pth"
    content: Any = torch.load(file, weights_only=True) if torch_file else load_file(file)
    tensors: Any = content.get("model", content)
    key = next(key for key in sorted(tensors) if ".0." in key and tensors[key].ndim == 2)
    if damage == "missing":
        del tensors[key]
    elif damage == "extra":
        tensors[f"{key}_more"] = tensors[key] + 1
    else:
        tensors[key] = tensors[key][..., :-1].clone()
    torch.save(content, file) if torch_file else save_file(tensors, file)
    with pytest.raises(WeightsError, match=key) as refused:
        vitral.load(path, architecture={"num_heads": 2})
    assert "\n" not in str(refused.value)
    assert str(file) in str(refused.value)


def test_dinov2s_own_files_hold_what_its_code_asks_for(tmp_path: Path) -> None:
    model, path = written("dinov2-registers", "original", tmp_path)
    tensors = torch.load(path, weights_only=True)
    assert tensors["mask_token"].shape == (1, 32)
    assert tensors["register_tokens"].shape == (1, 2, 32)
    assert tensors["pos_embed"].shape == (1, 17, 32)
    assert not tensors["pos_embed"][:, 0].any()  # the class token's position is part of the token
    assert tensors["blocks.0.mlp.w12.weight"].shape == (96, 32)
    config = vitral.load(path, architecture={"num_heads": 2}).model.config
    assert (config.mlp, config.registers, config.class_position) == ("swiglu", 2, False)
    assert config.position_resize == "bicubic-antialias"


def test_dinov2_is_read_at_the_size_that_its_authors_use_and_says_so(tmp_path: Path) -> None:
    model = vitral.create_model("dinov2-s14", num_classes=3)
    path = write_weights(model, PHOTOS.with_size(518), NAMES, tmp_path / "weights.pth", "original").path
    (tmp_path / "weights.pth.vitral.json").unlink()
    read = vitral.load(path)
    assert (read.model.image_size, read.preprocessing.image_size) == ((224, 224), (224, 224))
    assert (read.preprocessing.resize, read.preprocessing.crop_fraction) == ("crop", 0.875)
    assert any("image_size=518 keeps them" in note for note in read.provenance.notes)
    assert read.provenance.source.endswith("(dinov2-s14)")
    native = vitral.load(path, image_size=518)
    assert torch.equal(native.model.position.embedding, model.position.embedding)  # type: ignore[union-attr,arg-type]
    assert not any("keeps them" in note for note in native.provenance.notes)


def test_each_source_of_dinov2_keeps_its_own_way_of_resizing(tmp_path: Path) -> None:
    for format_name, method in (
        ("original", "bicubic-dinov2"),
        ("timm", "bicubic-antialias"),
        ("transformers", "bicubic"),
    ):
        _, path = written("dinov2", format_name, tmp_path / format_name)
        if format_name == "transformers":
            config = json.loads((path / "config.json").read_text())
            assert (config["model_type"], config["architectures"]) == ("dinov2", ["Dinov2ForImageClassification"])
        elif format_name == "timm":
            save_file(load_file(path), path)  # without our own description
        else:
            path.with_name(f"{path.name}.vitral.json").unlink()
        assert vitral.load(path, architecture={"num_heads": 2}).model.config.position_resize == method


def test_clips_projection_is_a_head_and_said_to_be_none_of_classes(tmp_path: Path) -> None:
    _, path = written("clip", "original", tmp_path)
    tensors = torch.load(path, weights_only=True)
    assert tensors["visual.proj"].shape == (32, 3)
    assert tensors["visual.class_embedding"].shape == (32,)
    path.with_name(f"{path.name}.vitral.json").unlink()
    tensors["text_projection"], tensors["transformer.resblocks.0.ln_1.weight"] = torch.zeros(4, 4), torch.ones(4)
    tensors["attn_mask"] = torch.zeros(4, 4, dtype=torch.int64)  # whatever the text tower holds is never read
    torch.save(tensors, path)
    read = vitral.load(path, architecture={"num_heads": 2})
    assert any("3 numbers, which are no classes" in note for note in read.provenance.notes)
    assert any("gelu=quick" in note for note in read.provenance.notes)
    assert (read.model.config.gelu, read.model.config.norm_eps) == ("exact", 1e-5)
    assert (read.preprocessing.resize, round(read.preprocessing.mean[0], 4)) == ("crop", 0.4815)


@every_case(
    ("name", "format_name", "message"),
    [
        ("eva02", "timm", "cannot hold biases of EVA-02's keys"),
        ("clip", "original", "cannot hold a head with biases on CLIP's class token; take 'timm'"),
        ("clip", "transformers", "cannot hold a head with biases on CLIP's class token; take 'timm'"),
        ("map", "transformers", "cannot hold a head after SigLIP's attention pooling; take 'timm'"),
        ("rotary", "transformers", "cannot hold biases of DINOv3's keys|cannot hold a head on DINOv3's class token"),
        ("rotary", "timm", "cannot hold biases of DINOv3's keys"),
        ("rotary", "big_vision", "cannot hold"),
        ("clip", "big_vision", "cannot hold"),
        ("pooled-norm", "original", "cannot hold rotary positions of the kind 'eva02'; take 'timm'"),
        ("pooled-norm", "timm", "cannot hold biases of EVA-02's keys"),
        ("pooled-norm", "transformers", "cannot hold"),
        ("dinov2-classifier", "timm", "cannot hold pooling 'token-gap'; take 'transformers'"),
    ],
)
def test_what_a_format_cannot_hold_is_refused_in_a_line(
    name: str, format_name: str, message: str, tmp_path: Path
) -> None:
    model = network(name)
    if model.config.rotary != "none":
        model.encoder[0].attention.qkv.bias.data.fill_(0.5)
    target = {"transformers": "folder", "big_vision": "a.npz"}.get(format_name, "a.pth")
    with pytest.raises(WeightsError, match=message) as refused:
        write_weights(model, PHOTOS.with_size(32), NAMES, tmp_path / target, format_name)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_biases_that_fine_tuning_gave_dinov3s_keys_are_kept_in_its_own_format(tmp_path: Path) -> None:
    model = network("rotary")
    for block in model.encoder:
        block.attention.qkv.bias.data.normal_()
    path = write_weights(model, PHOTOS.with_size(32), NAMES, tmp_path / "weights.pth", "original").path
    tensors = torch.load(path, weights_only=True)
    assert bool(tensors["blocks.0.attn.qkv.bias_mask"].all())
    assert tensors["rope_embed.periods"].shape == (4,)
    with torch.inference_mode():
        torch.testing.assert_close(vitral.load(path)(images(model)), model(images(model)))
    tensors["blocks.0.attn.qkv.bias_mask"][32:64] = 0
    torch.save(tensors, path)
    path.with_name(f"{path.name}.vitral.json").unlink()
    masked = vitral.load(path, image_size=32, architecture={"num_heads": 2}).model.state_dict()
    assert not masked["encoder.0.attention.qkv.bias"][32:64].any()
    assert bool(masked["encoder.1.attention.qkv.bias"][32:64].all())


@every_case(
    ("name", "tag", "gelu", "said"),
    [
        ("vit_base_patch16_clip_224", "openai", "exact", True),
        ("vit_base_patch16_clip_quickgelu_224", "openai", "quick", False),
        ("vit_base_patch16_clip_224", "dfn2b", "exact", True),
        ("vit_large_patch14_clip_224", "dfn2b_s39b", "exact", False),
        ("vit_base_patch16_clip_224", "laion400m_e32", "exact", False),
        ("vit_base_patch16_clip_224", "openai_ft_in1k", "exact", False),
        ("vit_base_patch32_clip_224", "datacompxl", "exact", False),
    ],
)
def test_clips_in_timms_names_compute_with_the_gelu_of_timms_network_and_say_where_they_learned_with_another(
    name: str, tag: str, gelu: str, said: bool, tmp_path: Path
) -> None:
    _, path = written("clip", "timm", tmp_path)
    save_file(load_file(path), path)  # without our own description
    small = {"embed_dim": 32, "num_heads": 2}
    config = {"architecture": name, "model_args": small, "pretrained_cfg": {"tag": tag}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    read = vitral.load(path)
    assert (read.model.config.gelu, read.model.config.num_heads) == (gelu, 2)
    assert any("gelu=quick" in note for note in read.provenance.notes) == said
    changed = vitral.load(path, architecture={"gelu": "quick"})
    assert changed.model.config.gelu == "quick"
    assert not any("gelu=quick" in note for note in changed.provenance.notes)


def test_siglip_in_timms_names_computes_with_the_tanh_form(tmp_path: Path) -> None:
    model = network("map")
    path = write_weights(model, PHOTOS.with_size(32), NAMES, tmp_path / "siglip.safetensors", "timm").path
    save_file(load_file(path), path)
    read = vitral.load(path, architecture={"num_heads": 2})
    assert read.model.config.gelu == "tanh"
    with torch.inference_mode():
        torch.testing.assert_close(read(images(model)), model(images(model)), atol=1e-5, rtol=1e-5)


def test_relatives_that_we_do_not_have_are_refused_by_what_they_are(tmp_path: Path) -> None:
    _, folder = written("map", "transformers", tmp_path)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    rows = {**tensors, "vision_model.embeddings.patch_embedding.weight": torch.zeros(32, 192)}
    save_file(rows, file)
    with pytest.raises(WeightsError, match="NaFlex; those of a fixed resolution are known"):
        vitral.load(folder)
    _, folder = written("clip", "transformers", tmp_path / "clip")
    file = folder / "model.safetensors"
    save_file({**load_file(file), "classifier.weight": torch.zeros(3, 32)}, file)
    with pytest.raises(WeightsError, match="before the last norm, which is another architecture"):
        vitral.load(folder)
    _, path = written("pooled", "timm", tmp_path / "pooled")
    tensors = load_file(path)
    save_file({**tensors, "norm.weight": torch.ones(32), "norm.bias": torch.zeros(32)}, path)
    with pytest.raises(WeightsError, match="fc_norm"):
        vitral.load(path)
    _, path = written("eva02", "timm", tmp_path / "eva02")
    tensors = load_file(path)
    width = tensors["blocks.0.mlp.fc2.weight"].shape[1]
    plain = {name: tensor[:width].clone() if ".mlp.fc1." in name else tensor for name, tensor in tensors.items()}
    save_file(plain, path)
    with pytest.raises(WeightsError, match="MLP .*without a gate.*EVA-02"):
        vitral.load(path)


def test_an_autoencoders_decoder_is_left_out(tmp_path: Path) -> None:
    model = make("deit")
    folder = write_weights(model, PHOTOS.with_size(32), NAMES, tmp_path / "mae", "transformers").path
    tensors = load_file(folder / "model.safetensors")
    encoder = {name: tensor for name, tensor in tensors.items() if not name.startswith("classifier")}
    save_file({**encoder, "decoder.decoder_pred.weight": torch.zeros(3, 3)}, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "vit_mae"}))
    read = vitral.load(folder)
    assert (read.model.config.position_resize, read.model.config.initialization) == ("bicubic", "deit")
    with torch.inference_mode():
        torch.testing.assert_close(read.features(images(model)), model.features(images(model)))
