"""Wrong answers as edits of the solution."""

import pytest

from regard.school.course.wrong_answers import WrongAnswer, read_wrong_answers

SOLUTION = "def f(x):\n    y = x + 1\n    y = y + 1\n\n    return y\n"


def edited(body):
    return read_wrong_answers(f"# name\n\n@ one\n{body}\n", SOLUTION)[0].source


def test_names_and_sections():
    text = (
        "For people.\n\n# first\n\n@ a\n- y + 1\n+ y\n\n@ b\n- return y\n+ return x\n\n# second: 2\n\n@ c\n- x + 1\n+ "
        "x\n"
    )
    assert read_wrong_answers(text, SOLUTION) == [
        WrongAnswer("a", "first", SOLUTION.replace("y + 1", "y")),
        WrongAnswer("b", "first", SOLUTION.replace("return y", "return x")),
        WrongAnswer("c", "second: 2", SOLUTION.replace("x + 1", "x")),
    ]


def test_lines_are_replaced_where_they_occur_first_deleted_and_several_edits_follow_each_other():
    assert edited("- + 1\n+ + 2") == SOLUTION.replace("x + 1", "x + 2")
    assert edited("-     y = y + 1") == SOLUTION.replace("    y = y + 1\n", "")
    assert (
        edited("-     y = y + 1\n-\n-     return y\n+     return y + 1")
        == "def f(x):\n    y = x + 1\n    return y + 1\n"
    )
    assert edited("- x + 1\n+ x\n\n- y + 1\n+ y") == "def f(x):\n    y = x\n    y = y\n\n    return y\n"


def test_without_a_minus_it_is_the_whole_answer_and_a_comment_is_no_heading():
    assert edited("+ # another\n+ def f(x):\n+\n+     return x") == "# another\ndef f(x):\n\n    return x\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# name\n\n@ one\n- z\n+ y\n", r"wrong.txt, one: solution.py does not have: z"),
        ("# name\n\n@ one\n", r"wrong.txt, one: there is no edit; write lines that begin with - and \+"),
        ("# name\n\n@ one\n- y\ny\n", r"wrong.txt, one: 'y' begins with neither - nor \+"),
        ("#\n\n@ one\n- y\n+ x\n", r"wrong.txt, one has no name above it; write a line: # NAME"),
    ],
)
def test_what_is_not_written_so_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        read_wrong_answers(text, SOLUTION)
