"""The engine and the tokenizer of the page, run by Node.js, compute what Python computes."""

import json
import unicodedata

import pytest
import torch
from node import LLAMA, TEXT, Node, assert_same, needs_node, random_model, truth

import regard
from regard.gpt.activations import ACTIVATIONS
from regard.gpt.live_model import traced_layers
from regard.gpt.portable import portable
from regard.gpt.tokenizer.portable import portable_tokenizer
from regard.heads.inputs.pieces import TokenReader
from regard.show.page.live import describe_layers, describe_measures
from regard.show.page.payload import describe_sequence
from regard.traces.trace import trace_layer

pytestmark = needs_node


@pytest.fixture(scope="module")
def node():
    node = Node()
    with node.process:  # closes its pipes and waits
        yield node


OPTIONS = {
    "gpt2": {},
    "llama": LLAMA,
    "untied, exact gelu, no biases": {"tied": False, "feed_forward": "gelu_exact", "qkv_bias": False, "bias": False},
    "window": {"window": 5},
    "qk_norm, interleaved, gpt2's feed-forward": {"qk_norm": True, "rotary": regard.Rotary(interleaved=True)},
    "stretched": {**LLAMA, "rotary": regard.Rotary(stretch=regard.Stretch(4.0, original=32)), "num_kv_heads": 1},
}


@pytest.mark.parametrize("wasm", [False, True], ids=["plain", "wasm"])
@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_of_the_block_gives_the_weights_and_logits_of_python(name, wasm, node, tmp_path):
    model = random_model(**OPTIONS[name])
    ids = torch.randint(0, 61, (83,)).tolist()
    node.load(model, tmp_path, wasm)
    assert_same(node.ask("read", parts=[ids]), *truth(model, ids))


EACH = {
    "num_kv_heads": [None, 1, 2],
    "d_ff": [None, 37],
    "rotary": [None, regard.Rotary(), regard.Rotary(base=500.0, interleaved=True, stretch=regard.Stretch(2.0))],
    "window": [None, 5],
    "qk_norm": [False, True],
    "norm": ["layer", "rms"],
    "norm_eps": [1e-5, 1e-2],
    "feed_forward": list(ACTIVATIONS),
    "qkv_bias": [True, False],
    "bias": [True, False],
    "tied": [True, False],
    "end": [None, (5, 7)],
}


def test_every_option_of_a_config_is_tried():
    fixed = {"vocab_size", "context_length", "num_layers", "d_model", "num_heads", "dropout"}
    assert set(EACH) | fixed == set(regard.GPTConfig.__dataclass_fields__)


@pytest.mark.parametrize("first", range(0, 48, 8))
def test_random_mixtures_of_all_options_give_the_weights_and_logits_of_python(first, node, tmp_path):
    for seed in range(first, first + 8):
        generator = torch.Generator().manual_seed(seed)
        options = {
            name: values[int(torch.randint(len(values), (), generator=generator))] for name, values in EACH.items()
        }
        model = random_model(**options)
        ids = torch.randint(0, 61, (37,), generator=generator).tolist()
        node.load(model, tmp_path, bool(seed % 2))
        assert_same(node.ask("read", parts=[ids]), *truth(model, ids))


@pytest.mark.parametrize("wasm", [False, True], ids=["plain", "wasm"])
def test_the_model_in_the_package_reads_and_writes_as_in_python(wasm, node, tmp_path):
    model = regard.GPT.from_pretrained("tiny")
    ids = model.tokenizer.encode(TEXT)
    node.load(model, tmp_path, wasm)
    assert_same(node.ask("read", parts=[ids]), *truth(model, ids))
    assert node.ask("write", ids=ids, count=40) == model.generate(ids, max_new_tokens=40, temperature=0)


def test_reading_on_and_reading_an_edited_text_are_reading_it_at_once(node, tmp_path):
    model = random_model(**LLAMA)
    ids = torch.randint(0, 61, (79,)).tolist()
    node.load(model, tmp_path, True)
    expected = truth(model, ids)
    assert_same(node.ask("read", parts=[ids[:1], ids[1:34], ids[34:35], ids[35:]]), *expected)
    assert_same(node.ask("edit", before=[*ids[:47], 3, 5, 7], keep=47, after=ids[47:]), *expected)


def test_cut_heads_and_edges_are_those_of_cut(node, tmp_path):
    model = random_model(**LLAMA)
    ids = torch.randint(0, 61, (43,)).tolist()
    node.load(model, tmp_path, True)
    heads = [(0, 3), (1, 0)]
    assert_same(node.ask("read", parts=[ids], cut={"heads": heads}), *truth(model, ids, {"heads": heads}))
    edges = [(0, 1, 7, 2), (0, 1, 42, 41), (1, 3, 0, 0), (0, 2, 42, 41)]
    both = {"heads": heads[:1], "edges": edges}
    each = [{"heads": [(layer, head)], "edges": [tuple(edge)]} for layer, head, *edge in edges]
    assert_same(node.ask("read", parts=[ids], cut=both), *truth(model, ids, {"heads": heads[:1]}, *each))


LLAMA_3 = "|".join(
    [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
SAMPLES = [
    TEXT,
    "def f(x):\n\treturn {'a': x[0] ** 2}  # I'LL DON'T we'Re\r\n\r\n",
    "Ünïcödé naïve ﬁ Å Å ſtreſs'ſ K 猫が 座った 👩‍👩‍👧 🐈\u200d⬛ مرحبا بالعالم שלום עולם",
    " \t \u00a0\u2003\u0085\ufeff\u200b  end   \n\n \n1234567 ½ ⅷ ①²\x00\x07<|endoftext|><tool> <tool>a",
]


def trained(pattern=None, normalizer=None, prefix=False, ignore_merges=False):
    """A byte-level BPE tokenizer as other families have it."""
    import tokenizers as hf

    inner = hf.Tokenizer(hf.models.BPE(ignore_merges=ignore_merges))
    level = hf.pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=pattern is None)
    split = [hf.pre_tokenizers.Split(hf.Regex(pattern), "isolated")] if pattern else []
    inner.pre_tokenizer = hf.pre_tokenizers.Sequence([*split, level]) if split else level
    inner.decoder = hf.decoders.ByteLevel()
    if normalizer:
        inner.normalizer = normalizer
    trainer = hf.trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=level.alphabet(), special_tokens=["<|endoftext|>"], show_progress=False
    )
    inner.train_from_iterator(SAMPLES * 3, trainer)
    inner.add_tokens(["<tool>", "<tool> <"])
    return regard.Tokenizer(inner)


def tokenizers_of_families():
    from tokenizers import normalizers

    return {
        "tiny": regard.GPT.from_pretrained("tiny").tokenizer,
        "Llama 3": trained(LLAMA_3, ignore_merges=True),
        "Qwen": trained(LLAMA_3.replace("{1,3}", ""), normalizers.NFC()),
        "composed": trained(normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.NFC()])),
        "prefix": trained(prefix=True),
    }


def hostile_texts():
    """Samples, parts and mixtures of them, every pair of bytes as a text field gives it, and long runs."""
    generator = torch.Generator().manual_seed(5)
    characters = "".join(SAMPLES)
    pick = torch.randint(0, len(characters), (700, 23), generator=generator)
    mixed = ["".join(characters[i] for i in row) for row in pick.tolist()]
    anything = torch.randint(0, 0x30000, (300, 11), generator=generator).tolist()
    # Of characters that are newer, tokenizers and the browser may know different versions of Unicode.
    codes = [
        "".join(chr(c) for c in row if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")) for row in anything
    ]
    pairs = ["".join(bytes([a, b]).decode(errors="replace") for b in range(256)) for a in range(256)]
    return [*SAMPLES, *mixed, *codes, *pairs, "", "a" * 3000, " " * 999, "\n" * 77, "猫" * 500]


@pytest.mark.parametrize("name", ["tiny", "Llama 3", "Qwen", "composed", "prefix"])
def test_texts_become_the_tokens_of_python_and_texts_again(name, node):
    tokenizer = tokenizers_of_families()[name]
    texts = hostile_texts()
    node.ask("tokenizer", tables=portable_tokenizer(tokenizer))
    ids = tokenizer.encode_batch(texts)
    for text, expected, got in zip(texts, ids, node.ask("encode", texts=texts), strict=True):
        assert got == expected, repr(text[:60])
    lists = [*ids, *([i] for i in range(tokenizer.vocab_size))]
    assert node.ask("decode", lists=lists) == [tokenizer.decode(one) for one in lists]


@pytest.mark.parametrize("name", ["tiny", "Llama 3"])
def test_tokens_are_shown_as_python_shows_them(name, node):
    tokenizer = tokenizers_of_families()[name]
    node.ask("tokenizer", tables=portable_tokenizer(tokenizer))
    lists = [ids for ids in tokenizer.encode_batch(hostile_texts()) if ids]
    lists += [[0, *lists[1][:5], 0, 0, *lists[2]], lists[2][1:], lists[2][2:]]
    reader = TokenReader(tokenizer)
    for ids, got in zip(lists, node.ask("sequences", lists=lists), strict=True):
        assert got == describe_sequence(reader.read(ids, [False] * len(ids))), tokenizer.decode(ids)[:60]


def test_half_of_a_surrogate_pair_is_read_as_the_replacement_character(node):
    tokenizer = tokenizers_of_families()["tiny"]
    node.ask("tokenizer", tables=portable_tokenizer(tokenizer))
    assert node.ask("encode", texts=["a\ud83db\ude00"]) == [tokenizer.encode("a\ufffdb\ufffd")]


def test_tokens_and_texts_that_do_not_fit_are_refused_in_words(node, tmp_path):
    node.load(random_model(), tmp_path, False)
    with pytest.raises(ValueError, match="98 tokens do not fit this model, which reads 97"):
        node.ask("read", parts=[[1] * 90, [2] * 8])
    with pytest.raises(ValueError, match="Token 61 is not among the 61 of this model"):
        node.ask("read", parts=[[1, 61]])


def test_a_damaged_model_is_refused_in_words(node, tmp_path):
    plan, weights = portable(random_model())
    whole = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
    for damaged, message in (
        (weights[:5], "its header is cut off"),
        (weights[:-4], "is not what its header says"),
        (weights.replace(b'"F32"', b'"F16"', 1), "is not what its header says"),
        (weights.replace(next(iter(whole)).encode(), b"x" * len(next(iter(whole))), 1), "it has no"),
    ):
        (tmp_path / "weights").write_bytes(damaged)
        with pytest.raises(ValueError, match=f"The model in this page is damaged: .*{message}"):
            node.ask("load", plan=plan, weights=str(tmp_path / "weights"), wasm=False)


MEASURED = {
    "prose": TEXT * 2,
    "repeated": " one two three four" * 9,
    "one token": " the" * 23,
    "short": "Hi!",
    "code": SAMPLES[1] * 2,
}


def assert_measured_alike(node, model, ids):
    collect = ("default", "induction", "duplicate")
    with torch.no_grad(), regard.watch(model, collect=collect) as seen:
        model(torch.tensor([ids]))
    heads = node.ask("measure", ids=ids, measures=describe_measures())
    portraits = seen.portraits()
    for (place, portrait), head in zip(portraits.items(), heads, strict=True):
        known = {name: mean for name, mean in portrait.means.items() if mean == mean}
        assert head["means"] == pytest.approx(known, abs=1e-4), place
        assert head["role"]["name"] == portrait.role.name, place
        assert head["role"]["evidence"] == portrait.role.evidence, place
    ranks = {place: head["rank"] for place, head in zip(portraits, heads, strict=True)}
    assert sorted(ranks, key=ranks.get) == seen.order()


@pytest.mark.parametrize("name", MEASURED)
def test_statistics_and_roles_are_those_of_python(name, node, tmp_path):
    model = regard.GPT.from_pretrained("tiny")
    node.load(model, tmp_path, True)
    assert_measured_alike(node, model, model.tokenizer.encode(MEASURED[name]))


def test_statistics_of_a_window_are_those_of_python(node, tmp_path):
    model = random_model(window=7)
    node.load(model, tmp_path, True)
    assert_measured_alike(node, model, torch.randint(0, 11, (41,)).tolist())


STEPS = {"gpt2": {}, "llama": LLAMA, "normed": {"qk_norm": True, "rotary": regard.Rotary(interleaved=True)}}


@pytest.mark.parametrize("name", STEPS)
def test_every_number_of_every_step_is_that_of_a_trace(name, node, tmp_path):
    model = random_model(**STEPS[name])
    ids = torch.randint(0, 61, (17,)).tolist()
    node.load(model, tmp_path, True)
    for layer, described in enumerate(describe_layers(traced_layers(model))):
        trace = trace_layer(model, layer, ids=torch.tensor([ids]))
        steps = node.ask("steps", ids=ids, layer=layer, steps=described)
        assert [one["name"] for one in steps] == trace.names
        for one, expected in zip(steps, trace, strict=True):
            where = f"{name} {layer} {one['name']}"
            assert one["shape"] == " × ".join(map(str, expected.shape)), where
            assert one["operation"] == expected.operation, where
            numbers = torch.tensor([float(n) for n in one["numbers"]]).view(one["sizes"])
            torch.testing.assert_close(
                numbers, expected.value[0], atol=2e-5, rtol=1e-5, msg=lambda m, w=where: f"{w}: {m}"
            )


def test_a_layer_whose_mask_is_another_has_no_steps():
    assert describe_layers(traced_layers(random_model(window=5))) == [None, None]
