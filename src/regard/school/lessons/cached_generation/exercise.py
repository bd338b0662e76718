"""Writing with a cache, graded on the number of products."""

import torch

from regard.school.exercises import Fault, Function, Judged, Wrong

V, E, D, CONTEXT = 29, 7, 5, 240


def arguments(random):
    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=random)

    w = {"token_table": 0.6 * matrix(V, E), "position_table": 2 * matrix(CONTEXT, E)}
    w |= {"W_query": matrix(E, D), "W_key": matrix(E, D), "W_value": matrix(E, D), "out_proj": 3 * matrix(D, E)}
    return torch.randint(V, (11,), generator=random), 13, w


def forward(ids, w, past_k, past_v):
    position = len(past_k)
    x = w["token_table"][ids] + w["position_table"][position : position + len(ids)]
    q, k, v = x @ w["W_query"], torch.cat([past_k, x @ w["W_key"]]), torch.cat([past_v, x @ w["W_value"]])
    visible = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
    scores = (q @ k.T / q.shape[-1] ** 0.5).masked_fill(~visible, -torch.inf)
    return x + scores.softmax(-1) @ v @ w["out_proj"], k, v


def make(cache="kept", begin=0, extra=0, pick="best", place=-1, twice=False):
    """Generation, with a mistake; cache: kept, forgotten (each token alone), prompt only, or all doubled."""

    def generate(prompt, count, w):
        k = v = torch.zeros(0, w["W_key"].shape[1])
        new, ids = prompt[begin:], []
        for number in range(count + extra):
            hidden, new_k, new_v = forward(new, w, k, v)
            if twice and number == 0:
                hidden, new_k, new_v = forward(new[-1:], w, new_k, new_v)
            if cache == "kept" or (cache == "prompt only" and not number):
                k, v = new_k, new_v
            logits = hidden[place] @ w["token_table"].T
            new = (logits.argmax() if pick == "best" else logits.argmin())[None]
            ids.append(int(new))
        return ids

    return generate


def all_again(prompt, count, w):
    """The whole text goes into a cache that has it already."""
    k = v = torch.zeros(0, w["W_key"].shape[1])
    text, ids = prompt, []
    for _ in range(count):
        hidden, k, v = forward(text, w, k, v)
        ids.append(int((hidden[-1] @ w["token_table"].T).argmax()))
        text = torch.cat([text, torch.tensor(ids[-1:])])
    return ids


def fed(prompt, count, w, first=(), again=False, swap=False):
    """Generation that reads something first, reads the prompt each time, or takes keys for values."""
    k = v = torch.zeros(0, w["W_key"].shape[1])
    for one in first:
        _, k, v = forward(one, w, k, v)
    new, ids = prompt, []
    for _ in range(count):
        hidden, k, v = forward(prompt if again else new, w, k, v)
        k, v = (v, k) if swap else (k, v)
        new = (hidden[-1:] @ w["token_table"].T).argmax(-1)
        ids.append(int(new))
    return ids


def prompt_again(prompt, count, w):
    return fed(prompt, count, w, again=True)


def prompt_twice(prompt, count, w):
    return fed(prompt, count, w, first=[prompt])


def exchanged(prompt, count, w):
    return fed(prompt, count, w, swap=True)


def with_prompt(prompt, count, w):
    return [*prompt.tolist(), *make()(prompt, count, w)]


def without_cache(prompt, count, w):
    empty, text = torch.zeros(0, w["W_key"].shape[1]), prompt
    for _ in range(count):
        hidden, _, _ = forward(text, w, empty, empty)
        text = torch.cat([text, (hidden[-1:] @ w["token_table"].T).argmax(-1)])
    return text[len(prompt) :].tolist()


def scored_all(prompt, count, w):
    k = v = torch.zeros(0, w["W_key"].shape[1])
    new, ids = prompt, []
    for _ in range(count):
        hidden, k, v = forward(new, w, k, v)
        new = (hidden @ w["token_table"].T)[-1:].argmax(-1)
        ids.append(int(new))
    return ids


def read_last(prompt, count, w):
    return make(extra=1)(prompt, count, w)[:count]


def products(generate, prompt, count, w):
    """How many numbers are multiplied in matrix products, and element by element."""
    from torch.utils._python_dispatch import TorchDispatchMode

    total = [0]
    inner = {
        "mm": (0, 1),
        "bmm": (0, 2),
        "mv": (0, 1),
        "dot": (0, 0),
        "addmm": (1, 1),
        "addmv": (1, 1),
        "baddbmm": (1, 2),
    }

    class Count(TorchDispatchMode):
        pass

    def dispatch(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.__name__.split(".")[0]
        if name in inner:
            place, axis = inner[name]
            total[0] += result.numel() * args[place].shape[axis]
        elif name in ("mul", "mul_") and result.dim() > 1:
            total[0] += result.numel()
        return result

    Count.__torch_dispatch__ = dispatch  # set here, it does not import torch's compiler, which takes a second

    with Count():
        generate(prompt, count, w)
    return total[0]


def judge_products(seen, prompt, count, w):
    least = products(make(), prompt, count, w)
    if seen <= 1.05 * least:
        return None
    rule = f"{seen:,} products for {count} tokens after {len(prompt)}; {least:,} are enough"
    one_more = products(make(extra=1), prompt, count, w)
    if seen <= one_more:
        return Fault(
            "last token read", f"{rule}. The last token goes into the model, though nothing is written after it."
        )
    if abs(seen - products(scored_all, prompt, count, w)) <= one_more - least:
        why = f"Of {len(prompt)} rows of logits, one is used; with GPT-2's 50,257 tokens, the others cost more than a block."
        return Fault(
            "whole prompt scored", f"{rule}. All tokens of the prompt are scored; score the last one.", why=why
        )
    if seen >= 0.9 * products(without_cache, prompt, count, w):
        says = f"{rule}. The whole text is read again for each token: the cache is not used."
        return Fault("no cache", says, why="Give forward the new token only, and the k and v that it returned before.")
    if abs(seen - products(make(twice=True), prompt, count, w)) <= one_more - least:
        return Fault("a token read twice", f"{rule}. A token of the prompt is read twice.")
    return Fault("too many products", f"{rule}. Something is computed more than once.")


parts = [
    Function(
        "generate",
        arguments,
        make(),
        wrong=[
            Wrong(
                "cache forgotten",
                "Each new token sees nothing but itself: k and v of before are not given to forward.",
                make(cache="forgotten"),
            ),
            Wrong(
                "cache of the prompt only",
                "New tokens see the prompt, but none another: keep the k and v that forward returns.",
                make(cache="prompt only"),
            ),
            Wrong(
                "the text again into its own cache",
                "The whole text is given to forward together with its cache, and so is read twice.",
                all_again,
                why="Positions go on from len(past_k); the text would follow itself.",
            ),
            Wrong("worst token", "This is the token with the lowest score: argmax.", make(pick="worst")),
            Wrong(
                "first token's logits",
                "The token after the first one of the prompt is predicted; take the last row, [-1].",
                make(place=0),
            ),
            Wrong(
                "last prompt token twice",
                "The last token of the prompt goes in twice, or the first new token is read and not noted: the "
                "list starts one late.",
                make(twice=True),
            ),
            Wrong("first prompt token lost", "The first token of the prompt is not read.", make(begin=1)),
            Wrong("last prompt token only", "Only the last token of the prompt is read.", make(begin=-1)),
            Wrong(
                "prompt returned, too",
                "The prompt is returned with the new tokens; return the {1} new ones.",
                with_prompt,
            ),
            Wrong("one too many", "It returns one token more than the {1} that are asked for.", make(extra=1)),
            Wrong("one too few", "It returns one token less than the {1} that are asked for.", make(extra=-1)),
            Wrong(
                "a number instead of ids",
                "forward wants a tensor of ids, (T,): a new token is one of shape (1,).",
                raises="of a 0-d tensor",
            ),
            Wrong(
                "no length",
                "forward wants a tensor of ids, (T,), and got a number: torch.tensor([new]).",
                raises="has no len()",
            ),
            Wrong(
                "prompt again each time",
                "The prompt goes in again and again; after the first time, the new token alone does.",
                prompt_again,
            ),
            Wrong(
                "prompt twice",
                "The prompt goes in twice: it fills the cache, and is read again for the first token.",
                prompt_twice,
            ),
            Wrong(
                "the same token again and again",
                "One token is written, and repeated; each must be read before the next.",
                lambda prompt, count, w: make()(prompt, 1, w) * count,
            ),
            Wrong("keys and values exchanged", "forward returns hidden, k, v; here v is taken for k.", exchanged),
        ],
    ),
    Judged("generate", arguments, judge_products, through=products),
]
