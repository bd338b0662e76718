"""A new way to call attention is one new file, and one line that imports it."""

import importlib

import pytest
import torch
from torch import nn

import regard
from regard.heads.intercept import paths

NEW_FILE = """
from regard.heads.calls.call import OwnWeights, WatchedCall
from regard.heads.intercept.paths import handles


@handles("cosine_similarity")
def report_cosine_attention(interceptor, function, args, kwargs):
    out = function(*args, **kwargs)  # (B, H, T, S)
    interceptor.report(WatchedCall(OwnWeights(out.softmax(-1).detach())))
    return out
"""


class Cosine(nn.Module):
    """An attention that nobody would recognise: its scores are angles, and its values are none."""

    def forward(self, x):
        q = x[:, None]
        return torch.cosine_similarity(q[..., :, None, :], q[..., None, :, :], dim=-1)


@pytest.fixture
def registered(tmp_path, monkeypatch):
    (tmp_path / "cosine_path.py").write_text(NEW_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("cosine_path")  # the one line
    yield
    del paths.HANDLERS["cosine_similarity"]
    paths.ATTENTION.remove("cosine_similarity")


@pytest.mark.usefixtures("registered")
def test_a_new_path_is_one_file_and_the_line_that_imports_it():
    x, model = torch.randn(2, 5, 7), Cosine()
    with regard.watch(model) as seen:
        out = model(x)
    torch.testing.assert_close(seen[0, 0].weights(), out[:, 0].softmax(-1))


def test_without_it_the_model_makes_no_attention_that_can_be_seen():
    model = Cosine()
    with pytest.raises(ValueError, match="made no attention that can be seen"), regard.watch(model):
        model(torch.randn(2, 5, 7))


def test_no_interceptor_is_active_outside_of_a_watched_forward():
    assert paths.active_interceptor() is None
    with regard.watch(layer := regard.MultiHeadAttention(8, 8, 16, 0.0, 2)):
        assert paths.active_interceptor() is None
        layer(torch.randn(1, 5, 8))
