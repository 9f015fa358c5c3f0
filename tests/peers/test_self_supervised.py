"""MAE and LeJEPA by their recipes against the originals' modules on shared weights: transformers' ViT-MAE, which converts the
authors' checkpoints, and timm's network with torchvision's projector, which LeJEPA's code builds.
"""

from typing import Any

import pytest
import torch
from torch import nn

from tests.peers.compare import gap, pixels, scramble
from vitral.models.families import build
from vitral.models.vit import ViT
from vitral.objectives.latent_views import LatentViews
from vitral.objectives.masked_autoencoder import MaskedAutoencoder, rebuilding_loss
from vitral.training.settings.recipe import load_recipe, network_config

timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")
torchvision = pytest.importorskip("torchvision")
pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TOLERANCE = 4e-6  # of float32; with the tanh form of the GELU the gap is more than 100 times as wide


def network_of(name: str, **smaller: Any) -> ViT:
    """Return a recipe's network, with fewer and narrower blocks."""
    shape = [f"{key}={value}" for key, value in smaller.items()]
    network = build(network_config(load_recipe(name, [*shape, "regularization.stochastic_depth=0"]), 10), seed=0)
    assert isinstance(network, ViT)
    return network


def copied(ours: nn.Module, theirs: dict[str, torch.Tensor], names: dict[str, str], left: set[str]) -> None:
    """Copy tensors by their names there, in which pieces are replaced; `left` are ours that have no counterpart."""
    own = ours.state_dict()
    for name, tensor in theirs.items():
        for piece, replacement in names.items():
            name = name.replace(piece, replacement)
        own[name].copy_(tensor.reshape(own[name].shape))
        left = left | {name}
    assert own.keys() == left


def test_mae_rebuilds_what_the_authors_module_rebuilds() -> None:
    encoder = {"depth": 3, "width": 48, "mlp_width": 192, "heads": 3, "image_size": 64}
    network = network_of("mae-vit-l16", **encoder)
    module = MaskedAutoencoder(network, share=0.75, depth=2, width=32, heads=4, seed=0)
    config = transformers.ViTMAEConfig(
        hidden_size=48, num_hidden_layers=3, num_attention_heads=3, intermediate_size=192, image_size=64, patch_size=16,
        decoder_hidden_size=32, decoder_num_hidden_layers=2, decoder_num_attention_heads=4, decoder_intermediate_size=128,
        norm_pix_loss=True, layer_norm_eps=1e-6, attn_implementation="eager",
    )  # fmt: skip
    peer = transformers.ViTMAEForPreTraining(config).eval()
    scramble(peer)
    peer.vit.embeddings.initialize_weights()  # its waves
    peer.decoder.initialize_weights(16)
    _take_mae(module, peer.state_dict())
    torch.testing.assert_close(module.positions[0, 1:], peer.decoder.decoder_pos_embed[0, 1:])
    images, noise = pixels((64, 64), 3), torch.rand(3, 16, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        theirs = peer(images, noise=noise)
        visible = noise.argsort(dim=1)[:, :4]
        rebuilt = module.decode(module.encode(images, visible), visible)
        loss = rebuilding_loss(rebuilt, images, theirs.mask.bool(), patch=(16, 16), normalized=True)
    assert gap(rebuilt, theirs.logits) < TOLERANCE
    assert float(loss) == pytest.approx(float(theirs.loss), rel=1e-5)


def _take_mae(module: MaskedAutoencoder, theirs: dict[str, torch.Tensor]) -> None:
    stacked = dict(theirs)
    for name in [name for name in theirs if ".q_proj." in name]:
        parts = [stacked.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        stacked[name.replace("q_proj", "qkv")] = torch.cat(parts)
    stacked.pop("decoder.decoder_pos_embed")
    names = {
        "vit.embeddings.cls_token": "network.class_token",
        "vit.embeddings.position_embeddings": "network.position.embedding",
        "vit.embeddings.patch_embeddings.projection": "network.patch_embedding",
        "vit.layers": "network.encoder",
        "vit.layernorm": "network.norm",
        "decoder.decoder_embed": "embedding",
        "decoder.mask_token": "mask_token",
        "decoder.decoder_layers": "decoder",
        "decoder.decoder_norm": "norm",
        "decoder.decoder_pred": "prediction",
        "o_proj": "out",
        "layernorm_before": "norm1",
        "layernorm_after": "norm2",
    }
    copied(module, stacked, names, {"network.head.weight", "network.head.bias"})


def test_lejepa_projects_what_the_authors_module_projects() -> None:
    network = network_of("lejepa-vit-s8", depth=2, image_size=32)
    module = LatentViews(network, hidden=64, dimensions=16, seed=0)
    backbone = timm.create_model("vit_small_patch8_224", num_classes=0, img_size=32, depth=2)
    projector = torchvision.ops.MLP(384, [64, 64, 16], norm_layer=nn.BatchNorm1d)
    scramble(backbone)
    scramble(projector)
    names = {"attn.proj": "attention.out", "attn": "attention", "blocks": "encoder", "patch_embed.proj": "patch_embedding",
             "cls_token": "class_token", "pos_embed": "position.embedding"}  # fmt: skip
    copied(network, backbone.state_dict(), names, {"head.weight", "head.bias"})
    linear = [layer for layer in projector if isinstance(layer, nn.Linear)]
    norms = [layer for layer in projector if isinstance(layer, nn.BatchNorm1d)]
    for own, other in zip((*module.layers, *module.norms), (*linear, *norms), strict=True):
        own.load_state_dict({name: value for name, value in other.state_dict().items() if name in own.state_dict()})
    views = pixels((32, 32), 6).reshape(2, 3, 3, 32, 32)  # views, images
    with torch.no_grad():
        theirs = projector.train()(backbone.eval()(views.flatten(0, 1))).unflatten(0, (2, 3))
        assert gap(module(tuple(views)), theirs) < 10 * TOLERANCE  # the batch norms divide by what three images vary
