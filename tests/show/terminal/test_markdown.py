"""Pages of Markdown in a terminal."""

from regard.show.terminal.markdown import draw_markdown

PAGE = """# A page

See [the `other`](other.md#there) page. ![a picture](picture.png)

[![linked](picture.png)](page.md)

```python
with f(x):
    q = x @ W      # (2, 3)   project
```

| a | b |
| --- | --- |
| `1` | **two** |
"""


def test_a_page_is_its_words_without_links_pictures_and_colours():
    drawn = draw_markdown(PAGE, 40, colored=False)
    assert drawn.splitlines()[:3] == ["  A page", "", "  See the other page."]
    assert "picture" not in drawn
    assert "\x1b" not in drawn
    assert max(map(len, drawn.splitlines())) <= 40


def test_comments_of_code_that_is_too_wide_are_below_their_line():
    wide, narrow = (draw_markdown(PAGE, width, colored=False) for width in (60, 30))
    assert "       q = x @ W      # (2, 3)   project" in wide.splitlines()
    assert "       q = x @ W\n           # (2, 3)  project" in narrow


def test_code_that_is_too_wide_can_still_be_pasted():
    page = "```python\n>>> numbers = sum([1000, 2000, 3000])\n>>> numbers\n6000\n```\n"
    drawn = draw_markdown(page, 30, colored=False)
    assert [line.strip() for line in drawn.splitlines() if line.strip()] == [
        ">>> numbers = sum([1000,",
        "...     2000, 3000])",
        ">>> numbers",
        "6000",
    ]


def test_in_a_terminal_headings_are_bold():
    assert "\x1b[1mA page\x1b[0m" in draw_markdown(PAGE, 40, colored=True)
