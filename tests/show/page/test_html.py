"""One file: no outside address, no token that ends its element, every module in one scope."""

import base64
import gzip
import hashlib
import json
import re

import pytest
import torch

import regard
from regard.show.page.html import json_in_html, packed, page_html, script, served_html
from regard.show.page.payload import Titled, page_data
from regard.support.tokens import TextTokens

HOSTILE = ["</script><script>alert(1)</script>", "<!--", "\u2028", '"}', "<img src=x onerror=alert(1)>", "]]>", "\x00"]


@pytest.fixture(scope="module")
def page():
    layer = regard.MultiHeadAttention(d_in=8, d_out=8, context_length=None, dropout=0.0, num_heads=2)
    with torch.no_grad(), regard.watch(layer) as seen:
        layer(torch.randn(1, len(HOSTILE), 8))
    return page_html(page_data([Titled("</title><script>", seen, tokens=TextTokens(HOSTILE))]))


def test_a_token_cannot_end_its_element(page):
    assert (
        page.count("<script") == page.count("</script>") == 2 + 2 + 2
    )  # document, two heads and strongest, script, start
    assert "alert(1)</script>" not in page
    assert page.count("<!--") == 0


def test_the_page_holds_no_outside_address(page):
    without = page.replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://[^\s\"']+", without) == []
    assert "default-src 'none'" in page


def test_json_in_html_reads_back():
    text = json_in_html({"tokens": HOSTILE})
    assert "<" not in text
    assert json.loads(text) == {"tokens": HOSTILE}


def unpacked_script(page):
    [text] = re.findall(r'<script type="text/plain" id="regard-script">([^<]*)</script>', page)
    return gzip.decompress(base64.b64decode(text)).decode()


def test_the_page_carries_at_most_100_kb_of_script(page):
    *_, start = re.findall(r"<script>([^<]*)</script>", page)
    assert len(packed(script("regardPage.startPage();"))) + len(start) <= 100_000


@pytest.mark.xfail(strict=True, reason="125 kB before it is packed, with all five views")
def test_the_script_itself_is_at_most_100_kb():
    assert len(script("regardPage.startPage();").encode()) <= 100_000


def test_the_policy_allows_the_script_and_what_unpacks_it_and_nothing_else(page):
    *_, start = re.findall(r"<script>([^<]*)</script>", page)
    [sources] = re.findall(r"script-src ([^;]*);", page)
    digests = [hashlib.sha256(text.encode()).digest() for text in (start, unpacked_script(page))]
    assert sources.split() == [f"'sha256-{base64.b64encode(one).decode()}'" for one in digests]


def test_only_a_served_page_may_fetch_and_only_from_its_server(page):
    served = served_html({"models": ["</script>"], "text": "<!--", "longest": 7})
    assert "connect-src 'self'" in served
    assert unpacked_script(served).endswith("regardPage.startServed();")
    assert served.count("<script") == served.count("</script>") == 3
    assert "connect-src" not in page
