"""Checks that files of heads share."""

import json

import pytest

from regard.heads.file_checks import Unfit, plain_text, require, text_of_plain, whole_number
from regard.tokens import TextTokens


def test_a_text_is_the_same_after_json():
    text = TextTokens(["Al", "ice", "", " 猫"], [False, True, False, False], [False, False, True, False], {3: "猫:1"})
    again = text_of_plain(json.loads(json.dumps(plain_text(text))))
    assert (again, again.labels, again.padding) == (text, text.labels, text.padding)


@pytest.mark.parametrize("fault", [{"pieces": [3]}, {"continues": ["yes"]}, {"parts": {"0": 7}}])
def test_a_text_of_other_things_is_refused(fault):
    with pytest.raises(Unfit, match="texts are not lists of tokens"):
        text_of_plain(plain_text(TextTokens(["The"])) | fault)


@pytest.mark.parametrize("value", [True, -1, 2.0, "3", None])
def test_a_size_is_a_whole_number(value):
    with pytest.raises(Unfit, match=r"T is .*, no size"):
        whole_number(value, "T")
    assert whole_number(5, "T") == 5


def test_what_does_not_fit_is_refused_with_the_reason():
    require(True, "never")
    with pytest.raises(Unfit, match="too short"):
        require(False, "too short")
