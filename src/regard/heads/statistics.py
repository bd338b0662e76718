"""The statistics of a head, each defined once. Row i of the weights p stands at key position at = i + S − T.

Where keys were put after those of the text (torch.nn.MultiheadAttention's add_bias_kv), S is the number of its own.

| name | formula | unit |
| --- | --- | --- |
| lse | log Σⱼ exp(scoreᵢⱼ), over the keys that i may see | nats |
| entropy | −Σⱼ pᵢⱼ · ln pᵢⱼ | nats: 0 is one key, ln n is n keys alike |
| largest, largest_key | maxⱼ pᵢⱼ, and its j (of several alike, one) | weight, key |
| distance | Σⱼ pᵢⱼ · abs(at − j) | tokens |
| histogram | weight at distance 0, 1, 2–3, 4–7, 8–15, … | weight |
| sink | p on the first key that anyone may see | weight |
| previous, self | p at at − 1; p at at | weight |
| duplicate | p on the last earlier occurrence of the current token | weight |
| induction | p on the token after that occurrence | weight |
| received | Σᵢ pᵢⱼ, over the queries that count | queries |
| received_mean | received ÷ how many of them may see key j | weight |
| top | the n largest of a row, and their keys | weight, key |
| map | mean of p in each cell of an n × n grid over T × S | weight |

Rows that are padding, or that may attend to nothing, do not count: their statistics are NaN and their keys −1.
A statistic about a key that is not there (no previous token, no earlier occurrence) is NaN as well. In cross-attention
a query stands at no key: distance, histogram, previous and self are NaN.
"""

from __future__ import annotations

import importlib.util
import warnings
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from regard.attention.kernels import exact_weights as tiles
from regard.attention.kernels.exact_weights import Tile
from regard.attention.kernels.kernel_mask import rule_of
from regard.attention.masks import Mask
from regard.heads.call import WatchedCall
from regard.heads.visibility import may_see, seeing_queries

ROWS = ("lse", "entropy", "largest", "largest_key", "distance", "sink", "previous", "self", "induction", "duplicate")
COLUMNS = ("received", "received_mean")  # (B, H, S)
WIDE = ("histogram", "top", "map")  # computed at once where asked for with collect=, else on demand
DEFAULT = ("lse", "entropy", "largest", "largest_key", "distance", "sink", "previous", "self", "received")
WRITTEN_OUT = 1 << 28  # entries of a mask that kernels do not know, at a time
_APART = ("distance", "previous", "self")  # what only a query that stands among the keys can have
GRID = 65535  # heads of all texts that a launch can take
_refused: set[tuple[torch.device, int]] = set()  # what kernels could not be built for
_CHOSEN = ("sink", "previous", "self", "duplicate", "induction")  # each the weight on one key a query


def measure(call: WatchedCall, collect: frozenset[str]) -> dict[str, Tensor]:
    """Every chosen statistic of one call: {"entropy": (B, H, T), …, "received": (B, H, S), …}.

    Where the tokens are known, induction and duplicate come along.

    >>> from regard.attention.masks import causal
    >>> eye = torch.eye(3).view(1, 1, 3, 3)
    >>> measure(WatchedCall("", q=eye, k=eye, scale=100.0, mask=causal()), frozenset({"self"}))
    {'self': tensor([[[1., 1., 1.]]])}
    """
    if call.tokens is not None:
        collect = collect | {"induction", "duplicate"}
    found = (_in_one_launch(call, collect) if _in_triton(call) else None) or _in_tiles(call, collect)
    if "received_mean" in collect:
        queries = seeing_queries(call)
        found["received_mean"] = torch.where(queries > 0, found["received"] / queries.clamp(min=1), torch.nan)
    if "histogram" in collect:
        found["histogram"] = torch.stack([histogram(call, found["lse"], h) for h in range(call.sizes[1])], dim=1)
    if call.across:
        found |= {name: torch.full_like(found[name], torch.nan) for name in _APART if name in found}
    return {name: found[name] for name in (*ROWS, *COLUMNS, "histogram") if name in collect and name in found}


def _in_tiles(call: WatchedCall, collect: frozenset[str]) -> dict[str, Tensor]:
    B, _, T, _ = call.sizes
    lse = _lse(call)
    counted = _counted(call, lse)
    keys = _targets(call, counted)
    chosen = [name for name in _CHOSEN if name in keys and name in collect]
    empty = torch.zeros(0, B, T, dtype=torch.int64, device=call.device)
    targets = torch.stack([keys[name] for name in chosen]) if chosen else empty
    found = {"lse": lse}
    if collect - {"lse", "histogram"}:
        found |= tiles.one_pass(call, lse, counted, targets, bool(collect & set(COLUMNS)))
        for n, name in enumerate(chosen):
            found[name] = torch.where((targets[n] >= 0)[:, None], found["chosen"][n], torch.nan)
        found["largest_key"] = found["largest_key"].masked_fill(~counted, -1)
    rows = [name for name in ROWS if name in found and name != "largest_key"]
    return found | {name: found[name].masked_fill(~counted, torch.nan) for name in rows}


def weights(call: WatchedCall, lse: Tensor, head: int, rows: Tensor, cols: Tensor) -> Tensor:
    """The exact weights of these rows and columns, (B, R, C), of one head; rows that do not count are 0."""
    B = call.sizes[0]
    rows, cols = rows.to(call.device), cols.to(call.device)
    counted = _counted(call, lse)
    found = torch.zeros(B, len(rows), len(cols), device=call.device, dtype=_wide(call))
    at = 256 if call.device.type == "cpu" else 4096
    for start in range(0, len(rows), at):
        part = rows[start : start + at]
        for first, last in _runs(part):
            low, high = (int(cols.min()), int(cols.max()) + 1) if len(cols) else (0, 0)
            if high <= low:
                continue
            span = slice(start + first, start + last)
            for b in range(B):
                tile = Tile(b, head, int(part[first]), int(part[last - 1]) + 1, low, high)
                p = tiles.weights(call, tile, lse)[:, cols - low]
                found[b, span] = p.masked_fill(~counted[b, head, tile.first : tile.last, None], 0)
    return found


def top(call: WatchedCall, lse: Tensor, head: int, n: int) -> tuple[Tensor, Tensor]:
    """Keys (B, T, n) and weights (B, T, n) of each query's n largest; key −1 and weight 0 past the visible ones."""
    B, _, T, _ = call.sizes
    counted = _counted(call, lse)
    keys = torch.full((B, T, n), -1, device=call.device)
    found = torch.zeros(B, T, n, device=call.device, dtype=_wide(call))
    for tile in tiles.tiles(call, head):
        p = tiles.weights(call, tile, lse)
        size = min(n, p.shape[1])
        if not size:
            continue
        best, place = p.topk(size, dim=-1)
        there = (best > 0) & counted[tile.b, head, tile.first : tile.last, None]
        here = (tile.b, slice(tile.first, tile.last), slice(0, size))
        found[here] = best.masked_fill(~there, 0)
        keys[here] = (place + tile.low).masked_fill(~there, -1)
    return keys, found


def pooled(call: WatchedCall, lse: Tensor, head: int, n: int) -> Tensor:
    """The mean weight in each cell of a grid over T × S: (B, min(n, T), min(n, S)); NaN where a cell has no row."""
    B, _, T, S = call.sizes
    down, across = min(n, T), min(n, S)
    counted = _counted(call, lse)[:, head]
    columns = _cells(S, across, call.device)
    width = torch.bincount(columns, minlength=across)
    lines = _cells(T, down, call.device)
    total = torch.zeros(B, down, across, device=call.device, dtype=torch.float64)
    rows = torch.zeros(B, down, device=call.device, dtype=torch.float64)
    for tile in tiles.tiles(call, head):
        b, real = tile.b, counted[tile.b, tile.first : tile.last]
        where = lines[tile.first : tile.last]
        rows[b].index_add_(0, where, real.double())
        if tile.high > tile.low:
            p = tiles.weights(call, tile, lse).masked_fill(~real[:, None], 0)
            sums = p.new_zeros(p.shape[0], across).index_add_(1, columns[tile.low : tile.high], p)
            total[b].index_add_(0, where, sums.double())
    found = total / (rows[:, :, None] * width)
    return found.masked_fill(rows[:, :, None] == 0, torch.nan).to(_wide(call))


def histogram(call: WatchedCall, lse: Tensor, head: int) -> Tensor:
    """(B, T, bins): weight at distance 0, 1, 2–3, 4–7, 8–15, …; NaN in rows that do not count."""
    B, _, T, S = call.sizes
    size = 1 + (max(S, T) - 1).bit_length() if max(S, T) else 1
    found = torch.zeros(B, T, size, device=call.device, dtype=_wide(call))
    if call.across:
        return found.fill_(torch.nan)
    for tile in tiles.tiles(call, head):
        if tile.high <= tile.low:
            continue
        at = torch.arange(tile.first, tile.last, device=call.device)[:, None] + call.shift
        apart = (at - torch.arange(tile.low, tile.high, device=call.device)).abs()
        bins = torch.frexp(apart.double())[1].long()  # 0 → 0, 1 → 1, 2–3 → 2, 4–7 → 3
        here = found[tile.b, tile.first : tile.last]
        here.scatter_add_(1, bins, tiles.weights(call, tile, lse))
    return found.masked_fill(~_counted(call, lse)[:, head, :, None], torch.nan)


def carry(call: WatchedCall, lse: Tensor, amounts: Tensor) -> Tensor:
    """amounts (B, n, T) @ the mean of all heads' weights: (B, n, S), without T × S. What rollout is made of."""
    B, H, _, S = call.sizes
    counted = _counted(call, lse)
    found = torch.zeros(B, amounts.shape[1], S, device=call.device, dtype=torch.float64)
    for tile in tiles.tiles(call):
        if tile.high > tile.low:
            b, rows = tile.b, slice(tile.first, tile.last)
            p = tiles.weights(call, tile, lse).masked_fill(~counted[b, tile.h, rows, None], 0)
            found[b, :, tile.low : tile.high] += (amounts[b, :, rows].to(p.dtype) @ p).double()
    return (found / H).to(_wide(call))


def _in_one_launch(call: WatchedCall, collect: frozenset[str]) -> dict[str, Tensor] | None:
    """The same by Triton's kernels; None, and a word about it, on a GPU that they cannot be built for."""
    from triton.errors import TritonError

    try:
        return _by_kernels(call, collect)
    except TritonError as error:
        warnings.warn(
            f"regard's kernels cannot be built for this GPU and keys of {_width(call)} bytes "
            f"({type(error).__name__}); watching goes on by torch's operations, more slowly",
            stacklevel=2,
        )
        _refused.add((call.device, _width(call)))
        return None


def _by_kernels(call: WatchedCall, collect: frozenset[str]) -> dict[str, Tensor]:
    """They leave nothing for torch to do: each small operation costs what it takes."""
    from regard.attention.kernels import launch as gpu

    assert call.q is not None
    assert call.k is not None
    B, H, T, S = call.sizes
    rule, rest = rule_of(call)
    q, k, lse = gpu.ready(call.q), gpu.ready(call.k), _lse(call).float().contiguous()
    if not collect - {"lse", "histogram"}:
        return {"lse": lse.masked_fill(~_counted(call, lse), torch.nan)}
    plain = rest is None and rule.bias is None and rule.keys is None and rule.window is None
    first = None if plain else _first(call, _counted(call, lse))
    last = None
    if call.tokens is not None and S:
        last = _earlier(call, 0 if first is None else first[:, None]).int()
    real = None if call.real is None else call.real.to(call.device).contiguous()
    received = torch.zeros(B, H, S, dtype=torch.int64, device=call.device) if collect & set(COLUMNS) else None
    rows, parts = _rows(call, rest), []
    for start in range(0, T, rows):
        end = min(start + rows, T)
        some = slice(start, end)
        part = rule.rows(start, end, rest, S, call.device)
        kept, before = (None if t is None else t[:, some].contiguous() for t in (real, last))
        begin = None if first is None else first.int()
        known = lse[:, :, some].contiguous()
        parts.append(gpu.one_pass(q[:, :, some], k, call.scale, part, known, kept, begin, before, received, end == T))
    if len(parts) == 1:
        return parts[0]
    return {n: torch.cat([part[n] for part in parts], dim=-1) if n in parts[0] else t for n, t in parts[-1].items()}


def _lse(call: WatchedCall) -> Tensor:
    """log Σ exp(scores): the model's own, or computed; for weights that came written out it is not known."""
    B, H, T, S = call.sizes
    if call.lse is not None:
        return call.lse
    if call.weights is not None:
        return torch.full((B, H, T), torch.nan, device=call.device, dtype=_wide(call))
    if not _in_triton(call):
        return tiles.logsumexp(call)
    from regard.attention.kernels import launch as gpu

    rule, rest = rule_of(call)
    assert call.q is not None
    assert call.k is not None
    q, k = gpu.ready(call.q), gpu.ready(call.k)
    rows = _rows(call, rest)
    parts = []
    for first in range(0, T, rows):
        last = min(first + rows, T)
        parts.append(gpu.logsumexp(q[:, :, first:last], k, call.scale, rule.rows(first, last, rest, S, call.device)))
    return torch.cat(parts, dim=-1) if parts else torch.zeros(B, H, T, device=call.device)


def _rows(call: WatchedCall, rest: Mask | None) -> int:
    """How many queries a launch takes: all, unless their mask must be written out."""
    B, H, T, S = call.sizes
    return T if rest is None else max(64, WRITTEN_OUT // max(S * B * H, 1))


def _counted(call: WatchedCall, lse: Tensor) -> Tensor:
    """(B, H, T) bool: real tokens that may see something."""
    if call.weights is not None:
        rows = torch.stack([(call.weights[:, h] > 0).any(-1) for h in range(call.sizes[1])], dim=1)
    else:
        rows = lse.isfinite()
    return rows if call.real is None else rows & call.real[:, None].to(rows.device)


def _targets(call: WatchedCall, counted: Tensor) -> dict[str, Tensor]:
    """For each statistic of one key a query, that key: (B, T), −1 where there is none."""
    B, _, T, S = call.sizes
    first = _first(call, counted)[:, None]
    at = (torch.arange(T, device=call.device) + call.shift).expand(B, T)
    found = {"sink": first.expand(B, T), "previous": torch.where(at - 1 >= first, at - 1, -1)}
    found["self"] = torch.where(at >= first, at, -1)
    if call.tokens is not None and S:
        last = _earlier(call, first)
        found["duplicate"], found["induction"] = last, torch.where(last >= 0, last + 1, -1)
    return found


def _earlier(call: WatchedCall, first: Tensor | int) -> Tensor:
    """(B, T): where each query's token stood last before, from the first key on; −1 where it did not."""
    B, _, T, S = call.sizes
    assert call.tokens is not None
    at = (torch.arange(T, device=call.device) + call.shift).expand(B, T)
    last = _remembered(call.tokens.to(call.device)).expand(B, S).gather(1, at.clamp(min=0))
    return torch.where((last >= first) & (at >= 0), last, -1)


_latest: tuple[Tensor, int, Tensor] | None = None


def _remembered(tokens: Tensor) -> Tensor:
    """_last_occurrence, computed once for all layers of a forward. The text is held, so its memory stays its own."""
    global _latest
    if _latest is not None:
        text, version, found = _latest
        same = text.data_ptr() == tokens.data_ptr() and text.shape == tokens.shape and text.stride() == tokens.stride()
        if same and text.device == tokens.device and not tokens.is_inference() and version == tokens._version:
            return found
    found = _last_occurrence(tokens)
    if not tokens.is_inference():  # which counts no changes
        _latest = tokens, tokens._version, found
    return found


def _last_occurrence(tokens: Tensor) -> Tensor:
    """(B, S): where each token stood last before, −1 where it did not.

    >>> _last_occurrence(torch.tensor([[5, 7, 5, 5, 7]]))
    tensor([[-1, -1,  0,  2,  1]])
    """
    order = tokens.argsort(dim=-1, stable=True)  # equal tokens side by side, in the order of the text
    ordered = tokens.gather(-1, order)
    before = torch.full_like(order, -1)
    before[:, 1:] = torch.where(ordered[:, 1:] == ordered[:, :-1], order[:, :-1], -1)
    return torch.empty_like(before).scatter_(-1, order, before)


def _first(call: WatchedCall, counted: Tensor) -> Tensor:
    """(B,): the first key that any query that counts may see."""
    B, _, T, S = call.sizes
    rows = counted.any(1)  # (B, T)
    parts = call.mask.parts()
    if parts.rest is not None or call.bias is not None or call.weights is not None or not S or not T:
        return _first_by_looking(call, counted)
    if parts.keys is None and parts.window is None:
        return torch.zeros(B, dtype=torch.long, device=call.device)
    at = torch.arange(S - T, S, device=call.device)
    low = torch.zeros_like(at) if parts.window is None else (at - parts.window + 1).clamp(min=0)
    keys = rule_of(call)[0].keys
    if keys is None:
        nearest = low.clamp(max=S - 1).expand(B, T)
    else:  # the next key that is not padding, from each key on
        places = torch.where(keys, torch.arange(S, device=call.device), S)
        nearest = places.flip(-1).cummin(-1).values.flip(-1)[:, low.clamp(max=S - 1)]
    found = torch.where(rows, nearest, S).amin(-1)
    return torch.where(found < S, found, 0)


def _first_by_looking(call: WatchedCall, counted: Tensor) -> Tensor:
    """The same for masks that can only be looked at: row by row, up to the first row that counts, is not enough."""
    B, H, T, S = call.sizes
    seen = torch.zeros(B, S, dtype=torch.bool, device=call.device)
    size = max(1, (1 << 24) // max(S * B * H, 1))
    for first in range(0, T, size):
        last = min(first + size, T)
        rows, cols = torch.arange(first, last, device=call.device), torch.arange(S, device=call.device)
        part = call.mask.tile(rows, cols, S - T)
        part = part.reshape((1,) * (4 - part.dim()) + tuple(part.shape)) & counted[:, :, first:last, None]
        if call.bias is not None:
            bias = call.bias.reshape((1,) * (4 - call.bias.dim()) + tuple(call.bias.shape))
            part = part & may_see(bias if bias.shape[2] == 1 else bias[:, :, first:last])
        if call.weights is not None:
            part = part & (call.weights[:, :, first:last] > 0)
        seen |= part.expand(B, H, last - first, S).any(2).any(1)
    return seen.int().argmax(-1) if S else torch.zeros(B, dtype=torch.long, device=call.device)


def _wide(call: WatchedCall) -> torch.dtype:
    found = call.q if call.weights is None else call.weights
    return torch.float64 if found is not None and found.dtype is torch.float64 else torch.float32


def _cells(size: int, n: int, device: torch.device) -> Tensor:
    """Which of n cells each of `size` places lies in: cell c is [c · size // n, (c + 1) · size // n)."""
    edges = torch.arange(1, n + 1, device=device) * size // max(n, 1)
    return torch.bucketize(torch.arange(size, device=device), edges, right=True)


def _runs(rows: Tensor) -> list[tuple[int, int]]:
    """Stretches of rows that follow one another, as places in `rows`."""
    if not len(rows):
        return []
    breaks = (torch.nonzero(rows[1:] != rows[:-1] + 1)[:, 0] + 1).tolist()
    edges = [0, *breaks, len(rows)]
    return list(pairwise(edges))


def _in_triton(call: WatchedCall) -> bool:
    """Are there kernels for this call's device? Else torch's own operations do, tile by tile."""
    B, H, _, S = call.sizes
    there = call.q is not None and call.q.numel() > 0 and S > 0 and B * H <= GRID and not call.extra
    return there and call.device.type == "cuda" and _has_triton() and (call.device, _width(call)) not in _refused


def _width(call: WatchedCall) -> int:
    """How many bytes a key has, as a kernel loads it."""
    assert call.q is not None
    return call.q.shape[3] * min(call.q.element_size(), 4)


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
