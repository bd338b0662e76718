import pytest

from school.check.learner import LESS, broken, checked, edited


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("return self.wo(joined)", "return nn.Linear(self.d_k, self.d_k)(joined)", "layer made in forward"),
        (
            "Q = self.wq(x)",
            "nn.init.xavier_uniform_(self.wq.weight); Q = self.wq(x)",
            "parameters re-initialised in forward",
        ),
        ("Q = self.wq(x)", "Q = self.wq(x).half().double()", "float16 inside"),
    ],
)
def test_what_text_and_calls_show_together_has_a_name(old, new, name, tmp_path):
    source = edited("loop", old, new).replace("nn.Linear(self.d_k, self.d_k)", "nn.Linear(joined.shape[-1], 7)")
    finding = checked(source, tmp_path).mistakes[0]
    assert finding.name == name
    assert finding.line == next(i for i, line in enumerate(source.splitlines(), 1) if new[:12] in line)


LISTED = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.w = {container}

    def forward(self, x):
        q, k, v = ({use} for n in (0, 1, 2))
        return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1) @ v
"""


@pytest.mark.parametrize(
    ("container", "use", "name"),
    [
        ("[nn.Linear(d_in, d_out) for _ in range(3)]", "self.w[n](x)", "parameters in a plain list"),
        ("{n: torch.randn(d_in, d_out) for n in (0, 1, 2)}", "x @ self.w[n]", "parameters in a plain list"),
    ],
)
def test_weights_in_a_plain_list_are_not_known_to_torch(container, use, name, tmp_path):
    (finding,) = checked(LISTED.format(container=container, use=use), tmp_path).mistakes
    assert (finding.name, finding.line) == (name, 8)


def test_modules_that_are_registered_in_another_way_are_no_mistake(tmp_path):
    source = LISTED.format(
        container="[nn.Linear(d_in, d_out) for _ in range(3)]\n        [self.add_module(n, m) for n, m in "
        "zip('qkv', self.w)]",
        use="self.w[n](x)",
    )
    assert checked(source, tmp_path).mistakes == []


def test_a_mask_whose_result_is_not_assigned_is_told_with_its_line(tmp_path):
    source = edited("textbook", "attn_scores.masked_fill_(", "attn_scores.masked_fill(")
    (finding,) = checked(source, tmp_path).mistakes
    assert finding.name == "result not assigned"
    assert finding.code.startswith("attn_scores.masked_fill(")


def test_a_mask_whose_result_is_not_assigned_is_told_of_a_layer_that_nothing_calls_causal(tmp_path):
    lost = "scores = q @ k.mT / math.sqrt(self.head_dim)\n"
    hides = "        scores.masked_fill(torch.ones(T, T, device=x.device).triu(1) > 0, -torch.inf)\n"
    (finding,) = broken(tmp_path, *LESS, lost, lost + hides).mistakes
    assert (finding.name, finding.code) == ("result not assigned", hides.strip())
