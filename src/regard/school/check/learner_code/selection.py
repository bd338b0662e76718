"""Selection: which classes and functions of a file are judged, by what they are called and by which of them uses which.

Attention that another attention of the file uses is a part of it, and judged with it; the rest is judged by itself.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from regard.school.check.learner_code.subject import Subject, is_function
from regard.school.check.learner_code.text_hints import attention_roles, is_known
from regard.support.vocabulary import is_named_attention, is_named_head

AnySubject = TypeVar("AnySubject", bound=Subject)

_PRODUCTS = {"matmul", "bmm", "einsum", "dot", "baddbmm", "tensordot", "inner"}
_COMPLETE = {"scaled_dot_product_attention", "MultiheadAttention", "flex_attention"}


@dataclass(frozen=True)
class Selection(Generic[AnySubject]):
    """What is judged by itself, what is judged as a part of it, and the blocks and models around it."""

    judged: list[AnySubject]
    parts: list[tuple[AnySubject, AnySubject]] = field(default_factory=list)  # each with the outermost that uses it
    wholes: list[AnySubject] = field(default_factory=list)


def what_to_check(subjects: Sequence[AnySubject]) -> list[AnySubject]:
    """What is judged by itself: attention that no other uses; else all layers, or functions that are known."""
    return select(subjects).judged


def select(subjects: Sequence[AnySubject]) -> Selection[AnySubject]:
    """Everything in a file that claims to be attention; where nothing does, all layers, or functions that are known."""
    words, classes = mentioned_words(subjects), [one for one in subjects if not is_function(one)]
    layers = [one for one in classes if not one.described.get("is_plain")]
    known = [one for one in subjects if is_function(one) and _is_function_to_judge(one)]
    names = {_name(one) for one in classes}
    claims = [one for one in classes if _claims(one, words, names)]
    if not claims:
        return Selection(layers) if layers else _nested(known, words)
    wholes = [one for one in layers if one not in claims]
    around = set[str]().union(*(words[_name(one)] for one in wholes))
    computing = [one for one in known if attention_roles(_arguments(one), _name(one)) and _name(one) not in around]
    return replace(_nested([*claims, *computing], words), wholes=wholes)


def _is_function_to_judge(one: Subject) -> bool:
    """Is it one that can be checked, or one that claims to be attention, of which it is said that it cannot be?"""
    name, arguments = _name(one), _arguments(one)
    return is_known(name, arguments) or (
        is_named_attention(name) and len(arguments) >= 3 and not name.startswith(("init", "make", "build", "create"))
    )


def _nested(claims: Sequence[AnySubject], words: Mapping[str, set[str]]) -> Selection[AnySubject]:
    """Those that no other one uses are judged; the others are parts of them."""
    outer = {_name(one): one for one in claims}
    parts = [(one, outer[user]) for one in claims if (user := _outermost(_name(one), words, list(outer)))]
    inner = [one for one, _ in parts]
    return Selection([one for one in claims if one not in inner], parts)


def _name(one: Subject) -> str:
    return one.described["name"]


def _arguments(one: Subject) -> list[str]:
    return [p["name"] for p in one.described["call"]]


def mentioned_words(subjects: Sequence[Subject]) -> dict[str, set[str]]:
    """The words in the text of each class or function; the classes that it is made from are not used by it."""
    words: dict[str, set[str]] = {_name(one): set() for one in subjects}
    for source in {one.source for one in subjects}:
        try:
            nodes = ast.parse(source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in nodes:
            targets = {one.id for one in getattr(node, "targets", ()) if isinstance(one, ast.Name)}
            for name in (targets | {getattr(node, "name", "")}) & words.keys():
                body = node.body if isinstance(node, ast.ClassDef) else [node]
                inside = (inner for part in body for inner in ast.walk(part))
                words[name] |= {word for one in inside if (word := _word(one))} - {name}
    return words


def _word(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Load) else ""
    return node.attr if isinstance(node, ast.Attribute) else "matmul" if isinstance(node, ast.MatMult) else ""


def _outermost(name: str, words: Mapping[str, set[str]], claims: Sequence[str]) -> str:
    """The attention that uses this one and is used by none; "" where there is none. Two that use each other are two."""
    seen = [name]
    while user := next((one for one in claims if one not in seen and seen[-1] in words[one]), ""):
        seen.append(user)
    return seen[-1] if len(seen) > 1 and seen[-1] not in words[name] else ""


def _claims(one: Subject, words: Mapping[str, set[str]], classes: set[str]) -> bool:
    """Does a class claim to be attention: by its name, or by a softmax and products? A block uses one that does."""
    name = _name(one)
    used, before = words[name] & words.keys(), set[str]()
    while used != before:
        before, used = used, used.union(*(words[other] & words.keys() for other in used)) - {name}
    everything = words[name].union(*(words[other] for other in used))
    is_weighed = any("softmax" in word.lower() for word in everything) or {"exp", "sum"} <= everything
    has_products = bool(everything & _PRODUCTS)
    if is_named_attention(name):  # a plain class of that name may be a picture or a test
        return is_weighed or has_products or not one.described.get("is_plain")
    if any(is_named_attention(other) for other in used & classes):
        return is_named_head(name)
    computes = bool(everything & _COMPLETE) or (is_weighed and has_products)
    return computes and (is_named_head(name) or not any(is_named_head(other) for other in used & classes))
