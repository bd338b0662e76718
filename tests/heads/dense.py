"""Every statistic by its definition, in float64, from weights that are written out: the oracle of the tests.

The functions have the names and arguments of measure.statistics and on_demand, so they can replace them; sizes are
small, and nothing here is meant to be fast.
"""

import torch

from heads.made_calls import made_call
from regard.heads.calls.call import OwnWeights, WatchedCall
from regard.heads.measure.on_demand import MAP, TOP

ROWS = (
    *("lse", "entropy", "largest", "largest_key", "distance"),
    *("sink", "previous", "self", "next", "induction", "duplicate"),
)


def visible(call: WatchedCall):
    """(B, H, T, S) bool: which weights may differ from 0."""
    B, H, T, S = call.sizes
    seen = call.attention.mask.dense(T, S, device=call.device).expand(B, H, T, S)
    if isinstance(call.attention, OwnWeights):
        return seen
    return seen if call.attention.bias is None else seen & (call.attention.bias > -torch.inf)


def scores(call: WatchedCall):
    """(B, H, T, S) float64, hidden keys at −∞."""
    _, H, _, S = call.sizes
    k = call.attention.k.double().repeat_interleave(H // call.attention.k.shape[1], dim=1)
    found = call.attention.scale * (call.attention.q.double() @ k.mT)
    if call.attention.bias is not None:
        found = found + call.attention.bias.double()
    if call.attention.alibi is not None:
        found = found - call.attention.alibi.double()[:, None, None] * (places(call)[:, None] - torch.arange(S)).abs()
    return torch.where(visible(call), found, -torch.inf)


def counted(call: WatchedCall):
    """(B, H, T) bool: rows that are a real token and may see something."""
    rows = visible(call).any(-1)
    return rows if call.origin.real is None else rows & call.origin.real[:, None, :]


def probabilities(call: WatchedCall):
    """(B, H, T, S) float64; rows that do not count are 0."""
    found = call.attention.weights.double() if isinstance(call.attention, OwnWeights) else scores(call).softmax(-1)
    return torch.where(counted(call)[..., None], found, 0.0)


def places(call: WatchedCall):
    """(T,): the key position that each query stands at."""
    _, _, T, S = call.sizes
    return torch.arange(T) + S - T


def first(call: WatchedCall):
    """(B,): the first key that any row that counts may see; 0 where no row counts."""
    keys = (visible(call) & counted(call)[..., None]).any(2).any(1)  # (B, S)
    return keys.int().argmax(-1) if keys.shape[-1] else torch.zeros(keys.shape[0], dtype=torch.long)


def at_key(p, key):
    """p (B, H, T, S) at key (B, T): (B, H, T), NaN where the key is negative."""
    B, H, T, S = p.shape
    if S == 0:
        return p.new_full((B, H, T), torch.nan)
    index = key.clamp(min=0)[:, None, :, None].expand(B, H, T, 1)
    return torch.where((key >= 0)[:, None], p.gather(-1, index)[..., 0], torch.nan)


def neighbour(call: WatchedCall, back: int):
    """(B, T): the key `back` places before each query, −1 where the text has none there."""
    B, _, T, S = call.sizes
    key = (places(call) - back).expand(B, T)
    return torch.where((key >= first(call)[:, None]) & (key < S), key, -1)


def last_occurrence(call: WatchedCall):
    """(B, T): the last earlier key with the token that each query stands at, −1 where there is none."""
    B, _, T, _ = call.sizes
    found = torch.full((B, T), -1)
    start = first(call)
    for b in range(B):
        for i, at in enumerate(places(call).tolist()):
            for j in range(int(start[b]), at):
                if at >= 0 and call.origin.tokens[b, j] == call.origin.tokens[b, at]:
                    found[b, i] = j
    return found


def bin_of(distance):
    """0, 1, 2–3, 4–7, 8–15, … → 0, 1, 2, 3, 4, …"""
    return torch.tensor([int(d).bit_length() for d in distance.flatten()]).reshape(distance.shape)


def measure(call: WatchedCall, collect) -> dict:
    """Every chosen statistic, by its definition; induction and duplicate come along where tokens are known."""
    collect = frozenset(collect)
    B, H, T, S = call.sizes
    p, rows = probabilities(call), counted(call)
    apart = (places(call)[:, None] - torch.arange(S)).abs()  # (T, S)

    def known(value, otherwise=torch.nan):
        return torch.where(rows, value, otherwise)

    found = {}
    if not isinstance(call.attention, OwnWeights):
        found["lse"] = known(scores(call).logsumexp(-1))
    else:
        found["lse"] = known(torch.full((B, H, T), torch.nan).double() if call.lse is None else call.lse.double())
    found["entropy"] = known(-torch.special.xlogy(p, p).sum(-1))
    found["largest"] = known(p.amax(-1)) if S else known(torch.zeros(B, H, T).double())
    found["largest_key"] = known(p.argmax(-1), -1) if S else torch.full((B, H, T), -1)
    found["distance"] = known((p * apart).sum(-1) if not call.origin.across else torch.nan)
    found["sink"] = known(at_key(p, first(call)[:, None].expand(B, T)))
    found["previous"] = known(at_key(p, neighbour(call, 1)) if not call.origin.across else torch.nan)
    found["self"] = known(at_key(p, neighbour(call, 0)) if not call.origin.across else torch.nan)
    found["next"] = known(at_key(p, neighbour(call, -1)) if not call.origin.across else torch.nan)
    if call.origin.real is not None:  # the last token before padding has no next
        found["next"][:, :, :-1].masked_fill_(~call.origin.real[:, None, 1:], torch.nan)
    if call.origin.tokens is not None:
        last = last_occurrence(call)
        found["duplicate"] = known(at_key(p, last))
        found["induction"] = known(at_key(p, torch.where(last >= 0, last + 1, -1)))
        collect |= {"induction", "duplicate"}
    found["received"] = p.sum(2)
    queries = (visible(call) & rows[..., None]).sum(2)  # (B, H, S)
    found["received_mean"] = torch.where(queries > 0, found["received"] / queries, torch.nan)
    found["histogram"] = torch.stack([histogram(call, None, h) for h in range(H)], 1)
    if "top" in collect:
        both = [top(call, None, h, TOP) for h in range(H)]
        found["top_keys"], found["top_weights"] = (torch.stack(part, 1) for part in zip(*both, strict=True))
        collect |= {"top_keys", "top_weights"}
    if "map" in collect:
        found["map"] = torch.stack([pooled(call, None, h, MAP) for h in range(H)], 1)
    return {name: value for name, value in found.items() if name in collect}


def weights(call: WatchedCall, lse, head: int, rows, cols, text=None):
    """(B, R, C); rows that do not count are 0. text: only this text of the batch."""
    everything = probabilities(call)[:, head][:, rows][:, :, cols]
    return everything if text is None else everything[text : text + 1]


def top(call: WatchedCall, lse, head: int, n: int):
    """The n largest of each row, the first key first where two are alike; key −1 and weight 0 past the visible ones."""
    B, _, T, _ = call.sizes
    p = torch.where(visible(call)[:, head], probabilities(call)[:, head], -1.0)
    p = torch.where(counted(call)[:, head, :, None], p, -1.0)
    p = torch.cat([p, p.new_full((B, T, n), -1.0)], -1)
    best, keys = p.sort(dim=-1, descending=True, stable=True)
    best, keys = best[..., :n], keys[..., :n]
    return torch.where(best < 0, -1, keys), best.clamp(min=0)


def pooled(call: WatchedCall, lse, head: int, n: int):
    """The mean of p in each cell of the grid, over the rows that count; NaN where a cell has none of them."""
    B, _, T, S = call.sizes
    p, rows = probabilities(call)[:, head], counted(call)[:, head]
    down, across = min(n, T), min(n, S)
    grid = torch.full((B, down, across), torch.nan).double()
    for b in range(B):
        for r in range(down):
            chosen = [i for i in range(r * T // down, (r + 1) * T // down) if rows[b, i]]
            for c in range(across):
                if chosen:
                    grid[b, r, c] = p[b, chosen, c * S // across : (c + 1) * S // across].mean()
    return grid


def histogram(call: WatchedCall, lse, head: int):
    """(B, T, bins): the weight at distance 0, 1, 2–3, 4–7, …; NaN in rows that do not count."""
    _, _, T, S = call.sizes
    bins = bin_of((places(call)[:, None] - torch.arange(S)).abs())  # (T, S)
    size = 1 + max(S - 1, T - 1, 0).bit_length()
    p = probabilities(call)[:, head]
    found = torch.stack([(p * (bins == n)).sum(-1) for n in range(size)], -1)
    return torch.where(counted(call)[:, head, :, None] & (not call.origin.across), found, torch.nan)


def carry(call: WatchedCall, lse, amounts):
    """amounts (B, n, T) through the mean of the heads' weights: (B, n, S); rows that do not count hand on nothing."""
    return amounts.double() @ probabilities(call).mean(1)


def stand_in(monkeypatch):
    """Let regard.heads.measure.statistics be these definitions, so that a test is about the report and nothing else."""
    from regard.heads.measure import on_demand, statistics

    monkeypatch.setattr(statistics, "measure", measure)
    for function in (weights, top, pooled, histogram, carry):
        monkeypatch.setattr(on_demand, function.__name__, function)


def random_call(B=2, H=3, T=5, S=None, D=7, Hkv=None, module="attention", **others):
    """A call of random queries and keys in float32."""
    S, Hkv = T if S is None else S, H if Hkv is None else Hkv
    return made_call(module, q=torch.randn(B, H, T, D), k=torch.randn(B, Hkv, S, D), scale=D**-0.5, **others)


def generation(steps, B=2, H=3, D=7, Hkv=None, module="attention", mask=None, tokens=None):
    """One whole causal call, and the same rows as a generation with a cache takes them: (whole, [call, call, …])."""
    from regard.attention.masks import causal

    mask = causal() if mask is None else mask
    whole = random_call(B, H, sum(steps), None, D, Hkv, module, mask=mask, tokens=tokens)
    parts, done = [], 0
    for T in steps:
        S = done + T
        ids = None if tokens is None else tokens[:, :S]
        q, k = whole.attention.q[:, :, done:S], whole.attention.k[:, :, :S]
        parts.append(made_call(module, q=q, k=k, scale=whole.attention.scale, mask=mask, tokens=ids))
        done = S
    return whole, parts


def pattern(place, T, S=None, weight=1.0, B=1):
    """Weights (B, 1, T, S) of a causal head with `weight` on key place(i) and the rest spread over what i may see.

    Where place(i) is None the head rests on the first key.
    """
    S = T if S is None else S
    found = torch.zeros(B, 1, T, S, dtype=torch.float64)
    for i in range(T):
        at = i + S - T
        key = place(at)
        found[:, :, i, : at + 1] = (1 - weight) / (at + 1)
        found[:, :, i, 0 if key is None else key] += weight
    return found
