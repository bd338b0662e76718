import pytest

from regard.school.exercises.unwritten import unwritten_lines


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
