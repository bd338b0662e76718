"""`regard page --live`: a page that runs the model itself."""

import json
import re

import pytest

import regard
from regard.commands.page import page


def test_a_live_page_is_written_and_its_size_said(tmp_path, capsys):
    path = tmp_path / "live.html"
    page("The cat sat", output=str(path), live=True, max_tokens=29)
    text = path.read_text(encoding="utf-8")
    assert capsys.readouterr().out == f"\n  The page holds the model: {len(text) / 1e6:.1f} MB\n\n  Wrote {path}\n"
    document = json.loads(re.search(r'id="regard-document">(.*?)</script>', text, flags=re.DOTALL)[1])
    assert document["settings"]["text"] == "The cat sat"
    assert document["live"]["longest"] == 29


def test_options_about_one_text_are_refused():
    with pytest.raises(ValueError, match=r"--head and --steps cannot be used here: a page with --live shows what is"):
        page("The cat sat", live=True, head="4.3", steps="1")


def test_a_model_that_is_too_large_is_refused_with_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.show.page.live.LARGEST", 1 << 20)
    with pytest.raises(ValueError, match="tiny has 23 MiB of weights, and a page that runs its model holds at most 1"):
        page("The cat sat", output=str(tmp_path / "live.html"), live=True)
    assert not list(tmp_path.iterdir())


def test_a_model_whose_tokenizer_the_page_cannot_run_is_refused_by_name(tmp_path):
    import tokenizers

    model = regard.GPT(regard.GPTConfig(vocab_size=5, context_length=7, num_layers=1, d_model=8, num_heads=2))
    model.save_pretrained(tmp_path / "words")
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"cat": 0}, unk_token="cat"))
    inner.save(str(tmp_path / "words" / "tokenizer.json"))
    with pytest.raises(ValueError, match="this tokenizer has a WordLevel model, which the page cannot run"):
        page("cat", output=str(tmp_path / "live.html"), model=str(tmp_path / "words"), live=True)
