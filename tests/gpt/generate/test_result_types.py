"""The types of GPT.generate; tests/types_of_results.py is what a type checker makes of them."""

from dataclasses import fields

from regard.gpt.generate.options import StreamOptions
from regard.gpt.generate.result_types import StreamKeywords


def test_a_type_checker_knows_the_keywords_of_the_table():
    assert {"max_new_tokens", *StreamKeywords.__annotations__} == {field.name for field in fields(StreamOptions)}
