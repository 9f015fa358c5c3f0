"""Masks in the rows of a Hugging Face dataset: a second column of images, called like masks, says the class of each pixel."""

from collections.abc import Sequence
from pathlib import Path

from vitral.data.annotations.find import listing_of
from vitral.data.annotations.mask_images import read_masks
from vitral.data.annotations.mask_pairs import MaskPairs
from vitral.data.annotations.sizes import fitted
from vitral.data.annotations.tree import FileTree
from vitral.data.listing import Listing
from vitral.data.stored import JoinedStores, Store
from vitral.paths import FoundFile


def list_masked(title: str, name: str, photos: Store, masks: Store, splits: Sequence[str]) -> Listing:
    """Return the photos in the rows of tables with what their masks say, as of a folder of both.

    Args:
        title: The dataset, for people.
        name: What its runs are called.
        photos: The photo of each row.
        masks: The mask of each row.
        splits: The split of each row.

    Raises:
        DataError: no mask can be read, or their values tell nothing apart.
    """
    pairs = {f"{split}/{row}.png": f"{split}/masks/{row}.png" for row, split in enumerate(splits)}
    paths = [*pairs, *pairs.values()]
    store = JoinedStores([(photos, len(pairs)), (masks, len(pairs))])
    folders = {path.rpartition("/")[0] for path in paths}
    numbers = {path: number for number, path in enumerate(paths)}
    tree = FileTree(Path(title), name, store, numbers, [FoundFile(path, 0) for path in paths], folders)
    marked = read_masks(tree, MaskPairs({photo: [mask] for photo, mask in pairs.items()}, objects=False))
    return listing_of(tree, fitted(tree, marked))
