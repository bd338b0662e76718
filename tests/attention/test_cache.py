import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers import says_it_ourselves
from regard import Cache, MultiHeadAttention, padding


def new_layer(context_length=13, d_in=6, d_out=12, num_heads=6, **options):
    layer = MultiHeadAttention(d_in, d_out, context_length, 0.0, num_heads, **options)
    return layer.double().eval().requires_grad_(False)


def in_pieces(layer, x, sizes, **options):
    """The layer over x piece by piece, with a cache."""
    cache, out = Cache.of(layer, batch=x.shape[0]), []
    for piece in x.split(sizes, dim=1):
        out.append(layer(piece, cache=cache[0], **options))
        cache.advance(piece.shape[1])
    return torch.cat(out, dim=1)


OPTIONS = {
    "plain": {},
    "window": {"window": 3},
    "rotary": {"rotary": True},
    "rotary, window, grouped": {"rotary": 500.0, "window": 5, "num_kv_heads": 2},
    "alibi, multi-query": {"alibi": True, "num_kv_heads": 1},
    "qk_norm": {"qk_norm": True, "rotary": True},
}


@pytest.mark.parametrize("name", OPTIONS)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=13).filter(lambda sizes: sum(sizes) <= 13))
def test_cached_equals_uncached_however_the_text_is_split(name, sizes):
    layer, x = new_layer(**OPTIONS[name]), torch.randn(2, sum(sizes), 6, dtype=torch.float64)
    torch.testing.assert_close(in_pieces(layer, x, sizes), layer(x), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", OPTIONS)
def test_cached_equals_uncached_over_padding_lengths(name):
    layer, x = new_layer(**OPTIONS[name]), torch.randn(2, 11, 6, dtype=torch.float64)
    found = in_pieces(layer, x, [5, 1, 1, 4], mask=padding([4, 11]))
    torch.testing.assert_close(found, layer(x, mask=padding([4, 11])), rtol=1e-9, atol=1e-11)


def test_left_padded_texts_continue_with_a_mask_that_covers_the_cached_keys():
    layer, x = new_layer(), torch.randn(2, 7, 6, dtype=torch.float64)
    keep = torch.arange(7) >= torch.tensor([[0], [3]])
    cache = Cache.of(layer, batch=2)
    layer(x[:, :5], cache=cache[0], mask=padding(keep[:, :5]))
    cache.advance(5)
    found = layer(x[:, 5:], cache=cache[0], mask=padding(keep))
    torch.testing.assert_close(found, layer(x, mask=padding(keep))[:, 5:], rtol=1e-9, atol=1e-11)


def test_return_weights_reach_over_the_cached_keys():
    layer, x = new_layer(), torch.randn(2, 7, 6, dtype=torch.float64)
    cache = Cache.of(layer, batch=2)
    layer(x[:, :5], cache=cache[0])
    cache.advance(5)
    _, weights = layer(x[:, 5:], cache=cache[0], return_weights=True)
    torch.testing.assert_close(weights, layer(x, return_weights=True)[1][:, :, 5:])


def test_a_layer_never_moves_the_mark():
    layer, x = new_layer(), torch.randn(1, 5, 6, dtype=torch.float64)
    cache = Cache.of(layer)
    first = layer(x, cache=cache[0])
    assert cache.length == 0
    torch.testing.assert_close(layer(x, cache=cache[0]), first, rtol=0, atol=0)


def test_a_reset_cache_is_as_good_as_new():
    layer, x = new_layer(rotary=True), torch.randn(1, 5, 6, dtype=torch.float64)
    cache = Cache.of(layer)
    layer(torch.randn(1, 13, 6, dtype=torch.float64), cache=cache[0])
    cache.advance(13)
    memory = cache.keys.data_ptr()
    cache.reset()
    torch.testing.assert_close(layer(x, cache=cache[0]), layer(x), rtol=1e-9, atol=1e-11)
    assert cache.keys.data_ptr() == memory


def test_layers_do_not_share_their_slots():
    first, second = new_layer(), new_layer()
    cache = Cache.of(first, second, batch=2)
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    first(x, cache=cache[0])
    second(x, cache=cache[-1])
    torch.testing.assert_close(cache.keys[0, :, :, :5], first.W_key(x).unflatten(-1, (6, 2)).transpose(1, 2))
    torch.testing.assert_close(cache.values[1, :, :, :5], second.W_value(x).unflatten(-1, (6, 2)).transpose(1, 2))
    assert [slot.index for slot in cache] == [0, 1]
    assert len(cache) == 2


def test_a_cache_of_layers_takes_their_sizes_dtype_and_length():
    cache = Cache.of(new_layer(num_kv_heads=3).bfloat16(), batch=5)
    assert cache.keys.shape == cache.values.shape == (1, 5, 3, 13, 2)
    assert cache.keys.dtype is torch.bfloat16
    assert (cache.capacity, cache.length) == (13, 0)
    assert Cache.of(new_layer(), capacity=7).capacity == 7


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_low_precision_layer_writes_and_reads_its_own_dtype(dtype):
    layer = new_layer(rotary=True).to(dtype)
    x = torch.randn(2, 7, 6, dtype=dtype)
    found = in_pieces(layer, x, [3, 1, 3])
    assert found.dtype is dtype
    torch.testing.assert_close(found, layer(x), rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_a_cache_shows_its_sizes():
    cache = Cache(num_layers=1, batch=3, num_kv_heads=5, capacity=1024, head_dim=64, dtype=torch.float16)
    cache.advance(7)
    assert repr(cache) == "Cache(1 layer, batch 3, 5 kv heads of 64, 7 of 1024 tokens, float16, 3.8 MiB)"


SIZES = {"num_layers": 2, "batch": 3, "num_kv_heads": 5, "capacity": 7, "head_dim": 11}


@pytest.mark.parametrize("name", ["num_layers", "num_kv_heads", "capacity", "head_dim"])
def test_a_size_below_one_is_refused(name):
    with pytest.raises(ValueError, match=rf"{name} \(0\) must be at least 1"):
        Cache(**SIZES | {name: 0})


def test_a_batch_below_zero_is_refused():
    with pytest.raises(ValueError, match=r"batch \(-1\) must be"):
        Cache(**SIZES | {"batch": -1})


def test_an_empty_batch_may_be_cached():
    layer = new_layer()
    cache = Cache.of(layer, batch=0)
    assert layer(torch.randn(0, 3, 6, dtype=torch.float64), cache=cache[0]).shape == (0, 3, 12)


def test_a_text_longer_than_the_cache_says_how_long_it_must_be():
    cache = Cache(**SIZES)
    cache.advance(4)
    k = torch.randn(3, 5, 4, 11)
    with pytest.raises(
        ValueError, match=r"4 more tokens do not fit: the cache holds 4 of 7; build it with capacity=8 or more"
    ):
        cache[0].write(k, k)
    assert not cache.keys.any()


@pytest.mark.parametrize("shape", [(2, 5, 1, 11), (3, 4, 1, 11), (3, 5, 1, 10)])
def test_keys_of_other_sizes_say_what_the_cache_was_built_for(shape):
    k = torch.randn(shape)
    message = (
        rf"keys are \({', '.join(map(str, shape))}\) but the cache was built for batch=3, num_kv_heads=5, head_dim=11"
    )
    with pytest.raises(ValueError, match=message):
        Cache(**SIZES)[0].write(k, k)


@says_it_ourselves
def test_values_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match=r"values are \(3, 5, 1, 11\)"):
        Cache(**SIZES)[0].write(torch.randn(3, 5, 2, 11), torch.randn(3, 5, 1, 11))


def test_a_cache_keeps_no_gradients_and_says_so():
    layer = new_layer().requires_grad_(True)
    cache = Cache.of(layer)
    x = torch.randn(1, 5, 6, dtype=torch.float64)
    with pytest.raises(
        ValueError, match=r"a cache is for inference and keeps no gradients; .* under torch.no_grad\(\)"
    ):
        layer(x, cache=cache[0])
    with torch.no_grad():
        assert layer(x, cache=cache[0]).shape == (1, 5, 12)


@pytest.mark.parametrize("tokens", [-1, 8])
def test_the_mark_stays_within_the_cache(tokens):
    with pytest.raises(ValueError, match=rf"cannot advance by {tokens}: the cache holds 0 of 7 tokens"):
        Cache(**SIZES).advance(tokens)


@pytest.mark.parametrize("index", [2, -3])
def test_a_layer_that_is_not_there_is_said(index):
    with pytest.raises(IndexError, match=rf"layer {index} of a cache for 2 layers"):
        Cache(**SIZES)[index]


def test_a_cache_of_nothing_or_of_unlike_layers_is_refused():
    with pytest.raises(ValueError, match=r"Cache.of\(\) needs at least one layer"):
        Cache.of()
    with pytest.raises(
        ValueError, match=r"the layers differ in \(num_kv_heads, head_dim\): \[\(2, 2\), \(6, 2\)\]; build one"
    ):
        Cache.of(new_layer(), new_layer(num_kv_heads=2))
    with pytest.raises(
        ValueError, match=r"this layer has no context_length to go by; say Cache.of\(layer, capacity=…\)"
    ):
        Cache.of(new_layer(context_length=None))


def test_cached_tokens_count_towards_the_context():
    layer = new_layer(context_length=7)
    cache = Cache.of(layer, capacity=20)
    cache.advance(5)
    with pytest.raises(ValueError, match=r"8 tokens do not fit context_length=7; pass at most 7"):
        layer(torch.randn(1, 3, 6, dtype=torch.float64), cache=cache[0])
