"""The pages of docs/, which are in the package: their sections, and the section that is about a word.

An installed regard has them in its folder; from a clone they are read from docs/ itself.
"""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PACKAGE = Path(__file__).parents[2]
FOLDER = next(
    (one for one in (_PACKAGE / "docs", _PACKAGE.parents[1] / "docs") if (one / "README.md").is_file()),
    _PACKAGE / "docs",
)
INDEX, GLOSSARY, MAP = "README", "words", "homework"  # the map names every topic, and explains none
_FENCE = re.compile(r"^```", re.MULTILINE)
_ROW = re.compile(r"^\| (\S[^|]*) \| (.*) \| \[.*\]\((\w+)\.md#?(.*)\) \|$", re.MULTILINE)  # of the glossary
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


class Section(NamedTuple):
    """A heading of a page with the text below it, up to the next heading that is as high."""

    page: str  # without .md
    heading: str
    text: str  # with the heading

    @property
    def anchor(self) -> str:
        """What a link to it ends with; of the first section of a page nothing.

        >>> Section("questions", "Why divide by √head_dim?", "").anchor
        'why-divide-by-head_dim'
        """
        words = re.sub(r"[^\w\- ]", "", plain(self.heading).lower())
        return "" if self.text.startswith("# ") else words.replace(" ", "-")

    def score(self, words: Sequence[str]) -> int:
        """How much a section is about these words: by its heading, by the first cells of its tables, by how often."""
        heading, text = comparable(plain(self.heading)), comparable(self.text)
        phrase = " ".join(words)
        if heading == phrase:
            return 1000
        counts = [len(re.findall(rf"(?<!\w){re.escape(one)}", text)) for one in words]
        if not all(counts):
            return 0
        score = min(sum(counts), 20) + 40 * (phrase in text) + 60 * sum(one in heading for one in words if len(one) > 3)
        score += 500 * bool(re.search(rf"(?<!\w){re.escape(phrase)}s?(?!\w)", heading))
        score += 400 * (self.text.startswith("# ") and self.page.rstrip("s") == phrase.rstrip("s"))
        score += 200 * bool(re.search(rf"^\| [`*]*{re.escape(phrase)}[`*]*(?:\(| \||,| ·)", text, re.MULTILINE))
        return 1 + score // 4 if self.page == MAP else score


@cache
def pages() -> dict[str, str]:
    """Every page by its name, in the order of the index."""
    if not FOLDER.is_dir():
        raise ValueError(f"the pages are missing: there is no folder {FOLDER}; install regard again")
    order = re.findall(r"^\| \[(\w+)\.md\]", (FOLDER / f"{INDEX}.md").read_text(encoding="utf-8"), re.MULTILINE)
    return {name: (FOLDER / f"{name}.md").read_text(encoding="utf-8") for name in order}


def contents() -> list[tuple[str, str]]:
    """The pages, and what each answers."""
    index = (FOLDER / f"{INDEX}.md").read_text(encoding="utf-8")
    return re.findall(r"^\| \[(\w+)\.md\]\([^)]*\) \| (.*) \|$", index, re.MULTILINE)


def sections(name: str, text: str) -> Iterator[Section]:
    """The sections of a page. The first one is what is above its second heading."""
    starts = list(_headings(text))
    for number, (level, start, heading) in enumerate(starts):
        later = (one for one in starts[number + 1 :] if one[0] <= max(level, 2))
        end = next((one[1] for one in later), len(text))
        yield Section(name, heading, text[start:end].strip())


def find(words: Sequence[str]) -> list[Section]:
    """The sections about these words, best first; where the first word is a page, only its own.

    Where the glossary has the words, the section that it names is first. A ValueError names near words if no section
    says them.
    """
    known = pages()
    first, *others = words
    inside = {first: known[first]} if others and first in known else known
    asked = comparable(" ".join(others if inside is not known else words)).split()
    every = [one for name, text in inside.items() if name != GLOSSARY for one in sections(name, text)]
    named = _glossary(words)[2:] if inside is known else ()
    scored = [(one.score(asked) + 800 * ((one.page, one.anchor) == named), one) for one in every]
    scored.sort(key=lambda one: -one[0])
    if not asked or not scored[0][0]:
        where = f"the page {first} does not say" if inside is not known else "no page says"
        typed = " ".join(words if inside is known else others)
        raise ValueError(f"{where} {typed!r}{_near(asked, every)}; regard docs lists the pages")
    return [one for score, one in scored if score]


def meaning(words: Sequence[str]) -> str:
    """What the glossary says about a word; "" if it is not there."""
    return ": ".join(_glossary(words)[:2])


def comparable(text: str) -> str:
    """A text as words are compared: in lower case, with spaces for underscores."""
    return text.lower().replace("_", " ").strip()


def plain(text: str) -> str:
    """A line without its markup.

    >>> plain("What `explain` **says**, [here](see.md)")
    'What explain says, here'
    """
    return re.sub(r"[`*]", "", _LINK.sub(r"\1", text))


def _glossary(words: Sequence[str]) -> tuple[str, ...]:
    """The row of the glossary: word, meaning, page and anchor; nothing if it is not there."""
    asked = comparable(" ".join(words))
    rows: list[tuple[str, ...]] = _ROW.findall(pages()[GLOSSARY])
    return next((row for row in rows if comparable(row[0]) in (asked, asked.removesuffix("s"))), ())


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """Level, place and words of each heading; none is in a block of code."""
    fences = [one.start() for one in _FENCE.finditer(text)]
    for match in re.finditer(r"^(#+) (.+)$", text, re.MULTILINE):
        if sum(fence < match.start() for fence in fences) % 2 == 0:
            yield len(match[1]), match.start(), match[2]


def _near(words: Sequence[str], every: Sequence[Section]) -> str:
    known = {name for one in every for name in re.findall(r"[^\W\d]\w{2,}", comparable(plain(one.text)))}
    unknown = [word for word in words if word not in known]
    near = [one for word in unknown for one in get_close_matches(word, sorted(known), n=3, cutoff=0.7)]
    return f"; did you mean {' or '.join(near)}?" if near else ""
