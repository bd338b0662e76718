"""The widget: the document is in the notebook, blocks are sent when they are asked for."""

import json

import pytest
import torch

import regard

pytest.importorskip("anywidget")


@pytest.fixture
def widget():
    layer = regard.MultiHeadAttention(d_in=6, d_out=6, context_length=None, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, 5, 6))
    widget = seen.widget("mine")
    widget.sent = []
    widget.send = lambda content, buffers=None: widget.sent.append((content, buffers))
    return widget


def test_the_document_travels_with_the_widget_and_weights_do_not(widget):
    document = json.loads(widget.document)
    assert document["reports"][0]["title"] == "mine"
    assert len(widget.document) < 10_000
    assert widget._esm.rstrip().endswith("export default { render: regardPage.renderWidget };")


def test_a_block_that_is_asked_for_is_sent(widget):
    widget._answer(widget, {"key": "weights.0.0.1"}, [])
    ((content, buffers),) = widget.sent
    assert content == {"key": "weights.0.0.1"}
    assert buffers == [widget._blocks["weights.0.0.1"]]


@pytest.mark.parametrize("message", [{}, {"key": 5}, "weights.0.0.1", None])
def test_what_is_no_question_gets_no_answer(widget, message):
    widget._answer(widget, message, [])
    assert widget.sent == []


def test_an_unknown_block_is_an_error_that_the_page_shows(widget):
    widget._answer(widget, {"key": "weights.0.9.9"}, [])
    assert widget.sent == [({"key": "weights.0.9.9", "error": "weights.0.9.9 is not in this report."}, None)]
