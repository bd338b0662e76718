import json
import tracemalloc

import pytest

from regard.support.untrusted_json import MOST, parse_json


def test_a_value_comes_back():
    value = {"a": [1, 2.5, None, True], "b": {"c": "猫"}}
    assert parse_json(json.dumps(value)) == parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": {"x": 1, "\\u0078": 2}}', "^x is there twice$"),
        ('{"\\u001b[2J": 1, "\\u001b[2J": 2}', r"^\\x1b\[2J is there twice$"),
        ("[" * 100_000 + "]" * 100_000, r"too many values|nested too deeply"),
        ("[" * 50_000 + "]" * 50_000, "^it is nested too deeply$"),
        ("9" * 1_000_000, "^no size has 1,000,000 digits$"),
        ("{", "Expecting property name"),
        (b"\xff", "codec can't decode"),
    ],
)
def test_what_is_no_json_of_ours_says_why(text, message):
    with pytest.raises(ValueError, match=message):
        parse_json(text)


@pytest.mark.parametrize("unit", ["[],", "{},", '{"":1},', "300,", '"ab",', "[[]],", "1.5,"])
def test_a_text_of_two_megabytes_takes_no_more_than_fifty(unit):
    text = "[" + unit * (2_000_000 // len(unit)) + "0]"
    tracemalloc.start()
    try:
        parse_json(text)
    except ValueError as error:
        assert "it has too many values" in str(error)  # noqa: PT017
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 << 20


def test_an_object_of_many_names_takes_no_more_than_fifty_megabytes():
    text = json.dumps({f"k{i}": i for i in range(MOST // 3 - 1)})
    tracemalloc.start()
    assert len(parse_json(text)) == MOST // 3 - 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 << 20


def test_more_is_allowed_where_the_caller_says_so():
    text = json.dumps([[]] * 100_000)
    with pytest.raises(
        ValueError, match=r"it has too many values \(commas, colons and brackets cost 600,004, and 500,000"
    ):
        parse_json(text)
    assert len(parse_json(text, most=10**6)) == 100_000
