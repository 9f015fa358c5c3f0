"""What was computed of images, kept on this machine: a second command on the same photos and network computes nothing.

Rows are kept by the content of the image and by what made them: the network without its head, the preprocessing and the
precision. Each call that computes some writes one file; when there are too many, those that were not used for longest go. What
cannot be read or written is computed again: nothing here fails a command.
"""

import contextlib
import functools
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import safe_open
from torch import Tensor

from vitral import distributed
from vitral.data.source import DIGEST_BYTES, HASHED, Source
from vitral.data.subset import Subset
from vitral.errors import StorageError, VitralError, WeightsError
from vitral.events import Event, Listener, Message, Progress, ignore
from vitral.files import drop_oldest, new_file
from vitral.images.header import is_deep
from vitral.images.preprocessing import Preprocessing
from vitral.inference.predictor import collect
from vitral.machine import in_threads, vitral_version
from vitral.models.model import HEADS, Features, Images, Model
from vitral.paths import cache
from vitral.tasks.task import Targets
from vitral.weights.containers import weights_errors, write_safetensors

KIND = "features"  # of what is cached
LIMIT = 1 << 30  # bytes of all files
KEYS = "keys"  # tensors of a file
ROWS = "rows"
OF = "of"  # in its metadata: the name under which its rows are kept, for a file may be copied elsewhere
SUFFIX = ".safetensors"
REMEMBERED = 1 << 17  # files whose hash a process remembers

Compute = Callable[[Images], Features]
Key = bytes  # a hash of an image's encoded content; empty where there is none
Rows = dict[Key, Float[Tensor, " values"]]


@dataclass(frozen=True)
class KeptColumn:
    """Something that is computed of each image, and kept.

    Attributes:
        compute_for: Returns what computes a row for each of a batch of prepared images of a source.
        name: The name under which the rows are kept, by `name_of`; empty where they are not.
    """

    compute_for: Callable[[Source], Compute]
    name: str

    def unkept(self, source: Source) -> "KeptColumn":
        """Return the same of which nothing is kept, with what computes the images of a source made."""
        compute = self.compute_for(source)
        return KeptColumn(lambda source: compute, "")


def collect_kept(
    columns: Sequence[KeptColumn],
    source: Source,
    preprocessing: Preprocessing,
    **how: Any,  # noqa: ANN401  # of `collect`
) -> tuple[list[Features], Targets]:
    """Return the rows of each column, and the labels, of every image of a source in order; known ones are not computed.

    `how` are the other arguments of `collect`, whose errors are raised.
    """
    keys, kept = distributed.by_main(lambda: _looked_up(columns, source))
    if not any(keys):
        return _computed(columns, source, preprocessing, **how)
    missing = [index for index, key in enumerate(keys) if not all(key in rows for rows in kept)]
    made: list[Features] = []
    if missing:
        listener = functools.partial(_counting, how["listener"], len(keys) - len(missing))
        made, _ = _computed(columns, Subset(source, missing), preprocessing, **how | {"listener": listener})
    else:
        how["listener"](Progress(how["purpose"], len(keys), len(keys)))
    if missing and distributed.rank() == 0:
        _write(columns, [keys[index] for index in missing], made, how["listener"])
    places = {index: place for place, index in enumerate(missing)}
    whole = [
        torch.stack([made[number][places[index]] if index in places else rows[key] for index, key in enumerate(keys)])
        for number, rows in enumerate(kept)
    ]
    return whole, how["encode"]([source.label(index) for index in range(len(source))])


def _counting(listener: Listener, known: int, event: Event) -> None:
    """Pass an event on; of progress, with so many images that are known already."""
    if isinstance(event, Progress):
        event = replace(event, done=event.done + known, total=event.total + known)
    listener(event)


def keep(columns: Sequence[KeptColumn], source: Source, values: Sequence[Features]) -> None:
    """Keep the rows of each column of a source's images, those that have a key, if that can be."""
    if distributed.rank() == 0 and all(column.name for column in columns):
        _write(columns, image_keys(source), values, ignore)


def _write(columns: Sequence[KeptColumn], keys: Sequence[Key], values: Sequence[Features], listener: Listener) -> None:
    try:
        for column, rows in zip(columns, values, strict=True):
            write_rows(column.name, keys, rows)
    except StorageError as error:
        reason = getattr(error.__cause__, "strerror", None) or "it cannot be written"
        _say_once(listener, f"The features of the photos are not kept in '{cache(KIND)}': {reason}.")


@functools.lru_cache(maxsize=1)
def _say_once(listener: Listener, line: str) -> None:
    listener(Message(line, warning=True))


def missing_share(columns: Sequence[KeptColumn], source: Source) -> float:
    """Return the share of a source's images that are to be computed, 0 to 1."""
    keys, kept = distributed.by_main(lambda: _looked_up(columns, source))
    return sum(not all(key in rows for rows in kept) for key in keys) / len(keys) if any(keys) else 1.0


def _looked_up(columns: Sequence[KeptColumn], source: Source) -> tuple[Sequence[Key], list[Rows]]:
    """Return the keys of the images, and what is kept of each column."""
    keys = image_keys(source) if all(column.name for column in columns) else ()
    return keys, [read_rows(column.name, set(keys)) for column in columns] if any(keys) else []


def _computed(
    columns: Sequence[KeptColumn],
    source: Source,
    preprocessing: Preprocessing,
    **how: Any,  # noqa: ANN401  # of `collect`
) -> tuple[list[Features], Targets]:
    widths: list[int] = []
    computes = [column.compute_for(source) for column in columns]

    def compute(images: Images) -> Features:
        parts = [each(images) for each in computes]
        widths[:] = [part.shape[1] for part in parts]
        return torch.cat(parts, dim=1)

    values, labels = collect(compute, source, preprocessing, **how)
    return list(torch.split(values, widths, dim=1)), labels


def image_keys(source: Source) -> Sequence[Key]:
    """Return a hash of the content of each image; empty for pixels, and for images of 16 bits a value.

    What such values mean depends on the other images. There are no keys where the source is without end, best read in order, or
    so large that its images are not hashed for its fingerprint either.
    """
    if source.endless or source.shards or len(source) > HASHED:
        return ()
    return list(in_threads(functools.partial(_key, source), range(len(source))))


def _key(source: Source, index: int) -> Key:
    try:
        content = source.encoded(index)
        if isinstance(content, Path):
            status = content.stat()
            return _of_file(content, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else b""
    except (VitralError, OSError, AttributeError):
        return b""  # what cannot be read is reported where it is decoded; a plugin's source may give pixels alone
    return b"" if content is None else _of_bytes(content)


@functools.lru_cache(maxsize=REMEMBERED)
def _of_file(path: Path, size: int, changed: int) -> Key:
    """Return the key of a file; `size` and `changed` tell a changed one."""
    return _of_bytes(path.read_bytes())


def _of_bytes(content: bytes) -> Key:
    return b"" if is_deep(content) else hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


def name_of(preprocessing: Preprocessing, *what: object) -> str:
    """Return a name for rows that are made of images so prepared by `what`; another version of Vitral has other names."""
    made = repr((vitral_version(), preprocessing, *what))
    return hashlib.sha256(made.encode()).hexdigest()[: 2 * DIGEST_BYTES]


def features_hash(network: Model) -> str:
    """Return a hash of everything that a network's features follow from: all but its head."""
    config = replace(network.config, num_classes=1, head_bias=0.0)
    digest = hashlib.sha256(repr(config).encode())
    for name, value in network.state_dict().items():
        if not name.startswith(HEADS):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def read_rows(name: str, wanted: set[Key]) -> Rows:
    """Return the rows that are kept under a name of those images; a file that is damaged, or of another name, is deleted."""
    known: Rows = {}
    for path in (cache(KIND) / name).glob(f"*{SUFFIX}"):
        try:
            keys, rows = _read(path, name)
        except (WeightsError, OSError):
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        known.update((key, row) for key, row in zip(keys, rows, strict=True) if key in wanted)
        with contextlib.suppress(OSError):
            os.utime(path)  # it was used
    return known if len({row.shape for row in known.values()}) < 2 else {}


def _read(path: Path, name: str) -> tuple[list[Key], Features]:
    with weights_errors(path), safe_open(path, framework="pt") as file:
        keys, rows, of = file.get_tensor(KEYS), file.get_tensor(ROWS), (file.metadata() or {}).get(OF)
    whole = keys.shape == (len(rows), DIGEST_BYTES) and keys.dtype == torch.uint8 and rows.ndim == 2
    if of != name or not whole or rows.dtype != torch.float32 or not bool(torch.isfinite(rows).all()):
        raise WeightsError(f"'{path}' holds no features that were kept under '{name}'.")
    return [row.tobytes() for row in keys.numpy()], rows


def write_rows(name: str, keys: Sequence[Key], rows: Features) -> None:
    """Keep the rows of some images, those with a key, under a name.

    Raises:
        StorageError: They cannot be written.
    """
    having = [index for index, key in enumerate(keys) if key]
    rows = rows[having].float()
    if not having or rows.nbytes > LIMIT or not bool(torch.isfinite(rows).all()):
        return
    joined = b"".join(keys[index] for index in having)
    path = cache(KIND) / name / f"{hashlib.sha256(joined).hexdigest()[:32]}{SUFFIX}"
    packed = torch.frombuffer(bytearray(joined), dtype=torch.uint8).view(-1, DIGEST_BYTES)
    with new_file(path) as partial:
        write_safetensors({KEYS: packed, ROWS: rows}, partial, {OF: name})
    drop_oldest(cache(KIND), LIMIT)
