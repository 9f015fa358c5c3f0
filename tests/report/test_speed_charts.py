"""The drawing of speeds has a line for each contender and each limit."""

import dataclasses
from pathlib import Path
from xml.etree import ElementTree

import pytest

from vitral.cli.main import main
from vitral.deployment.bench import Bench, Speed
from vitral.report.speed_charts import BENCH_MARK, speed_chart, write_chart


def speed(name: str, batch_size: int, images_per_second: float) -> Speed:
    return Speed(name, "fp32", batch_size, images_per_second, {"50": 1, "90": 1, "99": 1}, 3, 0.5, None, None, None)


FOUND = Bench(
    network="ViT-Ti/16",
    image_size=(224, 224),
    gmacs=1.25,
    machine="a processor",
    threads=2,
    limits={"fp32": 1e12},
    speeds=(speed("vitral packed", 8, 90.0), speed("vitral packed", 1, 50.0), speed("timm eager", 8, 40.0)),
    missing={},
)


def test_each_contender_is_a_line_and_the_limit_is_operations_over_products() -> None:
    series = {one.name: [(point.x, point.y) for point in one.points] for one in speed_chart(FOUND).series}
    assert series == {
        "timm eager, fp32": [(8, 40.0)],
        "vitral packed, fp32": [(1, 50.0), (8, 90.0)],
        "limit of fp32 products": [(1, 400.0), (8, 400.0)],  # 1e12 / (2 x 1.25e9)
    }


def test_it_is_a_drawing_of_its_own(tmp_path: Path) -> None:
    write_chart(speed_chart(FOUND), tmp_path / "speeds.svg", BENCH_MARK)
    root = ElementTree.parse(tmp_path / "speeds.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    text = (tmp_path / "speeds.svg").read_text()
    assert "var(--" not in text
    assert "ViT-Ti/16 at 224x224 pixels" in "".join(root.itertext())
    assert "a processor, 2 threads" in "".join(root.itertext())


def test_of_a_single_batch_size_the_contenders_are_listed() -> None:
    alone = speed_chart(dataclasses.replace(FOUND, speeds=FOUND.speeds[::2]))
    assert {series.name: [(point.x, point.y) for point in series.points] for series in alone.series} == {
        "fp32": [("limit of products", 400.0), ("vitral packed", 90.0), ("timm eager", 40.0)]
    }
    assert "batches of 8" in alone.note
    assert alone.y.log
    assert speed_chart(FOUND).y.log


def test_another_file_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "speeds.svg"
    path.write_text("a drawing of mine")
    assert main(["bench", "vit-mu4", "--plot", str(path)]) == 1
    assert "already exists" in capsys.readouterr().err
    assert path.read_text() == "a drawing of mine"
    assert main(["bench", "vit-mu4", "--plot", str(tmp_path / "speeds.png")]) == 1
    assert "let it end in .svg" in capsys.readouterr().err
