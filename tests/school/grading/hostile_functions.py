"""Functions that attack the grader where a class is graded by a teacher's own exercise. All are wrong."""

from __future__ import annotations

from school.grading.hostile_layers import FORGED, TEXT
from school.grading.submissions import RIGHT

EXERCISE = """'Scale the scores, and use them.'
import torch
from regard.school.exercises import Function, Layer, Wrong

parts = [
    Function(
        "scale",
        lambda random: (torch.randn(2, 5, 5, generator=random), 7),
        right=lambda scores, head_dim: scores / head_dim**0.5,
        wrong=[
            Wrong("missing root", "It is √{1}.", lambda scores, D: scores / D),
            Wrong("fails so", "So.", raises="so"),
        ],
    ),
    Layer("CausalAttention", causal=True),
]
"""
RIGHT_SCALE = "\ndef scale(scores, head_dim):\n    return scores / head_dim**0.5\n"
FORGED_CALL = FORGED.replace('"run"', '"call_by_name"')


def function(out: str, top: str = "", after: str = "") -> str:
    """A right layer, and a scale that returns something else."""
    return f"{RIGHT}\n{top}\ndef scale(s, d):\n    return {out}\n{after}\n"


FUNCTIONS = {
    **{
        f"function: {what}": function(out)
        for what, out in {
            "no root": "s / d",
            "NaN": "s * float('nan')",
            "infinity": "s + float('inf')",
            "nothing": "None",
            "an empty tensor": "s[:0]",
            "a number": "0.5",
            "a complex number": "1j",
            "complex": "(s / d**0.5) + 1j",
            "booleans": "s > 0",
            "a subclass": "s.as_subclass(type('T', (torch.Tensor,), {'__eq__': lambda *a: True}))",
            "a text": f"'{TEXT}'",
            "a dict": f"{{'{TEXT}': 7, 3: [s]}}",
            "a dict by lists": "{(1, 2): s, None: 7}",
            "an object that equals all": "type('E', (), {'__eq__': lambda *a: True, '__float__': lambda s: 1.0})()",
            "a hostile type": f"type('{TEXT}'.replace(chr(0xdcff), ''), (), {{}})()",
            "a list in itself": "(lambda a: a.append(a) or a)([])",
            "a list without end": "type('L', (list,), {'__iter__': lambda s: __import__('itertools').repeat(1)})()",
            "a million numbers": "[1] * 10**6",
            "10^9 numbers by expand": "torch.zeros(1).expand(10**9)",
            "meta": "s.to('meta')",
            "sparse": "s.to_sparse()",
            "float8": "s.to(torch.float8_e4m3fn)",
            "a huge whole number": "10**5000",
            "guesses": "s / d, s / d**0.5",
            "a number that lies": "type('F', (float,), {'__repr__': lambda s: 1 / 0, '__abs__': lambda s: 0.0})(7)",
            "an int that lies": "type('I', (int,), {'__abs__': lambda s: 0, '__int__': lambda s: 10**5000})(7)",
            "a text without end": "'x' * 10**8",
        }.items()
    },
    **{
        f"forged call: {what}": function("s", after=FORGED_CALL.replace("FORGERY", forgery))
        for what, forgery in {
            "a verdict": "seen = {'status': 'right'}",
            "nothing": "seen = None",
            "no calls": "seen['calls'] = []",
            "more calls": "seen['calls'] = seen.get('calls', []) * 4",
            "calls of no kind": "seen['calls'] = 7",
            "kinds": "seen['calls'] = [{'result': {'class': 'x'}}] * 3",
            "tensors": "seen['calls'] = [{'result': {'tensor': ['x']}}] * 3",
            "missing": "seen['missing'] = 'no'",
            "not callable": "seen['callable'] = []",
            "unhashable keys": "seen['calls'] = [{'result': {'dict': [[{'list': []}, {'value': 1}]]}}] * 3",
            "opaque": f"seen['calls'] = [{{'result': {{'opaque': '{TEXT}' * 9999}}}}] * 3",
            "a huge text": "seen['calls'] = [{'result': {'value': 'x' * 10**6}}] * 3",
            "many values": "seen['calls'] = [{'result': {'list': [{'value': 1}] * 60000}}] * 3",
            "NaN": "seen['calls'] = [{'result': {'value': float('nan')}}] * 3",
            "a failure": f"seen['calls'] = [{{'failed': {{'type': '{TEXT}', 'message': 'so {TEXT}', 'line': 3, "
            f"'function': ''}}}}]",
            "failures": "seen['calls'] = seen.get('calls', []) + [{'failed': {'type': 'E', 'message': '', 'line': 3, "
            "'function': ''}}]",
            "a failure of no kind": "seen['calls'] = [{'failed': {'type': 7}}]",
            "a line": "seen['calls'] = [{'failed': {'type': 'E', 'message': 'm', 'line': float('nan'), 'function': "
            "''}}]",
            "an empty message": "seen['calls'] = [{'failed': {'type': '', 'message': '', 'line': 0, 'function': ''}}]",
        }.items()
    },
}  # fmt: skip
