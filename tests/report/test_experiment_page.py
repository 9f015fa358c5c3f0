"""The page of a study of the paper's, as HTML and as Markdown: both figures, every text of a user's harmless."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

from tests.cases import every_case
from tests.report.experiments import LEVELS, SIZES, experiment
from vitral.report.experiment_page import ExperimentPage, write_experiment, write_experiment_markdown

EVIL = "<script>alert('x')</script>|```[a](b) *c*"


def html(tmp_path: Path, evil: str = "", *, paper_chart: bool = True) -> str:
    write_experiment(experiment(evil, paper_chart=paper_chart), tmp_path / "experiment.html")
    return (tmp_path / "experiment.html").read_text()


class Reader(HTMLParser):
    """Collects the tags and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def words_of(page: ExperimentPage) -> tuple[str, ...]:
    """Return what a page says in words, in either form."""
    said = (page.question, page.conclusion, page.shows, page.command, page.machine, page.paper.source, "54 min")
    return (*said, page.paper.note, page.ours.note, *page.study.remarks())


def test_the_page_has_both_figures_the_words_the_table_and_how_it_was_made(tmp_path: Path) -> None:
    page, reader = experiment(), Reader()
    reader.feed(html(tmp_path))
    assert reader.tags.count("svg") == 3  # with the mark above the title
    for text in words_of(page):
        assert text in reader.text
    assert [name for name in LEVELS for size in SIZES if f"{name}, {size:,} images" not in reader.text] == []
    assert reader.text.index(page.ours.title) > reader.text.index("The paper")


def test_a_figure_without_printed_values_is_told_in_words(tmp_path: Path) -> None:
    reader = Reader()
    reader.feed(html(tmp_path, paper_chart=False))
    assert reader.tags.count("svg") == 2
    assert "Depth helped most." in reader.text


def test_no_text_of_a_users_becomes_markup(tmp_path: Path) -> None:
    reader = Reader()
    reader.feed(html(tmp_path, EVIL))
    assert "script" not in reader.tags
    assert reader.text.count(EVIL) >= 6


def test_the_markdown_has_the_same_with_its_drawings_beside_it(tmp_path: Path) -> None:
    page = experiment()
    write_experiment_markdown(page, tmp_path / "docs" / "data-size.md")
    text = (tmp_path / "docs" / "data-size.md").read_text()
    for name in ("data-size-paper.svg", "data-size-ours.svg"):
        assert f"]({name})" in text
        root = ElementTree.fromstring((tmp_path / "docs" / name).read_text().partition("?>")[2])
        assert "var(" not in ElementTree.tostring(root, encoding="unicode")
    plain = text.replace("\\", "")
    for part in words_of(page):
        assert part in plain
    assert "_" not in re.sub(r"`{3}.*?`{3}", "", text, flags=re.DOTALL)


@every_case("paper_chart", [True, False])
def test_the_markdowns_tables_are_whole_whatever_the_names(tmp_path: Path, paper_chart: bool) -> None:
    write_experiment_markdown(experiment(EVIL, paper_chart=paper_chart), tmp_path / "experiment.md")
    text = (tmp_path / "experiment.md").read_text()
    outside = re.sub(r"(?ms)^(`{3,})$.*?^\1$", "", text)
    assert not re.search(r"(?<!\\)<(?!/?(details|summary)>)", outside)
    assert (tmp_path / "experiment-paper.svg").exists() == paper_chart
    assert not re.search(r"(?<!\\)`", outside)
    assert len(re.findall(r"(?m)^`{4}$", text)) == 2, "a fence is longer than what is in it"
    tables = re.findall(r"(?m)(?:^\|.*\n)+", outside)
    assert len(tables) == (4 if paper_chart else 2)
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1
