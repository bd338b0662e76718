import pytest

from benchmarks.check.cases import right_layers, wrong_layers
from benchmarks.check.strangers import layers
from school.check.learner import LESS, broken, checked, edited, names

NAME = "wrong causal offset with a cache"
CASES = [case for case in wrong_layers() if case.names == (NAME,)]


def test_a_cache_with_the_right_offset_is_right(tmp_path):
    assert checked(right_layers()["cached"], tmp_path).findings == []


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_mask_that_forgets_the_cache_is_named(case, tmp_path):
    verdict = checked(case.source, tmp_path)
    assert [one.name for one in verdict.findings][:1] == [NAME]


def test_a_mask_that_forgets_the_cache_for_several_new_tokens_is_a_warning(tmp_path):
    verdict = checked(CASES[1].source, tmp_path)
    assert verdict.is_right
    assert [one.name for one in verdict.warnings] == [NAME]


def test_the_offset_is_named_beside_a_mistake_in_the_scores(tmp_path):
    source = CASES[0].source.replace(" / self.head_dim**0.5", "")
    assert [one.name for one in checked(source, tmp_path).findings] == ["no scale", NAME]


def test_a_cache_that_loses_its_values_is_wrong(tmp_path):
    source = edited("cached", "v = torch.cat([cache[1], v], dim=2)", "v = torch.cat([0 * cache[1], v], dim=2)")
    (finding,) = checked(source, tmp_path).mistakes
    assert finding.name == "wrong with a cache"
    assert finding.says == "With a cache, the output for the last token is another than without one."


def test_a_cache_that_fails_is_told(tmp_path):
    source = edited("cached", "cache[1], v], dim=2", "cache[1], v], dim=7")
    (finding,) = checked(source, tmp_path).mistakes
    assert finding.says.startswith("With a cache it fails at the last token:")


CACHED = """
        past = 0 if cache is None or not len(cache) else cache[0].shape[2]
        if past:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        scores = q @ k.mT / math.sqrt(self.head_dim)
        scores = scores.masked_fill(torch.ones(T, T + past).triu(past + 1) > 0, -torch.inf)
"""
SCORES = "        scores = q @ k.mT / math.sqrt(self.head_dim)\n"
LISTED = CACHED + "        if cache is not None:\n            cache[:] = [k, v]\n"
TAKES = (LESS[0], "def forward(self, x, cache=None):\n        context = key_padding_mask = None\n")
RETURNS = "return (y, weights) if need_weights else y"
STATIC = """
        self.ck[:B, :, start_pos:start_pos + T], self.cv[:B, :, start_pos:start_pos + T] = k.detach(), v.detach()
        if start_pos:
            k, v = self.ck[:B, :, :start_pos + T], self.cv[:B, :, :start_pos + T]
        scores = q @ k.mT / math.sqrt(self.head_dim)
        scores = scores.masked_fill(torch.ones(T, T + start_pos).triu(start_pos + 1) > 0, -torch.inf)
"""
STARTS = (LESS[0], "def forward(self, x, start_pos=0):\n        context = key_padding_mask = None\n")
BUFFERS = "self.drop = nn.Dropout(dropout)"
WITH_BUFFERS = (
    f"{BUFFERS}\n        self.ck, self.cv = (torch.zeros(4, num_heads, 20, self.head_dim).double() for _ in range(2))"
)


def test_a_list_that_the_layer_extends_is_a_cache(tmp_path):
    right = broken(tmp_path, *TAKES, SCORES, LISTED, RETURNS, "return y")
    assert names(right) == []
    assert "cache" in right.checked
    oldest = LISTED.replace("[k, v]", "[k[:, :, :-1], v[:, :, :-1]]")
    assert names(broken(tmp_path, *TAKES, SCORES, oldest, RETURNS, "return y")) == ["wrong with a cache"]


def test_a_mask_that_forgets_the_cache_is_a_mistake_where_chunks_are_promised(tmp_path):
    unmasked = LISTED.replace("triu(past + 1) > 0", "triu(past + 1) > (T if past else 0)")
    doc = ("class Attention(nn.Module):\n", 'class Attention(nn.Module):\n    """Chunks of any length."""\n')
    assert names(broken(tmp_path, *TAKES, SCORES, unmasked, RETURNS, "return y", *doc)) == [NAME]
    assert names(broken(tmp_path, *TAKES, SCORES, unmasked, RETURNS, "return y")) == []


def test_a_cache_in_buffers_is_filled_from_start_pos(tmp_path):
    static = (*STARTS, SCORES, STATIC, BUFFERS, WITH_BUFFERS, RETURNS, "return y")
    assert "wrong with a cache" not in names(broken(tmp_path, *static))
    early = STATIC.replace("start_pos:start_pos + T]", "max(start_pos - 1, 0):max(start_pos - 1, 0) + T]")
    assert "wrong with a cache" in names(broken(tmp_path, *static[:3], early, *static[4:]))


def test_positions_that_begin_again_after_a_cache_are_wrong(tmp_path):
    source = next(text for row, text in layers("use") if row["file"] == "091_cache_rope_positions.py")
    assert names(checked(source, tmp_path)) == ["wrong with a cache"]
    right = source.replace("pos = torch.arange(T,", "pos = torch.arange(past, past + T,")
    assert names(checked(right, tmp_path)) == []
