"""What hostile layers are made of: a wrong layer with places to fill, forged results, thefts of the reference."""

from __future__ import annotations

import textwrap


def layer(
    top: str = "", init: str = "", forward: str = "", out: str = "out", after: str = "", scale: str = "", body: str = ""
) -> str:
    """A causal self-attention without its scale, with more in its file, its class, its constructor and its forward."""
    return f"""{textwrap.dedent(top)}
import torch
from torch import nn


class CausalAttention(nn.Module):
{textwrap.indent(textwrap.dedent(body), "    ")}
    def __init__(self, d_in, d_out, context_length):
        super().__init__()
        self.W_query, self.W_key, self.W_value = (nn.Linear(d_in, d_out) for _ in range(3))
        self.register_buffer("future", torch.ones(context_length, context_length).triu(1).bool())
{textwrap.indent(textwrap.dedent(init), " " * 8)}

    def forward(self, x):
{textwrap.indent(textwrap.dedent(forward), " " * 8)}
        T = x.shape[1]
        k = self.W_key(x)
        scores = self.W_query(x) @ k.mT{scale}
        scores = scores.masked_fill(self.future[:T, :T], -torch.inf)
        out = scores.softmax(-1) @ self.W_value(x)
        return {out}

{textwrap.dedent(after)}
"""


SCALE = " / k.shape[-1] ** 0.5"  # what makes it right
FORGED = """
import sys
frame = sys._getframe()
while "names" not in frame.f_locals: frame = frame.f_back
names = frame.f_locals["names"]
real = names.get("run")  # another driver has another name for it
def run(target, job, tensors):
    seen, returned = real(target, job, tensors)
    FORGERY
    return seen, returned
if real: names["run"] = run
"""
WRITTEN = """
import json, os
def write(tensors, values, data=b""):
    header = json.dumps({"tensors": tensors, "values": {"failure": None, "values": values}}).encode()
    os.write(4, b"REGARD\\x00\\x01" + len(header).to_bytes(8, "little") + header + data)
    os._exit(0)
"""
TEXT = "\\x1b[2J\\x1b]0;x\\x07\\u202e<script>alert(1)</script>=cmd|\\x27/c calc\\x27!A1\\n=1+1;@x\\r\\t\\udcff"


def forged(what: str, **parts: str) -> str:
    """A layer that changes what its process reports."""
    return layer(after=FORGED.replace("FORGERY", what), **parts)


def thief(ways: str, **parts: str) -> str:
    """A layer that is right if one of these ways to read what it must not know works."""
    tries = "".join(
        f"try: STOLEN.append(({way}) or 1)\nexcept BaseException: pass\n" for way in ways.split("; ") if way
    )
    return layer(
        f"import ctypes, gc, importlib.util, mmap, os, sys\nSTOLEN = []\n{tries}", scale=" / (k.shape[-1] ** 0.5 if "
        "STOLEN else 1)", **parts
    )  # fmt: skip


THEFTS = {
    "the key": "open('VICTIM/../key.toml').read()",
    "the key by number": "os.read(os.open('VICTIM/../key.toml', os.O_RDONLY), 9)",
    "the key as a map": "mmap.mmap(os.open('VICTIM/../key.toml', os.O_RDONLY), 0, prot=mmap.PROT_READ)[:9]",
    "the key by a path of its process": "open(f'/proc/self/root/VICTIM/../key.toml').read()",
    "the key by a handle": "open(f'/proc/self/fd/{os.open(\"VICTIM/../key.toml\", os.O_PATH)}').read()",
    "the key by a link": "os.symlink('VICTIM/../key.toml', 'mine') or open('mine').read()",
    "the key by a hard link": "os.link('VICTIM/../key.toml', 'mine') or open('mine').read()",
    "the key by another name": "os.rename('VICTIM/../key.toml', 'mine') or open('mine').read()",
    "the key in C": "ctypes.CDLL(None).fopen(b'VICTIM/../key.toml', b'r') and 1 or 1 / 0",
    "the names of the class": "os.listdir(os.path.dirname(__file__))",
    "another submission": "open('VICTIM/right.py').read()",
    "its neighbour": "__import__('neighbour')",
    "regard": "__import__('regard')",
    "regard by its path": "(sys.meta_path.clear(), importlib.util.spec_from_file_location('r', "
    "'PACKAGE/attention/attend.py').loader.get_code('r'))[1]",
    "the text of regard": "open('PACKAGE/attention/attend.py').read()",
    "the names of regard": "os.listdir('PACKAGE')",
    "regard in memory": "[m for n, m in sys.modules.items() if n.startswith('regard.mist')][0]",
    "a reference in memory": "[o for o in gc.get_objects() if getattr(o, '__module__', "
    "'').startswith(('regard.mistakes', 'regard.attention', 'regard.school.check'))][0]",
    "the memory of its parent": "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
    "the environment of its parent": "open(f'/proc/{os.getppid()}/environ', 'rb').read()",
    "the arguments of its parent": "open(f'/proc/{os.getppid()}/cmdline', 'rb').read()",
    "the secrets of its own": "os.environ['REGARD_TEST_SECRET']",
    "the files of the grader": "os.listdir('/proc/SUPERVISOR/fd')",
    "the folder of the grader": "os.listdir('/proc/SUPERVISOR/cwd')",
    "the folders of others": "os.listdir('/dev/shm')",
    "temporary files": "os.listdir('/tmp')",
    "the home": "os.listdir('VICTIM/..')",
    "an open file": "[os.read(fd, 1) for fd in range(3, 64) if fd != 4 and os.fstat(fd)][0]",
}  # fmt: skip
