"""Layers of two texts of one length, written by hand: cross-attention, ids and padding are not mixed up.

Every statistic is compared with its definition in float64.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from heads import dense
from heads.made_calls import made_call
from heads.zoo.classes import IMAGE, TEXTS, Animal, ids, padded, random, text
from heads.zoo.measure import COMPARED, POSITIONAL
from heads.zoo.towers import OF_IMAGE
from regard.heads.calls.basis import How

B, T, E, H = 2, 7, 24, 4
STYLES = ("sdpa", "eager", "keys first", "transposed", "bmm")


class Attention(nn.Module):
    """Attention to its own tokens, or to others, written in one of several ways; keeps its weights."""

    num_heads = H

    def __init__(self, style="sdpa"):
        super().__init__()
        self.style, self.kept = style, None
        self.q, self.k, self.v, self.out = (nn.Linear(E, E) for _ in range(4))

    def forward(self, hidden_states, encoder_hidden_states=None, mask=None):
        other = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        q, k, v = (
            layer(t).unflatten(-1, (H, -1)).transpose(1, 2)
            for layer, t in ((self.q, hidden_states), (self.k, other), (self.v, other))
        )
        hidden = torch.zeros(1, 1, 1, 1) if mask is None else torch.where(mask, 0.0, -torch.inf)[:, None, None]
        self.kept = q, k, hidden
        return self.out(self.attend(q / (E // H) ** 0.5, k, v, hidden).transpose(1, 2).flatten(2))

    @property
    def weights(self):
        """In float64, from the queries and keys of the last call."""
        q, k, hidden = self.kept
        return (q.double() @ k.double().mT / (E // H) ** 0.5 + hidden).softmax(-1)

    def attend(self, q, k, v, hidden):
        match self.style:
            case "sdpa":
                return F.scaled_dot_product_attention(q, k, v, hidden.expand(len(q), -1, -1, k.shape[2]), scale=1.0)
            case "eager":
                return (q @ k.mT + hidden).softmax(-1) @ v
            case "keys first":
                weights = (torch.einsum("bhsd,bhtd->bhts", k, q) + hidden).softmax(-1)
                return torch.einsum("bhsd,bhts->bhtd", v, weights)
            case "transposed":
                weights = ((k @ q.mT).mT + hidden).softmax(-1)
                return (v.mT @ weights.mT).mT
            case "bmm":
                scores = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT).unflatten(0, (-1, H)) + hidden
                return torch.bmm(scores.softmax(-1).flatten(0, 1), v.flatten(0, 1)).unflatten(0, (-1, H))


class TextAndImage(nn.Module):
    """As LXMERT: each reads itself, then the other one; no name tells."""

    def __init__(self, style):
        super().__init__()
        self.word, self.patch = nn.Embedding(13, E), nn.Linear(5, E)
        self.places = torch.randn(1, T, E)
        self.text, self.image, self.first, self.second, self.last = (Attention(style) for _ in range(5))

    def forward(self, ids, patches, attention_mask):
        real = attention_mask.bool()
        text, image = self.word(ids) + self.places, self.patch(patches)
        text, image = text + self.text(text, mask=real), image + self.image(image)
        text, image = text + self.first(text, image), image + self.second(image, text, mask=real)
        return self.last(text, mask=real), image


def assert_is(layer, weights, real=None, tokens=None, across=False):
    """Every statistic, by its definition in float64."""
    call = made_call("", weights=weights, real=real, tokens=tokens, across=across)
    expected = dense.measure(call, frozenset(COMPARED))
    assert layer.record.across is across
    assert layer.record.has("induction") is (tokens is not None)
    for name, right in expected.items():
        if layer.record.has(name):
            mine = layer.record.read(name).double()
            torch.testing.assert_close(mine, right.double(), equal_nan=True, atol=2e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize("style", STYLES)
def test_a_text_and_an_image_of_one_length_are_told_apart(style):
    model, ids, patches = TextAndImage(style), torch.randint(0, 13, (B, T)), torch.randn(B, T, 5)
    mask = torch.ones(B, T, dtype=torch.long)
    mask[1, -2:] = 0
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids, patches, mask)
    real = mask.bool()
    assert_is(seen["text"], model.text.weights, real, ids)
    assert_is(seen["image"], model.image.weights)
    assert_is(seen["first"], model.first.weights, real, across=True)
    assert_is(seen["second"], model.second.weights, across=True)
    assert_is(seen["last"], model.last.weights, real, ids)
    assert all(layer.marks == () for layer in seen)


class Joint(nn.Module):
    """As in SD3.5: text and image attend together, then the image to itself in a layer called attn2."""

    def __init__(self):
        super().__init__()
        self.attn, self.attn2, self.norm, self.scale = Attention(), Attention(), nn.LayerNorm(E), nn.Linear(E, E)

    def forward(self, hidden_states, encoder_hidden_states, temb):
        x = self.norm(hidden_states) * (1 + self.scale(temb)[:, None])
        both = self.attn(torch.cat([x, self.norm(encoder_hidden_states)], 1))
        hidden_states = hidden_states + both[:, : x.shape[1]]
        return hidden_states + self.attn2(self.norm(hidden_states)), encoder_hidden_states + both[:, x.shape[1] :]


@pytest.mark.parametrize("words", [T, 5])
def test_self_attention_that_is_named_like_cross_attention_is_self_attention(words):
    model = Joint()
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randn(B, T, E), torch.randn(B, words, E), torch.randn(B, E))
    assert_is(seen["attn"], model.attn.weights)
    assert_is(seen["attn2"], model.attn2.weights)
    assert all(layer.marks == () for layer in seen)


class Refiner(nn.Module):
    """As in Lumina2: self-attention that is given its own states as those of an encoder."""

    def __init__(self):
        super().__init__()
        self.attn, self.norm = Attention(), nn.LayerNorm(E)

    def forward(self, x, mask=None):
        states = self.norm(x)
        return x + self.attn(hidden_states=states, encoder_hidden_states=states, mask=mask)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.refiner = Refiner()

    def forward(self, hidden_states, encoder_hidden_states):
        return self.refiner(torch.cat([encoder_hidden_states, hidden_states], 1))


def test_self_attention_that_is_given_its_own_states_as_an_encoders_is_self_attention():
    model, refiner = Block(), Refiner()
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randn(B, T, E), torch.randn(B, 5, E))
    assert_is(seen[0], model.refiner.attn.weights)
    real = torch.ones(B, T, dtype=torch.bool)
    real[1, -2:] = False
    with torch.no_grad(), regard.watch(refiner) as seen:
        refiner(torch.randn(B, T, E), real)
    assert_is(seen[0], refiner.attn.weights, real)
    assert seen[0].basis.padding.how is How.MASK


class Latents(nn.Module):
    """As many learned queries as tokens, as a perceiver or a set transformer has them; no name tells."""

    def __init__(self, style):
        super().__init__()
        self.S = nn.Parameter(torch.randn(1, T, E))
        self.pool, self.mix = Attention(style), Attention(style)

    def forward(self, x):
        return self.mix(self.pool(self.S.expand(len(x), -1, -1), x))


@pytest.mark.parametrize("style", STYLES)
def test_as_many_learned_queries_as_tokens_are_another_text(style):
    model = Latents(style)
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randn(B, T, E))
    assert_is(seen["pool"], model.pool.weights, across=True)
    assert_is(seen["mix"], model.mix.weights)


class Merged(nn.Module):
    """As in T5Gemma2: the keys of the text and of another one, joined."""

    num_heads = H

    def __init__(self, first):
        super().__init__()
        self.first, self.q, self.kv = first, nn.Linear(E, E), nn.Linear(E, E)

    def forward(self, x, context):
        keys = self.kv(torch.cat([x, context] if self.first else [context, x], 1))
        q, k = (t.unflatten(-1, (H, -1)).transpose(1, 2) for t in (self.q(x), keys))
        mask = torch.ones(T, keys.shape[1], dtype=torch.bool)
        own = slice(0, T) if self.first else slice(context.shape[1], None)
        mask[:, own] = torch.ones(T, T).tril().bool()
        return F.scaled_dot_product_attention(q, k, k, mask)


@pytest.mark.parametrize("first", [True, False], ids=["own keys first", "own keys last"])
@pytest.mark.parametrize("words", [T, 5])
def test_joined_keys_of_two_texts_have_no_positions(first, words):
    model = Merged(first)
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randn(B, T, E), torch.randn(B, words, 24))
    assert seen[0].marks == (f"positions unknown: {T} queries attend to {T + words} keys, which may be of two texts",)
    for name in POSITIONAL:
        assert seen[0].record.read(name).isnan().all()


class Compressed(nn.Module):
    """As in DeepSeek V4: the keys, and one more for every three of them."""

    num_heads = H

    def __init__(self):
        super().__init__()
        self.q, self.kv = nn.Linear(E, E), nn.Linear(E, E)

    def forward(self, x, past_key_values=None):
        keys = torch.cat([self.kv(x), self.kv(x)[:, :6].unflatten(1, (2, 3)).mean(2)], 1)
        q, k = (t.unflatten(-1, (H, -1)).transpose(1, 2) for t in (self.q(x), keys))
        return F.scaled_dot_product_attention(q, k, k)


def test_compressed_keys_have_no_positions():
    with torch.no_grad(), regard.watch(model := Compressed()) as seen:
        model(torch.randn(B, T, E))
    assert seen[0].marks == (f"positions unknown: {T} queries attend to {T + 2} keys",)
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.randn(B, T, E), past_key_values=(torch.zeros(B, H, 3, 6), torch.zeros(B, H, 3, 6)))
    assert seen[0].marks == (f"positions unknown: {T} queries attend to {T + 2} keys",)


class Pair(nn.Module):
    """Two images in one tensor, (B, 2, T, E): each attends to itself, then to the other."""

    def __init__(self, pick):
        super().__init__()
        self.pick, self.attention, self.cross = pick, Attention(), Attention()
        self.encoder = nn.Linear(E, E)

    def forward(self, x):
        left, right = self.pick(self.encoder(x))
        left, right = (t + self.attention(t) for t in (left, right))
        return self.cross(left, right)


@pytest.mark.parametrize(
    "pick",
    [
        lambda x: (x[:, 0], x[:, 1]),
        lambda x: x.unbind(1),
        lambda x: [t.squeeze(1) for t in x.chunk(2, 1)],
        lambda x: x.transpose(0, 1).flatten(0, 1).chunk(2),
    ],
    ids=["numbers", "unbind", "chunk", "texts"],
)
def test_two_images_in_one_tensor_are_not_one_text(pick):
    with torch.no_grad(), regard.watch(model := Pair(pick)) as seen:
        model(torch.randn(B, 2, T, E))
    assert [layer.marks for layer in list(seen)[:2]] == [(), ()]
    assert seen["cross"].record.across
    assert seen["cross"].marks == ("positions assumed: keys are of another text, as an argument or a module is named",)


class Moved(nn.Module):
    """Its keys are its queries' own tokens, moved by one place."""

    def __init__(self):
        super().__init__()
        self.attention, self.other = Attention(), nn.Linear(5, E)

    def forward(self, x, y):
        return self.attention(x[:, 1:], x[:, :-1]) + self.other(y).mean(1, keepdim=True)


def test_tokens_that_were_moved_are_not_called_the_same():
    with torch.no_grad(), regard.watch(model := Moved()) as seen:
        model(torch.randn(B, T, E), torch.randn(B, 3, 5))
    assert seen[0].basis.positions.how is How.ASSUMED


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tower_of_torch_nn_is_followed_on_its_fast_path_and_off_it():
    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(E, H, 31, 0.0, batch_first=True)
            self.text, self.image = nn.TransformerEncoder(layer, 2), nn.TransformerEncoder(layer, 1)
            self.word, self.patch = nn.Embedding(13, E), nn.Linear(5, E)
            self.mix = nn.MultiheadAttention(E, H, batch_first=True)

        def forward(self, ids, patches, padding):
            text = self.text(self.word(ids), src_key_padding_mask=padding)
            image = self.image(self.patch(patches))
            return self.mix(text, image, image)[0]

    model, ids, patches = Towers().eval(), torch.randint(0, 13, (B, T)), torch.randn(B, T, 5)
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[1, -2:] = True
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients), regard.watch(model) as seen:
            model(ids, patches, padding)
        assert all(layer.marks == () for layer in seen)
        assert [layer.record.across for layer in seen] == [False, False, False, True]
        assert [layer.record.has("induction") for layer in seen] == [True, True, False, False]
        assert [bool(layer.entropy[1, 0, -1].isnan()) for layer in seen] == [True, True, False, True]


@pytest.mark.parametrize("padding", [False, True], ids=["", "padded"])
def test_bridgetower_reads_text_and_image_in_both_directions(padding):
    length = OF_IMAGE + 1
    model = Animal("bridgetower", text, sizes={"hidden_size": 64, "image_size": IMAGE}).model("eager")
    mask = padded(length) if padding else torch.ones(TEXTS, length, dtype=torch.long)
    with torch.no_grad(), regard.watch(model) as seen:
        model(input_ids=ids(length), attention_mask=mask, pixel_values=random(TEXTS, 3, IMAGE, IMAGE))
    for layer in seen:
        is_text = layer.name.startswith(("text_model", "cross_modal_text"))
        assert layer.record.across is ("crossattention" in layer.name)
        assert layer.record.has("induction") is (is_text and not layer.record.across)
        assert bool(layer.entropy[1, 0, -1].isnan()) is (is_text and padding)
        assert layer.marks == ()


def test_a_text_that_is_joined_with_an_image_keeps_its_padding():
    length = OF_IMAGE + 1
    model = Animal("git", text).model("eager")
    with torch.no_grad(), regard.watch(model) as seen:
        model(input_ids=ids(length), attention_mask=padded(length), pixel_values=random(TEXTS, 3, IMAGE, IMAGE))
    joined = [layer for layer in seen if layer.name.startswith("encoder.")]
    real = torch.cat([torch.ones(TEXTS, length), padded(length)], 1).bool()
    for layer in joined:
        assert torch.equal(~layer.entropy[:, 0].isnan(), real)
        assert layer.marks == ()
    assert len(joined) == 2
