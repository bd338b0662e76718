"""One head of an atlas as text, and all heads as plain values."""

import json

from heads.atlas.corpora import small_atlas, small_model
from heads.atlas.test_timeline import with_probe
from regard.commands.shared.atlas_card import SHOWN, as_plain, card


def test_a_card_has_jobs_deciles_examples_and_the_probe_where_it_was_measured():
    atlas = small_atlas(small_model())
    text = card(atlas, 1, 2)
    assert text.startswith(repr(atlas[1, 2]))
    assert f"\n  largest weight of a row, deciles: {atlas[1, 2].quantile('largest', 0.1):.2f} " in text
    assert text.count("«") == sum(len(atlas[1, 2].examples(which)[:SHOWN]) for which in ("strongest", "uniform", 0))
    assert "probe:" not in text
    assert "\n  probe: induction 0.50, previous 0.00, duplicate 0.00\n" in card(with_probe(atlas, 0.5), 1, 2)


def test_all_heads_are_json():
    atlas = small_atlas(small_model())
    plain = json.loads(json.dumps(as_plain(atlas), allow_nan=False))
    assert [one["head"] for one in plain["heads"]] == [f"{one.layer}.{one.head}" for one in atlas.heads()]
    assert plain["tokens"] == atlas.tokens
