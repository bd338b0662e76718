"""A fixture for every test that watches a model: what a watch replaces for its time is restored."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from regard.attention.observers import is_observed

OPERATORS = ("_native_multi_head_attention", "_transformer_encoder_layer_fwd")


def global_state():
    """What a watch must not leave changed."""
    return (
        nn.Module.__call__,
        F.multi_head_attention_forward,
        *(getattr(torch, name) for name in OPERATORS),
        torch._dynamo.eval_frame._stance.stance,
        _get_current_function_mode_stack(),
        is_observed(),
    )


@pytest.fixture
def unchanged():
    """Called in a test, or by itself at its end: is everything as it was?"""
    before = global_state()

    def check():
        assert global_state() == before

    yield check
    check()
