"""The ladder: attention from nothing, four short files, each the one before plus one idea. Read them in order.

1. simplified.py       dot products of the inputs themselves
2. self_attention.py   trainable queries, keys and values, and the scale
3. causal.py           no look at the future, and dropout
4. multi_head.py       several heads, and a projection that mixes them
"""

from regard.ladder.causal import CausalAttention, CausalSelfAttention
from regard.ladder.multi_head import MultiHeadAttention, MultiHeadAttentionWrapper
from regard.ladder.self_attention import SelfAttention
from regard.ladder.simplified import SENTENCE, VECTORS, attend_by_loops, simplified_attention
from regard.support.super_init import explain_in_subclasses

__all__ = [
    "SENTENCE",
    "VECTORS",
    "CausalAttention",
    "CausalSelfAttention",
    "MultiHeadAttention",
    "MultiHeadAttentionWrapper",
    "SelfAttention",
    "attend_by_loops",
    "simplified_attention",
]

# Here and not in the files above, so that these stay as short as what they show.
for _rung in (SelfAttention, CausalAttention, MultiHeadAttentionWrapper, MultiHeadAttention):
    explain_in_subclasses(_rung)
