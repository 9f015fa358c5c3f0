"""A tree of labels made by hand: its levels, and files that are none."""

from pathlib import Path

import pytest

from tests.cases import every_case
from vitral.data.label_tree import Levels, levels, read_tree
from vitral.errors import DataError

TREE = {"tabby": "cat", "siamese": "cat", "cat": "animal", "dog": "animal", "animal": "thing", "car": "thing"}
CLASSES = ("tabby", "siamese", "dog", "car")


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_file_says_what_stands_above_each_label(tmp_path: Path) -> None:
    text = "".join(f"{label}\t{above}\n" for label, above in TREE.items())
    assert read_tree(written(tmp_path / "tree.tsv", f"\n{text}\n tabby \t cat \nbird\n")) == {**TREE, "bird": None}


def test_levels_of_one_label_alone_are_left_out() -> None:
    found = levels(TREE, CLASSES, "tree")
    assert found == Levels(
        nodes=(("animal", "car"), ("cat", "dog"), ("tabby", "siamese")),  # "thing" above all tells nothing apart
        places=((0, 0, 0), (0, 0, 1), (0, 1, None), (1, None, None)),
    )


def test_a_class_may_stand_above_another_and_trees_may_be_several() -> None:
    found = levels({"tabby": "cat", "siamese": "cat", "car": None}, ("tabby", "siamese", "cat", "car"), "tree")
    assert found.nodes == (("cat", "car"), ("tabby", "siamese"))
    assert found.places == ((0, 0), (0, 1), (0, None), (1, None))


def test_classes_are_found_in_another_unicode_form() -> None:
    composed, apart = "b\u00e9b\u00e9", "be\u0301be\u0301"
    for written_as, named in ((composed, apart), (apart, composed)):
        found = levels({written_as: "person", "dog": "animal"}, (named, "dog"), "tree")
        assert found.nodes == (("person", "animal"), (named, "dog"))


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_a_label(tmp_path: Path) -> None:
    path = tmp_path / "tree.tsv"
    path.write_bytes("\ufefftabby\tcat\r\nsiamese\tcat\r\n".encode())
    assert read_tree(path) == {"tabby": "cat", "siamese": "cat"}


def test_two_levels_as_of_cifar100() -> None:
    tree = {f"fine {number}": f"coarse {number // 5}" for number in range(100)}
    found = levels(tree, tuple(tree), "tree")
    assert [len(nodes) for nodes in found.nodes] == [20, 100]
    assert all(places == (number // 5, number) for number, places in enumerate(found.places))


@every_case(
    ("text", "said"),
    [
        ("tabby\tcat\tanimal\n", "line 1, is not a label, a tab, and the label above it: 'tabby\tcat\tanimal'"),
        ("tabby\t\n", "line 1, is not a label"),
        ("tabby\tcat\ntabby\tdog\n", "line 2: 'tabby' is below 'dog' and below 'cat'; choose one"),
        ("cat\ncat\tanimal\n", "line 2: 'cat' is below 'animal' and below nothing; choose one"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_what_is_no_tree_is_refused(text: str | bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "tree.tsv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=said):
        read_tree(path)
    with pytest.raises(DataError, match="gone"):
        read_tree(tmp_path / "gone")
    with pytest.raises(DataError, match="pipe|device|never end|not a file"):
        read_tree("/dev/zero")


def test_cycles_and_unknown_classes_are_refused() -> None:
    with pytest.raises(DataError, match="'cat' stands above itself"):
        levels({"tabby": "cat", "cat": "animal", "animal": "cat"}, ("cat", "tabby"), "tree")
    with pytest.raises(DataError, match="'a' stands above itself"):
        levels({"a": "a", "b": "a"}, ("a", "b"), "tree")
    with pytest.raises(DataError, match="2 of the 3 classes: dgo, bird.* 'dog'"):
        levels(TREE, ("tabby", "dgo", "bird"), "tree")
    with pytest.raises(DataError, match="has the class 'animal' alone on its level"):
        levels({"cat": "animal", "dog": "animal"}, ("animal", "cat", "dog"), "tree")
    with pytest.raises(DataError, match="no level that tells two of the classes apart"):
        levels({"one": "two"}, ("one",), "tree")
