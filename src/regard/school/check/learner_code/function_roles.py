"""Function roles: what a learner's function is meant to be, by its name and the names of its arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from regard.mistakes.formula import QKV

_ROLES = {
    "q": r"q|query|queries|Q",
    "k": r"k|keys?|K",
    "v": r"v|values?|V",
    "W_query": r"(w_?|weights?_?)(q|query|queries)|(q|query)_(w|weights?|proj|matrix)",
    "W_key": r"(w_?|weights?_?)(k|keys?)|(k|key)_(w|weights?|proj|matrix)",
    "W_value": r"(w_?|weights?_?)(v|values?)|(v|value)_(w|weights?|proj|matrix)",
    "out_proj": r"(w_?|weights?_?)(o|out|output)|out_proj|(o|out)_(w|weights?|proj|matrix)",
    "x": r"x|inputs?|embeddings?|tokens?|hidden_states?|seq|X|embs?",
}


def is_known(name: str, arguments: Sequence[str]) -> bool:
    """Can a function of this name and these arguments be checked?"""
    return small_kind(name, arguments) != "" or attention_roles(arguments, name) is not None


def small_kind(name: str, arguments: Sequence[str]) -> str:
    """softmax, mask, split or merge, by the name of a function; "" for others."""
    name = name.lower()
    if "softmax" in name and len(arguments) in (1, 2):
        return "softmax"
    if "mask" in name and 1 <= len(arguments) <= 2 and not re.search(r"apply|fill|attention|softmax", name):
        return "mask"
    if re.search(r"(split|separate|divide|transpose).*head|head.*split", name):
        return "split"
    if re.search(r"(merge|combine|join|concat|unsplit).*head|head.*(merge|concat)", name):
        return "merge"
    return ""


def attention_roles(names: Sequence[str], function: str) -> dict[str, str] | None:
    """Which argument of attention is which; None where they are not those of attention."""
    roles: dict[str, str] = {}
    for name in names:
        role = next((role for role, pattern in _ROLES.items() if re.fullmatch(pattern, name, re.IGNORECASE)), None)
        if role is not None and role not in roles.values():
            roles[name] = role
    given = set(roles.values())
    is_attention = re.search(r"att(n|ention|end)|simplified|context", function, re.IGNORECASE)
    if {"q", "k", "v"} <= given or {"x", *QKV} <= given or (given == {"x"} and is_attention):
        return roles
    return None
