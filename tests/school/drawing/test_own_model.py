"""What came of a learner's own model, in a terminal and on a page."""

import re
from xml.etree import ElementTree

import pytest

from regard.school.drawing.own_model import curve_text, head_sentence, spoken_page, spoken_text

HEADS = [
    {"head": "1.0", "induction": 0.88, "previous": 0.03, "learned": True},
    {"head": "0.1", "induction": 0.02, "previous": 0.91, "learned": False},
]
RESULT = {
    "curve": [{"step": step, "book": 6 - step / 100, "list": 6 - step / 50} for step in range(0, 250, 10)],
    "seconds": 61.4,
    "parameters": 146176,
    "tokens": 83904,
    "text": "Alice <said>\nto the King",
    "heads": HEADS,
    "picture": {
        "words": ["the", "<b>", "the", "<b>"],
        "weights": [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]],
        "cat": {
            "words": ["The", "cat", "sat.", "The"],
            "weights": [[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.5, 0], [0.125, 0.75, 0.125, 0]],
        },
    },
}
NOT_YET = RESULT | {"heads": [HEADS[0] | {"induction": 0.08, "learned": False}, HEADS[1]]}


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_text_keeps_to_the_width_and_has_losses_text_and_head(width):
    text = spoken_text(RESULT, width)
    assert max(map(len, text.split("\n"))) <= width
    joined = " ".join(text.split())
    assert "240 steps in 61 s. Loss on pages that it has not read: 6.00 → 3.60" in joined
    assert "Head 1.0 of your model learned to copy: 0.88 of its weight" in joined
    assert "Alice <said> to the King" in joined


def test_the_sentence_of_the_course_ends_with_a_head_of_ones_own_model():
    text = spoken_text(RESULT, 80)
    assert "read twice by head 1.0 of your own model" in " ".join(text.split())
    assert "  The   .12   .75▓  .12      ·" in text
    assert "<title>The looks at cat: 0.75</title>" in spoken_page(RESULT, "a book", "2026-11-19")
    nothing = RESULT | {"picture": RESULT["picture"] | {"cat": {"words": [], "weights": []}}}
    assert "own model" not in spoken_text(nothing, 80).split("head  token after")[-1]


def test_it_is_said_if_no_head_has_learned_to_copy_and_if_none_was_seen():
    assert head_sentence(NOT_YET).startswith("No head learned to copy yet. The nearest is 1.0, with 0.08 of its weight")
    assert head_sentence(RESULT | {"heads": []}).startswith("Your layer could not be watched")


def test_a_curve_falls_from_the_largest_to_the_smallest():
    lines = curve_text(RESULT["curve"], "list", 80).splitlines()
    assert (lines[0].split()[0], lines[5].split()[0], lines[6].strip()) == ("6.00", "1.20", "step 0 to 240")
    assert [len(line.rstrip()) for line in lines[:6]] == sorted(len(line.rstrip()) for line in lines[:6])


def test_a_curve_without_a_change_is_drawn_too():
    assert "step 0 to 10" in curve_text([{"step": 0, "list": 2.0}, {"step": 10, "list": 2.0}], "list", 80)


def test_the_page_escapes_what_was_written_and_loads_nothing():
    page = spoken_page(RESULT, "a <book>", "2026-11-19")
    assert "Alice &lt;said&gt;" in page
    assert "a &lt;book&gt;" in page
    assert "<b>" not in page
    assert re.search(r"(src|href)=", page) is None


def test_every_picture_of_the_page_is_well_formed_and_says_what_it_shows():
    pictures = re.findall(r"<svg.*?</svg>", spoken_page(RESULT, "Alice", "2026-11-19"), re.DOTALL)
    labels = [ElementTree.fromstring(one).attrib["aria-label"] for one in pictures]
    assert len(labels) == 3
    assert labels[0] == "The loss from step 0 to 240: new pages end at 3.60, a list again at 1.20."
    assert labels[1].startswith("Head 1.0 on some words, read twice")


def test_a_model_that_was_not_watched_has_a_page_without_a_head():
    page = spoken_page(RESULT | {"heads": [], "picture": {"words": [], "weights": []}}, "Alice", "2026-11-19")
    assert page.count("<svg") == 1
