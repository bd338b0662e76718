import pytest
import torch

import regard
from regard.gpt.live_model import live_model, traced_layers
from regard.support.drawing import as_live

SMALL = regard.GPTConfig(vocab_size=61, context_length=32, d_model=24, num_layers=2, num_heads=3)


def test_a_trace_has_a_length_that_is_no_other_size():
    layers = traced_layers(regard.GPT(SMALL))
    assert [(one.heads, one.kv_heads, one.length, one.windowed) for one in layers] == [(3, 3, 11, False)] * 2
    assert layers[1].trace["weights"].shape == (1, 3, 11, 11)


def test_a_model_whose_sizes_take_every_length_has_no_traces():
    model = regard.GPT(SMALL)
    model.config = SMALL.__class__(**{**vars(SMALL), "context_length": 11})
    assert traced_layers(model) == [None, None]


def test_what_cannot_run_in_a_page_is_said():
    with pytest.raises(ValueError, match=r"needs its tokenizer; set model\.tokenizer, a regard\.Tokenizer"):
        live_model(regard.GPT(SMALL))
    with pytest.raises(ValueError, match=r"a live page runs a regard\.GPT and this is a Linear; load it with"):
        as_live(torch.nn.Linear(2, 3))
