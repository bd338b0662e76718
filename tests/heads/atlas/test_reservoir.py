"""Rows chosen while a corpus is read. test_examples.py compares them with a sort over the whole corpus."""

import torch

import regard
from heads.atlas.corpora import Letters, kept, same_sums, small_model
from heads.atlas.test_cells import tokenizers
from regard.heads.atlas import collect, reservoir
from regard.heads.atlas.examples import KEPT, STRONGEST, UNIFORM
from regard.heads.atlas.reservoir import Excerpts, Reservoir
from regard.heads.inputs.pieces import TokenReader

TEXTS = torch.randint(0, 31, (9, 23), generator=torch.Generator().manual_seed(5))


def test_of_rows_that_are_equally_strong_chance_decides_not_the_order():
    numbers = torch.randperm(997)[None] << 40
    everything = torch.full((1, 1, 997), 0.99999).double(), torch.ones(1, 1, 997, dtype=torch.bool)
    chosen = Reservoir(1)._chosen(*everything, numbers, torch.tensor([0]))
    smallest = numbers[0].argsort()[: KEPT[STRONGEST]].tolist()
    assert [chosen.row[chosen.place == group].tolist() for group in (UNIFORM, STRONGEST)] == [smallest, smallest]


def test_layers_added_together_and_each_alone_give_the_same(monkeypatch):
    model, found = small_model(), []
    for together in (0, 1 << 30):
        monkeypatch.setattr(collect, "_IN_CACHE", together)
        found.append(regard.atlas(model, TEXTS.split(3), tokenizer=Letters()))
    same_sums(*found)
    assert kept(found[0]) == kept(found[1])


def test_texts_without_an_example_are_forgotten_and_the_others_read_in_the_end(monkeypatch):
    model, texts = small_model(), torch.randint(0, 31, (60, 5), generator=torch.Generator().manual_seed(6))
    everything = regard.atlas(model, [texts], tokenizer=Letters())
    monkeypatch.setattr(reservoir, "_TEXTS", 10)
    monkeypatch.setattr(reservoir, "KEPT", [int(group == UNIFORM) for group in range(len(KEPT))])
    builder = collect.AtlasBuilder(model, Letters())
    for ids in texts:
        builder.add(ids[None])
        assert len(builder._reservoir._texts) <= 11
    atlas = builder.atlas()
    for head, right in zip(atlas.heads(), everything.heads(), strict=True):
        (one,), expected = head.examples("uniform"), right.examples("uniform")[0]
        assert (one.text, one.token, one.keys, one.pieces) == (
            expected.text,
            expected.token,
            expected.keys,
            expected.pieces,
        )


def test_an_excerpt_is_that_of_the_whole_text():
    generator = torch.Generator().manual_seed(4)
    for tokenizer, most in tokenizers():
        reader, cut = TokenReader(tokenizer), Excerpts(TokenReader(tokenizer))
        for front in (0, 3) * 20:
            ids = torch.randint(0, most, (61,), generator=generator).tolist()
            padding = [at < front or at == 47 for at in range(61)]
            token, *keys = torch.randint(0, 61 - front, (4,), generator=generator).tolist()
            whole = reader.read(ids, padding)
            places = {*range(token - 12, token + 4), *(at for key in keys for at in (key - 1, key, key + 1))}
            right = {
                at: (whole.pieces[at + front], whole.continues[at + front], whole.parts.get(at + front, ""))
                for at in places
                if 0 <= at < 61 - front and not padding[at + front]
            }
            assert cut(ids, padding, token, keys) == right
