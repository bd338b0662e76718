"""A training step: the loss goes down."""

import torch
import torch.nn.functional as F

from regard.school.exercises import Fault, Function, Judged, Wrong

V, E = 7, 5


def texts(random):
    ids = torch.randint(V, (4, 3, 6), generator=random)
    return torch.randn(V, E, generator=random), torch.randn(E, V, generator=random), ids


def steps(training_step, table, matrix, texts):
    """The losses of some steps on a little model, and its weights after them."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.matrix = nn.Parameter(table.clone()), nn.Parameter(matrix.clone())

        def forward(self, ids):
            return self.table[ids] @ self.matrix

    class Descent:  # torch.optim.SGD, without its imports, which take longer than the check
        def __init__(self, weights):
            self.param_groups = [{"params": list(weights), "lr": 0.5}]

        def zero_grad(self, set_to_none=True):
            for one in self.param_groups[0]["params"]:
                one.grad = None

        def step(self, closure=None):
            loss = closure() if closure else None
            with torch.no_grad():
                for one in self.param_groups[0]["params"]:
                    if one.grad is not None:
                        one -= self.param_groups[0]["lr"] * one.grad
            return loss

    model = Model()
    optimizer = Descent(model.parameters())
    losses = [training_step(model, optimizer, ids) for ids in texts]
    return losses, model.table.detach(), model.matrix.detach()


def kinds(training_step, table, matrix, texts):
    """What kind of value a step returns, and what it does besides, with an optimizer that changes nothing."""
    from types import SimpleNamespace

    from torch import nn

    def step(closure=None):
        return closure() if closure else None

    model = nn.Sequential(nn.Embedding(*table.shape), nn.Linear(*matrix.shape))
    before = [one.clone() for one in model.parameters()]
    groups = [{"params": list(model.parameters()), "lr": 0.5}]
    optimizer = SimpleNamespace(zero_grad=lambda set_to_none=True: None, step=step, param_groups=groups)
    kind = type(training_step(model, optimizer, texts[0])).__name__
    if any(not a.equal(b) for a, b in zip(model.parameters(), before)):
        return "changed"
    return kind if model.training else "eval"


def judge_number(kind, *arguments):
    if kind in ("float", "int"):
        return None
    if kind == "changed":
        return Fault(
            "a step of its own",
            "The weights change even where optimizer.step() changes nothing: training_step changes them itself.",
            "The optimizer knows the learning rate; others, such as AdamW, do more than that.",
        )
    if kind == "NoneType":
        return Fault("returns nothing", "It returns nothing; return the loss as a number: loss.item().")
    if kind == "eval":
        says = "The model is in evaluation mode after the step: model.eval() switches dropout off."
        return Fault("switched to eval", says, "Training needs it; whoever calls the step decides.")
    return Fault(
        "a tensor",
        f"It returns a {kind}; return a number: loss.item().",
        why="A loss that is kept as a tensor keeps its whole graph: memory grows with each step that it is listed.",
    )


def shifted(ids):
    return ids[:, :-1], ids[:, 1:]


def make(order="zbs", pair=shifted, sign=1, reduce="mean", change=lambda logits: logits, report="before", times=1):
    def training_step(model, optimizer, ids):
        def loss_now():
            read, targets = pair(ids)
            logits = change(model(read))
            targets = targets[:, -logits.shape[1] :]
            return times * F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction=reduce)

        loss = loss_now()
        acts = {"z": optimizer.zero_grad, "b": (sign * loss).backward, "s": optimizer.step}
        for one in order:
            acts[one]()
        shown = loss_now() if report == "after" else loss
        return float((shown.exp() if report == "perplexity" else shown).detach())

    return training_step


KEPT = "loss.backward() adds to what is in weight.grad: step 2 goes along the gradients of 1 and 2, step 3 of 1 to 3."
FAILS = [
    Wrong(
        "step before backward",
        "The step is taken before backward: it goes along the gradients of the batch before.",
        raises="modified by an inplace operation",
        why="Without a gradient a step does nothing, and later ones change weights that backward still needs.",
    ),
    Wrong(
        "shapes do not fit",
        "Logits and targets are not equally many: both come from ids with one column less.",
        raises="to match target batch_size",
    ),
    Wrong(
        "no gradient",
        "The loss has no way back to the weights: it was made a number, or detached, before backward.",
        raises="does not require grad",
    ),
    Wrong(
        "backward of a number",
        "A Python number has no backward; call it on the loss, before .item().",
        raises="has no attribute 'backward'",
    ),
    Wrong(
        "backward of many numbers",
        "backward needs one number: the mean of the losses.",
        raises="grad can be implicitly created only",
    ),
]
parts = [
    Judged("training_step", texts, judge_number, through=kinds, wrong=FAILS),
    Function(
        "training_step",
        texts,
        make(),
        wrong=[
            *FAILS,
            Wrong(
                "gradients never cleared",
                "The gradients of earlier steps are never cleared: optimizer.zero_grad().",
                make("bs"),
                why=KEPT,
            ),
            Wrong(
                "no step",
                "The weights never change: optimizer.step() is missing, or the gradients are cleared before it.",
                make("zb"),
                why="Order: clear, backward, step. Whoever clears between backward and step throws all away.",
            ),
            Wrong("uphill", "The step goes uphill: the loss grows. Is a sign turned around?", make(sign=-1)),
            Wrong(
                "each token predicts itself",
                "Logits and targets are of the same tokens; the targets are ids[:, 1:].",
                make(pair=lambda ids: (ids[:, :-1], ids[:, :-1])),
                why="A model that may copy what it reads has nothing to learn.",
            ),
            Wrong(
                "each later token predicts itself",
                "The model reads ids[:, 1:], and predicts the same; it reads ids[:, :-1].",
                make(pair=lambda ids: (ids[:, 1:], ids[:, 1:])),
            ),
            Wrong(
                "perplexity",
                "e to the power of the loss is returned; the loss is asked for.",
                make(report="perplexity"),
            ),
            Wrong(
                "added up in a text",
                "The losses of a text are added up, so the step is longer for a longer text; take their mean.",
                make(times=5),
            ),
            Wrong(
                "texts cut",
                "The first or the last text of the batch is left out, ids[1:]; tokens are columns, ids[:, 1:].",
                make(pair=lambda ids: (ids[:-1], ids[1:])),
            ),
            Wrong(
                "nothing shifted",
                "The model reads all of ids, and predicts the same; read ids[:, :-1], predict ids[:, 1:].",
                make(pair=lambda ids: (ids, ids)),
            ),
            Wrong(
                "last token only",
                "Only the last token of each text is learned from; all of them are targets.",
                make(change=lambda logits: logits[:, -1:]),
            ),
            Wrong(
                "sum",
                "The losses are added; their mean keeps the step as large for long texts as for short ones.",
                make(reduce="sum"),
            ),
            Wrong(
                "loss after the step",
                "The loss is computed again after the step; return the one that the step was made by.",
                make(report="after"),
                why="It costs a second forward pass.",
            ),
            Wrong(
                "step twice as long",
                "The step is twice as long as it should be: two steps, or two calls of backward, for one loss.",
                make("zbss"),
            ),
            Wrong(
                "probabilities",
                "The logits went through a softmax; cross_entropy does its own.",
                make(change=lambda logits: logits.softmax(-1)),
            ),
            Wrong(
                "first column lost, too",
                "The model reads ids without their first column and predicts those without their last: backwards.",
                make(pair=lambda ids: (ids[:, 1:], ids[:, :-1])),
            ),
        ],
        tolerance=1e-4,
        through=steps,
    ),
]
