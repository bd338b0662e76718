"""What is different in another right way."""

from regard.school.course.other_ways import different_code

USUAL = """
import torch

def helper(x):
    \"\"\"Give it back.\"\"\"
    return x

def twice(x):
    return helper(x) + x

class Layer:
    size = 3

    def __init__(self, width):
        self.width = width

    def forward(self, x):
        return x * 2
"""


def test_what_is_the_same_is_left_out_also_with_another_docstring_or_comment():
    other = USUAL.replace("Give it back.", "Hand it over.").replace("x * 2", "x * 2  # doubled")
    assert different_code(other, USUAL, ["helper", "twice", "Layer"]) == []


def test_a_function_that_differs_comes_with_its_comments_and_without_its_docstring():
    other = USUAL.replace("    return helper(x) + x", '    """Double."""\n    # no helper\n    return 2 * x')
    assert different_code(other, USUAL, ["twice"]) == ["def twice(x):\n    # no helper\n    return 2 * x"]
    assert different_code(other, USUAL, ["helper"]) == []


def test_of_a_class_only_the_methods_that_differ_are_shown():
    other = USUAL.replace("return x * 2", "return x + x")
    assert different_code(other, USUAL, ["Layer"]) == [
        "class Layer:\n    size = 3\n\n    def forward(self, x):\n        return x + x"
    ]


def test_decorators_belong_to_a_function_and_new_names_are_new():
    other = "@torch.no_grad()\ndef thrice(x):\n    return 3 * x\n"
    assert different_code(other, USUAL, ["thrice", "twice"]) == [other.rstrip()]
