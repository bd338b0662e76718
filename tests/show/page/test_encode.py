"""Weights as bytes: what is stored is what is read, within the error that is stated."""

import gzip

import numpy as np
import pytest
import torch

from regard.show.page.encode import (
    TOP,
    Encoding,
    compress,
    encode,
    highest_outside,
    strongest_keys,
    thumbnail,
    thumbnails,
)
from regard.show.page.encode import decode_weights as read_weights


def random_weights(T, S, causal, seed=7):
    torch.manual_seed(seed)
    visible = torch.ones(T, S, dtype=torch.bool)
    visible = visible.tril() if causal else visible
    scores = (3 * torch.randn(T, S)).masked_fill(~visible, -torch.inf)
    return scores.softmax(-1), visible


def decode(content, T, S, encoding):
    """What js/data/page-data.js reads, written again."""
    cells = np.tril(np.ones((T, S), bool)) if encoding.triangle else np.ones((T, S), bool)
    values, count = np.full((T, S), np.nan), int(cells.sum())
    codes = np.frombuffer(content, np.uint8)
    if encoding.kind == "linear16":
        whole = codes[:count].astype(int) * 256 + codes[count : 2 * count]
        values[cells] = np.where(whole == 65535, np.nan, whole / 65534)
        return values
    values[cells] = np.where(codes[:count] == 127, np.nan, (codes[:count] / 126) ** 2 * encoding.highest)
    exact = np.frombuffer(content[count:], "<u2").reshape(T, 2 * TOP)
    for row, (keys, weights) in enumerate(zip(exact[:, :TOP], exact[:, TOP:], strict=True)):
        for key, weight in zip(keys, weights, strict=True):
            if key != 65535:
                values[row, key] = weight / 65535
    return values


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["linear16", "root7"])
def test_weights_come_back_within_the_stated_error(kind, causal):
    weights, visible = random_weights(13, 13 if causal else 29, causal)
    encoding = Encoding(kind, triangle=causal, highest=highest_outside(weights[None]))
    read = decode(encode(weights, visible, encoding), *weights.shape, encoding)
    assert np.array_equal(np.isnan(read), ~visible.numpy())
    assert np.nanmax(abs(np.where(visible, read - weights.numpy(), 0))) <= encoding.error + 1e-9


def test_coarser_codes_are_fewer_and_stay_within_the_stated_error():
    weights, visible = random_weights(37, 41, causal=False)
    most = highest_outside(weights[None])
    encodings = [Encoding("root7", False, most * 2**coarse, coarse) for coarse in range(7)]
    contents = [encode(weights, visible, encoding) for encoding in encodings]
    sizes = [len(compress(content)) for content in contents]
    assert sizes == sorted(sizes, reverse=True)
    for content, encoding in zip(contents, encodings, strict=True):
        errors = abs(decode(content, 37, 41, encoding) - weights.numpy())
        assert 0.5 * encoding.error < errors.max() <= encoding.error + 1e-9
    assert encodings[6].error == pytest.approx(8 * encodings[0].error, rel=0.02)


def test_the_largest_of_each_row_are_exact_in_root7():
    weights, visible = random_weights(17, 31, causal=False)
    encoding = Encoding("root7", triangle=False, highest=highest_outside(weights[None]))
    read = torch.from_numpy(decode(encode(weights, visible, encoding), 17, 31, encoding))
    best = weights.topk(TOP).indices
    torch.testing.assert_close(read.gather(1, best), weights.gather(1, best).double(), atol=1e-5, rtol=0)


def test_four_decimals_come_back_within_the_stated_error_and_hidden_cells_stay_hidden():
    weights, visible = random_weights(13, 13, causal=True)
    encoding = Encoding("linear16", triangle=True, coarse=4)
    assert encoding.error == 0.5 / 4095
    read = read_weights(encode(weights, visible, encoding), 13, 13, encoding)
    assert np.array_equal(np.isnan(read), ~visible.numpy())
    np.testing.assert_allclose(np.nan_to_num(read), weights.numpy(), rtol=0, atol=encoding.error + 1e-9)


def test_cells_hidden_inside_a_triangle_stay_hidden():
    weights, visible = random_weights(7, 7, causal=True)
    visible[5, 1], weights[5, 1] = False, 0
    encoding = Encoding("linear16", triangle=True)
    assert np.array_equal(np.isnan(decode(encode(weights, visible, encoding), 7, 7, encoding)), ~visible.numpy())


def test_the_strongest_key_of_each_query_is_exact_and_none_where_nothing_is_seen():
    weights, visible = random_weights(5, 5, causal=True)
    visible[2] = False
    pairs = np.frombuffer(strongest_keys(weights.masked_fill(~visible, 0), visible), "<u2").reshape(5, 2)
    assert pairs[:, 0].tolist() == [0, *weights[1:2].argmax(-1).tolist(), 65535, *weights[3:].argmax(-1).tolist()]
    wanted = weights.max(-1).values[[0, 1, 3, 4]].double().numpy()
    np.testing.assert_allclose(pairs[[0, 1, 3, 4], 1] / 65535, wanted, atol=1e-5)


def test_a_picture_holds_the_mass_of_each_cell():
    weights, visible = random_weights(100, 100, causal=True)
    codes = thumbnail(weights, visible, 50)
    assert codes.shape == (50, 50)
    mass = np.where(codes == 255, 0, (codes / 254.0) ** 2)
    np.testing.assert_allclose(mass.sum(1), 1, atol=0.06)
    wanted = weights.view(50, 2, 50, 2).sum(-1).mean(1).numpy()
    np.testing.assert_allclose(mass, wanted, atol=0.004)
    assert np.array_equal(codes == 255, np.triu(np.ones((50, 50), bool), 1))


def test_compression_gives_the_same_bytes_every_time():
    content = bytes(range(256)) * 40
    assert compress(content) == compress(content)
    assert gzip.decompress(compress(content)) == content


@pytest.mark.parametrize("planes", [1, 2, 3, 7])
def test_parts_that_are_compressed_apart_are_one_gzip_stream(planes):
    torch.manual_seed(5)
    noise = torch.randint(0, 17, (211,), dtype=torch.uint8).numpy().tobytes()
    for content in (b"", b"a", noise, noise * 11):
        assert gzip.decompress(compress(content, planes)) == content


def test_noise_is_not_searched_for_repetitions():
    torch.manual_seed(5)
    noise = torch.randint(0, 32, (30_011,), dtype=torch.uint8).numpy().tobytes()
    assert len(compress(bytes(30_011) + noise, planes=2)) < 0.97 * len(gzip.compress(bytes(30_011) + noise, 6))


def test_pictures_of_heads_with_masks_of_their_own_are_those_of_each_head():
    pairs = [random_weights(13, 17, causal=False, seed=seed) for seed in (3, 5, 7)]
    weights, visible = (torch.stack(parts) for parts in zip(*pairs, strict=True))
    visible[1, :, 5] = visible[2, 11] = False
    for most in (5, 64):
        each = [thumbnail(*one, most) for one in zip(weights, visible, strict=True)]
        np.testing.assert_array_equal(thumbnails(weights, visible, most), each)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["linear16", "root7"])
def test_what_is_written_is_read_with_its_hidden_cells(kind, causal):
    weights, visible = random_weights(13, 13 if causal else 17, causal)
    visible[:, 5] = visible[11] = False
    encoding = Encoding(kind, causal, highest_outside(weights[None]))
    read = torch.from_numpy(read_weights(encode(weights, visible, encoding), *weights.shape, encoding))
    assert torch.equal(read.isnan(), ~visible)
    wanted = weights.masked_fill(~visible, 0)
    torch.testing.assert_close(read.nan_to_num().float(), wanted, atol=encoding.error + 1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["linear16", "root7"])
def test_a_weight_that_is_nan_is_drawn_as_hidden_and_warns_of_nothing(kind):
    visible = torch.tensor([[True, True], [True, True]])
    found = encode(torch.tensor([[0.5, torch.nan], [0.25, 0.75]]), visible, Encoding(kind, triangle=False))
    hidden = torch.tensor([[True, False], [True, True]])
    assert found == encode(torch.tensor([[0.5, 0.0], [0.25, 0.75]]), hidden, Encoding(kind, triangle=False))
