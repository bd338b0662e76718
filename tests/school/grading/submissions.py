"""Ten submissions: right, wrong and hostile, each with how it must be graded."""

RIGHT = """import torch
from torch import nn


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length):
        super().__init__()
        self.W_query, self.W_key, self.W_value = (nn.Linear(d_in, d_out) for _ in range(3))
        self.register_buffer("future", torch.ones(context_length, context_length).triu(1).bool())

    def forward(self, x):
        T = x.shape[1]
        scores = self.W_query(x) @ self.W_key(x).mT / self.W_key.out_features**0.5
        scores = scores.masked_fill(self.future[:T, :T], -torch.inf)
        return scores.softmax(-1) @ self.W_value(x)
"""
NO_SCALE = RIGHT.replace(" / self.W_key.out_features**0.5", "")
NO_MASK = RIGHT.replace("scores = scores.masked_fill(self.future[:T, :T], -torch.inf)", "pass")
WRONG_AXIS = RIGHT.replace("softmax(-1)", "softmax(-2)")
FIRST_LINE = "        T = x.shape[1]\n"

SUBMISSIONS = {  # name: source, status, a part of what is said
    "ana.py": (RIGHT, "right", "CausalAttention: causal self-attention, one head of 21"),
    "ben.py": (NO_SCALE, "wrong", "no scale (line 13)"),
    "cleo.py": (NO_MASK, "wrong", "no causal mask"),
    "dan.py": (WRONG_AXIS, "wrong", "softmax over the queries (line 15)"),
    "eve.py": (
        RIGHT.replace(FIRST_LINE, f"{FIRST_LINE}        while True: pass\n"),
        "unchecked",
        "out of time: It did not end within 5 s.",
    ),
    "finn.py": (
        RIGHT.replace(FIRST_LINE, f"{FIRST_LINE}        import os; os._exit(0)\n"),
        "unchecked",
        "ended early: It ended its process before it returned a result.",
    ),
    "gus.py": (f"import os\nwhile os.fork() is not None: pass\n{NO_SCALE}", "wrong", "no scale (line 15)"),
    "hal.py": (
        RIGHT.replace(FIRST_LINE, f"{FIRST_LINE}        while True: print('<b>' * 1000)\n"),
        "unchecked",
        "wrote too much: It printed more than",
    ),
    "ivy.py": ("import regard.school.check.check\n", "wrong", "does not run (line 1)"),
    "jon.py": (
        RIGHT.replace(FIRST_LINE, f"{FIRST_LINE}        import os; os.unlink(__file__.replace('jon', 'ana'))\n"),
        "wrong",
        "unknown mistake",
    ),
}
