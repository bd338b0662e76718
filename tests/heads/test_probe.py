"""The probe: random tokens twice."""

import pytest
import torch
from torch import nn

import regard
from heads import models
from helpers import says_it_ourselves
from regard.heads.probe import probe


class Plain(nn.Module):
    """A causal model that takes ids and knows nothing of configs; the embedding of positions comes first."""

    def __init__(self, embeddings=True):
        super().__init__()
        self.positions = nn.Embedding(29, 12)
        self.words = nn.Embedding(53, 12) if embeddings else None
        self.table = nn.Parameter(torch.randn(53, 12))
        self.layer = regard.MultiHeadAttention(d_in=12, d_out=12, context_length=29, dropout=0.3, num_heads=3)

    def forward(self, x):
        words = self.table[x] if self.words is None else self.words(x)
        return self.layer(words + self.positions(torch.arange(x.shape[1], device=x.device)))


def test_the_model_in_the_package_has_its_induction_head_and_its_previous_token_head():
    report = probe(regard.GPT.from_pretrained("tiny"))
    assert [(head.layer, head.head) for head in report.heads(role="induction")] == [(4, 3)]
    assert next((head.layer, head.head) for head in report.heads(role="previous token")) == (0, 2)
    assert (
        report.what
        == "4 × 2 × 50 random tokens, after <|endoftext|>; vocabulary: 4096 ids, from token_embedding; seed 0"
    )
    assert report.ids.shape == (4, 101)


def test_scores_are_the_mean_weights_of_the_second_copy_by_definition():
    model = regard.GPT.from_pretrained("tiny")
    report = probe(model, length=7, texts=2, seed=5)
    with torch.no_grad(), regard.watch(model) as seen:
        model(report.ids)
    second = torch.arange(8, 15)  # after the beginning and the first copy
    for head, scores in zip(report.heads(), report.scores, strict=True):
        weights = seen[head.layer, head.head].weights()
        expected = [
            weights[:, second, second - 6].mean(),
            weights[:, torch.arange(1, 15), torch.arange(14)].mean(),
            weights[:, second, second - 7].mean(),
        ]
        torch.testing.assert_close(scores, torch.stack(expected), rtol=1e-4, atol=1e-5)
    best = report.scores.amax(-1)
    assert torch.equal(best, best.sort(descending=True).values)


def test_each_text_is_different_tokens_twice_and_the_seed_decides_which():
    model = regard.GPT.from_pretrained("tiny")
    ids = probe(model, length=11, texts=3).ids
    assert torch.equal(ids[:, 1:12], ids[:, 12:])
    assert all(len(set(row[1:12].tolist())) == 11 and 0 not in row[1:] for row in ids)
    assert torch.equal(probe(model, length=11, texts=3).ids, ids)
    assert not torch.equal(probe(model, length=11, texts=3, seed=1).ids, ids)


@pytest.mark.parametrize("make", [models.gpt2, models.llama])
def test_a_model_of_transformers_is_probed_without_its_special_tokens(make):
    report = probe(make())
    assert report.ids.shape == (4, 2 * 32)  # 64 positions; no tokenizer, so no beginning
    assert int(report.ids.min()) > 2
    assert "vocabulary: 53 ids, from " in report.what


def test_the_vocabulary_is_that_of_the_embedding_that_reads_the_ids():
    model = Plain()
    assert probe(model, length=13).what == "4 × 2 × 13 random tokens; vocabulary: 53 ids, from words; seed 0"
    assert "vocabulary: 17 ids, as given" in probe(Plain(embeddings=False), vocab_size=17, length=13).what
    with pytest.raises(
        ValueError, match=r"how many token ids Plain knows is unknown, none of its Embeddings reads them"
    ):
        probe(Plain(embeddings=False))


def test_the_modes_of_all_modules_are_restored_and_nothing_has_a_gradient():
    model = Plain()
    model.words.eval()
    report = probe(model, length=13)
    assert (model.training, model.layer.training, model.words.training) == (True, True, False)
    assert torch.equal(probe(model, length=13).scores, report.scores)  # no dropout
    assert all(p.grad is None for p in model.parameters())


def test_a_model_that_sees_the_future_is_refused():
    with pytest.raises(ValueError, match=r"BertModel is not causal: in encoder.*, token 0 sees 64 tokens"):
        probe(models.bert())


NEEDS = r"^probe\(\) needs a causal language model, which is called with token ids alone, model\(ids\)"
LAYER = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=7, dropout=0.0, num_heads=2)


@says_it_ourselves
@pytest.mark.parametrize("vocab_size", [None, 11])
@pytest.mark.parametrize("module", [LAYER, nn.Linear(6, 3), nn.TransformerEncoderLayer(6, 2)])
def test_a_layer_is_refused_because_it_does_not_read_token_ids(module, vocab_size):
    with pytest.raises(
        ValueError, match=rf"{NEEDS}, and {type(module).__name__} does not read them; .* watch it: with"
    ):
        probe(module, vocab_size=vocab_size)


def test_a_model_that_reads_two_texts_is_refused_with_the_reason():
    with pytest.raises(
        ValueError, match=rf"{NEEDS}; T5Model has an encoder and a decoder, which read two texts; watch"
    ):
        probe(models.t5())


def test_a_model_that_fails_on_token_ids_alone_is_refused_with_its_error():
    class Demanding(Plain):
        def forward(self, x, style=None):
            return super().forward(x) + style

    with pytest.raises(ValueError, match=rf"{NEEDS}; Demanding was, and raised TypeError: unsupported operand"):
        probe(Demanding())


@says_it_ourselves
def test_what_is_no_model_is_refused():
    with pytest.raises(
        ValueError, match=r"probe\(\) takes a torch\.nn\.Module and this is a str; load the model first"
    ):
        probe("tiny")


def test_a_length_that_does_not_fit_says_what_does():
    with pytest.raises(ValueError, match=r"length \(40\) must be at most 32: the model reads at most 64 tokens"):
        probe(models.gpt2(), length=40)
    with pytest.raises(ValueError, match=r"length \(14\) must be at most 13: 13 different ids can be drawn"):
        probe(Plain(), vocab_size=13, length=14)


def test_heads_are_chosen_as_in_a_report_and_sorted_by_their_highest_score():
    report = probe(Plain(), length=13)
    best = [max(one.means[name] for name in ("induction", "previous", "duplicate")) for one in report.heads().summaries]
    assert best == sorted(best, reverse=True)
    assert len(best) == 3
    for options in ({"by": "entropy"}, {"by": "entropy", "descending": False, "layer": 0}):
        places = [(head.layer, head.head) for head in report.heads(**options)]
        assert places == [(head.layer, head.head) for head in report.seen.heads(**options)]
    with pytest.raises(ValueError, match="no role is called 'copying'; roles are induction"):
        report.heads(role="copying")


def test_ids_may_be_drawn_from_some_alone():
    model = regard.GPT.from_pretrained("tiny")
    report = probe(model, texts=2, length=5, among=[0, 7, 9, 11, 13, 4095, 5000])  # 0 is special, 5000 is no id
    assert set(report.ids[:, 1:].flatten().tolist()) == {7, 9, 11, 13, 4095}
    assert report.what.endswith("vocabulary: 4096 ids, from token_embedding, of which 5 are drawn; seed 0")
    with pytest.raises(ValueError, match=r"length \(6\) must be at most 5: 5 different ids can be drawn"):
        probe(model, length=6, among=[7, 9, 11, 13, 4095])
