"""Models with a sliding window: SDPA, which is given a mask, and eager code, which adds it, have the same roles."""

import pytest
import torch

import regard
from heads.zoo.classes import Animal, text

TOKENS, WINDOW = 31, 5
HYBRID = {"sizes": {"layer_types": ["sliding_attention", "full_attention"]}}
ALWAYS = {"sizes": {"sliding_window": WINDOW}}
WINDOWED = {
    "mistral": {},
    "gemma3_text": HYBRID,
    "phi3": ALWAYS,
    "qwen2": {"more": {"use_sliding_window": True, "max_window_layers": 0}},
    "starcoder2": ALWAYS,
    "cohere2": HYBRID,
}


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.parametrize("padding", [False, True], ids=["", "padded"])
@torch.no_grad()
def test_windowed_models_have_the_same_roles_by_sdpa_and_by_eager_code(name, padding):
    torch.manual_seed(0)
    ids = torch.randint(5, 13, (2, TOKENS))
    mask = torch.ones_like(ids)
    mask[1, -4:] = 0
    reports = {}
    for implementation in ("sdpa", "eager"):
        model = Animal(name, text, **WINDOWED[name]).model(implementation)
        with regard.watch(model, collect=("default", "received_mean", "histogram")) as seen:
            model(ids, attention_mask=mask if padding else None)
        reports[implementation] = list(seen)
    for fused, eager in zip(reports["sdpa"], reports["eager"], strict=True):
        assert [str(role) for role in fused.roles] == [str(role) for role in eager.roles]
        for statistic in ("entropy", "distance", "sink", "previous", "self", "induction", "duplicate", "received_mean"):
            torch.testing.assert_close(getattr(fused, statistic), getattr(eager, statistic), equal_nan=True)
        assert fused.marks == eager.marks == ()
    windowed = reports["sdpa"][0].weights()[0]
    assert not windowed.tril(-WINDOW).any()  # the window is there
    assert windowed.tril(1 - WINDOW).any()
