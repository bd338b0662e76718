"""Attention in tiles, graded on memory."""

import torch

from regard.school.exercises import Fault, Function, Judged, Wrong


def arguments(random):
    T, D = 43, 5
    q, k, v = torch.randn(3, T, D, generator=random)
    return 2 * q, k, v, 8


def low_scores(random):
    q, k, v, block = arguments(random)
    q[:, 0], k[:, 0] = -40.0, 10.0
    return q, k, v, block


def long_text(random):
    T, D = 160, 4
    return *torch.randn(3, T, D, generator=random), 16


def scores_of(q, k):
    return q @ k.T / q.shape[-1] ** 0.5


def attend(q, k, v, block):
    return scores_of(q, k).softmax(-1) @ v


def softmax_of_tiles(q, k, v, block):
    return sum(attend(q, a, b, block) for a, b in zip(k.split(block), v.split(block)))


def softmaxed_tiles(q, k, v, block):
    """Each tile goes through a softmax, and then through exp and the sums as scores do."""
    tiles = torch.cat([scores_of(q, one).softmax(-1) for one in k.split(block)], dim=1)
    return tiles.softmax(-1) @ v


def last_keys(q, k, v, block):
    return attend(q, k.split(block)[-1], v.split(block)[-1], block)


def diagonal(q, k, v, block):
    return torch.cat([attend(*one, block) for one in zip(q.split(block), k.split(block), v.split(block))])


def not_divided(q, k, v, block):
    scores = scores_of(q, k)
    return (scores - scores.amax(-1, keepdim=True)).exp() @ v


def whole_blocks(length):
    def attend_to(q, k, v, block):
        kept = len(k) // block * block
        return attend(q, k[:kept], v[:kept], block)

    def rows_missing(q, k, v, block):
        kept = len(q) // block * block
        return torch.cat([attend(q[:kept], k, v, block), torch.zeros(len(q) - kept, q.shape[1])])

    return attend_to if length == "keys" else rows_missing


def carried_over(q, k, v, block):
    """largest, total and context are set up once, before both loops."""
    out, largest, total, context = [], None, None, None
    for queries in q.split(block):
        if largest is None:
            largest = torch.full((block,), -torch.inf)
            total, context = torch.zeros(block), torch.zeros(block, q.shape[1])
        n = len(queries)
        scores = scores_of(queries, k)
        new = torch.maximum(largest[:n], scores.amax(-1))
        correction, terms = (largest[:n] - new).exp(), (scores - new[:, None]).exp()
        total, context = total[:n] * correction + terms.sum(-1), context[:n] * correction[:, None] + terms @ v
        largest = new
        out.append(context / total[:, None])
    return torch.cat(out)


def peak(attend_in_tiles, q, k, v, block):
    """The most numbers in memory at a time, those of q, k and v not counted; the largest tensor; what torch gave."""
    from torch import Tensor
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    known = {one.untyped_storage()._cdata for one in (q, k, v)}
    alive, seen = {}, {"most": 0, "largest": 0, "shape": "", "fused": ""}

    class Memory(TorchDispatchMode):
        pass

    def dispatch(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if "attention" in function.__name__:
            seen["fused"] = function.__name__
        for key in [key for key, one in alive.items() if one[0].expired()]:
            del alive[key]
        for one in tree_leaves(result):
            if isinstance(one, Tensor) and one.untyped_storage()._cdata not in known:
                storage = one.untyped_storage()
                numbers = storage.nbytes() // 4
                alive[storage._cdata] = StorageWeakRef(storage), numbers
                if numbers > seen["largest"]:
                    seen["largest"], seen["shape"] = numbers, " × ".join(map(str, one.shape))
        seen["most"] = max(seen["most"], sum(one[1] for one in alive.values()))
        return result

    Memory.__torch_dispatch__ = dispatch  # set here, it does not import torch's compiler, which takes a second

    with Memory():
        attend_in_tiles(q, k, v, block)
    return seen


def judge_memory(seen, q, k, v, block):
    T, D = q.shape
    may = 8 * block * (block + D) + 2 * T * D
    if seen["fused"]:
        return Fault("the fused kernel", "It calls torch's fused attention, which does this inside; write the tiles.")
    if seen["most"] <= may:
        return None
    most, shape = f"{seen['most']:,} numbers", seen["shape"]
    rule = f"for T = {T}, D = {D} and block = {block}, at most {may:,} are allowed"
    if seen["largest"] >= T * T:
        says = f"It makes a tensor of {shape}: {most} are in memory at once; {rule}."
        return Fault("T × T", says, why="A tile of scores is made from a block of queries and a block of keys.")
    if seen["largest"] >= T * block:
        says = f"It makes a tensor of {shape}: {most} are in memory at once; {rule}."
        return Fault(
            "T × block", says, why="Only one side is in blocks: for each block of queries, take blocks of keys, too."
        )
    says = f"No tensor is large (the largest is {shape}), but {most} are in memory at once; {rule}."
    return Fault("tiles are kept", says, why="A tile in a list is a tile in memory: use it, and forget it.")


parts = [
    Function(
        "attend_in_tiles",
        arguments,
        attend,
        wrong=[
            Wrong(
                "softmax of each tile",
                "Each tile has a softmax of its own, and the results are added.",
                softmax_of_tiles,
            ),
            Wrong(
                "last keys only",
                "Each query sees only the last block of keys: the sums begin anew for each.",
                last_keys,
                why="largest, total and context are set up once for each block of queries, before the loop over keys.",
            ),
            Wrong(
                "diagonal tiles only", "A block of queries sees only the keys of the same block; it sees all.", diagonal
            ),
            Wrong(
                "sums of the block before",
                "largest, total and context go on from the block of queries before; each starts anew.",
                carried_over,
            ),
            Wrong("not divided", "The context is not divided by total.", not_divided),
            Wrong(
                "last keys left out",
                "T is no multiple of block, and the keys that are left over are not seen.",
                whole_blocks("keys"),
            ),
            Wrong(
                "last rows left out",
                "T is no multiple of block, and the queries that are left over get 0.",
                whole_blocks("rows"),
            ),
            Wrong(
                "block of the wrong size",
                "The last block is shorter: take its size, len(queries), not block.",
                raises="must match the size of tensor",
            ),
            Wrong(
                "no scale",
                "The scores are not divided by √D.",
                lambda q, k, v, block: attend(q * q.shape[-1] ** 0.5, k, v, block),
            ),
            Wrong(
                "means of tiles",
                "Each tile has a softmax of its own, and the results are averaged.",
                lambda q, k, v, block: softmax_of_tiles(q, k, v, block) / len(k.split(block)),
            ),
            Wrong(
                "keys up to the query's block",
                "The keys end at the block of the query; nothing is to be hidden here.",
                lambda q, k, v, block: torch.cat(
                    [
                        attend(one, k[: (i + 1) * block], v[: (i + 1) * block], block)
                        for i, one in enumerate(q.split(block))
                    ]
                ),
            ),
            Wrong(
                "softmax before update",
                "update gets weights; it gets scores, and makes exp of them itself.",
                softmaxed_tiles,
            ),
        ],
        tolerance=1e-4,
    ),
    Function(
        "attend_in_tiles",
        low_scores,
        attend,
        wrong=[
            Wrong(
                "largest begins at 0",
                "All scores are far below 0 here, and it gives NaN: largest begins at −∞, so that any score is "
                "above it.",
                lambda q, k, v, block: torch.full_like(q, torch.nan),
            ),
        ],
        tolerance=1e-3,
        runs=1,
    ),
    Judged("attend_in_tiles", long_text, judge_memory, through=peak),
]
