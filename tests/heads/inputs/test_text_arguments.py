"""Token ids and padding among the arguments of modules."""

import torch
from torch import nn

import regard
from regard.heads.inputs.text_arguments import read_inputs, read_padding

B, T, E = 2, 7, 24


def test_ids_are_kept_with_the_tensor_that_they_were_given_as():
    ids, mask = torch.ones(T, dtype=torch.long), torch.ones(1, T)
    inputs = read_inputs({"ids": ids, "attention_mask": mask}, ())
    assert inputs.given is ids
    assert inputs.ids.shape == (1, T)
    assert inputs.real.all()
    assert read_inputs({"x": torch.zeros(B, T, E)}, (torch.zeros(B, T, E),)) is None


def test_padding_of_torch_nn_is_true_where_it_hides():
    hidden = torch.zeros(B, T, dtype=torch.bool)
    hidden[1, -2:] = True
    assert torch.equal(read_padding({"src_key_padding_mask": hidden}), ~hidden)


class Layer(nn.Module):
    """Is given the ids once more, as a mixture of experts by token is."""

    num_heads = 2

    def forward(self, x, input_ids):
        heads = x.unflatten(-1, (2, -1)).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(2)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.layer = nn.Embedding(13, E), Layer()

    def forward(self, input_ids, attention_mask=None):
        return self.layer(self.embedding(input_ids), input_ids=input_ids)


def test_ids_that_are_given_once_more_keep_their_padding_mask():
    ids, mask = torch.randint(0, 13, (B, T)), torch.ones(B, T, dtype=torch.long)
    mask[1, -2:] = 0
    with regard.watch(model := Model()) as seen:
        model(ids, attention_mask=mask)
    assert torch.equal(~seen[0].entropy[:, 0].isnan(), mask.bool())
    assert seen[0].record.has("induction")
