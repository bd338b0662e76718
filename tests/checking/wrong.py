"""Right layers as text, and the edits that put one known mistake into each: the corpus of wrong layers.

Every layer is right as it stands. EDITS gives, for each mistake and layer, the text to replace and what with; the line
that the edit changes is the line that a check should find.
"""

from __future__ import annotations

HEADER = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"

TEXTBOOK = '''class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        assert d_out % num_heads == 0
        self.d_out = d_out
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))

    def forward(self, x):
        b, num_tokens, d_in = x.shape
        keys = self.W_key(x)
        queries = self.W_query(x)
        values = self.W_value(x)
        keys = keys.view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        values = values.view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        queries = queries.view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)
        attn_scores = queries @ keys.transpose(2, 3)
        mask_bool = self.mask.bool()[:num_tokens, :num_tokens]
        attn_scores.masked_fill_(mask_bool, -torch.inf)
        attn_weights = torch.softmax(attn_scores / self.head_dim**0.5, dim=-1)
        attn_weights = self.dropout(attn_weights)
        context_vec = (attn_weights @ values).transpose(1, 2)
        context_vec = context_vec.contiguous().view(b, num_tokens, self.d_out)
        context_vec = self.out_proj(context_vec)
        return context_vec
'''

PACKED = '''class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.resid_dropout = nn.Dropout(config.dropout)
        self.n_head = config.n_head
        self.n_embd = config.n_embd
        mask = torch.tril(torch.ones(config.block_size, config.block_size))
        self.register_buffer("bias", mask.view(1, 1, config.block_size, config.block_size))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.attn_dropout(att)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))
'''

EINSUM = '''class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads, max_len, dropout=0.1):
        super().__init__()
        self.num_heads = num_heads
        self.d_model = d_model
        self.to_q = nn.Linear(d_model, d_model, bias=False)
        self.to_k = nn.Linear(d_model, d_model, bias=False)
        self.to_v = nn.Linear(d_model, d_model, bias=False)
        self.to_out = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("allowed", torch.tril(torch.ones(max_len, max_len, dtype=torch.bool)))

    def forward(self, x):
        B, T, E = x.shape
        H, D = self.num_heads, E // self.num_heads
        q = self.to_q(x).reshape(B, T, H, D)
        k = self.to_k(x).reshape(B, T, H, D)
        v = self.to_v(x).reshape(B, T, H, D)
        scores = torch.einsum("bthd,bshd->bhts", q, k)
        scores = scores / math.sqrt(D)
        scores = torch.where(self.allowed[:T, :T], scores, torch.tensor(-1e30, dtype=x.dtype))
        weights = scores.softmax(dim=-1)
        weights = self.drop(weights)
        out = torch.einsum("bhts,bshd->bthd", weights, v)
        out = out.reshape(B, T, H * D)
        return self.to_out(out)
'''

LOOP = '''class MultiHead(nn.Module):
    def __init__(self, d_model, heads, block_size, p=0.0):
        super().__init__()
        self.heads, self.d_k = heads, d_model // heads
        self.wq = nn.Linear(d_model, d_model)
        self.wk = nn.Linear(d_model, d_model)
        self.wv = nn.Linear(d_model, d_model)
        self.wo = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(p)
        self.block_size = block_size

    def forward(self, x):
        B, T, E = x.shape
        Q = self.wq(x)
        K = self.wk(x)
        V = self.wv(x)
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        contexts = []
        for h in range(self.heads):
            part = slice(h * self.d_k, (h + 1) * self.d_k)
            s = Q[..., part] @ K[..., part].mT
            s = s / self.d_k**0.5
            s = s.masked_fill(future, -torch.inf)
            a = torch.softmax(s, dim=-1)
            a = self.drop(a)
            contexts.append(a @ V[..., part])
        joined = torch.cat(contexts, dim=-1)
        return self.wo(joined)
'''

BATCHED = '''class Attention(nn.Module):
    def __init__(self, embed_dim, n_heads, context_length, dropout=0.0):
        super().__init__()
        self.n_heads = n_heads
        self.head_size = embed_dim // n_heads
        self.dropout = dropout
        self.query = nn.Parameter(torch.randn(embed_dim, embed_dim) / embed_dim**0.5)
        self.key = nn.Parameter(torch.randn(embed_dim, embed_dim) / embed_dim**0.5)
        self.value = nn.Parameter(torch.randn(embed_dim, embed_dim) / embed_dim**0.5)
        self.proj = nn.Parameter(torch.randn(embed_dim, embed_dim) / embed_dim**0.5)
        self.register_buffer("mask", torch.full((context_length, context_length), float("-inf")).triu(1))

    def divide(self, t):
        B, T, E = t.shape
        t = t.view(B, T, self.n_heads, self.head_size).transpose(1, 2)
        return t.reshape(B * self.n_heads, T, self.head_size)

    def forward(self, x):
        B, T, E = x.shape
        q = self.divide(x @ self.query)
        k = self.divide(x @ self.key)
        v = self.divide(x @ self.value)
        q = q / math.sqrt(self.head_size)
        scores = torch.bmm(q, k.transpose(1, 2))
        scores = scores + self.mask[:T, :T]
        probs = torch.softmax(scores, dim=2)
        probs = F.dropout(probs, self.dropout, self.training)
        y = torch.bmm(probs, v).view(B, self.n_heads, T, self.head_size)
        y = y.transpose(1, 2).reshape(B, T, E)
        return y @ self.proj
'''

FUSED = '''class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.context_length = context_length
        self.p = dropout
        self.q_proj = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.k_proj = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.v_proj = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)

    def split_heads(self, t):
        B, T, E = t.shape
        t = t.view(B, T, self.num_heads, self.head_dim)
        return t.transpose(1, 2)

    def forward(self, x):
        B, T, _ = x.shape
        if T > self.context_length:
            raise ValueError(f"{T} tokens do not fit")
        q = self.split_heads(self.q_proj(x))
        k = self.split_heads(self.k_proj(x))
        v = self.split_heads(self.v_proj(x))
        p = self.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        y = y.transpose(1, 2).flatten(2)
        return self.out_proj(y)
'''

BASES = {
    "textbook": TEXTBOOK,
    "packed": PACKED,
    "einsum": EINSUM,
    "loop": LOOP,
    "batched": BATCHED,
    "fused": FUSED,
}

# mistake → layer → (text, what it becomes). Several edits of one layer are a list.
EDITS = {
    "split without transpose": {
        "textbook": [
            ("keys.view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)", "keys.view(b, self.num_heads, num_tokens, self.head_dim)"),
            ("values.view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)", "values.view(b, self.num_heads, num_tokens, self.head_dim)"),
            ("queries.view(b, num_tokens, self.num_heads, self.head_dim).transpose(1, 2)", "queries.view(b, self.num_heads, num_tokens, self.head_dim)"),
        ],
        "packed": [
            ("k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)", "k.reshape(B, self.n_head, T, C // self.n_head)"),
            ("q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)", "q.reshape(B, self.n_head, T, C // self.n_head)"),
            ("v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)", "v.reshape(B, self.n_head, T, C // self.n_head)"),
        ],
        "einsum": [
            ("self.to_q(x).reshape(B, T, H, D)", "self.to_q(x).reshape(B, H, T, D).transpose(1, 2)"),
            ("self.to_k(x).reshape(B, T, H, D)", "self.to_k(x).reshape(B, H, T, D).transpose(1, 2)"),
            ("self.to_v(x).reshape(B, T, H, D)", "self.to_v(x).reshape(B, H, T, D).transpose(1, 2)"),
        ],
        "batched": [("t.view(B, T, self.n_heads, self.head_size).transpose(1, 2)", "t.view(B, self.n_heads, T, self.head_size)")],
        "fused": [
            ("t = t.view(B, T, self.num_heads, self.head_dim)", "t = t.view(B, self.num_heads, T, self.head_dim)"),
            ("return t.transpose(1, 2)", "return t"),
        ],
    },
    "merge without transposing back": {
        "textbook": [("(attn_weights @ values).transpose(1, 2)", "attn_weights @ values")],
        "packed": [("y.transpose(1, 2).contiguous().view(B, T, C)", "y.contiguous().view(B, T, C)")],
        "einsum": [('"bhts,bshd->bthd"', '"bhts,bshd->bhtd"')],
        "batched": [("y.transpose(1, 2).reshape(B, T, E)", "y.reshape(B, T, E)")],
        "fused": [("y.transpose(1, 2).flatten(2)", "y.reshape(B, T, -1)")],
    },
    "reshape that hides a wrong merge": {
        "textbook": [
            ("(attn_weights @ values).transpose(1, 2)", "(attn_weights @ values).permute(0, 2, 3, 1)"),
            ("context_vec.contiguous().view(", "context_vec.reshape("),
        ],
        "packed": [("y.transpose(1, 2).contiguous().view(B, T, C)", "y.permute(0, 2, 3, 1).reshape(B, T, C)")],
        "einsum": [('"bhts,bshd->bthd"', '"bhts,bshd->btdh"')],
        "loop": [("torch.cat(contexts, dim=-1)", "torch.stack(contexts, dim=-1).reshape(B, T, E)")],
        "batched": [("y.transpose(1, 2).reshape(B, T, E)", "y.permute(0, 2, 3, 1).reshape(B, T, E)")],
        "fused": [("y.transpose(1, 2).flatten(2)", "y.transpose(2, 3).reshape(B, T, -1)")],
    },
    "scale by √d_model": {
        "textbook": [("self.head_dim**0.5", "self.d_out**0.5")],
        "packed": [("math.sqrt(k.size(-1))", "math.sqrt(C)")],
        "einsum": [("math.sqrt(D)", "math.sqrt(self.d_model)")],
        "loop": [("self.d_k**0.5", "E**0.5")],
        "batched": [("math.sqrt(self.head_size)", "math.sqrt(E)")],
        "fused": [("is_causal=True)", "is_causal=True, scale=(self.num_heads * self.head_dim) ** -0.5)")],
    },
    "scale inverted": {
        "textbook": [("attn_scores / self.head_dim**0.5", "attn_scores * self.head_dim**0.5")],
        "packed": [("(1.0 / math.sqrt(k.size(-1)))", "math.sqrt(k.size(-1))")],
        "einsum": [("scores / math.sqrt(D)", "scores * math.sqrt(D)")],
        "loop": [("s / self.d_k**0.5", "s * self.d_k**0.5")],
        "batched": [("q / math.sqrt(self.head_size)", "q * math.sqrt(self.head_size)")],
        "fused": [("is_causal=True)", "is_causal=True, scale=self.head_dim**0.5)")],
    },
    "no scale": {
        "textbook": [("attn_scores / self.head_dim**0.5", "attn_scores")],
        "packed": [(" * (1.0 / math.sqrt(k.size(-1)))", "")],
        "einsum": [("        scores = scores / math.sqrt(D)\n", "")],
        "loop": [("            s = s / self.d_k**0.5\n", "")],
        "batched": [("        q = q / math.sqrt(self.head_size)\n", "")],
        "fused": [("is_causal=True)", "is_causal=True, scale=1.0)")],
    },
    "missing root": {
        "textbook": [("self.head_dim**0.5", "self.head_dim")],
        "packed": [("math.sqrt(k.size(-1))", "k.size(-1)")],
        "einsum": [("math.sqrt(D)", "D")],
        "loop": [("self.d_k**0.5", "self.d_k")],
        "batched": [("math.sqrt(self.head_size)", "self.head_size")],
        "fused": [("is_causal=True)", "is_causal=True, scale=1 / self.head_dim)")],
    },
    "softmax over the queries": {
        "textbook": [("dim=-1)", "dim=-2)")],
        "packed": [("F.softmax(att, dim=-1)", "F.softmax(att, dim=-2)")],
        "einsum": [("softmax(dim=-1)", "softmax(dim=2)")],
        "loop": [("torch.softmax(s, dim=-1)", "torch.softmax(s, dim=1)")],
        "batched": [("dim=2)", "dim=1)")],
    },
    "softmax over the heads": {
        "textbook": [("dim=-1)", "dim=1)")],
        "packed": [("F.softmax(att, dim=-1)", "F.softmax(att, dim=1)")],
        "einsum": [("softmax(dim=-1)", "softmax(dim=1)")],
        "loop": [
            ("            a = torch.softmax(s, dim=-1)\n            a = self.drop(a)\n            contexts.append(a @ V[..., part])\n        joined = torch.cat(contexts, dim=-1)\n",
             "            contexts.append(s)\n        A = torch.softmax(torch.stack(contexts), dim=0)\n        A = self.drop(A)\n        joined = torch.cat([A[h] @ V[..., h * self.d_k : (h + 1) * self.d_k] for h in range(self.heads)], dim=-1)\n"),
        ],
        "batched": [("torch.softmax(scores, dim=2)", "torch.softmax(scores.view(B, -1, T, T), dim=1).flatten(0, 1)")],
    },
    "softmax over the batch": {
        "textbook": [("dim=-1)", "dim=0)")],
        "packed": [("F.softmax(att, dim=-1)", "F.softmax(att, dim=0)")],
        "einsum": [("softmax(dim=-1)", "softmax(dim=0)")],
        "loop": [("torch.softmax(s, dim=-1)", "torch.softmax(s, dim=0)")],
        "batched": [("torch.softmax(scores, dim=2)", "torch.softmax(scores.view(B, -1, T, T), dim=0).flatten(0, 1)")],
    },
    "mask after softmax without renormalising": {
        "textbook": [
            ("        attn_scores.masked_fill_(mask_bool, -torch.inf)\n", ""),
            ("torch.softmax(attn_scores / self.head_dim**0.5, dim=-1)", "torch.softmax(attn_scores / self.head_dim**0.5, dim=-1).masked_fill(mask_bool, 0)"),
        ],
        "packed": [
            ('        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))\n', ""),
            ("F.softmax(att, dim=-1)", "F.softmax(att, dim=-1) * self.bias[:, :, :T, :T]"),
        ],
        "einsum": [
            ("        scores = torch.where(self.allowed[:T, :T], scores, torch.tensor(-1e30, dtype=x.dtype))\n", ""),
            ("scores.softmax(dim=-1)", "scores.softmax(dim=-1).tril()"),
        ],
        "loop": [("            s = s.masked_fill(future, -torch.inf)\n", ""), ("torch.softmax(s, dim=-1)", "torch.softmax(s, dim=-1).masked_fill(future, 0)")],
        "batched": [("        scores = scores + self.mask[:T, :T]\n", ""), ("torch.softmax(scores, dim=2)", "torch.softmax(scores, dim=2) * (self.mask[:T, :T] == 0)")],
    },
    "wrong sign of infinity": {
        "textbook": [("-torch.inf", "torch.inf")],
        "packed": [('float("-inf")', 'float("inf")')],
        "einsum": [("-1e30", "1e30")],
        "loop": [("-torch.inf", "torch.inf")],
        "batched": [("scores + self.mask[:T, :T]", "scores - self.mask[:T, :T]")],
    },
    "mask polarity inverted": {
        "textbook": [("masked_fill_(mask_bool, -torch.inf)", "masked_fill_(~mask_bool, -torch.inf)")],
        "packed": [("[:, :, :T, :T] == 0", "[:, :, :T, :T] == 1")],
        "einsum": [("torch.where(self.allowed[:T, :T],", "torch.where(~self.allowed[:T, :T],")],
        "loop": [("masked_fill(future, -torch.inf)", "masked_fill(~future, -torch.inf)")],
        "fused": [("is_causal=True)", "attn_mask=torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1))")],
    },
    "mask off by one: the token itself hidden": {
        "textbook": [("diagonal=1)", "diagonal=0)")],
        "packed": [("torch.tril(torch.ones(config.block_size, config.block_size))", "torch.tril(torch.ones(config.block_size, config.block_size), diagonal=-1)")],
        "einsum": [("torch.tril(torch.ones(max_len, max_len, dtype=torch.bool))", "torch.tril(torch.ones(max_len, max_len, dtype=torch.bool), -1)")],
        "loop": [(".triu(1)", ".triu()")],
        "batched": [(".triu(1)", ".triu()")],
        "fused": [("is_causal=True)", "attn_mask=torch.ones(T, T, dtype=torch.bool, device=x.device).tril(-1))")],
    },
    "mask off by one: one future token seen": {
        "textbook": [("diagonal=1)", "diagonal=2)")],
        "packed": [("torch.tril(torch.ones(config.block_size, config.block_size))", "torch.tril(torch.ones(config.block_size, config.block_size), diagonal=1)")],
        "einsum": [("torch.tril(torch.ones(max_len, max_len, dtype=torch.bool))", "torch.tril(torch.ones(max_len, max_len, dtype=torch.bool), 1)")],
        "loop": [(".triu(1)", ".triu(2)")],
        "batched": [(".triu(1)", ".triu(2)")],
        "fused": [("is_causal=True)", "attn_mask=torch.ones(T, T, dtype=torch.bool, device=x.device).tril(1))")],
    },
    "no causal mask": {
        "textbook": [("        attn_scores.masked_fill_(mask_bool, -torch.inf)\n", "")],
        "packed": [('        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))\n', "")],
        "einsum": [("        scores = torch.where(self.allowed[:T, :T], scores, torch.tensor(-1e30, dtype=x.dtype))\n", "")],
        "loop": [("            s = s.masked_fill(future, -torch.inf)\n", "")],
        "batched": [("        scores = scores + self.mask[:T, :T]\n", "")],
        "fused": [(", is_causal=True)", ")")],
    },
    "unused output projection": {
        "textbook": [("        context_vec = self.out_proj(context_vec)\n", "")],
        "packed": [("self.resid_dropout(self.c_proj(y))", "self.resid_dropout(y)")],
        "einsum": [("return self.to_out(out)", "return out")],
        "loop": [("return self.wo(joined)", "return joined")],
        "batched": [("return y @ self.proj", "return y")],
        "fused": [("return self.out_proj(y)", "return y")],
    },
    "heads averaged instead of concatenated": {
        "textbook": [
            ("nn.Linear(d_out, d_out)", "nn.Linear(d_out // num_heads, d_out)"),
            ("(attn_weights @ values).transpose(1, 2)", "(attn_weights @ values).mean(dim=1)"),
            ("        context_vec = context_vec.contiguous().view(b, num_tokens, self.d_out)\n", ""),
        ],
        "packed": [
            ("nn.Linear(config.n_embd, config.n_embd)", "nn.Linear(config.n_embd // config.n_head, config.n_embd)"),
            ("y.transpose(1, 2).contiguous().view(B, T, C)", "y.mean(1)"),
        ],
        "einsum": [("self.to_out = nn.Linear(d_model, d_model)", "self.to_out = nn.Linear(d_model // num_heads, d_model)"), ("out.reshape(B, T, H * D)", "out.mean(dim=2)")],
        "loop": [("self.wo = nn.Linear(d_model, d_model)", "self.wo = nn.Linear(self.d_k, d_model)"), ("torch.cat(contexts, dim=-1)", "torch.stack(contexts).mean(0)")],
        "batched": [("self.proj = nn.Parameter(torch.randn(embed_dim, embed_dim)", "self.proj = nn.Parameter(torch.randn(embed_dim // n_heads, embed_dim)"), ("y.transpose(1, 2).reshape(B, T, E)", "y.mean(1)")],
        "fused": [("self.out_proj = nn.Linear(d_out, d_out)", "self.out_proj = nn.Linear(self.head_dim, d_out)"), ("y.transpose(1, 2).flatten(2)", "y.mean(1)")],
    },
    "q, k, v swapped": {
        "textbook": [("keys = self.W_key(x)", "keys = self.W_query(x)"), ("queries = self.W_query(x)", "queries = self.W_key(x)")],
        "einsum": [("k = self.to_k(x)", "k = self.to_v(x)"), ("v = self.to_v(x)", "v = self.to_k(x)")],
        "loop": [("Q[..., part] @ K[..., part].mT", "K[..., part] @ Q[..., part].mT")],
        "batched": [("q = self.divide(x @ self.query)", "q = self.divide(x @ self.value)"), ("v = self.divide(x @ self.value)", "v = self.divide(x @ self.query)")],
        "fused": [("(q, k, v, dropout_p=p", "(k, q, v, dropout_p=p")],
    },
    "transposed weights": {
        "textbook": [("self.W_query(x)", "x @ self.W_query.weight"), ("self.W_key(x)", "x @ self.W_key.weight"), ("self.W_value(x)", "x @ self.W_value.weight")],
        "einsum": [("self.to_q(x)", "(x @ self.to_q.weight)"), ("self.to_k(x)", "(x @ self.to_k.weight)"), ("self.to_v(x)", "(x @ self.to_v.weight)")],
        "loop": [("self.wq(x)", "x @ self.wq.weight + self.wq.bias"), ("self.wk(x)", "x @ self.wk.weight + self.wk.bias"), ("self.wv(x)", "x @ self.wv.weight + self.wv.bias")],
        "fused": [("self.q_proj(x)", "F.linear(x, self.q_proj.weight.T)"), ("self.k_proj(x)", "F.linear(x, self.k_proj.weight.T)"), ("self.v_proj(x)", "F.linear(x, self.v_proj.weight.T)")],
    },
    "embedding split before projection": {
        "textbook": [
            ("self.W_query = nn.Linear(d_in, d_out,", "self.W_query = nn.Linear(self.head_dim, self.head_dim,"),
            ("self.W_key = nn.Linear(d_in, d_out,", "self.W_key = nn.Linear(self.head_dim, self.head_dim,"),
            ("self.W_value = nn.Linear(d_in, d_out,", "self.W_value = nn.Linear(self.head_dim, self.head_dim,"),
            ("keys = self.W_key(x)", "x = x.view(b, num_tokens, self.num_heads, self.head_dim)\n        keys = self.W_key(x)"),
        ],
        "einsum": [
            ("self.to_q = nn.Linear(d_model, d_model,", "self.to_q = nn.Linear(d_model // num_heads, d_model // num_heads,"),
            ("self.to_k = nn.Linear(d_model, d_model,", "self.to_k = nn.Linear(d_model // num_heads, d_model // num_heads,"),
            ("self.to_v = nn.Linear(d_model, d_model,", "self.to_v = nn.Linear(d_model // num_heads, d_model // num_heads,"),
            ("self.to_q(x).reshape(B, T, H, D)", "self.to_q(x.view(B, T, H, D))"),
            ("self.to_k(x).reshape(B, T, H, D)", "self.to_k(x.view(B, T, H, D))"),
            ("self.to_v(x).reshape(B, T, H, D)", "self.to_v(x.view(B, T, H, D))"),
        ],
        "batched": [
            ("self.query = nn.Parameter(torch.randn(embed_dim, embed_dim)", "self.query = nn.Parameter(torch.randn(self.head_size, self.head_size)"),
            ("self.key = nn.Parameter(torch.randn(embed_dim, embed_dim)", "self.key = nn.Parameter(torch.randn(self.head_size, self.head_size)"),
            ("self.value = nn.Parameter(torch.randn(embed_dim, embed_dim)", "self.value = nn.Parameter(torch.randn(self.head_size, self.head_size)"),
            ("self.divide(x @ self.query)", "self.divide(x) @ self.query"),
            ("self.divide(x @ self.key)", "self.divide(x) @ self.key"),
            ("self.divide(x @ self.value)", "self.divide(x) @ self.value"),
        ],
        "fused": [
            ("self.q_proj = nn.Linear(d_in, d_out,", "self.q_proj = nn.Linear(self.head_dim, self.head_dim,"),
            ("self.k_proj = nn.Linear(d_in, d_out,", "self.k_proj = nn.Linear(self.head_dim, self.head_dim,"),
            ("self.v_proj = nn.Linear(d_in, d_out,", "self.v_proj = nn.Linear(self.head_dim, self.head_dim,"),
            ("self.split_heads(self.q_proj(x))", "self.q_proj(self.split_heads(x))"),
            ("self.split_heads(self.k_proj(x))", "self.k_proj(self.split_heads(x))"),
            ("self.split_heads(self.v_proj(x))", "self.v_proj(self.split_heads(x))"),
        ],
        "loop": [
            ("self.wq = nn.Linear(d_model, d_model)", "self.wq = nn.Linear(self.d_k, self.d_k)"),
            ("self.wk = nn.Linear(d_model, d_model)", "self.wk = nn.Linear(self.d_k, self.d_k)"),
            ("self.wv = nn.Linear(d_model, d_model)", "self.wv = nn.Linear(self.d_k, self.d_k)"),
            ("Q = self.wq(x)", "x = x.view(B, T, self.heads, self.d_k)\n        Q = self.wq(x).flatten(2)"),
            ("K = self.wk(x)", "K = self.wk(x).flatten(2)"),
            ("V = self.wv(x)", "V = self.wv(x).flatten(2)"),
        ],
    },
    "dropout active in eval": {
        "textbook": [("self.dropout(attn_weights)", "F.dropout(attn_weights, self.dropout.p)")],
        "packed": [("self.attn_dropout(att)", "F.dropout(att, self.attn_dropout.p)")],
        "einsum": [("self.drop(weights)", "F.dropout(weights, p=self.drop.p, training=True)")],
        "loop": [("self.drop(a)", "F.dropout(a, self.drop.p)")],
        "batched": [("F.dropout(probs, self.dropout, self.training)", "F.dropout(probs, self.dropout)")],
        "fused": [("p = self.p if self.training else 0.0", "p = self.p")],
    },
    "dropout on the wrong tensor": {
        "textbook": [("        attn_weights = self.dropout(attn_weights)\n", ""), ("attn_scores = queries @ keys.transpose(2, 3)", "attn_scores = self.dropout(queries @ keys.transpose(2, 3))")],
        "packed": [("        att = self.attn_dropout(att)\n", ""), ("att = F.softmax(att, dim=-1)", "att = F.softmax(self.attn_dropout(att), dim=-1)")],
        "einsum": [("        weights = self.drop(weights)\n", ""), ("scores = scores / math.sqrt(D)", "scores = self.drop(scores / math.sqrt(D))")],
        "loop": [("            a = self.drop(a)\n", ""), ("Q = self.wq(x)", "Q = self.drop(self.wq(x))")],
        "batched": [("        probs = F.dropout(probs, self.dropout, self.training)\n", ""), ("self.divide(x @ self.value)", "self.divide(F.dropout(x @ self.value, self.dropout, self.training))")],
    },
    "dropout never active": {
        "textbook": [("        attn_weights = self.dropout(attn_weights)\n", "")],
        "packed": [("        att = self.attn_dropout(att)\n", ""), ("self.resid_dropout(self.c_proj(y))", "self.c_proj(y)")],
        "einsum": [("        weights = self.drop(weights)\n", "")],
        "loop": [("            a = self.drop(a)\n", "")],
        "batched": [("        probs = F.dropout(probs, self.dropout, self.training)\n", "")],
        "fused": [("dropout_p=p, ", "")],
    },
    "no output projection": {
        "textbook": [("        self.out_proj = nn.Linear(d_out, d_out)\n", ""), ("        context_vec = self.out_proj(context_vec)\n", "")],
        "einsum": [("        self.to_out = nn.Linear(d_model, d_model)\n", ""), ("return self.to_out(out)", "return out")],
        "fused": [("        self.out_proj = nn.Linear(d_out, d_out)\n", ""), ("return self.out_proj(y)", "return y")],
    },
    "mask not a buffer": {
        "textbook": [('self.register_buffer("mask", torch.triu(torch.ones(context_length, context_length), diagonal=1))', "self.mask = torch.triu(torch.ones(context_length, context_length), diagonal=1)")],
        "packed": [('self.register_buffer("bias", mask.view(1, 1, config.block_size, config.block_size))', "self.bias = mask.view(1, 1, config.block_size, config.block_size)")],
        "einsum": [('self.register_buffer("allowed", torch.tril(torch.ones(max_len, max_len, dtype=torch.bool)))', "self.allowed = torch.tril(torch.ones(max_len, max_len, dtype=torch.bool))")],
        "loop": [("self.block_size = block_size", "self.future = torch.ones(block_size, block_size, dtype=torch.bool).triu(1)"), ("future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)", "future = self.future[:T, :T]")],
        "batched": [('self.register_buffer("mask", torch.full((context_length, context_length), float("-inf")).triu(1))', 'self.mask = torch.full((context_length, context_length), float("-inf")).triu(1)')],
    },
    "−1e9 overflows in fp16": {
        "textbook": [("-torch.inf", "-1e9")],
        "packed": [('float("-inf")', "-1e9")],
        "loop": [("-torch.inf", "-1e9")],
    },
    "in-place change of the caller's input": {
        "textbook": [("keys = self.W_key(x)\n        queries = self.W_query(x)\n        values = self.W_value(x)", "keys = self.W_key(x)\n        queries = self.W_query(x)\n        values = self.W_value(x)\n        x.zero_()")],
        "packed": [("self.c_attn(x).split(self.n_embd, dim=2)", "self.c_attn(x).split(self.n_embd, dim=2)\n        x *= 0.5")],
        "einsum": [("v = self.to_v(x).reshape(B, T, H, D)", "v = self.to_v(x).reshape(B, T, H, D)\n        x.add_(1.0)")],
        "loop": [("V = self.wv(x)", "V = self.wv(x)\n        x[:, 0] = 0")],
        "fused": [("return self.out_proj(y)", "x += self.out_proj(y)\n        return self.out_proj(y)")],
    },
    "super().__init__() missing": {name: [("        super().__init__()\n", "")] for name in BASES},
    "view of a non-contiguous tensor": {
        "textbook": [("context_vec.contiguous().view(", "context_vec.view(")],
        "packed": [("y.transpose(1, 2).contiguous().view(", "y.transpose(1, 2).view(")],
        "batched": [("y.transpose(1, 2).reshape(B, T, E)", "y.transpose(1, 2).view(B, T, E)")],
        "loop": [("torch.cat(contexts, dim=-1)", "torch.stack(contexts, 1).transpose(1, 2).view(B, T, E)")],
        "einsum": [('"bhts,bshd->bthd", weights, v)\n        out = out.reshape(B, T, H * D)', '"bhts,bshd->bhtd", weights, v)\n        out = out.transpose(1, 2).view(B, T, H * D)')],
    },
    "sequence longer than the context": {
        "fused": [("            raise ValueError(f\"{T} tokens do not fit\")", "            pass")],
        "textbook": [("self.mask.bool()[:num_tokens, :num_tokens]", "torch.triu(torch.ones(num_tokens, num_tokens, device=x.device), diagonal=1).bool()")],
        "loop": [("B, T, E = x.shape", "B, T, E = x.shape  # any T")],
        "einsum": [("self.allowed[:T, :T]", "torch.ones(T, T, dtype=torch.bool, device=x.device).tril()")],
        "batched": [("self.mask[:T, :T]", "torch.full((T, T), float('-inf'), device=x.device).triu(1)")],
    },
    "wrong parameter count": {
        "textbook": [("self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)", "self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)\n        self.mixer = nn.Linear(d_out, d_out)")],
        "packed": [("self.c_proj = nn.Linear(config.n_embd, config.n_embd)", "self.c_proj = nn.Linear(config.n_embd, config.n_embd)\n        self.extra = nn.Linear(config.n_embd, config.n_embd)")],
        "einsum": [("self.drop = nn.Dropout(dropout)", "self.drop = nn.Dropout(dropout)\n        self.ff = nn.Linear(d_model, 4 * d_model)")],
        "fused": [("self.q_proj = nn.Linear(d_in, d_out, bias=qkv_bias)", "self.q_proj = nn.Linear(d_in, d_out)"), ("self.k_proj = nn.Linear(d_in, d_out, bias=qkv_bias)", "self.k_proj = nn.Linear(d_in, d_out)"), ("self.v_proj = nn.Linear(d_in, d_out, bias=qkv_bias)", "self.v_proj = nn.Linear(d_in, d_out)")],
        "loop": [("self.drop = nn.Dropout(p)", "self.drop = nn.Dropout(p)\n        self.gate = nn.Linear(d_model, d_model)")],
    },
    "hard-coded sizes": {
        "textbook": [("context_vec.contiguous().view(b, num_tokens, self.d_out)", "context_vec.contiguous().view(b, num_tokens, 768)")],
        "packed": [("q.view(B, T, self.n_head, C // self.n_head)", "q.view(B, T, self.n_head, 64)")],
        "einsum": [("H, D = self.num_heads, E // self.num_heads", "H, D = 8, E // 8")],
        "loop": [("B, T, E = x.shape", "B, T, E = 4, x.shape[1], x.shape[2]\n        x = x.view(4, T, E)")],
        "batched": [("B, T, E = x.shape\n        q =", "B, T, E = x.shape[0], 16, x.shape[2]\n        q =")],
        "fused": [("self.num_heads, self.head_dim = num_heads, d_out // num_heads", "self.num_heads, self.head_dim = num_heads, 64")],
    },
}
