"""Text hints: what a learner's file says of its functions by their names, and of tensors where two readings are right.

Names, comments and docstrings are evidence for what a layer is meant to be, never for whether it is right.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from regard.mistakes.formula import QKV
from regard.support.vocabulary import is_named_attention

LONGEST_LINE = 1000  # characters: searching a line takes the square of its length at worst
_MOST_LINES = 2000

BATCH_NAMES = _BATCH = r"(b|bs|bsz|n|batch|batch_size|bsize|nbatch|batches|lot|lote|lotto|stapel|pi)"
_TOKENS = (
    r"(t|l|s|n|seq|seq_len|seqlen|seq_length|tokens|num_tokens|length|tgt_len|src_len|len|sequence|time|steps|frames|"
    r"longueur|longitud|laenge|comprimento|lunghezza|chang)"
)
_TOKENS_FIRST = (
    rf"(?i)\b(?!n\b){_TOKENS}\s*,\s*{_BATCH}\s*,\s*\w+\s*=\s*\w+\.(shape|size\(\))",
    rf"(?i)\(\s*(?!n\b){_TOKENS}\s*,\s*{_BATCH}\s*,\s*[\w ]+\)",
    r"(?i)batch_first\s*=\s*False|\b(tokens?|seq(uence)?|time)[- _]first\b",
)
BATCH_FIRST = (
    rf"(?i)\b{_BATCH}\s*,\s*(?!b\b){_TOKENS}\s*,\s*\w+\s*=\s*\w+\.(shape|size\(\))",
    rf"(?i)\(\s*{_BATCH}\s*,\s*(?!b\b){_TOKENS}\s*,\s*[\w ]+\)",
    r"(?i)batch_first\s*=\s*True|\bbatch[- _]first\b(?!\s*=\s*False)",
    r"(?i)\(\s*\.\.\.\s*,\s*(?!b\b)" + _TOKENS + r"\s*,",
)
_DOCSTRING = r"\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|(?m:^\s*(?:\"[^\"\n]+\"|'[^'\n]+')\s*$)"
_HEADS = r"(n?h|(n|num)?_?heads?|kopf|koepfe|t[eê]tes?|cabezas?)"
_WITH_HEADS = {
    "heads apart": rf"(?i)[(\[]\s*{_BATCH}\s*,\s*{_HEADS}\s*,\s*\w+\s*,\s*\w+\s*[)\]]",
    "heads behind": rf"(?i)[(\[]\s*{_BATCH}\s*,\s*(?!b\b){_TOKENS}\w*\s*,\s*{_HEADS}\s*,\s*\w+\s*[)\]]",
}
_LENGTHS = r"[TSLMN]|[TSL]_?[qk]|(?:q|k|kv|tgt|src|key|query|target|source)_?len|len_?(?:q|k|kv)|seq_?[qk]"
_LENGTH = rf"(?i)[(\[]\s*{_BATCH}\s*,(?:\s*{_HEADS}\s*,)?\s*(?-i:({_LENGTHS}))\s*,\s*\w+\s*[)\]]"
_OTHER_LENGTH = r"(?i)cross[- _]?att|(kv|src|key|source)_?len|len(gth)?_(kv|k\b|src|key|source)"
# Does the text speak of positions?
names_positions = re.compile(
    r"(?i)rotary|rope\b|rotat|freq|theta|alibi|slope|relati[vf]|rel_|_rel\b|position|distan[cz]|bias_table|"
    r"pos_(bias|emb)|wzgl[eę]dn|odleg|abstand|posici|posiz|posi[cç]|pozyc|konum"
).search
# Does a text say that no token sees a later one?
says_no_future = re.compile(
    r"(?i)\b(never|nor|not|cannot|can't)( (to|see|sees|look|looks|attend|attends|at|into|anything|use|uses|in|of))*"
    r" (the |any |its )?future\b(?! (is|tokens? (is|are)) (hidden|masked))"
).search
names_rotary = re.compile(r"(?i)rotary|\brope|_rope|rotate|rotat").search
names_window = re.compile(r"(?i)window|sliding|local|\bband|span").search
_POSITION_NAMES = (
    r"(?i)rotary|\brope|_rope|rotate_half|freqs_cis|alibi|slopes|rel(ative)?_?(pos|bias|att|key|emb)|pos(ition)?_?bias"
)
# Does the text speak of a mask with one number for each token of each text?
_OF_TOKENS = rf"\W.{{0,40}}\(\s*{_BATCH}\s*,\s*(?!b\b){_TOKENS}\s*\)"
_SEES = (
    r"((may|can)(?!\s*(not|never))|visible|see|keep|kept|allow|attend|look|valid|real|show"
    r"|word|palabra|palavra|echt|wort\b|mots?\b|vrai"
    r"|réel|настоящ|реальн|слово|you ?xiao|v[áà]lid|neighbou?r|connected|not\s+(a\s+)?pad|non-?pad|no\s+pad)"
)
_NOT = (
    r"(hid|mask(ed)?\b|not(?!\s+(a\s+)?pad)|never|cannot|can't|ignore|pad|future|forbid|block|relleno|preenchimento"
    r"|remplissage|füll|auffüll|riempi|дополн|заполн|tian ?chong|hu ?lue|opvul)"
)
_DIGIT = r"(?<![\w.])"  # before it: not the 0 of 1.0
_IS = (
    r"(?:\s*(=|:|→|->|means?|marks?|is|are|where|for|if|at|when|on|en|em|bei|wenn|si|se|là où|для)\s*"
    r"|(?<=[,;:] [01])\s+[-–—]\s+(?!\w*mask))((?!\d|(zeros?|ones?|true|false)\b)\w+\s+){0,6}?<?"
)
_NEGATIVE = r"(?i)negative|-\s*inf|−|-1e|-\d{2,}|minus"  # what an added mask has where it hides
# Queries, keys and values in the languages of the people who write them.
QKV_WORDS = {
    "q": r"x?q|query|queries|consultas?|requetes?|an?fragen?|abfragen?|zapytani\w*|zapros\w*|sorgu\w*|interrogazion\w*"
    r"|domand[ae]|vraag|vragen|cha_?xun",
    "k": r"x?k|keys?|claves?|chaves?|cles?|schluessel|chiav[ie]|klucz\w*|kl[yj]?uch\w*|anahtar\w*|sleutels?|jian",
    "v": r"x?v|values?|valor(es|i|e)?|valeurs?|werte?|wartosc\w*|znacheni\w*|deger\w*|waarden?|zhi",
}
# Arguments of attention that is written as a function.
_ROLES = {
    **QKV_WORDS,
    "W_query": r"(w|[wpm]_|weights?_?)(q|query|queries)|(q|query)_(w|weights?|proj|matrix)|to_q",
    "W_key": r"(w|[wpm]_|weights?_?)(k|keys?)|(k|key)_(w|weights?|proj|matrix)|to_k",
    "W_value": r"(w|[wpm]_|weights?_?)(v|values?)|(v|value)_(w|weights?|proj|matrix)|to_v",
    "out_proj": r"(w|[wpm]_|weights?_?)(o|out|output)|out_proj|(o|out)_(w|weights?|proj|matrix)|to_out|c_proj",
    "qkv": r"c_attn|(w_?|weights?_?)qkv|qkv_(w|weights?)",  # the three projections in one
    "x": r"x|inputs?|embeddings?|tokens?|hidden_states?|seq|embs?",
    "source": r"(?-i:M)|memory|context|source|enc_\w+",  # of keys and values, beside x and weights
    "params": r"p|params?|parameters|weights|theta",  # a dict of the four weights
}
_IS_ATTENTION = (
    r"att(n|ention|end)|simplified|context|mha|multi_?head|atenci?[oó]n|aten[cç][aã]o|aufmerk|attenz|zhu_?yi|chuui|"
    r"uwaga|dikkat|внимани|注意"
)


def own_text(source: str, name: str) -> str:
    """The text of a class or function with the comments above it; all of the file where it is not found.

    >>> len(own_text(chr(10).join(["x = 1", "# (T, B, E)", "class A: ...", "class B: ..."]), "A"))
    24
    """
    try:
        nodes = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _short(source)
    lines, start = source.splitlines(), 0
    for node in nodes:
        targets = getattr(node, "targets", [node])  # name = lambda x: …
        if any(getattr(one, "id", getattr(one, "name", "")) == name for one in targets):
            return _short("\n".join(lines[start : node.end_lineno]))
        start = node.end_lineno or start
    return _short(source)


def _short(text: str) -> str:
    lines = (line.replace("'''", '"""') for line in text.splitlines()[:_MOST_LINES])  # one kind of docstring
    return "\n".join(line for line in lines if len(line) <= LONGEST_LINE)


def stated(source: str, name: str) -> str:
    """What code says of itself: the name of a class or function, its docstrings and its comments.

    >>> stated("class Unscaled:  # on purpose", "Unscaled").split(chr(10))
    ['Unscaled', ' on purpose']
    """
    text = own_text(source, name)
    comments = [line.partition("#")[2] for line in text.splitlines() if "#" in line]
    return "\n".join([name, *re.findall(_DOCSTRING, text), *comments])


def stated_of(source: str, name: str, argument: str) -> str:
    """The same, and what functions say that it calls with an argument of this name."""
    helpers = [one for one in re.findall(rf"(?m)^def (\w+)\([^)]*\b{re.escape(argument)}\b", source) if one != name]
    called = [one for one in helpers if re.search(rf"\b{one}\(", own_text(source, name))]
    return "\n".join(stated(source, one) for one in (name, *called))


def is_tokens_first(source: str, contents: Mapping[str, Any]) -> bool:
    """Does anything say that x is (T, B, width)? A batch axis that is second by mistake says nothing, or the opposite.

    >>> is_tokens_first("T, B, E = x.shape", {}), is_tokens_first("B, T, E = x.shape", {})
    (True, False)
    """
    if any(re.search(pattern, source) for pattern in _TOKENS_FIRST):
        return True
    if contents.get("attributes", {}).get("batch_first") is False:
        return True
    inside = any(one["name"] == "MultiheadAttention" for one in contents.get("inside", ()))
    return inside and not any(re.search(pattern, source) for pattern in BATCH_FIRST)


def says_tokens_first(source: str, name: str = "x") -> bool:
    """Does a docstring say that x is (T, B, width), and nothing the opposite? name: what the argument is called.

    >>> says_tokens_first("'x: (seq_len, batch, d_model)'"), says_tokens_first("'torch wants (L, N, E)'")
    (True, False)
    """
    said, of_x = "\n".join(re.findall(_DOCSTRING, source)), rf"(?i)\b({re.escape(name)}|inputs?)\b[^.\n]{{0,24}}"
    is_said = re.search(of_x + _TOKENS_FIRST[1].removeprefix("(?i)"), said) is not None
    unpacked = re.search(rf"(?i){_TOKENS},\s*{_BATCH},\s*\w+\s*=\s*{re.escape(name)}\.(shape|size\(\))", source)
    is_said |= unpacked is not None and min(map(len, unpacked.group(1, 2))) > 2
    return is_said and not is_batch_first(source) and not re.search(r"\(\s*(0,\s*1|1,\s*0)\b", source)


def is_batch_first(source: str) -> bool:
    """Does anything say that x is (B, T, width)?

    >>> is_batch_first("B, T, E = x.shape"), is_batch_first("T, E = x.shape")
    (True, False)
    """
    return any(re.search(pattern, source) for pattern in BATCH_FIRST)


def layouts_of_heads(source: str) -> list[str]:
    """How a function says that it takes heads: apart, (B, H, T, D), or behind the tokens, (B, T, H, D); else both.

    >>> layouts_of_heads("'q: (B, T, n_heads, d)'"), layouts_of_heads("def attention(q, k, v): ...")
    (['heads behind'], ['heads apart', 'heads behind'])
    """
    said = "\n".join((*re.findall(_DOCSTRING, source), *re.findall(r"\)[^\n]*:[ \t]*(#.*(?:\n\s*#.*)*)", source)[:1]))
    said = re.sub(r"(?i)\breturns?\b[^\n]*|(->|→)\s*\([^)]*\)", "", said)
    places = {layout: found.start() for layout, pattern in _WITH_HEADS.items() if (found := re.search(pattern, said))}
    return sorted(places, key=places.__getitem__) or list(_WITH_HEADS)


def names_two_lengths(source: str) -> bool:
    """Do words or shapes say that keys may be more or fewer than queries?

    >>> names_two_lengths("# q (B, T, D), k (B, S, D)"), names_two_lengths("# q, k, v: (B, T, D)")
    (True, False)
    """
    lengths = {found[-1] for found in re.findall(_LENGTH, stated(source, ""))}
    return len(lengths) > 1 or re.search(_OTHER_LENGTH, source) is not None


def has_positions(source: str) -> bool:
    """Is something in the code named after a kind of positions inside attention? A comment is not enough.

    >>> has_positions("q = apply_rotary(q)"), has_positions("# no rotary positions here")
    (True, False)
    """
    return any(re.search(_POSITION_NAMES, line.partition("#")[0]) for line in source.splitlines())


def has_window(source: str) -> bool:
    """Is something in the code named after a window?"""
    return any(names_window(line.partition("#")[0]) for line in source.splitlines())


def with_functions(source: str, name: str) -> str:
    """The text of a class or function, with that of the functions of the file that it calls."""
    text = own_text(source, name)
    called = set(re.findall(r"\b(\w+)\(", text))
    defined = re.findall(r"(?m)^def (\w+)", source)
    return "\n".join([text, *(own_text(source, one) for one in defined if one in called - {name})])


def with_header(source: str, text: str) -> str:
    """The text of a class or function with the comments and the docstring at the top of its file.

    >>> with_header("# mask: 1 = real" + chr(10) + "import torch", "class A: ...").splitlines()
    ['# mask: 1 = real', 'class A: ...']
    """
    header = re.match(r'(\s*#[^\n]*\n|\s*\n|\s*"""[\s\S]*?""")*', source)
    top = header[0] if header else ""
    return text if top.strip() in text else f"{_short(top)}\n{text}"


def names_a_mask_of_tokens(source: str, name: str = "mask") -> bool:
    """Does a comment or docstring speak of a mask (B, T)? name: what the argument is called.

    >>> names_a_mask_of_tokens("# attention_mask: (batch, seq), 1 = real"), names_a_mask_of_tokens("# mask (T, T)")
    (True, False)
    """
    return re.search(rf"(?i)(mask\w*|\b{re.escape(name)}`*){_OF_TOKENS}", source) is not None


def mask_shows(source: str, name: str = "mask") -> bool | None:
    """What a mask that is passed means by 1 or True, as a comment or docstring says it: visible; None where none does.

    name: what the argument is called.

    >>> mask_shows("# mask: 1 = may look, 0 = hidden"), mask_shows("# True = hidden"), mask_shows("x = 1")
    (True, False, None)
    """
    said = set()
    comments = [line.partition("#")[2] for line in source.splitlines()]
    docstrings = [line for part in source.split('"""')[1::2] for line in part.splitlines()]
    for text in (*comments, *docstrings):
        if not any(word in text.lower() for word in ("mask", "true", name.lower())):
            continue
        for word, meaning in (
            (rf"{_DIGIT}(1(\.0)?|true|ones?)\b", True),
            (rf"{_DIGIT}(0(\.0)?|false|zeros?)\b", False),
        ):
            # "True = not allowed": of words for both, the first one counts.
            if found := re.search(rf"(?i){word}{_IS}(?:(?P<hides>{_NOT})|{_SEES})", text):
                if found["hides"] is None and not meaning and re.search(_NEGATIVE, text):
                    return None  # 0 where a token is seen, and −∞ where not: it is added
                said.add(meaning if found["hides"] is None else not meaning)
    return said.pop() if len(said) == 1 else None


def is_known(name: str, arguments: Sequence[str]) -> bool:
    """Can a function of this name and these arguments be checked?"""
    return small_kind(name, arguments) != "" or attention_roles(arguments, name) is not None


def small_kind(name: str, arguments: Sequence[str]) -> str:
    """softmax, mask, split or merge, by the name of a function; "" for others."""
    name = name.lower()
    if "softmax" in name and len(arguments) in (1, 2) and not re.search(r"mask|valid|len", "".join(arguments[1:])):
        return "softmax"
    if "mask" in name and 1 <= len(arguments) <= 2 and not re.search(r"apply|fill|attention|softmax|pad", name):
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
    if "x" not in roles.values() or set(QKV) & set(roles.values()):
        roles = {name: role for name, role in roles.items() if role != "params"}
    if not {"x", *QKV} <= set(roles.values()):
        roles = {name: role for name, role in roles.items() if role != "source"}
    given = set(roles.values())
    is_attention = is_named_attention(function) or re.search(_IS_ATTENTION, function, re.IGNORECASE)
    if (
        {"q", "k", "v"} <= given
        or {"x", *QKV} <= given
        or {"x", "qkv"} <= given
        or (given in ({"x"}, {"x", "params"}) and is_attention)
    ):
        return roles
    return None
