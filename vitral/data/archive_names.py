"""Names in an archive or a table that does not say how they are encoded, as Windows writes them in many countries.

An encoding fits if it gives letters that are common in its language. Short names may fit several languages: then nothing is
assumed, and the reader of a message can see which one it is.
"""

import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vitral.data.names import some

SURE = 100  # times as likely as any other encoding, by the number of letters that each has in common use
RARE = 1000  # times as rare as others are words of Latin letters with a Chinese, Japanese or Korean one within
ALPHABETS = ("Western", "Cyrillic")
TYPOGRAPHIC = (
    "\u2018\u2019\u201a\u201c\u201d\u201e\u2013\u2014\u2026\u20ac\u00b0\u00ab\u00bb"  # quotes, dashes and the like
)


@dataclass(frozen=True)
class Encoding:
    """An encoding of names: its name in Python, what it writes, how many letters of it are common, and which are."""

    name: str
    language: str
    letters: int
    common: Callable[[str], bool]


@dataclass(frozen=True)
class Names:
    """Names in an archive.

    Attributes:
        names: The names, in order.
        encoding: The encoding that was assumed; None where nothing had to be.
        readings: The encodings that would fit as well, with some folders as each has them; empty where one was assumed.
    """

    names: tuple[str, ...]
    encoding: str | None = None
    readings: tuple[str, ...] = ()


def _within(encoding: str, first: int, last: int) -> Callable[[str], bool]:
    """Return what tells whether a letter is one of two bytes in an encoding, the leading one in a range."""

    def common(letter: str) -> bool:
        try:
            written = letter.encode(encoding)
        except UnicodeEncodeError:
            return False
        return len(written) == 2 and first <= written[0] <= last  # bytes

    return common


def _kana_or(common: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda letter: "\u3041" <= letter <= "\u30fe" or common(letter)


def _in_script(script: str) -> Callable[[str], bool]:
    return lambda letter: unicodedata.name(letter, "").startswith(script) and letter.isalpha()


# The bytes are those of the first levels of the national standards: JIS X 0208, GB 2312, KS X 1001, Big5.
ENCODINGS = (
    Encoding("cp932", "Japanese", 3100, _kana_or(_within("shift_jis", 0x88, 0x98))),
    Encoding("gbk", "simplified Chinese", 3755, _within("gb2312", 0xB0, 0xD7)),
    Encoding("big5", "traditional Chinese", 5401, _within("big5", 0xA4, 0xC6)),
    Encoding("cp949", "Korean", 2350, _within("euc_kr", 0xB0, 0xC8)),
    Encoding("cp866", "Cyrillic", 66, _in_script("CYRILLIC")),
    Encoding("cp1251", "Cyrillic", 66, _in_script("CYRILLIC")),
    Encoding("cp437", "Western", 64, _in_script("LATIN")),
    Encoding("cp850", "Western", 64, _in_script("LATIN")),
    Encoding("cp1252", "Western", 64, _in_script("LATIN")),
)
# What spreadsheets save text in: one encoding for each country, none of DOS.
OF_TABLES = (
    *(encoding for encoding in ENCODINGS if encoding.language != "Western" and encoding.name != "cp866"),
    Encoding("cp1252", "Western", 64, lambda letter: letter in TYPOGRAPHIC or _in_script("LATIN")(letter)),
)


def decode_names(raw: Sequence[bytes], encodings: Sequence[Encoding] = ENCODINGS) -> Names:
    """Return names from their bytes: UTF-8 if all are, else in the encoding that is by far the likeliest.

    Where none is, the names stay readable as bytes (surrogate escapes), and the encodings that fit are named.
    """
    try:
        return Names(tuple(name.decode() for name in raw))
    except UnicodeDecodeError:
        pass
    foreign = [name for name in raw if not name.isascii()]
    likely: dict[tuple[str, ...], tuple[float, Encoding]] = {}
    for encoding in encodings:
        read = _read(foreign, encoding)
        if read is not None:
            likely.setdefault(read, (_likelihood(read, encoding), encoding))
    ranked = sorted(likely.items(), key=lambda item: -item[1][0])
    if ranked and (len(ranked) == 1 or ranked[0][1][0] - ranked[1][1][0] > math.log(SURE)):
        encoding = ranked[0][1][1]
        return Names(tuple(name.decode(encoding.name) for name in raw), encoding.name)
    readings = tuple(f"{encoding.name} ({encoding.language}: {_shown(read)})" for read, (_, encoding) in ranked)
    return Names(tuple(name.decode("utf-8", "surrogateescape") for name in raw), None, readings)


def _read(names: Sequence[bytes], encoding: Encoding) -> tuple[str, ...] | None:
    """Return names as an encoding has them; None where a letter is not common in its language, or stands oddly."""
    try:
        read = tuple(name.decode(encoding.name) for name in names)
    except UnicodeDecodeError:
        return None
    for name in read:
        for part in name.replace("\\", "/").split("/"):
            letters = [letter for letter in part if not letter.isascii()]
            foreign = sum(map(str.isalpha, letters))
            if not all(map(encoding.common, letters)) or not _is_word(part, encoding.language, foreign):
                return None
    return read


def _likelihood(names: Sequence[str], encoding: Encoding) -> float:
    """Return how likely names are in an encoding, as a logarithm, were all of its common letters equally frequent."""
    letters = {letter for name in names for letter in name if not letter.isascii()}
    within = {
        pair
        for name in names
        for pair in zip(name, name[1:], strict=False)
        if pair[0].isascii() != pair[1].isascii() and "".join(pair).isalpha()
    }
    rare = 0 if encoding.language in ALPHABETS else len(within) * math.log(RARE)
    return -len(letters) * math.log(encoding.letters) - rare


def _is_word(part: str, language: str, foreign: int) -> bool:
    """Tell whether letters of alphabets stand as in words: few among Latin ones, no Cyrillic ones, small after small ones."""
    if language not in ALPHABETS or not foreign:
        return True
    latin = sum(letter.isascii() and letter.isalpha() for letter in part.rpartition(".")[0] or part)
    fitting = latin == 0 if language == "Cyrillic" else latin >= foreign
    return fitting and not any(one.islower() and two.isupper() for one, two in zip(part, part[1:], strict=False))


def _shown(names: Sequence[str]) -> str:
    folders = {part for name in names for part in name.replace("\\", "/").split("/")[:-1] if not part.isascii()}
    return some(folders or {name.rpartition("/")[2] for name in names})
