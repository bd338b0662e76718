"""Your GPT: your own files become one model."""

import torch

from regard.school.exercises import Fault, Function, Judged, Wrong

uses = (
    "whole_layer", "block", "embeddings", "gpt", "sampling", "tokenize", "layer_norm", "loss", "training_step",
)  # fmt: skip
V, E, H, DEPTH, CONTEXT = 13, 6, 2, 3, 7


def some_ids(random):
    return (torch.randint(V, (2, CONTEXT), generator=random),)


def one_block(Block):
    """What is known of a block without running it."""
    import inspect
    from importlib import import_module
    from pathlib import Path

    from torch import nn

    block = Block(6, 2, 7)
    part = getattr(block, "attention", None)
    own = import_module(min(Path(inspect.getfile(Block)).parent.glob("[0-9]*_whole_layer.py")).stem)
    kind = type(part).__name__
    if not isinstance(part, own.MultiHeadAttention):
        return {"kind": kind, "class": isinstance(part, type)}
    drops = [one.p for one in part.modules() if isinstance(one, nn.Dropout)]
    return {"kind": "", "heads": getattr(part, "num_heads", 2), "dropout": max(drops, default=0.0)}


def judge_block(seen):
    if seen["kind"] and seen["class"]:
        return Fault("the class itself", "self.attention is your class, not a layer: call it, with its sizes.")
    if seen["kind"]:
        says = f'self.attention is a {seen["kind"]}; it is a layer of your class in whole_layer: mine("whole_layer").'
        return Fault("not your layer", says)
    if seen["dropout"]:
        return Fault("dropout", f"Your layer drops {seen['dropout']:g} of its weights; here nothing is: dropout = 0.")
    if seen["heads"] != 2:
        return Fault(
            "other heads", f"Block(E=6, heads=2, context=7) has {seen['heads']} heads. Which argument is which?"
        )
    return None


def run(GPT, ids):
    """What the model does: its shape, which weights it uses, whether it sees the future and the order of tokens."""
    import torch

    V, E, H, depth, context = 13, 6, 2, 3, 7
    torch.manual_seed(0)
    model = GPT(V, E, H, depth, context)
    blocks = model.blocks
    facts = {"registered": sum(1 for name, _ in model.named_parameters() if "blocks" in name) > 0}
    facts["blocks"] = len(blocks) if hasattr(blocks, "__len__") else -1
    facts["different"] = len({id(one) for one in blocks}) if facts["blocks"] > 0 else 0
    called = []
    if facts["blocks"] == depth and facts["different"] == depth and all(hasattr(one, "attention") for one in blocks):
        facts["heads"] = [getattr(one.attention, "num_heads", H) for one in blocks]
        for i, one in enumerate(blocks):
            one.attention.register_forward_hook(lambda *_, i=i: called.append(i))
    logits = model(ids)
    facts["order_of_blocks"] = called[:depth]
    facts["kind"] = type(logits).__name__
    if not isinstance(logits, torch.Tensor):
        return facts
    facts["shape"] = list(logits.shape)
    logits.float().pow(2).sum().backward()
    facts["unused"] = [name for name, one in model.named_parameters() if one.grad is None]
    with torch.no_grad():
        model.eval()
        changed = ids.clone()
        changed[:, -1] = (changed[:, -1] + 1) % V
        before, after = model(ids), model(changed)
        facts["future"] = float((before - after)[:, :-1].abs().max()) if before.dim() == 3 else 0.0
        swapped = ids.clone()
        swapped[:, 0], swapped[:, 1] = 1, 2
        again = swapped.clone()
        again[:, 0], again[:, 1] = 2, 1
        facts["order"] = float((model(swapped) - model(again))[:, -1].abs().max())
        facts["sums"] = float((before.sum(-1) - 1).abs().max())
    return facts


def judge_model(seen, ids):
    wanted = [*ids.shape, V]
    if not seen["registered"] and seen["blocks"] == DEPTH:
        why = "The optimizer gets model.parameters(), and a plain list in a module has none: your blocks would never learn."
        return Fault(
            "plain list", "The blocks are in a plain list, so their weights are not the model's; nn.ModuleList.", why
        )
    if seen["blocks"] != DEPTH:
        return Fault("another depth", f"GPT(…, depth={DEPTH}) has {max(seen['blocks'], 0)} blocks.")
    if seen["different"] < DEPTH:
        why = "[block] * 3 is one block three times: the same weights at every depth."
        return Fault("one block for all", f"The {DEPTH} blocks are one and the same; make one for each.", why)
    if set(seen.get("heads", [H])) != {H}:
        return Fault(
            "other heads", f"GPT(…, heads={H}, …) has blocks of {seen['heads'][0]} heads. Which argument is which?"
        )
    if seen["order_of_blocks"] == [2, 1, 0]:
        return Fault("blocks reversed", "The last block runs first; they run in the order of the list.")
    if seen["kind"] != "Tensor":
        return Fault(
            "no logits", f"forward returns a {seen['kind']}; return the logits, a tensor of shape {tuple(wanted)}."
        )
    if seen["shape"] != wanted:
        says = f"forward returns shape {tuple(seen['shape'])} for ids {tuple(ids.shape)}; expected {tuple(wanted)}."
        return Fault("wrong shape", says)
    if seen["sums"] < 1e-4:
        return Fault("softmax", "These are probabilities; the loss wants logits and does its own softmax.")
    if seen["unused"]:
        says = f"{len(seen['unused'])} weights take no part: {', '.join(seen['unused'][:3])} …"
        return Fault(
            "weights not used", says, why="Every block must be in the list that gpt gets, with all of its weights."
        )
    if seen["future"] > 1e-5:
        return Fault(
            "sees the future", "The logits of earlier tokens change with the last token. Is it your masked layer?"
        )
    if seen["order"] < 1e-6:
        return Fault("no order", "Two tokens may change places, and the last logits stay. Is position_table used?")
    return None


def a_text(random):
    return torch.randint(20, (1, 4), generator=random), 9, 6, 0.01


def by_sum(write, ids, count, context, t):
    """Text of a model whose next token is the sum of those it reads, for certain; too many are an error."""
    import torch
    from torch import nn

    class Sum(nn.Module):
        def forward(self, ids):
            if ids.shape[1] > context:
                raise ValueError(f"the model reads {ids.shape[1]} tokens, and knows {context} positions")
            sums = ids.cumsum(1) % 23
            return nn.functional.one_hot(sums, 23) * 1000.0 - 500

    return write(Sum(), ids, count, context, t)


def many(random):
    return torch.zeros(1, 1, dtype=torch.long), 600, 8, 0.5


def share(write, ids, count, context, t):
    """How often token 1 is written by a model that gives it three times the share of token 0, always."""
    import torch
    from torch import nn

    class Coin(nn.Module):
        def forward(self, ids):
            return torch.tensor([0.0, 1.0986]).expand(*ids.shape, 2)  # ln 3

    torch.manual_seed(int(ids.sum()))
    return float(write(Coin(), ids, count, context, t)[0, 1:].float().mean())


def judge_share(seen, ids, count, context, t):
    wanted = 0.9  # 3² / (1 + 3²)
    if abs(seen - wanted) < 0.05:
        return None
    says = f"Of a token that has 90% at t = {t:g}, it wrote {100 * seen:.0f}%."
    if seen == 1.0:
        return Fault("always the best", f"{says} It takes the best token instead of drawing one.")
    if abs(seen - 0.75) < 0.06:
        return Fault("temperature not used", f"{says} 75% is its share at t = 1: give the logits to your temperature.")
    return Fault(
        "other probabilities",
        says,
        why="Draw from temperature(logits, t): shares, which multinomial takes as they are.",
    )


def written(crop=lambda ids, context: ids[:, -context:], place=-1, keep=lambda ids, old: ids):
    def write(model, ids, count, context, t):
        old = ids
        for _ in range(count):
            new = model(crop(ids, context))[:, place].argmax(-1, keepdim=True)
            ids = torch.cat([ids, new], dim=1)
        return keep(ids, old)

    return write


def in_front(model, ids, count, context, t):
    for _ in range(count):
        ids = torch.cat([model(ids[:, -context:])[:, -1].argmax(-1, keepdim=True), ids], dim=1)
    return ids


parts = [
    Judged("Block", lambda random: (), judge_block, through=one_block),
    Judged(
        "GPT",
        some_ids,
        judge_model,
        through=run,
        wrong=[
            Wrong(
                "no entry",
                'The dictionary has no "blocks", or not all of the other four entries.',
                raises="KeyError: '",
            ),
            Wrong(
                "modules for weights",
                "The list holds the blocks themselves; it holds their weights: one.weights().",
                raises="'Block' object is not subscriptable",
            ),
            Wrong(
                "a list has no weights",
                "self.blocks is a list of blocks; each has weights of its own: one.weights().",
                raises="object has no attribute 'weights'",
            ),
            Wrong(
                "a module for a function",
                "gpts is your file; the function in it is gpts.gpt.",
                raises="'module' object is not callable",
            ),
        ],
    ),
    Function(
        "write",
        a_text,
        written(),
        wrong=[
            Wrong(
                "the first tokens",
                "It reads the first {2} tokens, ids[:, :context]; it must read the last.",
                written(lambda ids, context: ids[:, :context]),
                why="What was written would never be read.",
            ),
            Wrong(
                "one less than the context",
                "It reads one token less than it may.",
                written(lambda ids, context: ids[:, -context + 1 :]),
            ),
            Wrong(
                "the last token only",
                "Only the last token is read; your model can look back at {2}.",
                written(lambda ids, context: ids[:, -1:]),
            ),
            Wrong(
                "first position",
                "It takes the logits at the first position; what comes next is told by the last, [:, -1].",
                written(place=0),
            ),
            Wrong(
                "only the new tokens",
                "The text that it began with is not returned.",
                written(keep=lambda ids, old: ids[:, old.shape[1] :]),
            ),
            Wrong("in front", "New tokens are put in front of the text; they come behind it.", in_front),
            Wrong(
                "nothing added",
                "ids come back as they were: ids = torch.cat([ids, new], dim=1).",
                lambda model, ids, count, context, t: ids,
            ),
            Wrong(
                "too long for the context",
                "The whole text is read, and the model has {2} positions: ids[:, -context:].",
                raises="tokens, and knows",
            ),
            Wrong(
                "logits drawn from",
                "multinomial draws from probabilities, and these are below 0: use temperature first.",
                raises="probability tensor contains",
            ),
        ],
        through=by_sum,
    ),
    Judged("write", many, judge_share, through=share),
]
