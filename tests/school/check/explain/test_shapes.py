import pytest

from regard.school.check.explain.shapes import explain_shapes
from regard.school.check.learner_code.protocol import Failure

SHAPES = {"q": [2, 5, 7], "k": [2, 5, 7], "v": [2, 5, 3], "w": [2, 5, 5]}


def explained(line, **shapes):
    source = f"def forward(self, x):\n    {line}\n"
    return explain_shapes(Failure("RuntimeError", "shapes", 2, "forward", {**SHAPES, **shapes}), source)


@pytest.mark.parametrize("line", ["s = q @ k", "s = torch.matmul(q, k) / 2", "return q.bmm(k)"])
def test_keys_that_are_not_transposed_are_told_with_their_shapes(line):
    finding = explained(line)
    assert (finding.name, finding.line) == ("keys not transposed", 2)
    assert finding.says.startswith("q of (2, 5, 7) @ k of (2, 5, 7): that fits where the last two axes of k")


@pytest.mark.parametrize("line", ["s = q @ k.T", "s = q @ k.transpose(0, 1)", "s = torch.bmm(q, k.permute(2, 1, 0))"])
def test_other_axes_than_the_last_two_do_not_help(line):
    assert explained(line).name == "keys transposed on the wrong axes"


def test_keys_that_are_transposed_are_not_the_reason():
    assert explained("s = q @ k.transpose(-2, -1)") is None
    assert explained("s = q @ k.mT + c") is None


def test_other_tensors_that_do_not_fit_are_told_without_a_name():
    assert (
        explained("y = w @ v2", v2=[2, 3, 4]).says
        == "w of (2, 5, 5) @ v2 of (2, 3, 4): 5 and 3 must be the same number."
    )
    assert explained("y = q + v").says == "q of (2, 5, 7) + v of (2, 5, 3): their axes are not alike."
    assert explained("y = q + v").name == ""


def test_values_whose_heads_stand_behind_the_tokens_are_told():
    shapes = {"weights": [2, 3, 5, 5], "values": [2, 5, 3, 7]}
    finding = explained("context = weights @ values", **shapes)
    assert (finding.name, finding.line) == ("split without transpose", 2)
    assert finding.says.endswith("in values the heads still stand behind the tokens.")
    assert explained("context = weights @ values", **{**shapes, "values": [2, 4, 3, 7]}).name == ""


def test_arguments_have_the_shape_that_the_check_chose():
    assert explained("y = x + v", x=[2, 5, 7]) is None


def test_a_linear_layer_of_another_width_is_named_unless_it_reads_what_the_check_passed():
    message = "mat1 and mat2 shapes cannot be multiplied (10x21 and 7x21)"

    def failed(line):
        source = f"def forward(self, x):\n    {line}\n"
        return explain_shapes(
            Failure("RuntimeError", message, 2, "forward", {"y": [2, 5, 21], "x": [2, 5, 21]}), source
        )

    finding = failed("return self.out(y)")
    assert (finding.name, finding.line) == ("linear layer of another width", 2)
    assert finding.says == "y has vectors of 21 numbers, and self.out reads 7."
    assert failed("return self.out(x)") is None
