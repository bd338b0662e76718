"""Our GPT and transformers' GPT-2 with the same weights."""

import pytest
import torch

from regard.bench.twins import QUICK, twin, weights_in_use
from regard.gpt import GPT

TOY = QUICK.with_(vocab_size=101, num_layers=2, d_model=24, num_heads=3)


@pytest.fixture(scope="module")
def ours():
    torch.manual_seed(3)
    model = GPT(TOY).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


@pytest.fixture(scope="module")
def theirs(ours):
    pytest.importorskip("transformers")
    return twin(ours)


def test_the_twin_has_the_same_weights_and_says_the_same(ours, theirs):
    ids = torch.randint(0, 101, (2, 13))
    with torch.no_grad():
        torch.testing.assert_close(ours(ids), theirs(ids).logits)
    assert theirs.lm_head.weight is theirs.transformer.wte.weight
    assert theirs.transformer.h[0].attn.c_attn.weight.is_contiguous()


def test_the_twin_is_a_copy_and_does_not_follow_our_weights(ours, theirs):
    before = theirs.transformer.wpe.weight.clone()
    with torch.no_grad():
        ours.position_embedding.weight.mul_(2)
    torch.testing.assert_close(theirs.transformer.wpe.weight, before, rtol=0, atol=0)
    with torch.no_grad():
        ours.position_embedding.weight.div_(2)


@pytest.mark.parametrize("tied", [True, False])
def test_every_weight_is_in_use_except_embeddings_that_are_only_looked_up(tied):
    model = GPT(TOY.with_(tied=tied))
    used = {id(p) for p in weights_in_use(model)}
    unused = [name for name, p in model.named_parameters() if id(p) not in used]
    assert unused == ([] if tied else ["token_embedding.weight"]) + ["position_embedding.weight"]
