"""Files as students have them, each with what must be said of it: the same layer, in many wrappings.

A file is its name and its bytes, or a folder of them: then the first is the one that is checked.
"""

import json

LAYER = """import torch
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
SCALE = " / self.W_key.out_features**0.5"
UNSCALED = LAYER.replace(SCALE, "")
IMPORTS, _, CLASS = LAYER.partition("\n\n\n")
RIGHT, WRONG = ("CausalAttention", "right", ()), ("CausalAttention", "wrong", ("no scale",))


def notebook(*cells, old=False):
    """A notebook as Jupyter saves it; a cell is its code, or (kind, text)."""
    pairs = [one if isinstance(one, tuple) else ("code", one) for one in cells]
    key = "input" if old else "source"
    saved = [{"cell_type": kind, key: text.splitlines(keepends=True)} for kind, text in pairs]
    return json.dumps({"worksheets": [{"cells": saved}]} if old else {"cells": saved, "nbformat": 4}).encode()


def encoded(encoding, text=LAYER, mark=""):
    return (f"{mark}# Größe ≠ taille\n".replace("≠", "" if encoding[-1] == "1" else "≠") + text).encode(encoding)


NOTEBOOKS = {
    "magics.ipynb": (
        notebook("%matplotlib inline\n!pip install torch\n" + IMPORTS, ("markdown", "# Text"), CLASS),
        RIGHT,
    ),
    "timed.ipynb": (notebook(IMPORTS, "%%time\n" + CLASS, "%%bash\nls -l | grep x", "%timeit 3 + 4"), RIGHT),
    "old.ipynb": (notebook(IMPORTS, CLASS, "?nn.Linear", "nn.Linear?", old=True), RIGHT),
    "broken_cell.ipynb": (notebook(IMPORTS, "def f(:\n", CLASS, "x = CausalAttention(3, 3"), RIGHT),
    "demo.ipynb": (
        notebook(IMPORTS, "x = open('data.csv').read()", CLASS, "plt.plot(x)\nplt.show()", "files = !ls\nawait x"),
        RIGHT,
    ),
    "inside.ipynb": (
        notebook(IMPORTS, "if True:\n    !wget \\\n      example.org\n    y = (7\n         % 3)", CLASS),
        RIGHT,
    ),
    "wrong.ipynb": (notebook(("markdown", "Homework"), IMPORTS, UNSCALED.partition("\n\n\n")[2]), WRONG),
}
EXPORTS = {
    "lines.py": (f"get_ipython().run_line_magic('matplotlib', 'inline')\nget_ipython().system('ls')\n{LAYER}", RIGHT),
    "cell.py": (f"{IMPORTS}\nget_ipython().run_cell_magic('time', '', {CLASS!r})\n", RIGHT),
    "captured.py": (f"{IMPORTS}\nget_ipython().run_cell_magic('capture', 'out', {CLASS!r})\ndisplay(3)\n", RIGHT),
    "shell.py": (f"get_ipython().run_cell_magic('bash', '', 'ls | wc')\n# In[3]:\n{UNSCALED}\ndisplay(1)\n", WRONG),
    "value.py": (f"files = get_ipython().getoutput('ls')\nfor f in []: print(f)\n{LAYER}", RIGHT),
}
ENCODINGS = {
    "bom.py": (encoded("utf-8-sig"), RIGHT),
    "utf16.py": (encoded("utf-16"), RIGHT),
    "latin.py": (encoded("latin-1"), RIGHT),
    "cookie.py": (encoded("latin-1", mark="# -*- coding: latin-1 -*-\n"), RIGHT),
    "windows.py": (b"# \x93quoted\x94 \x85\n" + LAYER.encode(), RIGHT),
    "crlf.py": (LAYER.replace("\n", "\r\n").encode(), RIGHT),
    "old_mac.py": (UNSCALED.replace("\n", "\r").encode(), WRONG),
    "tabs.py": (LAYER.replace("    ", "\t"), RIGHT),
    "form_feed.py": (UNSCALED.replace("\n\n\n", "\n\f\n\n"), WRONG),
    "LAYER.PY": (LAYER, RIGHT),
}
BOTTOMS = {
    name: (f"{LAYER}\n{bottom}\n", RIGHT)
    for name, bottom in {
        "data.py": "text = open('input.txt').read()\nchars = sorted(set(text))\nprint(len(chars))",
        "loader.py": "from torch.utils.data import DataLoader\nfor x, y in DataLoader(dataset, num_workers=2): pass",
        "failing.py": "layer = CausalAttention(3, 2, 5)\nassert layer(torch.ones(1, 5, 3)).sum() == 4, 'my own test'",
        "asks.py": "size = int(input('How long? '))\nCausalAttention(3, 2, size)",
        "leaves.py": "import sys\nsys.exit(3)",
        "plots.py": "import no_such_plots as plt\nplt.imshow(torch.ones(3, 3))\nplt.show()",
        "trains.py": "model = CausalAttention(3, 2, 5)\nwhile True:\n    model(torch.ones(1, 5, 3)).sum().backward()",
        "prints.py": "while True: print('loss', 3.0)",
        "returns.py": "return 3",
    }.items()
} | {
    "before.py": (f"1 / 0\n{UNSCALED}", WRONG),
    "between.py": (f"{IMPORTS}\ntext = open('input.txt').read()\nn = len(text)\n{CLASS}\nprint(n)\n", RIGHT),
}
MISSING = {
    "einops.py": (f"from no_einops import rearrange\n{LAYER}", RIGHT),
    "typed.py": (
        f"from no_typing import Float\n{LAYER.replace('forward(self, x)', 'forward(self, x: Float[int, 3])')}",
        RIGHT,
    ),
    "star.py": (f"from no_course import *\n{LAYER}plot_heads(3)\n", RIGHT),
    "needed.py": (
        f"from no_einops import rearrange\n{LAYER.replace('T = x', 'x = rearrange(x); T = x')}",
        ("CausalAttention", "unchecked", "it needs no_einops, which is not installed here"),
    ),
    "base.py": (
        f"import no_lightning as pl\n{LAYER.replace('(nn.Module)', '(pl.LightningModule)')}",
        ("CausalAttention", "unchecked", "it needs no_lightning, which is not installed here"),
    ),
    "decorated.py": (
        f"from no_types import typed\n{IMPORTS}\n@typed\n{CLASS}",
        ("CausalAttention", "unchecked", "it needs no_types, which is not installed here"),
    ),
    "global.py": (
        f"data = open('input.txt').read()\nn = len(data)\n{LAYER.replace('context_length).triu', 'n).triu')}",
        (
            "CausalAttention",
            "unchecked",
            "it needs data, and line 1 fails here: FileNotFoundError: [Errno 2] No such file or directory: 'input.txt'",
        ),
    ),
    "inside.py": (
        LAYER.replace("T = x", "import no_einops; T = x"),
        ("CausalAttention", "unchecked", "it needs what is not installed here: No module named 'no_einops'"),
    ),
}
PLAIN = {
    "np_forward.py": (
        """import numpy as np

def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

class SelfAttention:
    def __init__(self, d_in, d_out):
        self.W_q, self.W_k, self.W_v = (np.random.randn(d_in, d_out) for _ in range(3))

    def forward(self, x):
        q, k, v = x @ self.W_q, x @ self.W_k, x @ self.W_v
        return softmax(q @ k.swapaxes(-1, -2)) @ v
""",
        ("SelfAttention", "wrong", ("no scale",)),
    ),
    "np_params.py": (
        """import numpy as np

class Atención:
    def __init__(self, d_model):
        rng = np.random.default_rng(0)
        self.params = {name: rng.normal(size=(d_model, d_model)).astype(np.float32) for name in ("Wq", "Wk", "Wv")}

    def __call__(self, X):
        q, k, v = (X @ self.params[name] for name in ("Wq", "Wk", "Wv"))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(k.shape[-1])
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return (e / e.sum(-1, keepdims=True)) @ v
""",
        ("Atención", "right", ()),
    ),
    "np_heads.py": (
        """import numpy as np

class Kopf:
    def __init__(self, d, d_k):
        self.wq, self.wk, self.wv = np.random.randn(3, d, d_k)

    def attend(self, x):
        s = (x @ self.wq) @ np.swapaxes(x @ self.wk, 1, 2) / np.sqrt(self.wk.shape[1])
        s = np.exp(s - s.max(axis=-1, keepdims=True))
        return s / s.sum(axis=-1, keepdims=True) @ (x @ self.wv)
""",
        ("Kopf", "right", ()),
    ),
    "torch_tensors.py": (
        """import torch

class MHSA:
    def __init__(self, d_model, num_heads):
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.wq, self.wk, self.wv, self.wo = (torch.randn(d_model, d_model, requires_grad=True) for _ in range(4))

    def __call__(self, x):
        B, T, E = x.shape
        split = lambda t: t.view(B, T, self.num_heads, self.head_dim).transpose(1, 2)
        q, k, v = (split(x @ w) for w in (self.wq, self.wk, self.wv))
        return (torch.softmax(q @ k.mT / E**0.5, -1) @ v).transpose(1, 2).reshape(B, T, E) @ self.wo
""",
        ("MHSA", "wrong", ("scale by √d_model",)),
    ),
    "torch_modules.py": (
        """import torch
from torch import nn

class SDP:
    def __init__(self, dim):
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def compute(self, x):
        return (self.query(x) @ self.key(x).mT / self.key.out_features**0.5).softmax(-1) @ self.value(x)
""",
        ("SDP", "right", ()),
    ),
    "no_weights.py": (
        """import numpy as np

class ScaledDotProductAttention:
    def forward(self, Q, K, V):
        s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
        s = np.exp(s - s.max(-1, keepdims=True))
        return s / s.sum(-1, keepdims=True) @ V
""",
        ("ScaledDotProductAttention", "right", ()),
    ),
}
HEAD = "    return torch.softmax(q @ k.mT{}, dim=-1) @ v\n"
LAMBDAS = {
    "scaled.py": (
        "import torch\nattention = lambda q, k, v: torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v\n",
        ("attention", "right", ()),
    ),
    "unscaled.py": (
        "import torch\natencao = lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v\n",
        ("atencao", "wrong", ("no scale",)),
    ),
    "softmax.py": (
        "import torch\nsoftmax = lambda x: x.softmax(0)\n",
        ("softmax", "wrong", ("softmax over the queries",)),
    ),
    "np_softmax.py": (
        "import numpy as np\nsoftmax = lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)\n",
        ("softmax", "right", ()),
    ),
    "beside.py": (f"square = lambda x: x * x\n{LAYER}", RIGHT),
}
PACKAGE_LAYER = LAYER.replace("import torch\n", "import torch\nfrom {} import root\n").replace("**0.5", " ** root")
FOLDERS = {
    "neighbour": ({"main.py": PACKAGE_LAYER.format("helper_file"), "helper_file.py": "root = 0.5\n"}, RIGHT),
    "relative": ({"main.py": PACKAGE_LAYER.format(".helper"), "helper.py": "root = 0.5\n"}, RIGHT),
    "package": (
        {
            "pack/main.py": PACKAGE_LAYER.format("..tools.roots"),
            "tools/__init__.py": "",
            "tools/roots.py": "root = 0.5",
        },
        RIGHT,
    ),
    "init": (
        {"main.py": PACKAGE_LAYER.format("."), "__init__.py": "from .other import root", "other.py": "root = 0.5"},
        RIGHT,
    ),
    "absolute": (
        {"homework/main.py": PACKAGE_LAYER.format("homework.deep.one"), "homework/deep/one.py": "root = 0.5\n"},
        RIGHT,
    ),
    "latin": (
        {"main.py": PACKAGE_LAYER.format("latin_file"), "latin_file.py": b"# \xe9\nroot = 0.5\nopen('data.txt')\n"},
        RIGHT,
    ),
    "lazy": ({"main.py": LAYER.replace("T = x", "from lazy_file import n; T = x"), "lazy_file.py": "n = 3\n"}, RIGHT),
}
KINDS = {
    "notebook": NOTEBOOKS, "export": EXPORTS, "encoding": ENCODINGS, "bottom": BOTTOMS, "missing": MISSING,
    "plain": PLAIN, "lambda": LAMBDAS, "folder": FOLDERS,
}  # fmt: skip
FILES = [(f"{kind}/{name}", *pair) for kind, files in KINDS.items() for name, pair in files.items()]


def write(folder, name, content):
    """Write a file, or a folder of files; the path of the one that is checked."""
    files = content if isinstance(content, dict) else {name.rpartition("/")[2]: content}
    for file, text in files.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / next(iter(files))


def summary(verdict):
    """Its name, its status, and the names of its mistakes or why it could not be checked."""
    return verdict.name, verdict.status, verdict.problem or tuple(one.name for one in verdict.mistakes)
