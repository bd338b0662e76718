"""Values of a config.json by name and type, refused by name."""

import pytest

from regard.attention.positions import Rotary, Stretch
from regard.gpt.checkpoint.typed_json import ConfigReader, typed

CONTENT = {
    "n_layer": 3,
    "eps": 1e-5,
    "tied": True,
    "rope": {"factor": 2},
    "wide": 2**31,
    "many": "three",
    "ends": [5, 7],
}


def test_values_are_read_by_name_and_missing_ones_have_a_default():
    reader = ConfigReader(CONTENT, "config.json")
    assert (reader.integer("n_layer"), reader.integer("n_head", 11)) == (3, 11)
    assert (reader.number("eps", 1.0), reader.flag("tied", False)) == (1e-5, True)
    assert (reader.table("rope"), reader.table("other"), reader.ids("ends", None)) == ({"factor": 2}, {}, (5, 7))
    assert reader.sizes({"n_layer": "num_layers"}) == {"num_layers": 3}
    assert (reader.end(7, vocab_size=13), ConfigReader({"eos_token_id": [5, 99]}, "").end(None, 13)) == (7, 5)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (
            lambda reader: reader.integer("wide"),
            "wide is 2147483648; it must be a whole number of at least 1 and below 2³¹",
        ),
        (lambda reader: reader.integer("n_head"), "n_head is missing; it must be a whole number"),
        (lambda reader: reader.number("many", 1.0), "many is 'three'; it must be a number"),
        (lambda reader: reader.flag("n_layer", False), "n_layer is 3; it must be true or false"),
        (lambda reader: reader.table("ends"), r"ends is \[5, 7\]; it must be a JSON object"),
        (lambda reader: reader.ids("many", None), "many is 'three'; it must be a token id, or a list of them"),
        (lambda reader: reader.one_of("tied", (1,), None, "why"), "tied is True; it must be 1: why"),
        (lambda reader: reader.dropout("eps", "n_layer", default=0.0), "eps is 1e-05, n_layer is 3.0; there is one"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(read, message):
    with pytest.raises(ValueError, match=f"^config.json: {message}.*Nothing was loaded"):
        read(ConfigReader(CONTENT, "config.json"))


def test_values_are_checked_against_the_types_of_a_dataclass():
    assert typed(Rotary, {"base": 7, "interleaved": True}, "x") == {"base": 7.0, "interleaved": True}
    assert typed(Rotary, {"stretch": {"factor": 2.0}}, "x") == {"stretch": Stretch(2.0)}
    with pytest.raises(ValueError, match=r"^x: interleaved is 1; it must be bool"):
        typed(Rotary, {"interleaved": 1}, "x")
    with pytest.raises(ValueError, match=r"^x: bases is 1; this version of regard does not know it"):
        typed(Rotary, {"bases": 1}, "x")


def test_a_type_is_named_as_json_names_it():
    with pytest.raises(ValueError, match=r"^x: stretch is 7; it must be a JSON object or null"):
        typed(Rotary, {"stretch": 7}, "x")
