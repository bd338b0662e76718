"""Online softmax: keys in blocks."""

import torch

from regard.school.exercises import Function, Wrong


def state_and_block(random):
    T, n, D = 5, 4, 3
    scores = 3 * torch.randn(T, n, generator=random)
    # In some rows this block has the largest score, in others an earlier one, and in the last nothing came before.
    largest = scores.amax(-1) + torch.tensor([1.5, -1.5, 2.5, -0.5, -torch.inf])
    total = 1 + torch.rand(T, generator=random)
    context = torch.randn(T, D, generator=random)
    total[-1], context[-1] = 0, 0
    return largest, total, context, scores, torch.randn(n, D, generator=random)


def make_update(choose=torch.maximum, old_total=1, old_context=1, sign=1):
    def update(largest, total, context, scores, v):
        new = choose(largest, scores.amax(-1))
        correction = (sign * (largest - new)).exp()
        terms = (scores - new[:, None]).exp()
        return (
            new,
            total * correction**old_total + terms.sum(-1),
            context * (correction**old_context)[:, None] + terms @ v,
        )

    return update


def divided_each_time(largest, total, context, scores, v):
    new, total, context = make_update()(largest, total, context, scores, v)
    return new, total, context / total[:, None]


def exp_as_it_is(largest, total, context, scores, v):
    new = torch.maximum(largest, scores.amax(-1))
    return new, total + scores.exp().sum(-1), context + scores.exp() @ v


def block_by_itself(largest, total, context, scores, v):
    new, total, _ = make_update()(largest, total, context, scores, v)
    return new, total, context * (largest - new).exp()[:, None] + scores.softmax(-1) @ v


def scores_mixed(largest, total, context, scores, v):
    new, total, _ = make_update()(largest, total, context, scores, v)
    return new, total, context * (largest - new).exp()[:, None] + scores @ v


def one_number(largest, total, context, scores, v):
    return make_update(lambda old, block: torch.maximum(old.max(), block.max()).expand_as(old))(
        largest, total, context, scores, v
    )


def long_text(random):
    T, S, D = 3, 11, 5
    q, (k, v) = torch.randn(T, D, generator=random), torch.randn(2, S, D, generator=random)
    return q * torch.tensor([[1.0], [5.0], [300.0]]), k, v, 4


def scores_of(q, k):
    return q @ k.T / q.shape[-1] ** 0.5


def attend(q, k, v, block):
    return scores_of(q, k).softmax(-1) @ v


def not_divided(q, k, v, block):
    scores = scores_of(q, k)
    return (scores - scores.amax(-1, keepdim=True)).exp() @ v


def terms_of(q, k):
    scores = scores_of(q, k)
    return (scores - scores.amax(-1, keepdim=True)).exp()


def softmax_of_each(q, k, v, block):
    keys, values = k.split(block), v.split(block)
    return sum(attend(q, a, b, block) for a, b in zip(keys, values, strict=True))


def overflowing(q, k, v, block):
    terms = scores_of(q, k).exp()
    return terms @ v / terms.sum(-1, keepdim=True)


def make_other(choose_terms=None, choose_correction=None, join=None, old=False):
    """An update with other terms, another correction, or the sums joined in another way."""

    def update(largest, total, context, scores, v):
        new = largest if old else torch.maximum(largest, scores.amax(-1))
        correction = (largest - new).exp() if choose_correction is None else choose_correction(largest, new)
        shift = new[:, None]
        terms = (scores - shift).exp() if choose_terms is None else choose_terms(scores, shift, largest[:, None])
        if join is not None:
            return new, *join(total, context, correction, terms, v)
        return new, total * correction + terms.sum(-1), context * correction[:, None] + terms @ v

    return update


def both_corrected(total, context, correction, terms, v):
    return (total + terms.sum(-1)) * correction, (context + terms @ v) * correction[:, None]


def only_new(total, context, correction, terms, v):
    return terms.sum(-1), terms @ v


def softmax_terms(scores, shift, old):
    return scores.softmax(-1)


parts = [
    Function(
        "update",
        state_and_block,
        make_update(),
        wrong=[
            Wrong(
                "block divided by itself",
                "The values of the block are mixed by their own softmax; the terms, e^(score − largest), mix them.",
                block_by_itself,
                why="A block cannot know the total yet: it is divided by once, at the end.",
            ),
            Wrong(
                "scores mixed",
                "The values are mixed by the scores; the terms, e^(score − largest), mix them.",
                scores_mixed,
            ),
            Wrong(
                "no correction",
                "The old sums are kept as they are, although the largest score has changed.",
                make_update(old_total=0, old_context=0),
                why="They were measured against the old maximum: multiply them by e^(old − new).",
            ),
            Wrong(
                "context not corrected",
                "total is corrected for the new maximum, context is not.",
                make_update(old_context=0),
            ),
            Wrong(
                "total not corrected",
                "context is corrected for the new maximum, total is not.",
                make_update(old_total=0),
            ),
            Wrong(
                "correction inverted",
                "The correction is e^(new − old). It must make the old sums smaller: e^(old − new).",
                make_update(sign=-1),
            ),
            Wrong(
                "maximum of the block",
                "new_largest forgets the old one: it is the maximum of this block alone.",
                make_update(lambda old, block: block),
                why="An earlier block may have had a larger score, which must go on counting.",
            ),
            Wrong(
                "divided each time",
                "context is divided by total already here; that is done once, at the end.",
                divided_each_time,
            ),
            Wrong(
                "no maximum", "exp is taken of the scores as they are, without subtracting new_largest.", exp_as_it_is
            ),
            Wrong(
                "terms against the old maximum",
                "The terms are exp(scores − largest), with the old maximum; correction and terms need the same, "
                "the new one.",
                make_other(choose_terms=lambda scores, shift, old: (scores - old).exp()),
                why="In the first block the old maximum is −∞, so every term is ∞.",
            ),
            Wrong(
                "correction on the new terms too",
                "The new terms are multiplied by the correction, too; it is for the old sums alone.",
                make_other(join=both_corrected),
                why="The new terms were measured against the new maximum already.",
            ),
            Wrong(
                "correction on the new total",
                "The correction multiplies the new terms of total; it is for the old total.",
                make_other(join=lambda t, c, e, terms, v: (t + terms.sum(-1) * e, c * e[:, None] + terms @ v)),
            ),
            Wrong(
                "mean of the terms",
                "The mean of the new terms is added to total; it is their sum.",
                make_other(join=lambda t, c, e, terms, v: (t * e + terms.mean(-1), c * e[:, None] + terms @ v)),
            ),
            Wrong(
                "largest of the whole block",
                "The largest score of the whole block counts for every row; each query has its own: amax(-1).",
                make_update(lambda old, block: torch.maximum(old, block.max())),
            ),
            Wrong(
                "correction without exp",
                "The correction is old − new; it is e^(old − new).",
                make_other(choose_correction=lambda old, new: old - new),
            ),
            Wrong(
                "correction is a ratio",
                "The correction is old / new; scores are subtracted before exp, so it is e^(old − new).",
                make_other(choose_correction=lambda old, new: old / new),
            ),
            Wrong(
                "terms without exp",
                "The terms are scores − new_largest; exp of that is missing.",
                make_other(choose_terms=lambda scores, shift, old: scores - shift),
            ),
            Wrong(
                "terms are a softmax",
                "The terms are the softmax of this block, which sums to 1; they are exp(scores − new_largest).",
                make_other(choose_terms=softmax_terms),
                why="Divided by the sum of one block, the blocks can no longer be weighed against each other.",
            ),
            Wrong(
                "old sums forgotten",
                "total and context hold this block alone: what was summed up before is gone.",
                make_other(join=only_new),
            ),
            Wrong(
                "old total forgotten",
                "total holds this block alone: what was summed up before is gone.",
                make_other(join=lambda t, c, e, terms, v: (terms.sum(-1), c * e[:, None] + terms @ v)),
            ),
            Wrong(
                "old context forgotten",
                "context holds this block alone: what was summed up before is gone.",
                make_other(join=lambda t, c, e, terms, v: (t * e + terms.sum(-1), terms @ v)),
            ),
            Wrong(
                "new terms not in total",
                "total is corrected, but the sum of the new terms is not added.",
                make_other(join=lambda t, c, e, terms, v: (t * e, c * e[:, None] + terms @ v)),
            ),
            Wrong(
                "new values not in context",
                "context is corrected, but the new terms times their values are not added.",
                make_other(join=lambda t, c, e, terms, v: (t * e + terms.sum(-1), c * e[:, None])),
            ),
            Wrong(
                "maximum not updated",
                "new_largest is the old maximum; a score of this block may be larger.",
                make_other(old=True),
            ),
            Wrong(
                "sizes of queries and keys mixed",
                "(T,) meets (T, D), (T, n) or (n,): what is one for each query gets an axis, total[:, None], and "
                "sums and "
                "maxima of scores go over the keys, dim=-1.",
                raises="must match the size of tensor",
            ),
            Wrong(
                "one maximum for all", "All rows have the same maximum; each query has its own: amax(-1).", one_number
            ),
            Wrong(
                "minimum",
                "new_largest is the smaller of the two; it is the larger: torch.maximum.",
                make_update(torch.minimum),
            ),
            Wrong(
                "exp of a ratio",
                "The correction is e^(old / new); it is e^(old − new).",
                make_other(choose_correction=lambda old, new: (old / new).exp()),
            ),
            Wrong(
                "terms as they are",
                "The terms are exp(scores); new_largest must be subtracted first, as the correction expects.",
                make_other(choose_terms=lambda scores, shift, old: scores.exp()),
            ),
            Wrong(
                "terms against the block's maximum",
                "The terms are measured against the largest score of this block; an earlier one may be larger.",
                make_other(choose_terms=lambda scores, shift, old: (scores - scores.amax(-1, keepdim=True)).exp()),
            ),
            Wrong(
                "correction on the new total, too",
                "The sum of the new terms is corrected as well; only the old total is.",
                make_other(join=lambda t, c, e, terms, v: ((t + terms.sum(-1)) * e, c * e[:, None] + terms @ v)),
            ),
            Wrong(
                "correction on the new context, too",
                "The new values are corrected as well; only the old context is.",
                make_other(join=lambda t, c, e, terms, v: (t * e + terms.sum(-1), (c + terms @ v) * e[:, None])),
            ),
            Wrong(
                "sum over all queries",
                "The terms of all queries are added up; each query has its own total: sum(-1).",
                make_other(join=lambda t, c, e, terms, v: (t * e + terms.sum(), c * e[:, None] + terms @ v)),
            ),
            Wrong(
                "largest term",
                "The largest new term is added to total; their sum is.",
                make_other(join=lambda t, c, e, terms, v: (t * e + terms.amax(-1), c * e[:, None] + terms @ v)),
            ),
            Wrong(
                "correction added",
                "The correction is added to total; it multiplies it.",
                make_other(join=lambda t, c, e, terms, v: (t + e + terms.sum(-1), c * e[:, None] + terms @ v)),
            ),
            Wrong(
                "divided by the correction",
                "The old total is divided by the correction; it is multiplied by it.",
                make_other(join=lambda t, c, e, terms, v: (t / e + terms.sum(-1), c * e[:, None] + terms @ v)),
            ),
            Wrong(
                "total on the context",
                "The old context is multiplied by total; it is multiplied by the correction.",
                make_other(
                    join=lambda t, c, e, terms, v: (
                        t * e + terms.sum(-1),
                        c * (t * e + terms.sum(-1))[:, None] + terms @ v,
                    )
                ),
            ),
            Wrong(
                "correction on the new instead of the old",
                "The correction multiplies the new values; it is for the old context.",
                make_other(join=lambda t, c, e, terms, v: (t * e + terms.sum(-1), c + e[:, None] * (terms @ v))),
            ),
            Wrong(
                "old maximum returned",
                "The sums are right, but the old maximum is returned, and the next block will use it.",
                lambda largest, *rest: (largest, *make_update()(largest, *rest)[1:]),
            ),
            Wrong(
                "returned in another order",
                "total comes before largest; return new_largest, total, context.",
                lambda *a: (lambda m, t, c: (t, m, c))(*make_update()(*a)),
            ),
        ],
    ),
    Function(
        "attend_in_blocks",
        long_text,
        attend,
        wrong=[
            Wrong(
                "not divided",
                "The context is not divided by total.",
                not_divided,
                why="The terms are exp of the scores; they become weights when they are divided by their sum.",
            ),
            Wrong(
                "divided by the largest score",
                "The context is divided by `largest`; it is divided by `total`.",
                lambda q, k, v, block: not_divided(q, k, v, block) / scores_of(q, k).amax(-1, keepdim=True),
            ),
            Wrong(
                "multiplied by the total",
                "The context is multiplied by total; it is divided by it.",
                lambda q, k, v, block: not_divided(q, k, v, block) * terms_of(q, k).sum(-1, keepdim=True),
            ),
            Wrong(
                "divided by the sum of all totals",
                "The context is divided by one number for all queries; each query has its own total.",
                lambda q, k, v, block: not_divided(q, k, v, block) / terms_of(q, k).sum(),
            ),
            Wrong(
                "softmax of the context",
                "The context is put through a softmax; it is divided by total.",
                lambda q, k, v, block: not_divided(q, k, v, block).softmax(-1),
            ),
            Wrong(
                "softmax of each block",
                "Each block has a softmax of its own, and the results are added.",
                softmax_of_each,
            ),
            Wrong("overflow", "It gives NaN for large scores: the maximum is not subtracted.", overflowing),
            Wrong(
                "total along the wrong axis",
                "context is (T, D) and total (T,): add an axis, total[:, None].",
                raises="must match the size of tensor",
            ),
            Wrong(
                "divided by the number of blocks",
                "The context is divided by the number of blocks; it is divided by total.",
                lambda q, k, v, block: not_divided(q, k, v, block) / (len(k) / block),
            ),
        ],
    ),
]
