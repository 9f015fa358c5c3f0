"""Mask images of every kind give the class of each pixel; what misleads in them is handled and said."""

import io
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cases import every_case
from tests.data.annotations import drawn
from vitral.data.annotations import coded_map, kept_outlines, mask_images
from vitral.data.annotations.tree import StoredFile
from vitral.data.open import open_data
from vitral.data.source import DataSet
from vitral.errors import VitralError
from vitral.tasks.regions import VOID, Regions

Map = np.ndarray
COLOURS = np.array([[0, 0, 0], [200, 30, 30], [30, 200, 30]], dtype=np.uint8)
BLUE = np.array([[0, 0, 0], [0, 0, 255], [255, 0, 0]], dtype=np.uint8)  # as a number as small as grey


def palette(labels: Map) -> Image.Image:
    image = Image.fromarray(labels.astype(np.uint8), "P")
    image.putpalette([value for colour in range(256) for value in (255 - colour, colour * 7 % 256, 17)])
    return image


def deep(labels: Map) -> Image.Image:
    return Image.fromarray(labels.astype(np.uint16) * 1000)


def with_alpha(labels: Map) -> Image.Image:
    alpha = np.full(labels.shape, 90, dtype=np.uint8)
    return Image.fromarray(np.dstack([labels] * 3 + [alpha]).astype(np.uint8))


WRITTEN: dict[str, tuple[Callable[[Map], Image.Image], tuple[str, ...]]] = {
    "grey": (lambda labels: Image.fromarray(labels.astype(np.uint8)), ("0", "1", "2")),
    "palette": (palette, ("0", "1", "2")),
    "16 bits": (deep, ("0", "1000", "2000")),
    "equal channels and alpha": (with_alpha, ("0", "1", "2")),
    "colours": (lambda labels: Image.fromarray(COLOURS[labels]), ("#000000", "#1ec81e", "#c81e1e")),
    "blue": (lambda labels: Image.fromarray(BLUE[labels]), ("#000000", "#0000ff", "#ff0000")),
    "0 and 255": (lambda labels: Image.fromarray((labels > 0).astype(np.uint8) * 255), ("background", "object")),
    "1 bit": (lambda labels: Image.fromarray(labels > 0), ("background", "object")),
}


def write(folder: Path, image: Callable[[Map], Image.Image], *, mask: str = "masks/{name}.png") -> None:
    drawn.photos(folder / "images")
    for name, boxes in drawn.SCENES.items():
        path = folder / mask.format(name=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        image(drawn.class_map(boxes)).save(path)


def maps(data: DataSet) -> dict[str, Map]:
    found = {}
    for source in data.splits.values():
        for index in range(len(source)):
            label = source.label(index)
            assert isinstance(label, Regions)
            found[Path(source.describe(index)).stem] = label.class_map()
    return found


def said(data: DataSet, words: str) -> bool:
    return any(words in note for note in data.notes)


@every_case("kind", list(WRITTEN))
def test_masks_of_every_kind_give_the_class_of_each_pixel(tmp_path: Path, kind: str) -> None:
    image, names = WRITTEN[kind]
    write(tmp_path, image)
    data = open_data(tmp_path)
    assert (data.task.name, data.class_names) == ("semantic", names)
    assert said(data, f"Annotations: mask images, {len(names)} classes in 20 photos")
    order = [0, 2, 1] if kind == "colours" else [0, 1, 1] if len(names) == 2 else [0, 1, 2]
    for name, found in maps(data).items():
        assert np.array_equal(found, np.array(order)[drawn.class_map(drawn.SCENES[name])])


def test_a_palette_beside_colours_stands_for_its_colours(tmp_path: Path) -> None:
    def mixed(labels: Map) -> Image.Image:
        image = Image.fromarray(COLOURS[labels])
        if labels.sum() % 2:
            return image
        indexed = Image.fromarray((labels + 5).astype(np.uint8), "P")
        indexed.putpalette([*[9] * 15, *COLOURS.flatten().tolist(), *[9] * 744])
        return indexed

    write(tmp_path / "mixed", mixed)
    write(tmp_path / "colours", lambda labels: Image.fromarray(COLOURS[labels]))
    mixed_up, plain = open_data(f"semantic:{tmp_path / 'mixed'}"), open_data(f"semantic:{tmp_path / 'colours'}")
    assert mixed_up.class_names == plain.class_names
    expected = maps(plain)
    assert all(np.array_equal(found, expected[name]) for name, found in maps(mixed_up).items())


def test_a_mask_of_another_kind_than_the_others_is_said(tmp_path: Path) -> None:
    kinds = {"colours": lambda labels: Image.fromarray(COLOURS[labels]), "grey": WRITTEN["grey"][0]}
    for most, few in (("colours", "grey"), ("grey", "colours")):
        write(tmp_path / most, kinds[most])
        kinds[few](drawn.class_map(drawn.SCENES["photo_3"])).save(tmp_path / most / "masks" / "photo_3.png")
        black = np.zeros((drawn.HEIGHT, drawn.WIDTH), dtype=np.uint8)
        Image.fromarray(black).save(tmp_path / most / "masks" / "photo_5.png")
        data = open_data(tmp_path / most)
        (note,) = [note for note in data.notes if "of another kind" in note]
        assert "1 in 1 file" in note
        assert "masks/photo_3.png" in note


@every_case(
    ("image", "words"),
    [
        (lambda labels: Image.new("L", labels.shape[::-1]), "one value alone (0)"),
        (
            lambda labels: Image.fromarray(np.dstack([labels * 0 + 255] * 3 + [(labels > 0) * 255]).astype(np.uint8)),
            "transparency is not looked at",
        ),
    ],
)
def test_masks_that_tell_nothing_apart_are_one_line(
    tmp_path: Path, image: Callable[[Map], Image.Image], words: str
) -> None:
    write(tmp_path, image)
    with pytest.raises(VitralError) as raised:
        open_data(tmp_path)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_255_beside_other_values_is_ignored_and_stray_values_are_no_classes(tmp_path: Path) -> None:
    def bordered(labels: Map) -> Image.Image:
        values = labels.astype(np.uint8)
        values[0] = 255
        return Image.fromarray(values)

    write(tmp_path, bordered)
    path = tmp_path / "masks" / "photo_7.png"
    values = np.asarray(Image.open(path)).copy()
    values[30, 40:43] = 77
    Image.fromarray(values).save(path)
    data = open_data(tmp_path)
    assert data.class_names == ("0", "1", "2")
    assert (maps(data)["photo_7"][0] == VOID).all()
    assert (maps(data)["photo_7"][30, 40:43] == VOID).all()
    assert said(data, "Pixels of value 255 in masks are ignored")
    assert said(data, "a few pixels that are no classes, ignored: 1 in 1 file, such as 'masks/photo_7.png'")


@every_case(
    ("file", "text", "kind"),
    [
        ("classes.txt", "ground\ncell\nplatelet\n", "palette"),
        ("codes.txt", "ground\ncell\nplatelet\n", "grey"),
        ("_classes.csv", "Pixel Value, Class\n0, ground\n1, cell\n2, platelet\n", "grey"),
        (
            "labelmap.txt",
            "# label:color_rgb:parts:actions\nground:0,0,0::\ncell:200,30,30::\nplatelet:30,200,30::\n",
            "colours",
        ),
        ("label_colors.txt", "0 0 0\tground\n200 30 30\tcell\n30 200 30\tplatelet\n", "colours"),
        ("class_dict.csv", "name,r,g,b\nground,0,0,0\ncell,200,30,30\nplatelet,30,200,30\n", "colours"),
        (
            "dataset_meta.json",
            '{"label_map": {"0": "ground", "1": "cell", "2": "platelet"}, '
            '"segmentation_colors": [[0,0,0],[200,30,30],[30,200,30]]}',
            "colours",
        ),
    ],
)
def test_lists_beside_the_masks_name_the_classes(tmp_path: Path, file: str, text: str, kind: str) -> None:
    write(tmp_path, WRITTEN[kind][0])
    (tmp_path / file).write_text(text)
    data = open_data(tmp_path)
    assert data.class_names == ("ground", "cell", "platelet")
    assert np.array_equal(maps(data)["photo_0"], drawn.class_map(drawn.SCENES["photo_0"]))


def test_masks_of_another_size_and_damaged_ones(tmp_path: Path) -> None:
    write(tmp_path, WRITTEN["grey"][0])
    path = tmp_path / "masks" / "photo_0.png"
    Image.open(path).resize((160, 120), Image.Resampling.NEAREST).save(path)
    (tmp_path / "masks" / "photo_1.png").write_bytes(path.read_bytes()[:120])
    (tmp_path / "masks" / "photo_2.png").unlink()
    data = open_data(tmp_path)
    assert np.array_equal(maps(data)["photo_0"], drawn.class_map(drawn.SCENES["photo_0"]))
    assert said(data, "masks are enlarged or reduced by the nearest pixel: 1 in 1 file, such as 'images/photo_0.png'")
    assert "cannot be read as a mask" in data.bad_images[0].reason
    assert said(data, "1 image without annotation is left out: images/photo_2.png.")


def soft(labels: Map, form: str, **how: int) -> Image.Image:
    """Return a mask of black and white as a program leaves it that softens edges: encoded with loss, or made smaller."""
    inside = Image.fromarray((labels > 0).astype(np.uint8) * 255)
    if form == "smaller":
        return inside.rotate(7, Image.Resampling.BICUBIC).rotate(-7, Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    inside.convert("RGB" if form == "colours" else "L").save(buffer, "JPEG", **how)
    return Image.open(buffer)


@every_case(("form", "suffix"), [("grey", ".jpg"), ("colours", ".jpg"), ("colours", ".png"), ("smaller", ".png")])
def test_softened_masks_of_black_and_white_have_two_classes(tmp_path: Path, form: str, suffix: str) -> None:
    write(tmp_path, lambda labels: soft(labels, form, quality=80), mask=f"masks/{{name}}{suffix}")
    data = open_data(tmp_path, near=False, verify=False)
    assert (data.task.name, data.class_names) == ("semantic", ("background", "object"))
    for name, found in maps(data).items():
        inside = drawn.class_map(drawn.SCENES[name]) > 0
        assert ((found == 1) != inside).mean() < (0.03 if form == "smaller" else 0.001)
        assert not (found == VOID).any()
    source = data.splits["train"]
    annotation = source.annotation(0)  # type: ignore[attr-defined]
    assert not set(annotation.traps()) - {coded_map.BLACK_AND_WHITE}


def test_jpeg_masks_of_classes_are_refused_in_one_line(tmp_path: Path) -> None:
    kinds = {"grey": lambda labels: Image.fromarray((90 * labels).astype(np.uint8)), "colours": WRITTEN["colours"][0]}
    for kind, image in kinds.items():
        write(tmp_path / kind, image, mask="masks/{name}.jpg")
        words = "is a JPEG, which changes the values of a mask, .* save masks as PNG"
        with pytest.raises(VitralError, match=words) as caught:
            open_data(f"semantic:{tmp_path / kind}")
        assert "\n" not in str(caught.value)


def test_masks_of_one_and_of_white_are_of_one_object(tmp_path: Path) -> None:
    numbers = iter(range(1000))
    write(tmp_path, lambda labels: Image.fromarray((labels > 0).astype(np.uint8) * (255 if next(numbers) % 2 else 1)))
    data = open_data(tmp_path)
    assert data.class_names == ("background", "object")
    for name, found in maps(data).items():
        assert np.array_equal(found, drawn.class_map(drawn.SCENES[name]) > 0)


def test_a_list_with_too_few_names_is_said(tmp_path: Path) -> None:
    write(tmp_path, WRITTEN["grey"][0])
    (tmp_path / "classes.txt").write_text("cell\nplatelet\n")
    data = open_data(tmp_path)
    assert said(data, "The list of 2 classes does not name the value 2 of masks: its pixels are ignored")


def test_folders_of_classes_stay_classes_and_a_prefix_reads_their_masks(tmp_path: Path) -> None:
    for number, (name, boxes) in enumerate(drawn.SCENES.items()):
        kind = ("sick", "well")[number % 2]
        drawn.draw(tmp_path / kind / f"{name}.png", boxes)
        Image.fromarray((drawn.class_map(boxes) > 0).astype(np.uint8) * 255).save(tmp_path / kind / f"{name}_mask.png")
    plain = open_data(tmp_path)
    assert (plain.task.name, plain.class_names) == ("single-label", ("sick", "well"))
    assert said(plain, "'semantic:' before the data's name learns from them")
    data = open_data(f"semantic:{tmp_path}")
    assert (data.task.name, data.class_names) == ("semantic", ("background", "object"))
    boxes = open_data(f"boxes:{tmp_path}")  # type: ignore[assignment]
    assert (boxes.task.name, boxes.class_names) == ("boxes", ("object",))  # type: ignore[attr-defined]


def write_objects(folder: Path) -> None:
    """Write photos as DSB-2018 has them: PHOTO/images/PHOTO.png and PHOTO/masks/*.png, an image an object."""
    for name, boxes in drawn.SCENES.items():
        drawn.draw(folder / name / "images" / f"{name}.png", boxes)
        (folder / name / "masks").mkdir()
        for number, box in enumerate(boxes):
            mask = (drawn.class_map([box]) > 0).astype(np.uint8) * 255
            Image.fromarray(mask).save(folder / name / "masks" / f"{number}{name}.png")


def test_an_image_an_object_gives_instances_that_may_overlap(tmp_path: Path) -> None:
    write_objects(tmp_path)
    Image.fromarray(np.zeros((60, 80), dtype=np.uint8)).save(tmp_path / "photo_0" / "masks" / "empty.png")
    shutil.rmtree(tmp_path / "photo_4" / "masks")
    data = open_data(tmp_path)
    assert (data.task.name, data.class_names) == ("instances", ("object",))
    assert said(data, "masks without a pixel of an object, left out: 1")
    assert said(data, "1 image without annotation is left out")
    for source in data.splits.values():
        for index in range(len(source)):
            label, boxes = source.label(index), drawn.SCENES[Path(source.describe(index)).stem]
            assert isinstance(label, Regions)
            assert sorted(label.boxes.tolist()) == sorted(list(map(float, box)) for _, *box in boxes)
            assert sorted(label.areas) == sorted((right - left) * (low - top) for _, left, top, right, low in boxes)


def test_outlines_are_kept_by_the_content_of_their_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_outlines, "FEWEST", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_objects(tmp_path / "photos")
    empty = tmp_path / "photos" / "photo_0" / "masks" / "empty.png"
    Image.fromarray(np.zeros((60, 80), dtype=np.uint8)).save(empty)
    decoded: list[str] = []

    def watched(file: StoredFile, content: bytes) -> np.ndarray:
        decoded.append(file.name)
        return decode(file, content)

    decode = mask_images._decoded
    monkeypatch.setattr(mask_images, "_decoded", watched)

    def opened() -> tuple[dict[str, list[bytes]], int, bool]:
        decoded.clear()
        data = open_data(tmp_path / "photos")
        labels = [(source.describe(n), source.label(n)) for source in data.splits.values() for n in range(len(source))]
        regions = {name: [runs.tobytes() for runs in label.masks or ()] for name, label in labels}  # type: ignore[union-attr]
        return regions, len(decoded), said(data, "masks without a pixel of an object, left out: 1")

    count = 1 + sum(map(len, drawn.SCENES.values()))
    first = opened()
    assert first[1:] == (count, True)
    assert opened() == (first[0], 0, True)
    changed = tmp_path / "photos" / "photo_0" / "masks" / "0photo_0.png"
    Image.fromarray(np.full((60, 80), 255, dtype=np.uint8)).save(changed)
    third = opened()
    assert third[1:] == (1, True)
    assert {name for name, masks in third[0].items() if masks != first[0][name]} == {
        name for name in first[0] if name.endswith("photo_0.png")
    }
    (kept,) = (tmp_path / "cache" / "vitral" / "outlines").iterdir()
    kept.write_text('{"a": [1]}')
    assert opened()[0] == third[0]


def grey_png(values: Map, bits: int) -> bytes:
    """Return a grey PNG of so many bits a pixel, which no library here writes."""
    places = np.unpackbits(values.astype(np.uint8)[..., None], axis=2)[..., 8 - bits :]
    rows = np.packbits(places.reshape(len(values), -1), axis=1)
    lines = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], bits, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


@every_case("bits", [1, 2, 4, 8])
def test_objects_of_few_bits_are_where_they_are_not_0(tmp_path: Path, bits: int) -> None:
    masks = [drawn.class_map([box]) > 0 for box in drawn.boxes_of(0)]
    for number in range(2):
        drawn.draw(tmp_path / f"{number}/images/{number}.png", drawn.boxes_of(0))
        (tmp_path / f"{number}/masks").mkdir()
        for place, mask in enumerate(masks):
            (tmp_path / f"{number}/masks/{place}.png").write_bytes(grey_png(mask, bits))
    label = open_data(tmp_path).splits["train"].label(0)
    assert isinstance(label, Regions)
    assert np.array_equal(label.bitmaps(), masks)


def test_other_tasks_are_had_by_prefixes(tmp_path: Path) -> None:
    write_objects(tmp_path)
    by_pixel = open_data(f"semantic:{tmp_path}")
    assert by_pixel.class_names == ("background", "object")
    assert said(by_pixel, "What is in no region is of the class 'background'.")
    for name, found in maps(by_pixel).items():
        assert np.array_equal(found, drawn.class_map(drawn.SCENES[name]) > 0)
    assert open_data(f"boxes:{tmp_path}").task.name == "boxes"
    assert open_data(f"part:1/2:boxes:{tmp_path}").task.name == "boxes"
    classes = tmp_path / "by class"
    write(classes, WRITTEN["grey"][0])
    parts = open_data(f"instances:{classes}")
    assert parts.class_names == ("1", "2")
    assert said(parts, "Each connected part of a class is taken as an object")
    with pytest.raises(VitralError, match="put 'semantic:' before"):
        parts.for_task(by_pixel.task)


@every_case("spec", ["boxes:", "semantic:{}", "instances:digits"])
def test_data_without_annotations_are_refused(tmp_path: Path, spec: str) -> None:
    drawn.photos(tmp_path / "a")
    drawn.photos(tmp_path / "b")
    with pytest.raises(VitralError) as caught:
        open_data(spec.format(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_mask_of_no_photo_and_a_photo_without_one_are_said_and_left_out(tmp_path: Path) -> None:
    write(tmp_path, WRITTEN["grey"][0])
    expected = maps(open_data(str(tmp_path), verify=False))
    name = next(iter(drawn.SCENES))
    shutil.copy(tmp_path / "masks" / f"{name}.png", tmp_path / "masks" / "gone.png")
    shutil.copy(next((tmp_path / "images").glob(f"{name}.*")), tmp_path / "images" / "alone.png")
    data = open_data(str(tmp_path), verify=False, near=False)
    assert data.task.name == "semantic"
    assert maps(data).keys() == expected.keys()
    assert any("masks of photos that are not there" in note and "'masks/gone.png'" in note for note in data.notes)
    assert any("without annotation" in note and "alone.png" in note for note in data.notes)


def test_masks_of_a_folder_that_is_called_so_are_judged_together(tmp_path: Path) -> None:
    write(tmp_path, WRITTEN["colours"][0])
    for number in range(8):
        photo = tmp_path / "images" / f"photo_{number}.png"
        Image.fromarray(np.asarray(Image.open(photo).convert("L")) // 64 * 64).save(photo)
    data = open_data(f"semantic:{tmp_path}", near=False)
    assert maps(data).keys() == drawn.SCENES.keys()
    assert not said(data, "left out")


def test_photos_in_a_folder_of_few_masks_are_said_to_look_unlike_masks(tmp_path: Path) -> None:
    write(tmp_path, WRITTEN["colours"][0])
    names = list(drawn.SCENES)[:12]
    for name in names:
        drawn.draw(tmp_path / "masks" / f"{name}.png", drawn.SCENES["photo_4"])
    shutil.copy(tmp_path / "masks" / "photo_19.png", tmp_path / "masks" / "gone.png")
    data = open_data(f"semantic:{tmp_path}", near=False)
    assert maps(data).keys() == drawn.SCENES.keys() - {*names}
    assert said(data, "do not look like the masks of their photos, left out: 12 in 12 files, such as 'masks/photo_")
    assert said(data, "masks of photos that are not there, or not told apart by names, left out: 1 in 1 file")
