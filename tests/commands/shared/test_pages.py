"""The sections of the pages of docs/."""

from regard.commands.shared.pages import comparable, find, meaning, pages, sections

PAGE = "# One\n\nfirst\n\n## Two\n\n```\n# no heading\n```\n\n### Three\n\nthird\n\n## Four\n\nlast\n"


def test_a_section_goes_on_to_the_next_heading_that_is_as_high_and_code_has_none():
    found = {one.heading: one.text for one in sections("page", PAGE)}
    assert list(found) == ["One", "Two", "Three", "Four"]
    assert found["One"] == "# One\n\nfirst"
    assert found["Two"].endswith("third")
    assert found["Three"] == "### Three\n\nthird"


def test_a_heading_is_a_better_answer_than_a_word_in_a_text():
    assert find(["induction", "heads"])[0].heading == "Induction heads"
    assert find(["masks"])[0].page == "masks"


def test_the_map_of_topics_comes_after_what_explains_them():
    assert find(["output projection"])[0].page != "homework"


def test_words_are_compared_in_lower_case_with_underscores_as_spaces():
    assert comparable("Leak_Hunt ") == "leak hunt"
    assert meaning(["Head", "dim"]).startswith("head_dim: the width of one head")
    assert meaning(["Chebyshev"]) == ""


def test_every_page_has_a_title():
    assert all(text.startswith("# ") for text in pages().values())
