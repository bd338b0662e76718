import torch
import torch.nn as nn
import torch.nn.functional as F


class BertSelfAttention(nn.Module):
    """Bidirectional; the packed projection holds q, k, v of head 0, then of head 1, and so on."""

    def __init__(self, hidden_size, num_attention_heads):
        super().__init__()
        self.n = num_attention_heads
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states):
        b, s, h = hidden_states.shape
        mixed = self.query_key_value(hidden_states).view(b, s, self.n, 3 * (h // self.n))
        q, k, v = (t.transpose(1, 2) for t in mixed.chunk(3, dim=-1))
        ctx = F.scaled_dot_product_attention(q, k, v)
        return self.dense(ctx.transpose(1, 2).reshape(b, s, h))
