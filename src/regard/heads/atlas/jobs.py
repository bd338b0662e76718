"""Jobs: the role that single rows, or single texts, of a head have.

The rules are those of report/roles.py, for all rows at once: a row does what its weights show, compared with its own
chance, one divided by the number of keys that it may see. "position" is no job of a row: it needs many rows.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from regard.heads.measure.registry import BY_NAME
from regard.heads.report.roles import BROAD, LOCAL, LOCAL_TOKENS, PATTERN, ROLES


def job_numbers(values: Mapping[str, Tensor], chance: Mapping[str, Tensor], uniform: Mapping[str, Tensor]) -> Tensor:
    """The number of the role, in the order of ROLES, that these values have; −1 where there are none.

    values: means or single rows by statistic, all of one shape. chance: the mean of 1 / visible keys, for each.
    uniform: entropy and distance of uniform attention.

    >>> one = torch.ones(1)
    >>> values = {"previous": 0.9 * one, "self": 0.1 * one, "largest": 0.9 * one}
    >>> list(ROLES)[int(job_numbers(values, dict.fromkeys(values, 0.2 * one), {}))]
    'previous token'
    """
    names = list(ROLES)
    result = torch.full_like(values["largest"], names.index("mixed"), dtype=torch.long)
    for name, holds in _wide_ones(values, uniform):
        result = torch.where(holds, names.index(name), result)
    kinds = [kind for kind in ROLES.values() if kind.statistic in values]
    simpler = torch.zeros_like(values["largest"])
    for kind in kinds:
        if BY_NAME[kind.statistic].positional:
            simpler = torch.maximum(simpler, values[kind.statistic].nan_to_num(0.0))
    # A repeated one must exceed the simpler explanations, and is taken before the others: so it comes last here.
    for repeated, best in ((False, torch.zeros_like(simpler)), (True, simpler)):
        for kind in [kind for kind in kinds if kind.repeated is repeated]:
            score, by_chance = values[kind.statistic], chance[kind.statistic]
            holds = (score >= by_chance + PATTERN * (1 - by_chance)) & (score > best)
            best = torch.where(holds, score, best)
            result = torch.where(holds, names.index(kind.name), result)
    return result.masked_fill(values["largest"].isnan(), -1)


def _wide_ones(values: Mapping[str, Tensor], uniform: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Where the values are broad or local; of both, the later one counts."""
    found = []
    if "entropy" in uniform and "entropy" in values:
        even = uniform["entropy"]
        found.append(("broad", (even > 0) & (values["entropy"] >= BROAD * even)))
    if "distance" in uniform and "distance" in values:
        even, away = uniform["distance"], values["distance"]
        found.append(("local", (even > 0) & (1 - away / even >= LOCAL) & (away <= LOCAL_TOKENS)))
    return found


def counts_of(numbers: Tensor) -> Tensor:
    """(H, roles): how often each number occurs, from (B, H, …)."""
    roles = torch.arange(len(ROLES), device=numbers.device)
    return torch.stack([(numbers == role).transpose(0, 1).flatten(1).sum(1) for role in roles.tolist()], 1)
