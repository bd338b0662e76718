"""What each head's absence costs, compared with cutting the heads one by one."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from regard.gpt.config import GPTConfig

TEXT = "Alice was beginning to get very tired, and Alice was beginning to get very tired."


def small(layers=2, heads=3, vocabulary=13):
    torch.manual_seed(0)
    config = GPTConfig(
        vocab_size=vocabulary, context_length=17, num_layers=layers, d_model=4 * heads, num_heads=heads, dropout=0.5
    )
    model = regard.GPT(config).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def some_ids(*lengths):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(13, (length,), generator=generator) for length in lengths]


def losses(model, ids, heads=(), **options):
    """The loss at each token after the first, with these heads cut one block at a time."""
    model.eval()
    with torch.no_grad(), regard.cut(model, list(heads), **options):
        logits = model(ids[None])[0]
    return F.cross_entropy(logits[:-1], ids[1:], reduction="none")


@pytest.mark.parametrize("to", [0, "mean"])
@pytest.mark.parametrize("batch", [None, 1, 5])
def test_every_head_costs_what_it_costs_when_cut_alone_however_the_batch_is_split(to, batch):
    model, (ids,) = small(), some_ids(11)
    effects = regard.effect(model, ids, to=to, batch=batch)
    assert len(effects) == 6
    for one in effects:
        expected = losses(model, ids, one.heads, to=to) - losses(model, ids)
        torch.testing.assert_close(one.per_token[0][1:], expected, atol=1e-12, rtol=0)
        assert math.isnan(one.per_token[0][0])
        assert one.loss == pytest.approx(float(expected.mean()), abs=1e-12)
    assert effects.loss == pytest.approx(float(losses(model, ids).mean()), abs=1e-12)


def test_layers_and_pairs_are_cut_together():
    model, (ids,) = small(), some_ids(7)
    effects = regard.effect(model, ids, layers="all", pairs=[((1, 2), (0, 1))], to="mean", batch=2)
    assert [one.name for one in effects] == ["layer 0", "layer 1", "0.1+1.2"]
    for one in effects:
        expected = losses(model, ids, one.heads, to="mean") - losses(model, ids)
        torch.testing.assert_close(one.per_token[0][1:], expected, atol=1e-12, rtol=0)
    assert effects[1].heads == ((1, 0), (1, 1), (1, 2))
    assert effects[(1, 2), (0, 1)].name == "0.1+1.2"


def test_several_texts_give_the_mean_and_its_standard_error():
    model, texts = small(), some_ids(5, 11, 7)
    effects = regard.effect(model, texts, heads=[(0, 1), (1, 0)])
    for one in effects:
        each = torch.stack([(losses(model, ids, one.heads) - losses(model, ids)).mean() for ids in texts])
        assert one.loss == pytest.approx(float(each.mean()), abs=1e-12)
        assert one.noise == pytest.approx(float(each.std()) / 3**0.5, abs=1e-12)
        assert one.is_noise == (abs(float(each.mean())) <= 2 * float(each.std()) / 3**0.5)


def test_chosen_tokens_have_a_change_of_log_probability():
    model, (ids,) = small(), some_ids(11)
    one = regard.effect(model, ids, heads=(1, 2), tokens=[3, -1])[1, 2]
    change = losses(model, ids) - losses(model, ids, [(1, 2)])
    assert one.logprob == pytest.approx(float(change[[2, 9]].mean()), abs=1e-12)
    assert one.cost == -one.logprob


def test_words_are_chosen_by_their_tokens():
    model = regard.GPT.from_pretrained("tiny")
    effects = regard.effect(model, TEXT, heads=(0, 2), tokens="Alice@10")
    tokens = effects.measured.texts[0]
    assert [tokens[i] for i in effects.measured.chosen[0]] == [" Al", "ice"]


def test_values_of_another_run_are_handed_over():
    model, (ids, other) = small(), some_ids(7, 7)
    model.eval()
    with regard.watch(model, values=True) as seen:
        model(other[None])
    one = regard.effect(model, ids, heads=[(0, 1), (1, 0)], to=seen)[0, 1]
    expected = losses(model, ids, [(0, 1)], to=seen) - losses(model, ids)
    torch.testing.assert_close(one.per_token[0][1:], expected, atol=1e-12, rtol=0)


def test_progress_counts_the_cuts_of_all_texts():
    said = []
    regard.effect(small(), some_ids(5, 7), batch=4, progress=lambda done, total: said.append((done, total)))
    assert said == [(4, 12), (6, 12), (10, 12), (12, 12)]


def test_the_model_is_as_before():
    model, (ids,) = small(), some_ids(5)
    model.train()
    regard.effect(model, ids)
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def llama(attention):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "intermediate_size": 17, "num_hidden_layers": 2, "num_attention_heads": 3}
    config = LlamaConfig(vocab_size=13, num_key_value_heads=1, attn_implementation=attention, **sizes)
    return LlamaForCausalLM(config).eval()


def padded_batch():
    short, long = some_ids(5, 7)
    ids = torch.stack([torch.cat([torch.zeros(2, dtype=torch.long), short]), long])
    return short, long, {"input_ids": ids, "attention_mask": torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1] * 7])}


@pytest.mark.parametrize(
    ("attention", "dtype", "atol"), [("sdpa", torch.float64, 1e-12), ("eager", torch.float32, 1e-5)]
)
def test_a_model_of_transformers_is_measured_with_its_padding(attention, dtype, atol):
    model = llama(attention).to(dtype)
    short, long, inputs = padded_batch()
    together = regard.effect(model, inputs, to="mean")
    apart = regard.effect(model, [short, long], to="mean")
    for one, other in zip(together, apart, strict=True):
        assert one.loss == pytest.approx(other.loss, abs=atol)
        torch.testing.assert_close(one.per_token[0][3:], other.per_token[0][1:], atol=atol, rtol=0)
        assert one.per_token[0][:3].isnan().all()


def test_a_loss_that_is_no_number_is_refused():
    model, (ids,) = small(), some_ids(7)
    with torch.no_grad():
        model.token_embedding.weight[ids[3]] = math.nan
    with pytest.raises(ValueError, match=r"the loss of GPT is nan at token \d of text 0, without any cut"):
        regard.effect(model, ids)


def bert():
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "intermediate_size": 17, "num_hidden_layers": 2, "num_attention_heads": 3}
    return BertForMaskedLM(BertConfig(vocab_size=13, **sizes)).double().eval()


def test_a_model_that_sees_later_tokens_needs_targets():
    with pytest.raises(ValueError, match=r"BertForMaskedLM is not causal: in .*, token 0 sees 7 tokens, .*targets="):
        regard.effect(bert(), some_ids(7))


def test_targets_are_predicted_where_they_stand():
    model, (ids,) = bert(), some_ids(7)
    targets = torch.full((7,), -1)
    targets[[2, 5]] = torch.tensor([4, 9])
    one = regard.effect(model, ids, heads=(1, 2), targets=targets)[1, 2]

    def loss(heads):
        with torch.no_grad(), regard.cut(model, heads):
            return F.cross_entropy(model(ids[None]).logits[0], targets, ignore_index=-1)

    assert one.loss == pytest.approx(float(loss([(1, 2)]) - loss([])), abs=1e-12)
    assert one.per_token[0].isnan().tolist() == [True, True, False, True, True, False, True]


def test_a_class_for_each_text_is_a_target():
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "intermediate_size": 17, "num_hidden_layers": 2, "num_attention_heads": 3}
    model = BertForSequenceClassification(BertConfig(vocab_size=13, num_labels=5, **sizes)).double().eval()
    texts = some_ids(5, 7)
    one = regard.effect(model, texts, heads=(0, 1), targets=torch.tensor([3, 1]))[0, 1]

    def loss(heads, ids, target):
        with torch.no_grad(), regard.cut(model, heads):
            return float(F.cross_entropy(model(ids[None]).logits, torch.tensor([target])))

    each = [loss([(0, 1)], ids, target) - loss([], ids, target) for ids, target in zip(texts, (3, 1), strict=True)]
    assert one.loss == pytest.approx(sum(each) / 2, abs=1e-12)


def test_a_model_without_logits_says_so():
    from transformers import GPT2Config, GPT2Model

    model = GPT2Model(GPT2Config(vocab_size=13, n_embd=12, n_layer=1, n_head=3)).eval()
    with pytest.raises(
        ValueError, match=r"GPT2Model returned a .* without logits; effect.. needs the model with its lang"
    ):
        regard.effect(model, some_ids(5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": (1, 3)}, r"there is no head 1\.3; layer 1 has heads 0 to 2"),
        ({"heads": (2, 0)}, "there is no layer 2; the model has layers 0 to 1"),
        ({"layers": 5}, "there is no layer 5; the model has layers 0 to 1"),
        ({"heads": []}, "nothing is named to be cut; give heads, layers or pairs"),
        ({"to": 3.0}, "to=3.0 is not known; a head hands over 0"),
        ({"batch": 0}, "batch"),
        ({"to": torch.zeros(4, 5, 4)}, r"head 0\.0 is to hand over values of 4 texts, and 1 are measured"),
    ],
)
def test_what_cannot_be_measured_says_why(options, message):
    with pytest.raises(ValueError, match=message):
        regard.effect(small(), some_ids(5), **options)


def test_random_tokens_read_twice_need_the_heads_of_the_induction_circuit():
    model = regard.GPT.from_pretrained("tiny")
    once = 1 + torch.randperm(4095, generator=torch.Generator().manual_seed(0))[:31]
    effects = regard.effect(model, torch.cat([once, once]), heads=[(0, 2), (4, 3), (1, 3), (5, 0), (3, 3)])
    assert {one.name for one in effects.order()[:2]} == {"4.3", "0.2"}
