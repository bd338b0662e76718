"""GPT-2's weights in your own layer."""

import torch
import torch.nn.functional as F

from regard.school.exercises import Function, Wrong

uses = ("whole_layer", "layer_norm")
V, C, E, H, BLOCKS = 17, 9, 6, 2, 2


def tiny_gpt2(random):
    """A GPT-2 as it is stored, with random weights."""

    def tensor(*sizes, size=0.6):
        return size * torch.randn(*sizes, generator=random)

    stored = {"wte.weight": tensor(V, E), "wpe.weight": tensor(C, E)}
    shapes = {"attn.c_attn": (E, 3 * E), "attn.c_proj": (E, E), "mlp.c_fc": (E, 4 * E), "mlp.c_proj": (4 * E, E)}
    for n in range(BLOCKS):
        for name, shape in shapes.items():
            stored |= {f"h.{n}.{name}.weight": tensor(*shape), f"h.{n}.{name}.bias": tensor(shape[1])}
        for name in ("ln_1", "ln_2"):
            stored |= {f"h.{n}.{name}.weight": 1 + tensor(E), f"h.{n}.{name}.bias": tensor(E)}
    return stored | {"ln_f.weight": 1 + tensor(E), "ln_f.bias": tensor(E)}


def a_file(random):
    """The bytes of a file, ids, and the number of heads."""
    from safetensors.torch import save

    content = torch.frombuffer(bytearray(save(tiny_gpt2(random))), dtype=torch.uint8)
    return content, torch.randint(V, (2, 7), generator=random), H


def from_file(gpt2, content, ids, heads):
    """The logits of the model in a file, which is written and read."""
    import tempfile
    from pathlib import Path

    import torch
    from safetensors.torch import load_file

    def zero(self):
        for one in self.parameters():
            torch.nn.init.zeros_(one)

    kept = torch.nn.Linear.reset_parameters
    torch.nn.Linear.reset_parameters = zero  # what is not filled is 0, not another number each time
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            path.write_bytes(bytes(content.tolist()))
            stored = load_file(path)
        with torch.no_grad():
            return gpt2(stored, ids, heads)
    finally:
        torch.nn.Linear.reset_parameters = kept


def linear(x, stored, name):
    return x @ stored[f"{name}.weight"] + stored[f"{name}.bias"]


def norm(x, stored, name):
    return F.layer_norm(x, (E,), stored[f"{name}.weight"], stored[f"{name}.bias"])


def thirds(t):
    return t.chunk(3, -1)


def every_third(t):
    return t.unflatten(-1, (E, 3)).unbind(-1)


def first_third(t):
    return 3 * [t.chunk(3, -1)[0]]


def attention(
    x, stored, n, heads, order="qkv", turned=(), biases=("in", "out"), columns=thirds, shifts=thirds, empty=()
):
    B, T, _ = x.shape
    matrix, shift = stored[f"h.{n}.attn.c_attn.weight"], stored[f"h.{n}.attn.c_attn.bias"]
    split = dict(zip(order, zip(columns(matrix), shifts(shift))))

    def projected(name):
        weight, bias = split[name]
        x_ = x @ (weight.T if "in" in turned else weight) + (bias if "in" in biases else 0)
        return x_.view(B, T, heads, E // heads).transpose(1, 2)

    out = F.scaled_dot_product_attention(*map(projected, "qkv"), is_causal=True).transpose(1, 2).reshape(B, T, E)
    weight = stored[f"h.{n}.attn.c_proj.weight"] * (0 if "out" in empty else 1)
    bias = stored[f"h.{n}.attn.c_proj.bias"] if "out" in biases else 0
    return out @ (weight.T if "out" in turned else weight) + bias


def make(block=lambda n: n, **how):
    def gpt2(stored, ids, heads):
        x = stored["wte.weight"][ids] + stored["wpe.weight"][: ids.shape[1]]
        for n in range(BLOCKS):
            x = x + attention(norm(x, stored, f"h.{n}.ln_1"), stored, block(n), heads, **how)
            inner = linear(norm(x, stored, f"h.{n}.ln_2"), stored, f"h.{n}.mlp.c_fc")
            x = x + linear(F.gelu(inner, approximate="tanh"), stored, f"h.{n}.mlp.c_proj")
        return norm(x, stored, "ln_f") @ stored["wte.weight"].T

    return gpt2


TURNED = "nn.Linear holds its matrix as (out, in), the file as (in, out)."
parts = [
    Function(
        "names",
        lambda random: (int(torch.randint(12, (), generator=random)),),
        lambda n: (f"h.{n}.mlp.c_fc", f"h.{n}.mlp.c_proj"),
        wrong=[
            Wrong(
                "exchanged",
                "c_fc makes wider and comes first, c_proj brings back.",
                lambda n: (f"h.{n}.mlp.c_proj", f"h.{n}.mlp.c_fc"),
            ),
            Wrong(
                "the attention's",
                "attn.c_proj is the output projection of attention; that of the feed-forward is mlp.c_proj.",
                lambda n: (f"h.{n}.mlp.c_fc", f"h.{n}.attn.c_proj"),
            ),
            Wrong(
                "both c_proj",
                "attn.c_proj belongs to attention, and c_fc comes before mlp.c_proj.",
                lambda n: (f"h.{n}.attn.c_proj", f"h.{n}.mlp.c_proj"),
            ),
            Wrong(
                "with .weight",
                "The names end in .weight; leave it out, as .bias is wanted, too.",
                lambda n: (f"h.{n}.mlp.c_fc.weight", f"h.{n}.mlp.c_proj.weight"),
            ),
            Wrong(
                "always block 0",
                "This is the name for block 0; for block {0} it has h.{0}.",
                lambda n: ("h.0.mlp.c_fc", "h.0.mlp.c_proj"),
            ),
            Wrong(
                "not filled in",
                'The letter n is in the name; write f"h.{{n}}.…".',
                lambda n: ("h.{n}.mlp.c_fc", "h.{n}.mlp.c_proj"),
            ),
            Wrong(
                "names of attention",
                "These are the matrices of attention; those of the feed-forward are asked for, mlp.",
                lambda n: (f"h.{n}.attn.c_attn", f"h.{n}.attn.c_proj"),
            ),
            Wrong(
                "a point too many",
                "There is a point at the end; .weight and .bias are added later.",
                lambda n: (f"h.{n}.mlp.c_fc.", f"h.{n}.mlp.c_proj."),
            ),
        ],
    ),
    Function(
        "gpt2",
        a_file,
        make(),
        wrong=[
            Wrong(
                "nothing turned",
                f"No matrix is turned: copy weight.T. {TURNED}",
                make(turned=("in", "out")),
                why="They are square, so nothing fails: it is the commonest mistake with GPT-2's weights.",
            ),
            Wrong(
                "queries, keys and values not turned",
                f"The matrices of queries, keys and values are not turned. {TURNED}",
                make(turned=("in",)),
            ),
            Wrong("out_proj not turned", f"The matrix of out_proj is not turned. {TURNED}", make(turned=("out",))),
            Wrong(
                "keys before queries",
                "The columns are queries, keys, values in this order; keys are taken first.",
                make(order="kqv"),
            ),
            Wrong(
                "values before keys",
                "The columns are queries, keys, values in this order; values are taken second.",
                make(order="qvk"),
            ),
            Wrong(
                "values first",
                "The columns are queries, keys, values in this order; values are taken first.",
                make(order="vkq"),
            ),
            Wrong(
                "every third column",
                "The columns of queries are the first third, not every third one.",
                make(columns=every_third, shifts=every_third),
            ),
            Wrong(
                "every third column, biases right",
                "The columns of queries are the first third, not every third one. The biases are right.",
                make(columns=every_third),
            ),
            Wrong(
                "every third bias",
                "The biases of queries are the first third, not every third one. The matrices are right.",
                make(shifts=every_third),
            ),
            Wrong(
                "one matrix for all three",
                "Keys and values get the columns of the queries, the first E.",
                make(columns=first_third),
            ),
            Wrong(
                "first third for all three",
                "Keys and values get the columns and biases of the queries, the first E.",
                make(columns=first_third, shifts=first_third),
            ),
            Wrong("always block 0", "Every block gets the attention of block 0: use n.", make(block=lambda n: 0)),
            Wrong(
                "last block everywhere",
                "Every block gets the attention of the last one: use n.",
                make(block=lambda n: BLOCKS - 1),
            ),
            Wrong(
                "parameter replaced",
                "A parameter is not set to a tensor; fill it: weight.copy_(…).",
                raises="cannot assign",
            ),
            Wrong(
                "thirds of the wrong axis",
                "c_attn.weight is (E, 3E): cut its columns, dim=1.",
                raises="must match the size of tensor b (2)",
            ),
            Wrong(
                "no bias to fill",
                "The layer has no bias there: make it with qkv_bias=True.",
                raises="'NoneType' object has no attribute",
            ),
            Wrong("not in the file", "The file has no tensor of this name.", raises="KeyError"),
            Wrong(
                "biases of q, k and v not filled",
                "part.bias is left as it was for queries, keys and values; c_attn.bias has all three.",
                make(biases=("out",)),
            ),
            Wrong(
                "bias of out_proj not filled",
                "out_proj.bias is left as it was; it is c_proj.bias.",
                make(biases=("in",)),
            ),
            Wrong(
                "no bias filled", "No bias is filled: neither those of q, k, v nor that of out_proj.", make(biases=())
            ),
            Wrong(
                "only the bias comes out",
                "The layer returns the bias of out_proj alone: its matrix was not filled, or that of the values was not.",
                make(empty=("out",)),
            ),
        ],
        tolerance=1e-4,
        through=from_file,
    ),
]
