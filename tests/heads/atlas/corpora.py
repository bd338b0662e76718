"""A small random model in float64, a corpus for it, and every statistic of it from weights that are written out."""

import torch

from regard import GPT, GPTConfig, atlas
from regard.heads.measure.registry import AVERAGED
from regard.traces.trace import trace_layers

H, LAYERS, V = 3, 2, 32
LENGTHS = (5, 13, 2, 29, 17, 4, 37, 11)


class Letters:
    """A tokenizer whose tokens are single characters; 0 is special."""

    characters = "§ abcdefghijklmnopqrstuvwxy.,12\n"

    def encode(self, text):
        return [self.characters.index(one) for one in text]

    def convert_ids_to_tokens(self, id):
        return self.characters[id]

    def convert_tokens_to_string(self, names):
        return "".join(names)

    all_special_ids = (0,)

    def __len__(self):
        return len(self.characters)


def small_model(seed=5):
    torch.manual_seed(seed)
    config = GPTConfig.preset("tiny").with_(
        vocab_size=V, context_length=64, num_layers=LAYERS, d_model=24, num_heads=H, num_kv_heads=H
    )
    model = GPT(config).double().eval()
    for one in model.parameters():
        torch.nn.init.normal_(one, std=0.5)
    return model


def corpus(texts=20, seed=11):
    generator = torch.Generator().manual_seed(seed)
    sizes = [LENGTHS[i % len(LENGTHS)] for i in range(texts)]
    return [torch.randint(0, V, (1, size), generator=generator) for size in sizes]


def changed_model():
    """The same, but head 1.2 looks at the token itself far more; nothing before it changes."""
    model = small_model()
    layer, own = model.blocks[1].attention, slice(2 * 8, 3 * 8)
    with torch.no_grad():
        layer.W_query.weight[own] = 3 * layer.W_key.weight[own]
    return model


def small_atlas(model, seed=11, texts=16):
    """Of one batch of random texts."""
    generator = torch.Generator().manual_seed(seed)
    return atlas(model, [torch.randint(0, V, (texts, 23), generator=generator)], tokenizer=Letters())


def dense_values(model, ids):
    """For each layer (H, K, T): every statistic of one text, by its definition, from (T, T) weights in float64."""
    traces = trace_layers(model, {"ids": ids}, range(LAYERS))
    return [_values(traces[layer]["weights"][0], ids[0].tolist()) for layer in range(LAYERS)]


def _values(weights, ids):
    heads, T, _ = weights.shape
    found = torch.full((heads, len(AVERAGED), T), torch.nan, dtype=torch.float64)
    for i in range(T):
        p = weights[:, i]
        before = [j for j in range(i) if ids[j] == ids[i]]
        keys = {"sink": 0, "previous": i - 1, "self": i, "next": i + 1}
        keys |= {"duplicate": before[-1], "induction": before[-1] + 1} if before else {}
        found[:, AVERAGED.index("entropy"), i] = -torch.special.xlogy(p, p).sum(-1)
        found[:, AVERAGED.index("distance"), i] = (p * (i - torch.arange(T)).abs()).sum(-1)
        found[:, AVERAGED.index("largest"), i] = p.amax(-1)
        for name, key in keys.items():
            if 0 <= key < T:
                found[:, AVERAGED.index(name), i] = p[:, key]
    return found


def same_sums(one, other):
    """Counts are equal, and sums up to the last bits."""
    assert [layer.name for layer in one.layers] == [layer.name for layer in other.layers]
    for mine, theirs in zip(one.layers, other.layers, strict=True):
        for name, tensor in vars(mine.sums).items():
            torch.testing.assert_close(tensor, getattr(theirs.sums, name), rtol=1e-12, atol=1e-12)


def kept(atlas):
    """The examples as plain values: which rows of which heads, in which groups; without the last bits of weights."""
    return {
        (number, *place, example.text, example.token, example.keys, tuple(sorted(example.pieces)))
        for number, layer in enumerate(atlas.layers)
        for place, rows in layer.samples.groups.items()
        for _, example in rows
    }
