"""Check, adopt, watch and our own layers know the same names."""

import pytest
import torch
from torch import nn

import regard
from regard.heads.calls import head_axis
from regard.school.check.behaviours import kv_cache
from regard.school.check.compare import call_forms
from regard.school.check.compare import constructor_arguments as arguments
from regard.support import vocabulary

TABLES = {name: value for name, value in vars(vocabulary).items() if name.isupper() and isinstance(value, tuple)}


@pytest.mark.parametrize("name", TABLES)
def test_no_name_is_listed_twice(name):
    names = TABLES[name] + TABLES.get(f"{name}_TOO", ())
    assert len(set(names)) == len(names)


def test_no_name_has_two_meanings_in_one_constructor():
    sizes = (
        *(vocabulary.WIDTH_IN, vocabulary.WIDTH_OUT, vocabulary.HEAD_DIM, vocabulary.BIAS, vocabulary.LAYERS),
        *(vocabulary.VOCABULARY, vocabulary.INNER_WIDTH),
        *(arguments.WIDTH, arguments.HEADS, arguments.KV_HEADS, arguments.CONTEXT, arguments.DROPOUT, arguments.CAUSAL),
    )  # fmt: skip
    names = [name for row in sizes for name in row]
    assert len(set(names)) == len(names)


def test_our_own_word_is_known_and_a_short_one_only_where_it_is_safe():
    own = ("num_heads", "num_kv_heads", "head_dim", "d_in", "d_out", "context_length", "dropout", "qkv_bias", "causal")
    known = {name for row in TABLES.values() for name in row if isinstance(name, str)}
    assert set(own) <= known
    assert not {"h", "H", "k", "T", "p", "m", "size", "window"} & {*vocabulary.HEADS, *vocabulary.CONTEXT}


@pytest.mark.parametrize("name", ["num_attn_heads", "nheads", "head_num"])
def test_a_number_of_heads_that_one_knew_is_known_to_all(name):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            setattr(self, name, 3)
            self.Q_lin, self.K_lin, self.V_lin, self.lin_out = (nn.Linear(12, 12) for _ in range(4))

        def forward(self, x):
            q, k, v = (W(x).unflatten(2, (3, 4)).transpose(1, 2) for W in (self.Q_lin, self.K_lin, self.V_lin))
            context = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.lin_out(context.transpose(1, 2).flatten(2))

    torch.manual_seed(1)
    layer, x = Attention(), torch.randn(2, 5, 12)
    torch.testing.assert_close(regard.adopt(layer)(x), layer(x))
    assert name in arguments.HEADS
    with pytest.raises(TypeError, match=rf"{name}.*num_heads"):
        regard.MultiHeadAttention(12, 12, 5, 0.0, **{name: 3})
    assert name in head_axis.HEADS


def test_caches_and_masks_of_check_are_those_of_watch_and_more():
    assert set(vocabulary.CACHES) < set(kv_cache.CACHES)
    assert set(vocabulary.MASK) < set(call_forms.MASK)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "MultiHeadAttention",
            "SelfAttn",
            "MHSA",
            "SDPLayer",
            "QKVMixer",
            "SelfAtt",
            "att_layer",
            "attend",
            "Atencion",
        ),
        *("CapaAtención", "Atenção", "Attenzione", "SelbstAufmerksamkeit", "Uwaga", "Внимание", "自注意力", "ZhuYiLi"),
    ],
)
def test_attention_is_known_by_its_name_in_several_languages(name):
    assert vocabulary.is_named_attention(name)


def test_other_names_are_no_attention():
    names = ["FeedForward", "Attribute", "Attack", "Batch", "Pattern", "Head", "TransformerBlock", "GPT"]
    assert [name for name in names if vocabulary.is_named_attention(name)] == []
    words = ("Head", "Cabezal", "Kopf", "Koepfe", "Tête", "Block")
    assert [name for name in words if vocabulary.is_named_head(name)] == [*words[:-1]]
