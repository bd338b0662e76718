"""What runs in the process of a learner's own model. Every line of its standard output is a JSON object."""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from regard.heads.watch import watch
from regard.school.course.own_model import OwnRecipe
from regard.school.sandbox.modules import add_neighbours, load_module

CAT = "The cat sat on the mat. The cat sat on the mat."  # the picture of the course, with something to copy
SHOWN = 9  # words of the picture, which are read twice
Tell = Callable[[dict[str, Any]], None]


def speak_once(job: str) -> None:
    """Train, write and watch, as the job says. An error of the learner's code is told with its file and line."""
    values = json.loads(job)
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what the learner's code prints is nobody's line

    def tell(value: dict[str, Any]) -> None:
        print(json.dumps(value), file=lines, flush=True)

    path = Path(values["answer"])
    torch.set_num_threads(1)
    try:
        own = _load(path)
        tell(
            {
                "result": OwnModel(
                    own, OwnRecipe(**values["recipe"]), Path(values["book"]).read_text("utf-8"), tell
                ).run()
            }
        )
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [one for one in frames if Path(one.filename).parent == path.parent]
        where = f"{Path(theirs[-1].filename).name}, line {theirs[-1].lineno}: " if theirs else ""
        tell(
            {"error": f"{where}{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}".rstrip(": ")}
        )


def _load(path: Path) -> ModuleType:
    add_neighbours(str(path), str(path.parent))
    return load_module(path.stem, path.read_text("utf-8"), str(path), 0.0)


class OwnModel:
    """The model of a learner's file, from the book to the picture of a head."""

    def __init__(self, own: Any, recipe: OwnRecipe, book: str, tell: Tell) -> None:
        self.own, self.recipe, self.book, self.tell = own, recipe, book, tell
        self.random = torch.Generator().manual_seed(recipe.seed)

    def run(self) -> dict[str, Any]:
        """All of it; what is shown at the end, in plain values."""
        recipe = self.recipe
        tokens = self.own.mine("tokenize")
        begin = time.perf_counter()
        self.tell({"stage": "tokens"})
        self.merges = tokens.learn(self.book[: recipe.learned_on], recipe.merges)
        ids = torch.tensor(tokens.encode(self.book, self.merges))
        self.tell({"tokens": len(ids), "seconds": time.perf_counter() - begin})
        cut = len(ids) * 9 // 10
        self.train_ids, self.held_out, self.used = ids[:cut], ids[cut:], ids.unique()
        torch.manual_seed(recipe.seed)
        self.vocabulary = 256 + recipe.merges
        self.model = self.own.GPT(self.vocabulary, recipe.width, recipe.heads, recipe.depth, recipe.context)
        curve, seconds = self.train()
        heads, picture = self.watch()
        return {
            "curve": curve,
            "seconds": seconds,
            "parameters": sum(one.numel() for one in self.model.parameters()),
            "tokens": len(ids),
            "text": self.write(),
            "heads": heads,
            "picture": picture,
        }

    def train(self) -> tuple[list[dict[str, float]], float]:
        """Train until the steps are done or the time is up; the losses on the way, and the seconds."""
        recipe = self.recipe
        step = self.own.mine("training_step").training_step
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=recipe.rate, weight_decay=0.01)
        curve, begin = [self.losses(0)], time.perf_counter()
        for number in range(1, recipe.steps + 1):
            seconds = time.perf_counter() - begin
            part = max((number - 1) / recipe.steps, seconds / recipe.seconds)
            if part >= 1:
                break
            for group in optimizer.param_groups:  # rises for 20 steps, then falls to a twentieth
                group["lr"] = recipe.rate * min(1, number / 20) * (0.05 + 0.95 * (1 + math.cos(math.pi * part)) / 2)
            self.model.train()
            loss = step(self.model, optimizer, self.batch())
            if number % 10 == 0:
                self.tell({"step": number, "of": recipe.steps, "part": part, "loss": float(loss), "seconds": seconds})
            if number % recipe.every == 0:
                curve.append(self.losses(number))
                self.tell({"curve": curve[-1]})
        return curve, time.perf_counter() - begin

    def batch(self) -> Tensor:
        """Windows of the book, and lists of random tokens that begin again and again."""
        recipe, length = self.recipe, self.recipe.context + 1
        starts = torch.randint(len(self.train_ids) - length, (recipe.batch - recipe.lists, 1), generator=self.random)
        return torch.cat(
            [self.train_ids[starts + torch.arange(length)], self.lists(recipe.lists, length, 4, recipe.context // 2)]
        )

    def lists(self, count: int, length: int, shortest: int, longest: int) -> Tensor:
        """Tokens of the book in random order, each list beginning again after some of them."""
        periods = torch.randint(shortest, longest + 1, (count, 1), generator=self.random)
        once = self.used[torch.randint(len(self.used), (count, length), generator=self.random)]
        lists: Tensor = once.gather(1, torch.arange(length) % periods)
        return lists

    @torch.no_grad()
    def losses(self, step: int) -> dict[str, float]:
        """The loss on pages that were held out, and on the second half of lists that begin again there."""
        self.model.eval()
        length, half = self.recipe.context + 1, self.recipe.context // 2
        starts = torch.linspace(0, len(self.held_out) - length - 1, 32).long()[:, None]
        book = self.held_out[starts + torch.arange(length)]
        lists = self.lists(32, 2 * half, half, half)
        return {"step": step, "book": self.loss(book), "list": self.loss(lists, skipped=half)}

    def loss(self, ids: Tensor, skipped: int = 0) -> float:
        logits = self.model(ids[:, :-1])
        return float(self.own.mine("loss").cross_entropy(logits[:, skipped:], ids[:, 1 + skipped :]))

    def write(self) -> str:
        """What the model writes."""
        recipe, tokens = self.recipe, self.own.mine("tokenize")
        torch.manual_seed(recipe.seed)
        ids = torch.tensor([tokens.encode(recipe.prompt, self.merges)])
        written = self.own.write(self.model, ids, recipe.count, recipe.context, recipe.temperature)
        return str(tokens.decode(written[0].tolist(), self.merges))

    @torch.no_grad()
    def watch(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Every head with its induction score, the best first; and the weights of the best on some words read twice."""
        self.model.eval()
        half = self.recipe.context // 2
        lists = torch.stack(
            [self.used[torch.randperm(len(self.used), generator=self.random)[:half]] for _ in range(16)]
        )
        with watch(self.model) as seen:
            self.model(lists.repeat(1, 2))
        order = sorted((one for layer in seen for one in layer), key=lambda one: -float(one.induction.nanmean()))
        heads = [
            {
                "head": self.name_of(len(seen), one.layer, one.head),
                "induction": float(one.induction.nanmean()),
                "previous": float(one.previous.nanmean()),
                "learned": one.role.name == "induction",
            }
            for one in order
        ]
        words = self.words()
        with watch(self.model) as seen:
            self.model(words.repeat(2)[None])
        best = seen[order[0].layer, order[0].head] if order else None
        decode = self.own.mine("tokenize").decode
        names = [decode([one], self.merges).strip() for one in words.tolist()] * 2
        weights = best.weights()[0].tolist() if best is not None else []
        cat = self.cat(order[0].layer, order[0].head) if order else {"words": [], "weights": []}
        return heads, {"words": names, "weights": weights, "cat": cat}

    def cat(self, layer: int, head: int) -> dict[str, Any]:
        """What a head does with the sentence of the course, read twice: from the last token of each word, to each."""
        tokens = self.own.mine("tokenize")
        ids = tokens.encode(CAT, self.merges)[: self.recipe.context]
        owner, read = [], ""
        for one in ids:
            piece = tokens.decode([one], self.merges)
            owner.append((read + piece[: len(piece) - len(piece.lstrip())]).count(" "))
            read += piece
        if CAT[len(read) : len(read) + 1].strip():  # the context ends inside of a word
            owner = owner[: owner.index(owner[-1])]
            ids = ids[: len(owner)]
        words = CAT.split()[: owner[-1] + 1]
        with watch(self.model) as seen:
            self.model(torch.tensor([ids]))
        weights = seen[layer, head].weights()[0]
        shares = torch.zeros(len(ids), len(words)).index_add(1, torch.tensor(owner), weights.float())
        last = [len(ids) - 1 - owner[::-1].index(word) for word in range(len(words))]
        return {"words": words, "weights": shares[last].tolist()}

    def name_of(self, layers: int, layer: int, head: int) -> str:
        """A head's name; one that is a layer by itself, in a loop over heads, is named by its place in the loop."""
        if layers == self.recipe.depth * self.recipe.heads:
            layer, head = divmod(layer, self.recipe.heads)
        return f"{layer}.{head}"

    def words(self) -> Tensor:
        """Some tokens that are words, or nearly, all different."""
        decode = self.own.mine("tokenize").decode
        texts = {one: decode([one], self.merges) for one in self.used.tolist()}
        known = {one.lower() for one in self.book.split()}
        good = [
            one
            for one, text in texts.items()
            if len(text.strip()) > 2 and text.strip().isalpha() and text.strip() in known
        ]
        good = good if len(good) >= SHOWN else [one for one, text in texts.items() if text.strip()]
        return torch.tensor(good)[
            torch.randperm(len(good), generator=self.random)[: min(SHOWN, self.recipe.context // 2)]
        ]


if __name__ == "__main__":
    speak_once(sys.argv[1])
