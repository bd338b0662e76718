"""Reading a run: a layer whose parameters say little, judged by what it computes, part by part.

Where `anatomy` finds attention in a run, this says which of its parts are as they should be. All right: the layer is.
Else the formula, with the queries, keys and values of the run, is asked which known mistake explains the output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from regard.mistakes.formula import Case, Projection, merge
from regard.mistakes.search import TOLERANCE, explanations_of_size
from regard.school.check.compare.anatomy import Anatomy, Made, dissect, is_relative, turns_no_pairs
from regard.school.check.compare.call_forms import LAYOUTS, MORE_LAYOUTS, call_forms, causal_mask, inputs, mask_forms
from regard.school.check.compare.constructor_arguments import HEADS, takes
from regard.school.check.compare.experiment import Experiment, Extension
from regard.school.check.compare.extensions import is_two_steps
from regard.school.check.compare.linear_maps import Affine, is_close
from regard.school.check.compare.scale_reading import doubts_on_scale, is_meant, kept_weights
from regard.school.check.compare.visible_patterns import follows_pattern
from regard.school.check.learner_code.text_hints import is_tokens_first, names_positions, names_window

# Mistakes before the product of queries and keys cannot be seen in queries and keys that were read from the run.
_BEFORE = ("read", "project", "adapt", "split", "share", "share_values")
# Doubts that prove a mistake with a name.
ON_VALUES = "its values depend on positions"
MIXED_PAIRS = "its pairs of numbers are not rotated by one angle"
ON_ONE_SIDE = "positions are in the queries or the keys only"
SAME_WEIGHTS = {
    f"its {first} and {second} are made with the same weights": (first, second)
    for first, second in (("queries", "keys"), ("queries", "values"), ("keys", "values"))
}
SHARED_IN_TURNS = tuple(
    f"query heads that stand next to each other do not share their {word}" for word in ("keys", "values")
)
_OWN_SCALE = "Its scores are scaled in a way of its own."
_OWN_PATTERN = "Which tokens it sees follows a pattern of its own."
_SHARED = re.compile(r"(?i)\b(tied?|tying|shared?|sharing|same (weights|matrix|projection))|(?<![a-z])(qk|kv)\b").search


def with_run_reading(result: Experiment) -> Experiment:
    """The experiment explained by what was found in a run; with a reason, where nothing was."""
    read = _read(result)
    name = result.call.layout
    others = [one for one in result.recipe.layouts if one != name and name in MORE_LAYOUTS]
    if name == LAYOUTS[0] and is_tokens_first(result.text, result.observation.contents):
        others = ["tokens first"]
    before = "x" if name == LAYOUTS[0] else f"x, {name}"
    for layout in () if read.is_explained else others:
        args = tuple(f"x, {layout}" if one == before else one for one in result.call.args)
        other = _read(replace(result, call=replace(result.call, args=args, layout=layout)))
        if other.is_explained:
            return other
    return read


def with_mask_read(result: Experiment) -> Experiment | None:
    """The layer with a mask over the future, in the first form in which it hides the future; None where none does."""
    forms = mask_forms(causal_mask(result.sizes.T), torch.float64, result.sizes.B)
    choices = result.recipe.choices[0]
    for call in call_forms(result.subject.described, list(forms), [result.call.layout], choices):
        masked = replace(result, call=call, tensors={**result.tensors, **forms}, variants=None, extension=None)
        masked = replace(masked, case=replace(result.case, mask=forms["True = may attend"]))
        masked.__dict__.pop("seen", None)
        read = _read(masked)
        if read.is_right:
            return read
    return None


def _read(result: Experiment) -> Experiment:
    found = dissect(result)
    if isinstance(found, str):
        return replace(result, unread=found)
    open_points = list(doubts(result, found))
    tensors = {**result.tensors, **inputs(found.x)}
    read = replace(
        result, tensors=tensors, sizes=replace(result.sizes, B=len(found.x)), out=found.out, case=_case(result, found)
    )
    visible = found.scoring.visible[0]
    is_usual = bool(visible.all()) or torch.equal(visible, causal_mask(visible.shape[-1])) or bool(result.call.mask)
    others = [] if is_usual else [_OWN_PATTERN]
    others += [_OWN_SCALE] if is_meant(result, found) else []
    what = " ".join((*found.notes, *others))
    if not open_points:
        return replace(read, variants=[()], extension=Extension(what, read.case, read.out), anatomy=found)
    for size in (1, 2):
        unseen = _BEFORE if knows_factors(found) else (*_BEFORE, "scale")
        mistakes = [one for one in result.mistakes(result.reading) if one.step not in unseen]
        for case in _cases(result, read.case, found):
            if explanations_of_size(case, [found.out], 0, TOLERANCE):
                continue  # all of it was read from the run, so that nothing in it can be wrong
            if matches := explanations_of_size(case, [found.out], size, TOLERANCE, mistakes):
                variants = [variant for _, variant in matches]
                extension = Extension(what, case, read.out)
                return replace(read, case=case, variants=variants, extension=extension, anatomy=found)
    return replace(result, unread=open_points[0], anatomy=found)


def knows_factors(found: Anatomy) -> bool:
    """Is it known by what queries and keys were multiplied? Only where their weights were found."""
    return all(made.place is not None or made.is_composed for made in (found.queries, found.keys))


def _case(result: Experiment, found: Anatomy) -> Case:
    """The queries, keys and values of the run as a case of the formula, without what they were multiplied by."""
    head, H = found.head, found.head.q.shape[1]
    plain = Case(found.x, num_heads=H, qkv=(head.q.transpose(1, 2).flatten(2),) * 3)
    q, k = head.q / found.queries.factor, head.k / found.keys.factor
    if is_meant(result, found):
        q = head.q * found.scoring.factor[:, None, None] * head.q.shape[-1] ** 0.5
        k = head.k
    qkv = tuple(merge(t, plain) for t in (q, k, head.v))
    visible = found.scoring.visible[0]
    causal = bool(torch.equal(visible, causal_mask(len(visible)))) if result.must_hide is None else result.must_hide
    is_mask = is_two_steps(found.scoring.bias, found.scoring.visible)  # a mask that is added as it is
    bias = None if _is_flat(found) or is_mask else found.scoring.bias
    return Case(found.x, _output(found), H, causal=causal, qkv=qkv, bias=bias)


def _cases(result: Experiment, case: Case, found: Anatomy) -> Iterator[Case]:
    """The case with the output projection as it was found, or as one that the layer keeps and uses in another way."""
    if found.head.v.shape[-1] != found.head.q.shape[-1]:
        return  # the formula has one width for all
    yield case
    if found.out_place is not None or (result.reading.named and "out_proj" not in result.reading.projections):
        return
    used = {name for made in (found.queries, found.keys, found.values) if made.place for name in made.place.names}
    width, joined = found.out.shape[-1], case.width
    for name, t in kept_weights(result).items():
        if name not in used and t.dim() == 2 and sorted(t.shape) == sorted((width, joined)):
            bias = kept_weights(result).get(name.removesuffix("weight") + "bias")
            weight = t if tuple(t.shape) == (width, joined) else t.t()
            yield replace(case, projections={"out_proj": Projection(weight, bias)})


def _output(found: Anatomy) -> Mapping[str, Projection]:
    if found.out_map is None:
        return {}
    weight, bias = found.out_map.weight[0, 0], found.out_map.bias[0, 0]
    is_plain = (
        is_close(weight, torch.eye(len(weight), dtype=weight.dtype)) if weight.shape[0] == weight.shape[1] else False
    )
    return {} if is_plain else {"out_proj": Projection(weight, bias)}


def _is_flat(found: Anatomy) -> bool:
    return bool((found.scoring.bias.abs() < 1e-6).all())


def doubts(result: Experiment, found: Anatomy) -> Iterator[str]:
    """What is not as it should be, or cannot be known, each as a phrase."""
    yield from doubts_on_scale(result, found)
    yield from _doubts_on_mask(result, found)
    yield from _doubts_on_positions(result, found)
    yield from _doubts_on_projections(result, found)
    yield from _doubts_on_heads(result, found)
    yield from _doubts_on_output(result, found)


def _doubts_on_mask(result: Experiment, found: Anatomy) -> Iterator[str]:
    visible = found.scoring.visible
    T = visible.shape[-2]
    if not bool((visible == visible[:1]).all()):
        yield "its heads hide different tokens"
        return
    one = visible[0]
    expected = result.case.mask if result.call.mask else None
    if expected is not None:
        if not torch.equal(one, expected):
            yield "the mask that is passed is not what it hides"
    elif torch.equal(one, causal_mask(T)):
        if result.must_hide is False:
            yield "it hides the future, and should not"
    elif bool(one.all()):
        if result.must_hide:
            yield "it does not hide the future"
    elif not (names_window(result.text) and _is_band(one, result)) and not follows_pattern(
        one, result.observation.contents.get("attributes", {}), result.text, bool(result.must_hide)
    ):
        yield "what it hides is neither nothing nor the future"


def _is_band(visible: Tensor, result: Experiment) -> bool:
    """Does a token see a fixed number of tokens before it (and after it), as its attributes say?"""
    T = len(visible)
    offsets = [d for d in range(-T + 1, T) if bool(visible.diagonal(d).any())]
    is_band = all(bool(visible.diagonal(d).all()) for d in offsets) and len(offsets) == offsets[-1] - offsets[0] + 1
    sizes = [v for n, v in result.observation.contents.get("attributes", {}).items() if names_window(n)]
    size = 1 - offsets[0]
    return is_band and (size in sizes or size - 1 in sizes) and not (result.must_hide and offsets[-1] > 0)


def _doubts_on_positions(result: Experiment, found: Anatomy) -> Iterator[str]:
    queries, keys, values = found.queries.map, found.keys.map, found.values.map
    speaks = bool(names_positions(result.text))
    if values.has_positions and not (values.adds_positions and (queries.adds_positions or speaks)):
        yield ON_VALUES
    if any(one.has_positions and not one.adds_positions for one in (queries, keys)):
        yield from _doubts_on_turns(queries, keys)
    if found.scoring.is_relative and not speaks:
        yield "something is added to the scores that is not known"
    if not _is_flat(found):
        bias, visible = found.scoring.bias, found.scoring.visible
        if is_two_steps(bias, visible) or not speaks:
            yield "something is added to the scores that is not known"


def _doubts_on_turns(queries: Affine, keys: Affine) -> Iterator[str]:
    """Are both turned by their positions, so that a score depends on the distance of its tokens only?"""
    if queries.has_positions != keys.has_positions:
        yield ON_ONE_SIDE
    elif not is_relative(queries, keys):
        is_mixed = turns_no_pairs(queries) or turns_no_pairs(keys)
        yield MIXED_PAIRS if is_mixed else "what its positions do to the scores is not known"


def _doubts_on_projections(result: Experiment, found: Anatomy) -> Iterator[str]:
    """Is each of queries, keys and values made with weights of its own?"""
    parts = {"queries": found.queries, "keys": found.keys, "values": found.values}
    for word, made in parts.items():
        yield from _doubts_on_one(result, word, made)
    turned = {_is_read_as_rows(made) for made in parts.values() if made.place is not None}
    if len(turned) > 1:
        yield "some of its weights are read as (in, out), others as (out, in)"
    if not _SHARED(result.text):
        for doubt, (first, second) in SAME_WEIGHTS.items():
            if _overlaps(parts[first], parts[second]):
                yield doubt


def _doubts_on_one(result: Experiment, word: str, made: Made) -> Iterator[str]:
    """Are queries, keys or values made by a matrix and a bias that the layer keeps?"""
    if _is_copy(made):
        yield f"its {word} are x itself"
    elif made.place is None and not made.is_composed and not made.map.has_positions and not made.is_normed:
        yield f"its {word} are made by another matrix than one that it keeps"
    if word == "values" and made.is_normed:
        yield "its values are normalised"
    if word == "values" and made.factor != 1:
        yield "its values are multiplied by a number"
    if made.place is not None and not bool((made.map.bias.abs() > 1e-9).any()):
        biases = [name.removesuffix("weight") + "bias" for name in made.place.names if name.endswith("weight")]
        yield from (f"{name} is not added" for name in biases if name in kept_weights(result))
    if not made.has_own_bias:
        yield f"what is added to its {word} is not a bias that it keeps"


def _is_read_as_rows(made: Made) -> bool:
    """Do the numbers of one row of the matrix stand next to each other in the weight?"""
    assert made.place is not None
    (first, i), (second, j) = made.place.places[:2]
    return first == second and j - i == 1


def _is_copy(made: Made) -> bool:
    """Are its numbers those of x, without a matrix?"""
    weight = made.map.weight
    return made.place is None and bool(((weight.abs() < 1e-9) | ((weight - 1).abs() < 1e-9)).all())


def _overlaps(a: Made, b: Made) -> bool:
    return a.place is not None and b.place is not None and bool(set(a.place.places) & set(b.place.places))


def _doubts_on_output(result: Experiment, found: Anatomy) -> Iterator[str]:
    if found.out_map is None:
        yield "its output is not made of the joined heads by a matrix"
    elif found.out_place is None and _output(found) and not _is_times_a_weight(result, found):
        yield "its output is made of the joined heads by another matrix than one that it keeps"
    H, D = found.head.v.shape[1], found.head.v.shape[-1]
    if found.out_place is not None and not _is_in_order(found.out_place.places[: H * D], H, D):
        yield "the heads are joined in another order than that of the output projection"


def _is_times_a_weight(result: Experiment, found: Anatomy) -> bool:
    """Is the output projection a product of two matrices, or only a learned number, as gamma in gamma · y + x?"""
    if "product of two" in " ".join(found.notes) or found.out_map is None:
        return "product of two" in " ".join(found.notes)
    weight, numbers = found.out_map.weight[0, 0], [t for t in kept_weights(result).values() if t.numel() == 1]
    if weight.shape[0] != weight.shape[1] or not found.has_residual:
        return False
    eye = torch.eye(len(weight), dtype=weight.dtype)
    return any(is_close(weight, eye * float(number), 1e-6) for number in numbers)


def _doubts_on_heads(result: Experiment, found: Anatomy) -> Iterator[str]:
    """Are there as many heads as asked for, each with its own part of the weights, in order, and all of it used?"""
    H, asked = found.head.q.shape[1], result.sizes.num_heads
    if not result.subject.is_built and takes(result.subject.described, HEADS) and asked != H:
        yield f"it has {H} head{'s' * (H > 1)}, and was built with num_heads={asked}"
    parts = {"queries": found.queries, "keys": found.keys, "values": found.values}
    orders: set[bool] = set()
    for word, made in parts.items():
        if made.place is not None:
            yield from _doubts_on_split(word, made, orders)
    if len(orders) > 1:
        yield "queries, keys and values are split into heads in different orders"
    used = {place for made in parts.values() if made.place for place in made.place.places}
    used |= set(found.out_place.places) if found.out_place else set()
    for name, t in kept_weights(result).items():
        count = sum(1 for owner, _ in used if owner == name)
        if 0 < count < t.numel():
            yield f"a part of {name} is not used"


def _doubts_on_split(word: str, made: Made, orders: set[bool]) -> Iterator[str]:
    """Has every head its own rows of the weight, in order? Whether they stand together is put into `orders`."""
    assert made.place is not None
    H, D, E = made.map.weight.shape[1:]
    D = len(made.place.places) // (H * E)
    rows = made.place.places[::E]
    heads = [rows[h * D : h * D + D] for h in range(H)]
    own = list(dict.fromkeys(heads))
    if word == "queries" and len(own) < H:
        yield "some heads have the same queries"
    elif [own.index(head) for head in heads] != [h * len(own) // H for h in range(H)]:
        yield SHARED_IN_TURNS[word == "values"]
    elif not _is_in_order(tuple(row for head in own for row in head), len(own), D):
        yield f"the {word} are split into heads in an order that is not that of their weights"
    orders.add(_stand_together(tuple(row for head in own for row in head)) or len(own) == 1 or D == 1)


def _stand_together(rows: tuple[tuple[str, int], ...]) -> bool:
    """Do the rows of one head stand together in the weight, head by head?"""
    names = list(dict.fromkeys(name for name, _ in rows))
    numbers = [(names.index(name), place) for name, place in rows]
    return numbers == sorted(numbers)


def _is_in_order(rows: tuple[tuple[str, int], ...], H: int, D: int) -> bool:
    """Do rows of H heads of D numbers stand in the order of their weights: head by head, or in turns?"""
    names = list(dict.fromkeys(name for name, _ in rows))
    numbers = [(names.index(name), place) for name, place in rows]
    in_turns = [numbers[h * D + d] for d in range(D) for h in range(H)]
    return numbers == sorted(numbers) or in_turns == sorted(in_turns)
