"""Wrong layers whose mistakes have no name: what is checked must say so, and never give a name.

Each is (what it does, layer, edits, the step that differs first).
"""

from __future__ import annotations

UNKNOWN = [
    ("cosine of queries and keys", "einsum", [("q = self.to_q(x).reshape(B, T, H, D)", "q = F.normalize(self.to_q(x).reshape(B, T, H, D), dim=-1)")], "queries"),
    ("keys of length 1", "textbook", [("attn_scores = queries @", "keys = F.normalize(keys, dim=-1)\n        attn_scores = queries @")], "keys"),
    ("relu in place of softmax", "loop", [("torch.softmax(s, dim=-1)", "torch.relu(s)")], "weights"),
    ("sigmoid in place of softmax", "packed", [("F.softmax(att, dim=-1)", "torch.sigmoid(att)")], "weights"),
    ("softmax twice", "einsum", [("weights = scores.softmax(dim=-1)", "weights = scores.softmax(dim=-1).softmax(dim=-1)")], "weights"),
    ("residual added", "loop", [("return self.wo(joined)", "return self.wo(joined) + x")], "out"),
    ("projected twice", "fused", [("return self.out_proj(y)", "return self.out_proj(self.out_proj(y))")], "out"),
    ("distance subtracted from the scores", "einsum", [("scores = scores / math.sqrt(D)", "scores = scores / math.sqrt(D) - (torch.arange(T)[:, None] - torch.arange(T)).abs()")], "scaled"),
    ("temperature of 2", "textbook", [("self.head_dim**0.5", "(2 * self.head_dim**0.5)")], "scaled"),
    ("scale by the cube root", "loop", [("self.d_k**0.5", "self.d_k ** (1 / 3)")], "scaled"),
    ("tanh of the queries", "batched", [("q = self.divide(x @ self.query)", "q = self.divide(torch.tanh(x @ self.query))")], "queries"),
    ("values not projected", "loop", [("V = self.wv(x)", "V = x + 0 * self.wv(x)")], "values"),
    ("queries added to keys", "packed", [("q = q.view(", "k = k + q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)\n        q = q.view(")], "keys"),
    ("weights transposed", "einsum", [('"bhts,bshd->bthd", weights, v', '"bhst,bshd->bthd", weights, v')], "context"),
    ("heads in reverse order", "loop", [("torch.cat(contexts, dim=-1)", "torch.cat(contexts[::-1], dim=-1)")], "concat"),
    ("the last head left out", "einsum", [("out = out.reshape(B, T, H * D)", "out = (out * (torch.arange(H) < H - 1)[:, None]).reshape(B, T, H * D)")], "concat"),
    ("a window of two tokens", "loop", [(".triu(1)", ".triu(1) | torch.ones(T, T, dtype=torch.bool).tril(-2)")], "weights"),
    ("scores averaged over heads", "textbook", [("attn_scores = queries @ keys.transpose(2, 3)", "attn_scores = (queries @ keys.transpose(2, 3)).mean(1, keepdim=True).repeat(1, self.num_heads, 1, 1)")], "scores"),
    ("hidden by −1", "loop", [("-torch.inf", "-1.0")], "weights"),
    ("squared scores", "packed", [("att = (q @ k.transpose(-2, -1))", "att = (q @ k.transpose(-2, -1)).square()")], "scores"),
    ("layer norm of the output", "textbook", [("context_vec = self.out_proj(context_vec)", "context_vec = F.layer_norm(self.out_proj(context_vec), (self.d_out,))")], "out"),
    ("values shifted by a token", "loop", [("V = self.wv(x)", "V = self.wv(x).roll(1, dims=1)")], "values"),
    ("positions added to x", "loop", [("Q = self.wq(x)", "x = x + torch.arange(T, dtype=x.dtype)[:, None]\n        Q = self.wq(x)")], "queries"),
]
