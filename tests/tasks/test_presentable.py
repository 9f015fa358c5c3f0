"""A result shows its fields to programs and its first line to people, and makes tables of rows."""

from dataclasses import dataclass

from vitral.tasks.shown import Presentable, Table, range_text, table_of


@dataclass(frozen=True, repr=False)
class Weighed(Presentable):
    """A result of two weights."""

    grams: tuple[float, ...]

    def lines(self) -> tuple[str, ...]:
        """Return the heaviest, and how many there are."""
        return f"at most {max(self.grams)} g", f"{len(self.grams)} of them"


def test_fields_are_the_json_values_and_the_first_line_is_the_sentence() -> None:
    found = Weighed((1.5, 2.5))
    assert found.to_json() == {"grams": (1.5, 2.5)}
    assert found.sentence() == "at most 2.5 g"
    assert repr(found) == "Weighed: at most 2.5 g"
    assert found.tables() == ()


def test_a_table_has_a_row_for_each_thing_though_headings_are_alike() -> None:
    table = table_of("Words", ["one", "three"], (("", str.upper), ("", lambda word: str(len(word)))), note="in English")
    assert table == Table("Words", ("", ""), (("ONE", "3"), ("THREE", "5")), note="in English")


def test_a_range_is_in_per_cent() -> None:
    assert range_text((0.12345, 1.0)) == "12.35% to 100.00%"  # as Python rounds
    assert range_text((0.12345, 1.0), 1) == "12.3% to 100.0%"
