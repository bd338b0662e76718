"""Mistakes in joining the heads, and in the output projection."""

from collections.abc import Callable

from torch import Tensor

from regard.mistakes.formula import Case, Projection, merge_alternating, output
from regard.mistakes.mistake import Mistake, with_heads


def _with_output(case: Case) -> bool:
    return "out_proj" in case.projections


def _transposed_output(concat: Tensor, case: Case) -> Tensor:
    weight, bias = case.projections["out_proj"]
    return concat @ weight + (0 if bias is None else bias)


def _fits_one(case: Case) -> bool:
    """Can the context of one head be the output, or go through the output projection?"""
    return with_heads(case) and (not _with_output(case) or _columns(case) == case.head_dim)


def _columns(case: Case) -> int:
    return case.projections["out_proj"].weight.shape[1]


def _output_with_bias(concat: Tensor, case: Case, times: float) -> Tensor:
    weight, bias = case.projections["out_proj"]
    return Projection(weight, None if bias is None else bias * times)(concat)


_JOIN = "concat = context.transpose(1, 2).contiguous().view(B, T, num_heads * head_dim)"
_RESHAPE_WHY = (
    "reshape gives any shape that is asked for, whatever the order of the axes; T must stand before H first, by "
    "transpose(1, 2)."
)


def _joined(
    name: str,
    act: Callable[[Tensor, Case], Tensor],
    says: str,
    why: str = _RESHAPE_WHY,
    applies: Callable[[Case], bool] = with_heads,
    rare: bool = False,
) -> Mistake:
    return Mistake(name, "merge", act, "concat", says, why, _JOIN, applies, rare)


def _reshaped(order: tuple[int, ...]) -> Callable[[Tensor, Case], Tensor]:
    """The heads (B, H, T, D), with their axes in this order, taken for (B, T, H × D)."""

    def act(context: Tensor, case: Case) -> Tensor:
        B, _, T, _ = context.shape
        return context.permute(order).reshape(B, T, -1)

    return act


def _texts_as_heads(context: Tensor, case: Case) -> Tensor:
    """(B × H, T, D) read as (H, B, T, D): texts are taken for heads."""
    B, H, T, D = context.shape
    return context.reshape(H, B, T, D).permute(1, 2, 0, 3).reshape(B, T, H * D)


MISTAKES = (
    _joined(
        "batch and heads mixed",
        _texts_as_heads,
        "(B × {num_heads}, T, {head_dim}) is read back as ({num_heads}, B, T, {head_dim}): texts are taken for heads.",
        why="What is joined into one axis must be taken apart in the same order.",
        applies=lambda case: with_heads(case) and len(case.x) > 1,
        rare=True,
    ),
    _joined(
        "merge without transposing back",
        _reshaped((0, 1, 2, 3)),
        "The heads are joined as (B, {num_heads}, T, {head_dim}) by view or reshape, which mixes tokens.",
    ),
    _joined(
        "reshape that hides a wrong merge",
        merge_alternating,
        "The heads are joined as (B, T, {head_dim}, {num_heads}): the numbers of the heads alternate, "
        "and reshape hides it.",
        "The output projection expects head 0 whole, then head 1: "
        "transpose(1, 2) alone brings (B, H, T, D) to (B, T, H, D).",
    ),
    _joined(
        "reshape that hides a wrong merge",
        _reshaped((0, 1, 3, 2)),
        "The heads are joined as (B, {num_heads}, {head_dim}, T) by reshape, which mixes tokens.",
        rare=True,
    ),
    _joined(
        "reshape that hides a wrong merge",
        _reshaped((2, 0, 1, 3)),
        "The heads are joined as (T, B, {num_heads}, {head_dim}) by reshape, which mixes the texts of the batch.",
        applies=lambda case: with_heads(case) and len(case.x) > 1,
        rare=True,
    ),
    _joined(
        "heads joined on the wrong axis",
        _reshaped((1, 0, 2, 3)),
        "The heads are joined on the axis of the texts, ({num_heads} × B, T, {head_dim}), and reshape hides it.",
        "Joined on the last axis, dim=-1, heads make one wide vector for each token.",
        rare=True,
    ),
    _joined(
        "heads averaged instead of concatenated",
        lambda context, case: context.mean(1),
        "The contexts of the {num_heads} heads are averaged; they are joined side by side.",
        "Averaged, what one head found cannot be told from what another found.",
        _fits_one,
    ),
    _joined(
        "heads summed instead of concatenated",
        lambda context, case: context.sum(1),
        "The contexts of the {num_heads} heads are summed; they are joined side by side.",
        "Summed, what one head found cannot be told from what another found.",
        _fits_one,
    ),
    Mistake(
        "transposed weights",
        "output",
        _transposed_output,
        "out",
        "The joined heads are multiplied by the weight as nn.Linear stores it, (out, in); nn.Linear itself computes "
        "concat @ weight.T.",
        "The layer still runs where the weight is square, but weights from elsewhere give other numbers.",
        "return self.out_proj(concat)  # or concat @ self.out_proj.weight.T",
        lambda case: _with_output(case) and len(set(case.projections["out_proj"].weight.shape)) == 1,
    ),
    Mistake(
        "unused output projection",
        "output",
        lambda concat, case: concat,
        "out",
        "The joined heads are returned as they are; the output projection is not applied.",
        "Until the output projection, no head has seen what another found.",
        "return self.out_proj(concat)",
        _with_output,
    ),
    Mistake(
        "output projection applied twice",
        "output",
        lambda concat, case: output(output(concat, case), case),
        "out",
        "The joined heads go through the output projection twice.",
        "Two linear maps in a row are one, and not the one that the weights were trained for.",
        "return self.out_proj(concat)  # once",
        _with_output,
    ),
    Mistake(
        "output projection for each head",
        "output",
        lambda concat, case: output(concat.unflatten(-1, (case.num_heads, -1)), case).flatten(-2),
        "out",
        "Each head goes through an output projection of its own width, {head_dim}, before they are joined.",
        "The output projection mixes what the heads found: it reads all of them together, num_heads · "
        "head_dim numbers.",
        "self.out_proj = nn.Linear(d_out, d_out)  # and self.out_proj(concat) after the heads are joined",
        lambda case: with_heads(case) and _with_output(case) and _columns(case) == case.head_dim,
    ),
    *(
        Mistake(
            name,
            "output",
            lambda concat, case, times=times: _output_with_bias(concat, case, times),
            "out",
            says,
            "A linear map is x @ weight.T + bias, each once.",
            "return self.out_proj(concat)",
            lambda case: _with_output(case) and case.projections["out_proj"].bias is not None,
            family=name.partition(":")[0],
            written=written,
        )
        for name, times, says, written in (
            ("bias left out: of the output", 0.0, "The output projection is the product with the weight alone.", ""),
            ("bias added twice: of the output", 2.0, "The bias of the output is added twice.", r"(?i)bias|\bb_?o"),
        )
    ),
    Mistake(
        "x itself returned",
        "output",
        lambda concat, case: case.x,
        "out",
        "What is returned is x, unchanged: what the heads found is thrown away.",
        "The output is what attention computed; a block adds x to it outside of the layer.",
        "return self.out_proj(concat)",
        rare=True,
        written=r"(?m)return\s+(x|X|inputs?|hidden_states|embed\w*|src|seq|h|tokens|entrada)\s*$",
    ),
)
