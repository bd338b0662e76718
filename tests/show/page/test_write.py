"""A report as a page: to a file, for every text, with the steps of a layer."""

import json
import re

import pytest
import torch

import regard
from regard.heads.report.report import Seen
from regard.show.page.write import titled_texts, write_page
from regard.support.drawing import as_widget
from regard.traces.trace import trace_layers


@pytest.fixture(scope="module")
def model():
    return regard.GPT.from_pretrained("tiny")


def document(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="regard-document">(.*?)</script>', text, flags=re.DOTALL).group(1))


def test_a_report_writes_itself_with_its_tokens(model, tmp_path):
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([model.tokenizer.encode("The cat sat")]))
    seen.to_html(tmp_path / "page.html", title="cats")
    report = document(tmp_path / "page.html")["reports"][0]
    assert report["title"] == "cats"
    assert report["sequences"][0]["pieces"] == ["The", " cat", " sat"]
    assert [layer["queries"] for layer in report["layers"]] == [0] * 6


def test_every_text_and_every_forward_is_a_report():
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(2, 5, 6))
        layer(torch.randn(1, 3, 6))
    titles = [one.title for one in titled_texts(seen, "mine")]
    assert titles == ["mine · forward 0 · text 0", "mine · forward 0 · text 1", "mine · forward 1"]


def test_the_steps_of_chosen_layers_are_in_the_page(model, tmp_path):
    ids = torch.tensor([model.tokenizer.encode("The cat sat")])
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    write_page(tmp_path / "page.html", titled_texts(seen, "tiny", trace_layers(model, {"ids": ids}, [1, 4])))
    layers = document(tmp_path / "page.html")["reports"][0]["layers"]
    assert [layer["steps"] is not None for layer in layers] == [False, True, False, False, True, False]


def test_chosen_heads_of_a_long_text_are_exact_in_the_page(tmp_path):
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=3)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, 521, 6))
    write_page(tmp_path / "page.html", titled_texts(seen, "long", exact=[(0, 2)]))
    assert list(document(tmp_path / "page.html")["reports"][0]["layers"][0]["exact"]) == ["2"]


def test_a_report_of_nothing_says_so(tmp_path):
    with pytest.raises(ValueError, match="nothing was seen yet, so there is nothing to show"):
        Seen().to_html(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_cross_attention_knows_which_tokens_are_unknown(tmp_path):
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=2, causal=False)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, 3, 6), torch.randn(1, 5, 6))
    seen.to_html(tmp_path / "page.html")
    one = document(tmp_path / "page.html")["reports"][0]["layers"][0]
    assert (one["T"], one["S"], one["queries"], one["keys"]) == (3, 5, None, None)


def three_heads(*texts):
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=3)
    other = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=3)
    model = torch.nn.Sequential(layer, other)
    with torch.no_grad(), regard.watch(model) as seen:
        for B, T in texts:
            model(torch.randn(B, T, 6))
    return seen


def titles(widget):
    found = [one["title"] for one in json.loads(widget.document)["reports"]]
    widget.close()
    return found


def test_a_widget_shows_the_first_texts_and_says_that_there_are_more():
    pytest.importorskip("anywidget")
    assert titles(three_heads((2, 5)).widget("mine")) == ["mine · text 0", "mine · text 1"]
    many = three_heads((11, 5))
    assert titles(many.widget())[7:] == ["text 7 · the first 8 of 11 are here"]
    assert titles(many.widget(text=10)) == ["text 10"]
    assert titles(many.widget(text=-1)) == ["text 10"]
    with pytest.raises(ValueError, match=r"text 11 does not exist: there are 11, 0 to 10"):
        many.widget(text=11)


def test_a_head_and_a_layer_begin_where_they_are():
    pytest.importorskip("anywidget")
    seen = three_heads((1, 5), (1, 7)).forwards[1]
    head, layer = as_widget(seen[1, 2]), as_widget(seen[1])
    assert head.start == {"layer": 1, "head": 2}
    assert layer.start == {"view": "heads", "layer": 1, "head": seen.order(1)[0][1]}
    assert json.loads(head.document)["reports"][0]["layers"][0]["T"] == 7
    head.close()
    layer.close()


def test_a_page_can_open_at_a_view_and_a_head(tmp_path):
    model = regard.GPT("tiny").eval()
    with torch.no_grad(), regard.watch(model) as seen:
        model(torch.tensor([[5, 6, 7]]))
    write_page(tmp_path / "page.html", titled_texts(seen, "tiny"), {"view": "compare", "layer": 4, "head": 3})
    assert '"start":{"view":"compare","layer":4,"head":3}' in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_effects_are_a_statistic_that_heads_are_shaded_by(model, tmp_path):
    ids = torch.tensor([model.tokenizer.encode("The cat sat")])
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    effects = regard.effect(model, ids, heads=[(0, 2), (4, 3)])
    seen.to_html(tmp_path / "page.html", effects=effects)
    page = document(tmp_path / "page.html")
    assert page["statistics"][-1]["name"] == "effect"
    layers = page["reports"][0]["layers"]
    assert layers[4]["heads"][3]["means"]["effect"] == round(effects[4, 3].loss, 9)
    assert "effect" not in layers[4]["heads"][2]["means"]
    seen.to_html(tmp_path / "plain.html")
    assert "effect" not in [one["name"] for one in document(tmp_path / "plain.html")["statistics"]]


def test_effects_of_another_model_are_refused(model, tmp_path):
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, 5, 6))
    effects = regard.effect(model, [5, 6, 7], heads=[(4, 3)])
    with pytest.raises(ValueError, match=r"effects has head 4\.3, which this report does not have"):
        seen.to_html(tmp_path / "page.html", effects=effects)
