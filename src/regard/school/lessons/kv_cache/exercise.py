"""The KV cache: token by token."""

import torch

from regard.school.exercises import Fault, Function, Judged, Wrong, cat
from regard.school.exercises.attention_slips import attention_slips


def sizes(random):
    return 3, 5 + 2 * int(torch.randint(2, (), generator=random))  # never as many past tokens as new ones


def tensors(random):
    T, S, E, D = *sizes(random), 5, 3
    x, past_k, past_v = (torch.randn(shape, generator=random) for shape in ((T, E), (S - T, D), (S - T, D)))
    return x, *torch.randn(3, E, D, generator=random), past_k, past_v


def visible(T, S, offset=0):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T + offset)


def attend(q, k, v, mask):
    return (q @ k.T / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf).softmax(-1) @ v


def make_step(mask=visible, join=lambda past, new: torch.cat([past, new])):
    def step(x, W_query, W_key, W_value, past_k, past_v):
        k, v = join(past_k, x @ W_key), join(past_v, x @ W_value)
        return attend(x @ W_query, k, v, mask(len(x), len(k))), k, v

    return step


def parts_of(x, W_query, W_key, W_value, past_k, past_v):
    k, v = torch.cat([past_k, x @ W_key]), torch.cat([past_v, x @ W_value])
    return x @ W_query, k, v, visible(len(x), len(k))


LEFT_OUT = (
    "no mask",
    "causal mask",
    "softmax over the batch",
    "root of the first size",
    "root of the number of queries",
)


def judge_bool(mask, T, S):
    if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool:
        return None
    kind = f"of {str(mask.dtype).removeprefix('torch.')}" if isinstance(mask, torch.Tensor) else "no tensor"
    return Fault(
        "numbers instead of bool",
        f"The triangle is right, but it is {kind}; wanted are True and False. Add .bool(), or dtype=torch.bool.",
        why="masked_fill takes no numbers, and ~ does not turn 0 and 1 around.",
    )


def keys_as_values(x, W_query, W_key, W_value, past_k, past_v):
    return make_step()(x, W_query, W_key, W_key, past_k, past_v)


def only_new_returned(x, W_query, W_key, W_value, past_k, past_v):
    context, k, v = make_step()(x, W_query, W_key, W_value, past_k, past_v)
    return context, k[-len(x) :], v[-len(x) :]


def mixed_order(x, W_query, W_key, W_value, past_k, past_v):
    k, v = torch.cat([past_k, x @ W_key]), torch.cat([x @ W_value, past_v])
    return attend(x @ W_query, k, v, visible(len(x), len(k))), k, v


def triangle(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril()


def everything(T, S):
    return torch.ones(T, S, dtype=torch.bool)


TRIANGLE = "Query 0 sees key 0 only, as if the new tokens were the first of the text. They are the last."
parts = [
    Function(
        "visible",
        sizes,
        visible,
        wrong=[
            Wrong(
                "no offset", TRIANGLE, triangle, why="With T = 1, that token would see the first key and nothing else."
            ),
            Wrong(
                "inverted",
                "True and False are exchanged; True means that a query may see the key.",
                lambda T, S: ~visible(T, S),
            ),
            Wrong(
                "numbers to add",
                "These are numbers to add to the scores; wanted is True where a query may see a key.",
                lambda T, S: torch.zeros(T, S).masked_fill(~visible(T, S), -torch.inf),
            ),
            Wrong(
                "everything",
                "Every query sees every key; new tokens must not see newer ones.",
                everything,
                why="For T = 1 that is right, but a prompt enters the cache many tokens at once.",
            ),
            Wrong("not itself", "A query does not see its own key.", lambda T, S: visible(T, S, -1)),
            Wrong(
                "one too far",
                "Every query sees one key too many, that of the next token.",
                lambda T, S: visible(T, S, 1),
            ),
            Wrong(
                "offset the other way",
                "The triangle is shifted by T − S; it must go to the right, by S − T.",
                lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(T - S),
            ),
            Wrong(
                "upper triangle",
                "The triangle is the upper one, triu: each query sees itself and what comes after.",
                lambda T, S: torch.ones(T, S, dtype=torch.bool).triu(S - T),
            ),
            Wrong(
                "only the past",
                "The queries see the past only, not each other and not themselves.",
                lambda T, S: (torch.arange(S) < S - T).expand(T, S),
            ),
        ],
    ),
    Judged("visible", sizes, judge_bool),
    Function(
        "step",
        tensors,
        make_step(),
        wrong=[
            *attention_slips(parts_of, lambda context, *arguments: (context, *parts_of(*arguments)[1:3]), LEFT_OUT),
            Wrong(
                "past left out",
                "The new tokens attend to themselves only: past_k and past_v are not used.",
                make_step(join=lambda past, new: new),
            ),
            Wrong(
                "new before past",
                "The new keys are put before the past ones; tokens stay in the order of the text.",
                make_step(join=lambda past, new: torch.cat([new, past])),
                why="The mask counts positions: it takes the last T keys for the new ones.",
            ),
            Wrong("no mask", "The mask is not used: new tokens see newer ones.", make_step(everything)),
            Wrong("no offset", TRIANGLE, make_step(triangle)),
            Wrong(
                "mask inverted",
                "What a query may see is hidden. masked_fill fills where its mask is True.",
                make_step(lambda T, S: ~visible(T, S)),
            ),
            Wrong(
                "cache does not grow",
                "k and v of the new tokens alone are returned; the cache is past and new.",
                only_new_returned,
            ),
            Wrong(
                "values made with W_key",
                "The new values are x @ W_key; they are x @ W_value.",
                keys_as_values,
            ),
            Wrong(
                "added to the past",
                "The new keys are added to the past ones; they are put behind them, with torch.cat.",
                raises="at non-singleton dimension 0",
                why="A cache of 2 tokens and 3 new ones make 5 rows: one for each token.",
            ),
            Wrong(
                "joined side by side",
                "The new keys are joined along dim=1, beside the past ones; tokens are rows, dim=0.",
                raises="must match except in dimension 1",
            ),
            Wrong(
                "only one of both",
                "k has more rows than v, or fewer: both need the past.",
                raises="cannot be multiplied",
            ),
            Wrong(
                "past values last",
                "The new values are put before the past ones, the keys behind them; both go behind.",
                mixed_order,
            ),
            Wrong(
                "queries kept as keys",
                "The queries of the new tokens are put into the cache; their keys are, x @ W_key.",
                lambda x, Q, K, V, past_k, past_v: make_step()(x, Q, Q, V, past_k, past_v),
            ),
            Wrong(
                "keys for past values",
                "The past keys are taken for the past values.",
                lambda x, Q, K, V, past_k, past_v: (
                    make_step()(x, Q, K, V, past_k, past_k)[:1]
                    + (torch.cat([past_k, x @ K]), torch.cat([past_k, x @ V]))
                ),
            ),
            Wrong(
                "exchanged",
                "k and v are returned in the other order.",
                lambda *a: (lambda c, k, v: (c, v, k))(*make_step()(*a)),
            ),
        ],
    ),
]

picture = cat.of_result(
    "step",
    "One new word, mat, against five keys from your cache and its own:",
    torch.cat([cat.VECTORS, cat.EYE], dim=1)[5:],
    *(torch.cat([one[1], torch.zeros(6, 6)]) for one in (cat.QUERIES, cat.KEYS)),
    torch.cat([torch.zeros(5, 6), cat.EYE]),
    cat.keys(1)[:5],
    cat.EYE[:5],
    rows=["mat"],
)
