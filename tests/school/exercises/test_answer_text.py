import pytest

from regard.school.exercises.answer_text import only_line, unwritten_lines, values_written


def test_a_function_of_several_statements_has_no_only_line():
    assert only_line('def f(x):\n    """Doc."""\n    return x', "f") == 3
    assert only_line("def f(x):\n    y = x\n    return y", "f") == 0
    assert only_line("f = 3", "f") == 0


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("x = 1\ny = ...\n", [2]),
        ("def f(x):\n    ...\n", [2]),
        ("def f(x):\n    return x[..., 0] + x[:, ...]\n", []),
        ("y = (...)[0] + f(...)\n", [1]),
        ("y = x[f(...), 0]\n", []),
        ('"""Write what stands for ... below."""\n# ...\n', []),
        ("def f(x: tuple[int, ...]):\n    return x\n", []),
    ],
)
def test_dots_that_stand_for_something_unwritten_are_found(source, lines):
    assert unwritten_lines(source) == lines


def test_what_is_no_python_is_a_syntax_error():
    with pytest.raises(SyntaxError, match="was never closed"):
        unwritten_lines("x = (")


def test_what_follows_a_return_is_not_to_be_written():
    source = "def f(x):\n    if x:\n        return 1\n        ...\n    return 2\n    x = ...\n"
    assert unwritten_lines(source) == []
    assert unwritten_lines(source.replace("    return 2\n", "")) == [5]


def test_a_given_function_is_not_where_the_mistake_is():
    source = 'def answer(x):\n    """The check calls this: leave it."""\n    return own(x)\n'
    assert only_line(source, "answer") == 0
    assert only_line(source.replace("The check calls this", "Mine"), "answer") == 3


def test_values_that_are_written_have_no_dots_left():
    assert values_written("a = 1\nb = ...\nc = [1, ...]\nd = x[..., 0]\ndef f():\n    e = 2\n") == {"a", "d"}
