"""Many module names in one line."""

from regard.heads.calls.names import names_in_short


def test_names_that_differ_by_a_running_number_are_one():
    names = [f"model.layers.{i}.self_attn" for i in range(12)]
    assert names_in_short(names) == "model.layers.0–11.self_attn"
    assert names_in_short(["encoder.0", "encoder.1", "decoder.0", "decoder.1"]) == "encoder.0–1, decoder.0–1"
    assert names_in_short(["h.0", "h.2"]) == "h.0, h.2"
    assert names_in_short(["a.0.b.0", "a.0.b.1", "a.1.b.0"]) == "a.0.b.0–1, a.1.b.0"
    assert names_in_short([]) == ""


def test_many_names_are_cut_to_the_width():
    short = names_in_short([f"{c}{c}{c}" for c in "abcdefghijklmnop"], width=30)
    assert short == "aaa, bbb, ccc, ddd, eee, fff,…"
