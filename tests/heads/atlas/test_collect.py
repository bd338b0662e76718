"""How a corpus is given, and what a run refuses."""

import math

import pytest
import torch

import regard
from heads.atlas.corpora import Letters, corpus, same_sums, small_model
from helpers import says_it_ourselves
from regard.heads.atlas.collect import AtlasBuilder, probe_scores, weights_fingerprint, with_scores
from regard.heads.probe import SCORES

TEXTS = corpus(4)


@pytest.fixture(scope="module")
def model():
    return small_model()


def test_ids_arguments_by_name_tuples_and_strings_are_the_same_batch(model):
    texts = ["a cat, a cat", "12 cats."]
    ids = [torch.tensor([Letters().encode(one)]) for one in texts]
    expected = regard.atlas(model, ids, tokenizer=Letters())
    for batches in (texts, [{"ids": one} for one in ids], [(one,) for one in ids], iter(ids)):
        same_sums(regard.atlas(model, batches, tokenizer=Letters()), expected)


def test_a_corpus_can_be_added_to_an_atlas(model):
    start = regard.atlas(model, TEXTS[:2])
    kept = {name: tensor.clone() for name, tensor in vars(start.layers[0].sums).items()}
    both = regard.atlas(model, TEXTS[2:], start=start)
    same_sums(both, regard.atlas(model, TEXTS))
    assert all(torch.equal(kept[name], tensor) for name, tensor in vars(start.layers[0].sums).items())
    with pytest.raises(ValueError, match="start is an atlas of a model with other weights"):
        regard.atlas(small_model(seed=7), TEXTS, start=start)


def test_progress_is_said_and_training_mode_is_restored(model):
    model.train()
    said = []
    regard.atlas(model, TEXTS, progress=lambda texts, tokens: said.append((texts, tokens)))
    assert model.training
    model.eval()
    sizes = [one.shape[1] for one in TEXTS]
    assert said == [(i + 1, sum(sizes[: i + 1])) for i in range(len(TEXTS))]


def test_the_probe_is_beside_it():
    tiny = regard.GPT.from_pretrained("tiny")
    atlas = regard.atlas(tiny, ["Alice saw the cat, and the cat saw Alice."], probe=True)
    report = regard.probe(tiny)
    for head, scores in zip(report.heads(), report.scores.tolist(), strict=True):
        found = atlas[head.layer, head.head].probe
        assert list(found.values()) == pytest.approx(
            [report.seen[head.layer, head.head].summary[name] for name in found]
        )
        assert len(scores) == 3
    assert max(atlas.heads(), key=lambda one: one.probe["induction"]).name == "blocks.4.attention[3]"


def test_what_the_absence_of_a_head_costs_is_beside_it(model, tmp_path):
    sample = [ids for ids in TEXTS if ids.shape[1] > 4]
    atlas = regard.atlas(model, TEXTS, effect=sample)
    effects = regard.effect(model, sample)
    assert [head.effect for layer in atlas for head in layer] == [
        (pytest.approx(one.loss, rel=1e-6), pytest.approx(one.noise, rel=1e-6)) for one in effects
    ]
    plain = regard.atlas(model, TEXTS)
    with pytest.raises(
        ValueError, match=r"was not measured; measure with atlas\(model, texts, effect=\[some texts\]\)"
    ):
        _ = plain[0, 0].effect
    assert (plain + atlas)[1, 2].effect == (atlas + plain)[1, 2].effect == atlas[1, 2].effect
    again = regard.atlas(model, TEXTS, start=atlas)
    again.save(tmp_path / "atlas.safetensors")
    assert regard.load_atlas(tmp_path / "atlas.safetensors")[1, 2].effect == atlas[1, 2].effect
    assert " effect " in atlas.table(width=120)


def test_padding_is_in_no_sum():
    encoder = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True), 2, enable_nested_tensor=False
    ).eval()
    x, real = torch.randn(2, 7, 12), torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    atlas = regard.atlas(encoder, [{"src": x, "src_key_padding_mask": ~real}])
    assert atlas.tokens == 12
    assert [head.count("entropy") for layer in atlas for head in layer] == [12] * 6
    alone = regard.atlas(encoder, [{"src": x[:1]}, {"src": x[1:, :5]}])
    for layer, other in zip(atlas.layers, alone.layers, strict=True):
        torch.testing.assert_close(layer.sums.moments(), other.sums.moments(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ("a string", "a batch is a string and no tokenizer is known"),
        (torch.tensor([1, 2, 3]), r"a batch of token ids is \(B, T\) and this is \(3,\); ids\[None\] is one text"),
    ],
)
def test_a_batch_that_is_none_is_refused(model, batch, message):
    with pytest.raises(ValueError, match=message):
        regard.atlas(model, [batch])


def test_other_layers_in_a_later_batch_are_refused():
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = (torch.nn.MultiheadAttention(6, 2, batch_first=True) for _ in range(2))

        def forward(self, x):
            x = self.one(x, x, x, need_weights=False)[0]
            return x if x.shape[1] > 4 else self.two(x, x, x, need_weights=False)[0]

    with pytest.raises(ValueError, match="this batch ran 2 attention layers and the ones before 1, or others"):
        regard.atlas(Odd(), [torch.randn(1, 5, 6), torch.randn(1, 3, 6)])


def test_logits_that_are_nan_are_refused(model):
    broken = small_model()
    with torch.no_grad():
        broken.final_norm.weight[0] = torch.nan
    with pytest.raises(ValueError, match="the logits of this batch are NaN; check the model's weights"):
        regard.atlas(broken, TEXTS)


@says_it_ourselves
def test_what_is_no_module_is_refused():
    with pytest.raises(ValueError, match=r"atlas\(\) takes a torch\.nn\.Module and this is a str; load it first"):
        regard.atlas("tiny", TEXTS)


def test_a_fingerprint_is_of_the_weights(model):
    assert weights_fingerprint(model) == weights_fingerprint(small_model()) != weights_fingerprint(small_model(seed=7))


def test_memory_does_not_grow_with_the_corpus(model):
    def size(builder):
        return sum(tensor.numel() for layer in builder.atlas().layers for tensor in vars(layer.sums).values())

    builder = AtlasBuilder(model)
    builder.add(torch.randint(0, 31, (2, 41)))
    first = size(builder)
    for _ in range(5):
        builder.add(torch.randint(0, 31, (3, 41)))
    assert size(builder) == first


def test_the_noise_of_the_probe_is_the_standard_error_over_its_texts(model, tmp_path):
    scores = probe_scores(model, texts=9, among=range(1, 30))
    report = regard.probe(model, texts=9, among=range(1, 30))
    for head in report.heads():
        by_text = [[float(getattr(head, name)[text].nanmean()) for name in SCORES] for text in range(9)]
        by_text = torch.tensor(by_text, dtype=torch.float64)
        mean, noise = scores[head.layer, head.head]
        torch.testing.assert_close(mean, by_text.mean(0), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(noise, by_text.std(0) / 3, rtol=1e-4, atol=1e-6)
    measured = with_scores(regard.atlas(model, TEXTS), scores, None)
    measured.save(tmp_path / "a.safetensors")
    again = regard.load_atlas(tmp_path / "a.safetensors")[1, 2]
    assert list(again.probe_noise.values()) == scores[1, 2][1].tolist()
    few = regard.atlas(model, TEXTS, probe={"texts": 7})
    assert all(math.isnan(one) for one in few[1, 2].probe_noise.values())
