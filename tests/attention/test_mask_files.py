"""Which masks files have as a rule."""

import torch

from regard.attention.mask import Dense, Not, Padding
from regard.attention.mask_files import MAKERS
from regard.attention.masks import CAUSAL, Causal, Documents, Window


def test_every_kind_has_the_function_that_makes_it_again_but_a_tensor_which_is_written_out():
    assert set(MAKERS) == {"everything", "and", "or", "not", "padding", "causal", "window", "documents"}
    kinds = (Not, Padding, Causal, Window, Documents)
    assert [kind.file_kind for kind in kinds] == ["not", "padding", "causal", "window", "documents"]
    assert Dense.file_kind is None


def test_masks_made_again_hide_the_same():
    keep = torch.tensor([[True, False, True]])
    both = MAKERS["and"](MAKERS["causal"](), MAKERS["padding"](keep=keep))
    assert torch.equal(both.dense(3), (CAUSAL & Padding(keep)).dense(3))
