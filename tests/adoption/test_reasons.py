"""Why a module computes something else: each reason is found and named with its remedy."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from learners import Easy, Fast, Ladder, Named, assert_same, join, mix, split
from regard.adoption.adopt import adopt


def test_the_documents_wrong_scale_is_named_and_can_be_taken_over():
    module = Ladder(divide=math.sqrt(12))
    with pytest.raises(ValueError, match=r"divided by √d_out \(√12\), not √head_dim \(√4\); pass scale=12 \*\* -0.5"):
        adopt(module)
    layer = adopt(module, scale=12**-0.5)
    assert layer.scale == 12**-0.5
    assert_same(module, layer, 5)


def test_a_module_that_does_not_scale_is_named():
    with pytest.raises(ValueError, match=r"outputs differ by .* not scaled.*√head_dim \(√4\); pass scale=1.0"):
        adopt(Ladder(divide=1.0))


def test_a_module_that_forgot_the_root_is_named():
    with pytest.raises(ValueError, match=r"divided by head_dim \(4\), not by its root; pass scale=1 / 4"):
        adopt(Ladder(divide=4.0))


def test_a_scale_that_is_not_the_modules_is_named():
    with pytest.raises(ValueError, match=r"divided by √head_dim \(√4\); leave scale out"):
        adopt(Ladder(), scale=1.0)


def test_a_wrong_scale_under_a_mask_is_named_as_such():
    with pytest.raises(ValueError, match=r"The reason: its scores are divided by √d_out \(√10\), not √head_dim \(√5\)"):
        adopt(Fast(divide=math.sqrt(10)), causal=True)


def test_causal_against_what_the_module_does_is_refused():
    with pytest.raises(ValueError, match="it hides the future; leave causal out or pass causal=True"):
        adopt(Ladder(), causal=False)
    with pytest.raises(ValueError, match="it sees the future; leave causal out or pass causal=False"):
        adopt(Easy(), causal=True)


SPLIT = r"split without transpose\. view\(B, 3, T, 4\) cuts the memory into 3 runs of tokens.*transpose\(1, 2\)"
JOIN = r"merge without transposing back\. The heads are joined as \(B, 3, T, 4\).*view\(B, T, num_heads \* head_dim\)"


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(
    ("splits", "joins", "message"),
    [(True, False, f"{SPLIT}$"), (False, True, f"{JOIN}$"), (True, True, f"{SPLIT}; and {JOIN}$")],
    ids=["split", "join", "both"],
)
def test_heads_that_are_viewed_without_a_transpose_are_named(splits, joins, message, causal):
    class Hasty(Ladder):
        def forward(self, x):
            (B, T), width = x.shape[:2], self.out_proj.in_features
            q, k, v = (
                W(x).view(B, self.num_heads, T, -1) if splits else split(W(x), self.num_heads)
                for W in (self.W_query, self.W_key, self.W_value)
            )
            context = mix(q, k, v, self.mask.bool()[:T, :T] if causal else None)
            return self.out_proj(context.reshape(B, T, width) if joins else join(context))

    with pytest.raises(ValueError, match=f"The reason: {message}"):
        adopt(Hasty())


def test_a_mask_after_the_softmax_is_named():
    class Late(Ladder):
        def forward(self, x):
            q, k, v = (split(W(x), self.num_heads) for W in (self.W_query, self.W_key, self.W_value))
            weights = (q @ k.mT / 2).softmax(-1).tril()
            return self.out_proj(join(weights @ v))

    with pytest.raises(
        ValueError, match=r"The reason: mask after softmax without renormalising\. .* rows no longer sum to 1"
    ):
        adopt(Late())


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda s, hidden: s.masked_fill(hidden, -torch.inf).softmax(1), "softmax over the heads"),
        (lambda s, hidden: s.masked_fill(hidden, -torch.inf).softmax(-2), "softmax over the queries"),
        (lambda s, hidden: s.masked_fill(~hidden, -torch.inf).softmax(-1), "mask polarity inverted"),
        (lambda s, hidden: s.masked_fill(hidden, torch.inf).softmax(-1), "wrong sign of infinity"),
    ],
    ids=["heads", "queries", "polarity", "sign"],
)
def test_nan_and_wrong_axes_are_named_as_check_names_them(change, name):
    class Wrong(Ladder):
        def forward(self, x):
            T = x.shape[1]
            q, k, v = (split(W(x), self.num_heads) for W in (self.W_query, self.W_key, self.W_value))
            return self.out_proj(join(change(q @ k.mT / 2, self.mask.bool()[:T, :T]) @ v))

    with pytest.raises(ValueError, match=rf"The reason: {name}\. "):
        adopt(Wrong())


def test_an_unused_output_projection_is_named():
    class Unused(Ladder):
        def forward(self, x):
            q, k, v = (split(W(x), self.num_heads) for W in (self.W_query, self.W_key, self.W_value))
            return join(mix(q, k, v))

    with pytest.raises(ValueError, match=r"The reason: unused output projection\. "):
        adopt(Unused())


def test_dropout_that_acts_in_eval_is_named():
    class Drops(Easy):
        def forward(self, x):
            return super().forward(F.dropout(x, 0.5))

    with pytest.raises(ValueError, match=r"in eval\(\) it answers differently"):
        adopt(Drops(), causal=False)


def test_parameters_without_a_place_are_listed():
    class Tempered(Easy):
        def __init__(self):
            super().__init__()
            self.temperature = nn.Parameter(torch.ones(()))

        def forward(self, x):
            return super().forward(x * self.temperature)

    with pytest.raises(ValueError, match="It also has temperature, for which this layer has no place"):
        adopt(Tempered())


def test_a_difference_as_small_as_rounding_in_float32_is_still_seen():
    class Nudged(Easy):
        def forward(self, x):
            return super().forward(x) * (1 + 1e-8)

    with pytest.raises(ValueError, match=r"Nudged computes something else: outputs differ by .*e-08"):
        adopt(Nudged())


def test_a_residual_inside_is_refused():
    class Residual(Easy):
        def forward(self, x):
            return x + super().forward(x)

    with pytest.raises(ValueError, match="No known variant matches: look for positions, norms or a residual"):
        adopt(Residual())


def test_an_output_projection_of_another_name_is_given_by_names():
    module = Named(("q_proj", "k_proj", "v_proj", "last"))
    with pytest.raises(ValueError, match=r"It also has last.weight.*names=\{\"out_proj\": …\}"):
        adopt(module)
    assert_same(module, adopt(module, names={"out_proj": "last"}), 12)


def test_two_reasons_at_once_are_named_together():
    message = (
        r"The reason: it hides the future, and its scores are not scaled, instead of divided by √head_dim \(√4\); "
        r"leave causal out or pass causal=True, and pass scale=1.0"
    )
    with pytest.raises(ValueError, match=message):
        adopt(Ladder(divide=1.0), causal=False)


def test_another_shape_of_output_is_named_with_both_shapes():
    class Cut(Easy):
        def forward(self, x):
            return super().forward(x)[:, 1:]

    with pytest.raises(
        ValueError,
        match=r"Cut turns \(2, 7, 10\) into \(2, 6, 10\), but the weights that were found make \(2, 7, 10\)",
    ):
        adopt(Cut(), causal=False)
