"""Exported files of other programs: their own answers, names and preparation of images, or what is guessed, said."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from scipy.special import expit, softmax
from torchvision import transforms

import vitral
from tests.cases import every_case
from vitral.classifier.classifier import Classifier
from vitral.errors import WeightsError
from vitral.events import Message, ignore

SIDE = 16  # pixels
OPSET = 17
Mean = Callable[[np.ndarray], np.ndarray]  # from what a file gives to probabilities
ULTRALYTICS = {"author": "Ultralytics", "task": "classify", "imgsz": f"[{SIDE}, {SIDE}]"}
PETS = "{0: 'cat', 1: 'dog', 2: 'bird'}"


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photo") / "photo.png"
    rows, columns = np.mgrid[:40, :60]
    pixels = np.stack([rows * 6, columns * 4, 90 + 60 * np.sin(rows / 7)], axis=-1)
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


def write(
    path: Path,
    ends: Sequence[str] = (),
    *,
    outputs: int = 3,
    takes: Sequence[int | str] = (1, 3, SIDE, SIDE),
    gives: Sequence[int | str] | None = None,
    kinds: tuple[int, int] = (TensorProto.FLOAT, TensorProto.FLOAT),
    scale: float = 8,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write a file: the mean colour by a matrix, and then some operations; the channels come last if they do in `takes`.

    Of `ends`, "Round" is a step of 8 bits, and "One" the reshaping of a file that was traced with one image.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    matrix = np.random.default_rng(0).normal(0, scale, (3, outputs)).astype(np.float32)
    first = [helper.make_node("Transpose", ["given"], ["planes"], perm=[0, 3, 1, 2])] if takes[-1] == 3 else []
    nodes = [
        helper.make_node("Cast", ["images"], ["given"], to=TensorProto.FLOAT),
        *first,
        helper.make_node("GlobalAveragePool", ["planes" if first else "given"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "matrix"], ["0"]),
    ]
    for number, end in enumerate(ends):
        before, after = str(number), str(number + 1)
        if end == "Round":
            nodes += [
                helper.make_node("QuantizeLinear", [before, "step", "zero"], [f"{after}-integers"]),
                helper.make_node("DequantizeLinear", [f"{after}-integers", "step", "zero"], [after]),
            ]
        elif end == "One":
            nodes.append(helper.make_node("Reshape", [before, "one"], [after]))
        else:
            where: dict[str, Any] = {"axis": 1} if end.endswith("Softmax") else {}
            nodes.append(helper.make_node(end, [before], [after], **where))
    nodes.append(helper.make_node("Cast", [str(len(ends))], ["answers"], to=kinds[1]))
    constants = {"matrix": matrix, "step": np.float32(0.005), "zero": np.uint8(0), "one": np.array([1, outputs])}
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "theirs",
        [helper.make_tensor_value_info("images", kinds[0], takes)],
        [helper.make_tensor_value_info("answers", kinds[1], gives or (takes[0], outputs))],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items() if name in used],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    helper.set_model_props(model, dict(metadata or {}))
    onnx.save(model, path)
    return path


def load(path: Path) -> tuple[Classifier, Message]:
    heard: list[Any] = []
    classifier = vitral.load(path, listener=heard.append)
    (message,) = heard
    return classifier, message


def answers(classifier: Classifier, photo: Path) -> np.ndarray:
    """Return the probabilities of each class, in order."""
    (prediction,) = classifier.predict(photo, top=99, listener=ignore)
    found = dict(prediction.top)
    return np.array([found[name] for name in classifier.class_names])


def own(path: Path, images: np.ndarray) -> np.ndarray:
    """Return what the file itself gives, by its runtime alone."""
    session = onnxruntime.InferenceSession(path)
    return session.run(None, {"images": images})[0]


def guessed(photo: Path) -> np.ndarray:
    """Return a photo as it is prepared where nothing says how."""
    from vitral.images.preprocessing import PHOTOS

    return PHOTOS.with_size(SIDE)(np.array(Image.open(photo)))[None].numpy()


@every_case(
    ("ends", "mean", "task"),
    [
        ((), softmax, "single-label"),
        (("Softmax",), lambda found: found, "single-label"),
        (("Softmax", "Identity"), lambda found: found, "single-label"),
        (("LogSoftmax",), np.exp, "single-label"),
        (("Sigmoid",), lambda found: found, "multi-label"),
        (("Softmax", "Log", "Exp"), lambda found: found, "single-label"),  # in parts, as some exporters write it
    ],
    ids=["logits", "softmax", "before identity", "log-softmax", "sigmoid", "in parts"],
)
def test_answers_are_the_files_own(ends: tuple[str, ...], mean: Mean, task: str, photo: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "theirs.onnx", ends)
    classifier, message = load(path)
    right = mean(own(path, guessed(photo))[0])
    assert right.max() > 0.6
    np.testing.assert_allclose(answers(classifier, photo), right, atol=1e-5)
    assert classifier.task.name == task
    assert message.warning
    assert "was not written by Vitral" in message.text
    assert "guess" in message.text
    assert ("logits" in message.text) == (ends in ((), ("LogSoftmax",)))


@every_case(
    ("ends", "gives", "mean"),
    [
        ((), (1, 1), expit),
        (("Sigmoid",), (1, 1), lambda found: found),
        (("Sigmoid", "Squeeze"), (1,), lambda found: found),
    ],
    ids=["logit", "sigmoid", "sigmoid without an axis"],
)
def test_one_output_is_of_the_second_of_two_classes(
    ends: tuple[str, ...], gives: tuple[int, ...], mean: Mean, photo: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / "theirs.onnx", ends, outputs=1, gives=gives, metadata={"names": "['sound', 'scratched']"})
    classifier, message = load(path)
    right = float(mean(own(path, guessed(photo))).ravel()[0])
    assert 0.01 < right < 0.99
    np.testing.assert_allclose(answers(classifier, photo), [1 - right, right], atol=1e-5)
    assert classifier.class_names == ("sound", "scratched")
    assert message.warning
    assert "second of two classes" in message.text


@every_case(("kind", "last"), [("FLOAT16", False), ("DOUBLE", False), ("UINT8", False), ("UINT8", True)], ids=str)
def test_images_and_answers_of_other_types(kind: str, last: bool, photo: Path, tmp_path: Path) -> None:
    shape = ("batch", SIDE, SIDE, 3) if last else ("batch", 3, SIDE, SIDE)
    number, gives = getattr(TensorProto, kind), TensorProto.FLOAT if kind == "UINT8" else getattr(TensorProto, kind)
    path = write(tmp_path / "theirs.onnx", ("Softmax",), takes=shape, kinds=(number, gives), scale=0.02)
    images = guessed(photo)
    if kind == "UINT8":
        images = ((images + 1) * 127.5).round()
    given = images.astype({"FLOAT16": np.float16, "DOUBLE": np.float64, "UINT8": np.uint8}[kind])
    right = own(path, given.transpose(0, 2, 3, 1) if last else given)[0]
    assert right.std() > 0.001
    classifier, message = load(path)
    np.testing.assert_allclose(answers(classifier, photo), right, atol=1e-4)
    assert ("0 to 255" in message.text) == (kind == "UINT8")
    path = write(tmp_path / "any.onnx", takes=("batch", "height", "width", 3), kinds=(TensorProto.UINT8, gives))
    with pytest.raises(WeightsError, match="fixed height and width"):
        load(path)


@every_case(
    ("ends", "task"),
    [
        (("Softmax", "Round"), "single-label"),
        (("Sigmoid", "Round"), "multi-label"),
        (("Sigmoid", "Relu"), "multi-label"),
        (("Neg", "Neg", "Sigmoid", "Abs"), "multi-label"),
    ],
)
def test_probabilities_are_known_when_another_operation_follows(
    ends: tuple[str, ...], task: str, photo: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / "theirs.onnx", ends, scale=3)
    classifier, message = load(path)
    right = own(path, guessed(photo))[0]
    np.testing.assert_allclose(answers(classifier, photo), right, atol=0.01)
    assert classifier.task.name == task
    assert "probabilities" in message.text


def test_a_file_that_was_traced_with_one_image_is_given_one_at_a_time(photo: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "theirs.onnx", ("One",), takes=("batch", 3, SIDE, SIDE))
    classifier, _ = load(path)
    right = softmax(own(path, guessed(photo))[0])
    pixels = np.array(Image.open(photo))
    predictions = classifier.predict([pixels, 255 - pixels, pixels], top=3, listener=ignore)
    found = [dict(prediction.top)["class 0"] for prediction in predictions]
    np.testing.assert_allclose(found, [right[0], found[1], right[0]], atol=1e-5)


def test_the_number_of_classes_may_be_left_open(photo: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "theirs.onnx", ("Identity",), takes=("batch", 3, SIDE, SIDE))
    model = onnx.load(path)
    model.graph.node[-2].CopyFrom(helper.make_node("Reshape", ["0", "shape"], ["1"]))
    model.graph.node.insert(len(model.graph.node) - 2, helper.make_node("Shape", ["0"], ["shape"]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("answers", TensorProto.FLOAT, None))
    onnx.save(model, path)
    assert not isinstance(onnxruntime.InferenceSession(path).get_outputs()[0].shape[1], int)
    np.testing.assert_allclose(answers(load(path)[0], photo), softmax(own(path, guessed(photo))[0]), atol=1e-5)


def test_the_answers_may_be_a_further_output(photo: Path, tmp_path: Path) -> None:
    for names in ({}, {"names": PETS}):
        model = onnx.load(write(tmp_path / "theirs.onnx", outputs=3, metadata=names))
        model.graph.node.append(helper.make_node("ArgMax", ["0"], ["class"], axis=1, keepdims=0))
        model.graph.node.append(helper.make_node("Concat", ["0", "0"], ["features"], axis=1))
        others = [helper.make_tensor_value_info("class", TensorProto.INT64, (1,))]
        others += [helper.make_tensor_value_info("features", TensorProto.FLOAT, (1, 6))] if names else []
        for value in reversed(others):
            model.graph.output.insert(0, value)
        onnx.save(model, tmp_path / "theirs.onnx")
        classifier, message = load(tmp_path / "theirs.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "theirs.onnx")
        right = softmax(session.run(["answers"], {"images": guessed(photo)})[0][0])
        np.testing.assert_allclose(answers(classifier, photo), right, atol=1e-5)
        assert "'answers'" in message.text


def test_one_image_s_answers_without_an_axis_for_it(photo: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "theirs.onnx", ("Squeeze",), gives=(3,))
    np.testing.assert_allclose(answers(load(path)[0], photo), softmax(own(path, guessed(photo))), atol=1e-5)


def test_what_is_no_answer_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "one.onnx", ("Softmax",), outputs=1)
    with pytest.raises(WeightsError, match="1 for every image"):
        load(path)
    model = onnx.load(write(tmp_path / "numbers.onnx"))
    model.graph.node.append(helper.make_node("ArgMax", ["0"], ["class"], axis=1))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("class", TensorProto.INT64, (1, 1)))
    onnx.save(model, tmp_path / "numbers.onnx")
    with pytest.raises(WeightsError, match="int64"):
        load(tmp_path / "numbers.onnx")


@every_case("last", [False, True])
def test_channels_stand_where_the_file_has_them(last: bool, photo: Path, tmp_path: Path) -> None:
    shape = ("batch", SIDE, SIDE, 3) if last else ("batch", 3, SIDE, SIDE)
    path = write(tmp_path / "theirs.onnx", ("Softmax",), takes=shape)
    images = guessed(photo)
    right = own(path, images.transpose(0, 2, 3, 1) if last else images)[0]
    np.testing.assert_allclose(answers(load(path)[0], photo), right, atol=1e-5)


def test_what_ultralytics_exports_is_read_as_it_says(photo: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "best.onnx", ("Softmax",), metadata={**ULTRALYTICS, "names": PETS})
    classifier, message = load(path)
    theirs = transforms.Compose([transforms.Resize(SIDE), transforms.CenterCrop(SIDE), transforms.ToTensor()])
    right = own(path, theirs(Image.open(photo))[None].numpy())[0]
    assert right.max() > 0.6
    np.testing.assert_allclose(answers(classifier, photo), right, atol=1e-5)
    assert classifier.class_names == ("cat", "dog", "bird")
    assert not message.warning


@every_case(
    ("key", "text", "names"),
    [
        ("names", PETS, ("cat", "dog", "bird")),
        ("names", "{'1': 'dog', '0': 'cat', '2': 'bird'}", ("cat", "dog", "bird")),
        ("classes", '["cat", "dog", "bird"]', ("cat", "dog", "bird")),
        ("class_names", '{"cat": 0, "bird": 2, "dog": 1}', ("cat", "dog", "bird")),
        ("labels", "red fox\ncat\ndog", ("red fox", "cat", "dog")),
        ("labels", "cat, dog, bird", ("cat", "dog", "bird")),
        ("labels", "cat dog bird", ("cat", "dog", "bird")),
        ("names", "['crane', 'crane', 'bird']", ("crane (0)", "crane (1)", "bird")),
        ("names", "['cat', 'dog']", None),
        ("names", "{0: 'cat', 1: 'dog', 7: 'bird'}", None),
        ("names", "open('CANARY', 'w') or ['cat', 'dog', 'bird']", None),
        ("names", "[" * 100_000, None),
        ("names", "[" + "1," * 1_000_000 + "]", None),
    ],
    ids=str,
)
def test_names_in_the_metadata(
    key: str, text: str, names: tuple[str, ...] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    classifier, message = load(write(tmp_path / "theirs.onnx", metadata={key: text}))
    assert classifier.class_names == (names or ("class 0", "class 1", "class 2"))
    assert ("numbers" in message.text) == (names is None)
    assert not (tmp_path / "CANARY").exists()


@every_case("text", ["cat, dog", '["cat", "dog"]', "cat dog"])
def test_one_output_has_the_names_of_two_classes(text: str, tmp_path: Path) -> None:
    classifier, _ = load(write(tmp_path / "theirs.onnx", outputs=1, metadata={"classes": text}))
    assert classifier.class_names == ("cat", "dog")


def test_means_and_deviations_in_the_metadata(photo: Path, tmp_path: Path) -> None:
    for scale, shown in ((1, "[{:.4f}, {:.4f}, {:.4f}]"), (255, "{:.3f} {:.3f} {:.3f}")):
        mean, std = (np.array(values) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        texts = {"mean": shown.format(*mean * scale), "std": shown.format(*std * scale)}
        path = write(tmp_path / "theirs.onnx", ("Softmax",), metadata={**texts, "names": PETS})
        classifier, message = load(path)
        pixels = (guessed(photo) + 1) / 2
        right = own(path, ((pixels - mean[:, None, None]) / std[:, None, None]).astype(np.float32))[0]
        np.testing.assert_allclose(answers(classifier, photo), right, atol=1e-4)
        assert message.warning
        assert "squashed" in message.text


class TestWhatStandsBeside:
    """The JSON files that transformers' exporters and timm write."""

    def beside(self, folder: Path, **problem: str) -> None:
        config = {"model_type": "vit", "id2label": {"0": "cat", "1": "dog", "2": "bird"}, **problem}
        (folder / "config.json").write_text(json.dumps(config))
        processor = {
            "image_processor_type": "ViTImageProcessor", "size": {"height": SIDE, "width": SIDE}, "resample": 2,
            "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6],
        }  # fmt: skip
        (folder / "preprocessor_config.json").write_text(json.dumps(processor))

    def right(self, photo: Path, path: Path) -> np.ndarray:
        pixels = Image.open(photo).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        scaled = (np.asarray(pixels) / 255 - [0.1, 0.2, 0.3]) / [0.4, 0.5, 0.6]
        return own(path, scaled.transpose(2, 0, 1)[None].astype(np.float32))[0]

    @every_case("folder", [".", "onnx"])
    def test_images_of_any_size(self, folder: str, photo: Path, tmp_path: Path) -> None:
        path = write(tmp_path / folder / "model.onnx", takes=("batch", "channels", "height", "width"))
        with pytest.raises(WeightsError, match="fixed height and width"):
            load(path)
        self.beside(tmp_path)
        classifier, message = load(path)
        np.testing.assert_allclose(answers(classifier, photo), softmax(self.right(photo, path)), atol=0.02)
        assert classifier.class_names == ("cat", "dog", "bird")
        assert not message.warning

    def test_the_problem(self, photo: Path, tmp_path: Path) -> None:
        path = write(tmp_path / "model.onnx")
        self.beside(tmp_path, problem_type="multi_label_classification")
        np.testing.assert_allclose(answers(load(path)[0], photo), expit(self.right(photo, path)), atol=0.02)
        self.beside(tmp_path, problem_type="regression")
        with pytest.raises(WeightsError, match="problem_type: regression"):
            load(path)

    def test_timms_own(self, photo: Path, tmp_path: Path) -> None:
        path = write(tmp_path / "model.onnx")
        given = {"mean": [0.4, 0.4, 0.4], "std": [0.2, 0.2, 0.2], "input_size": [3, SIDE, SIDE], "crop_pct": 1.0}
        config = {"architecture": "resnet18", "label_names": ["cat", "dog", "bird"], "pretrained_cfg": given}
        (tmp_path / "config.json").write_text(json.dumps(config))
        classifier, message = load(path)
        assert classifier.class_names == ("cat", "dog", "bird")
        assert (classifier.preprocessing.mean[0], classifier.preprocessing.resize) == (0.4, "crop")
        assert not message.warning

    def test_what_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        path = write(tmp_path / "model.onnx")
        self.beside(tmp_path)
        (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": "large"}))
        with pytest.raises(WeightsError, match="model.onnx"):
            load(path)


def test_files_of_openvino(photo: Path, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    for ends, mean in (((), softmax), (("Softmax",), lambda found: found), (("Sigmoid",), lambda found: found)):
        source = write(tmp_path / "theirs.onnx", ends)
        model = openvino.convert_model(source)
        model.set_rt_info(["cat", "dog", "red_fox"], ["model_info", "labels"])
        model.set_rt_info([255.0], ["model_info", "scale_values"])
        openvino.save_model(model, tmp_path / "theirs.xml", compress_to_fp16=False)
        classifier, _ = load(tmp_path / "theirs.xml")
        assert classifier.class_names == ("cat", "dog", "red_fox")
        right = mean(own(source, (guessed(photo) + 1) / 2)[0])
        np.testing.assert_allclose(answers(classifier, photo), right, atol=1e-5)
    (tmp_path / "metadata.yaml").write_text(
        "author: Ultralytics\ntask: classify\nimgsz: [16, 16]\nnames: {0: a, 1: b, 2: c}\n"
    )
    classifier, message = load(tmp_path / "theirs.xml")
    assert (classifier.class_names, classifier.preprocessing.resize) == (("a", "b", "c"), "crop")
    (tmp_path / "metadata.yaml").write_text("a: [")
    with pytest.raises(WeightsError, match=r"metadata\.yaml"):
        load(tmp_path / "theirs.xml")
