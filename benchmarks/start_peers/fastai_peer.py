"""fastai on a folder of photos as its documentation has it, from weights of timm, for as many passes as there is time for.

    PYTHON fastai_peer.py FOLDER NETWORK WEIGHTS SECONDS SEED

PYTHON has fastai and timm, FOLDER has train/ and test/, maybe val/ (else a tenth of train/). vision_learner with
`fine_tune`: a pass of the head, then passes of all weights, all by fastai's own rates and views of the photos at the network's
size. It knows no clock: the passes are those that a few timed batches promise, whose time is not counted, as who has made
a run before knows it. The last line of the output is JSON.
"""

import json
import sys
import time
from itertools import islice
from pathlib import Path

import torch
from fastai.vision.all import (
    ImageDataLoaders,
    Learner,
    Resize,
    accuracy,
    aug_transforms,
    get_image_files,
    set_seed,
    vision_learner,
)
from torch import Tensor

BEGUN = time.monotonic()
BATCH = 64  # fastai's
SIZE = 224
LARGER = 1.15  # times this side, to which photos are brought before a view is cut from them
LOADED = 4  # batches, and
TIMED = 2  # of which the network learns
SLACK = 0.95  # of the time that is left


def seconds_to_load(learn: Learner) -> float:
    """Return what the loader takes for a batch."""
    begun, count = time.monotonic(), 0
    for _ in islice(learn.dls.train, LOADED):
        count += 1
    return (time.monotonic() - begun) / count


def seconds_to_learn(learn: Learner, batch: tuple[Tensor, Tensor], *, whole: bool) -> float:
    """Return what the network takes for a batch where all of its weights learn, or the head alone."""
    (learn.unfreeze if whole else learn.freeze)()
    images, labels = batch
    begun = time.monotonic()
    for _ in range(TIMED):
        learn.loss_func(learn.model(images), labels).backward()
        learn.model.zero_grad()
    return (time.monotonic() - begun) / TIMED


def passes(learn: Learner, left: float) -> tuple[float, float]:
    """Return for how many passes of the head alone there is time, and of all weights."""
    loading, batch = seconds_to_load(learn), learn.dls.one_batch()
    head, whole = (seconds_to_learn(learn, batch, whole=whole) for whole in (False, True))
    left *= SLACK
    batches = len(learn.dls.train) + len(learn.dls.valid) / 3  # a batch that is only scored costs a third
    # On few cores loading and learning share them: neither is free beside the other.
    return left / (batches * (loading + head)), left / (batches * (loading + whole))


def main() -> None:
    """Learn, score the test photos and print what came out."""
    folder, network, weights, seconds, seed = sys.argv[1:]
    set_seed(int(seed), reproducible=True)
    split = {"valid": "val"} if (Path(folder) / "val").is_dir() else {"valid_pct": 0.1, "seed": int(seed)}
    # Only train/ (and val/): without `valid` every folder below the path would be taken.
    path = Path(folder) if "valid" in split else Path(folder) / "train"
    loaders = ImageDataLoaders.from_folder(
        path, bs=BATCH, item_tfms=Resize(round(LARGER * SIZE)), batch_tfms=aug_transforms(size=SIZE), **split
    )
    overlay = {"file": weights}
    learn = vision_learner(loaders, network, metrics=accuracy, pretrained_cfg_overlay=overlay)
    ready = time.monotonic()
    heads, wholes = passes(learn, float(seconds) - (ready - BEGUN))
    untimed = time.monotonic() - ready
    learn.freeze()
    if count := int(wholes * (1 - 1 / max(heads, 1))):
        learn.fine_tune(count)
    else:
        learn.fit_one_cycle(max(1, int(heads)))
    taken = time.monotonic() - BEGUN - untimed
    photos = get_image_files(Path(folder) / "test")
    answers, _ = learn.get_preds(dl=learn.dls.test_dl(photos))
    classes = list(learn.dls.vocab)
    names = [classes[index] for index in answers.argmax(dim=1).tolist()]
    right = sum(name == photo.parent.name for name, photo in zip(names, photos, strict=True))
    chose = f"{count} passes of all weights" if count else f"{max(1, int(heads))} passes of the head"
    print(json.dumps({"accuracy": right / len(photos), "seconds": taken, "chose": chose}))


if __name__ == "__main__":
    torch.multiprocessing.set_sharing_strategy("file_system")
    main()
