"""OneToken: a model's next token as a fixed row of Triton programs, and the memory they work in.

Nothing here asks the host for anything once it is built: where a row stands (`slot`), where its text began (`start`),
its last token and its scores all lie on the device. So the row of launches can be recorded once and played again.
kernels/decode.py holds the programs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor, nn

from regard.attention.cache import Cache
from regard.attention.layer import MultiHeadAttention
from regard.gpt.block import Block, GatedFeedForward
from regard.gpt.generate.gpu_kernels import attend_one, embed, linear_one, linear_some, normed
from regard.gpt.generate.unmodified import untouched
from regard.gpt.model import GPT

MOST_ROWS = 64  # more rows at once are matrix products as any other
AT_ONCE = 528  # programs of linear_one: four for each multiprocessor of an H200
PARTS = 4  # shares of a sum that few outputs are made of, so that there are programs enough
SPLITS = 16  # programs that share the keys of one head, at most

Norm = nn.LayerNorm | nn.RMSNorm


def fits(model: GPT, batch: int) -> bool:
    """Can these programs stand for the model? Not where its modules must be called, nor where its weights lie apart."""
    weights = list(model.parameters())
    return (
        1 <= batch <= MOST_ROWS
        and weights[0].dtype in (torch.bfloat16, torch.float16, torch.float32)
        and untouched(model)
        and all(w.is_contiguous() for w in weights)
        and all(isinstance(block, Block) and block.attention.joined() is not None for block in model.blocks)
    )


class OneToken:
    """The programs that make one token more of each row.

    tokens: (capacity + 1, B), what was made so far, `step` of it; ids: (B,), the last token of each row.
    block: keys a program holds at once; as measured on an H200 unless given.
    """

    def __init__(self, model: GPT, batch: int, capacity: int, greedy: bool, block: int | None = None) -> None:
        config, weight = model.config, model.token_embedding.weight
        self.model, self.batch, self.greedy = model, batch, greedy
        self.cache: Cache = model.cache(batch, capacity)
        device, dtype = weight.device, weight.dtype
        self.early, self.shared = False, 227 << 10
        if device.type == "cuda":
            gpu = torch.cuda.get_device_properties(device)
            self.early = gpu.major >= 9 and torch.version.hip is None
            self.shared = getattr(gpu, "shared_memory_per_block_optin", 48 << 10)
        H, Hkv, D, E = config.num_heads, config.kv_heads, config.head_dim, config.d_model

        def room(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.x = room(batch, E, dtype=torch.float32)  # residuals are added up in float32
        self.qkv = room(batch, (H + 2 * Hkv) * D)
        self.context = room(batch, H * D)
        self.normed = room(batch, E)
        self.halves = room(PARTS, batch, E, dtype=torch.float32)
        self.inner = room(batch, config.inner)
        self.group = 1 if Hkv == H else max(16, triton.next_power_of_2(H // Hkv))
        self.width = max(16, triton.next_power_of_2(D))
        # Alone, a program holds many keys, so that few programs must wait for one another.
        self.block = block or (64 if batch > 1 and Hkv == H else 128)
        self.splits = max(1, min(SPLITS, capacity // self.block, 528 // (batch * Hkv)))
        parts = batch * Hkv * self.splits * self.group
        self.parts = room(parts, self.width, dtype=torch.float32)
        self.tops, self.sums = room(2, parts, dtype=torch.float32)
        self.arrived = room(batch * Hkv, dtype=torch.int32)
        self.step, self.slot, self.start = room(3, batch, dtype=torch.int32)
        self.ids = room(batch, dtype=torch.int64)
        self.tokens = room(capacity + 1, batch, dtype=torch.int64)
        self.logits = room(batch, 1 if greedy else config.vocab_size, dtype=torch.float32)
        self.blocks = self._programs(config.vocab_size, E)
        self.best = room(batch, self.blocks, dtype=torch.float32)
        self.at = room(batch, self.blocks, dtype=torch.int32)
        self.cos = self.sin = self.x
        if config.rotary is not None:
            places = torch.arange(min(config.context_length, capacity), device=device)
            self.cos, self.sin = (t.contiguous() for t in config.rotary.angles(places, D))

    def run(self) -> None:
        """Read the token at hand through all blocks, and score the next: its `best`, or `logits` where not greedy."""
        waiting: nn.Linear | None = None  # a layer whose outputs are still parts, to be added to x
        for i, block in enumerate(self.model.blocks):
            assert isinstance(block, Block)
            layer, feed, joined = block.attention, block.feed_forward, block.attention.joined()
            assert joined is not None
            x = self._normed(block.attention_norm, waiting, first=i == 0)
            self._linear(x, *joined, self.qkv, norm=block.attention_norm, first=i == 0)
            self._attend(layer, self.cache.keys[i], self.cache.values[i])
            self._linear(self.context, layer.out_proj.weight, layer.out_proj.bias, self.x, add=True)
            x = self._normed(block.feed_forward_norm, layer.out_proj)
            gate = feed.gate if isinstance(feed, GatedFeedForward) else None
            self._linear(
                x, feed.up.weight, feed.up.bias, self.inner, norm=block.feed_forward_norm, gate=gate, bend=True
            )
            self._linear(self.inner, feed.down.weight, feed.down.bias, self.x, add=True)
            waiting = feed.down
        x = self._normed(self.model.final_norm, waiting)
        self._linear(x, self.model.head_weight, None, self.logits, norm=self.model.final_norm, best=self.greedy)

    def take(self, picked: bool) -> None:
        """Make a token the one at hand: the best by `best`, or, where it was `picked` already, what stands in `ids`."""
        config, places, weight = self.model.config, self.model.position_embedding, self.model.token_embedding.weight
        embed[(self.batch,)](
            self.best, self.at, self.ids, self.tokens, self.step, self.slot, self.start, weight,
            weight if places is None else places.weight, self.x, self.blocks, config.vocab_size, config.context_length,
            E=config.d_model, BE=triton.next_power_of_2(config.d_model), BLOCKS=triton.next_power_of_2(self.blocks),
            PICK=not picked, PLACES=places is not None, num_warps=4, **self._early(),
        )  # fmt: skip

    def _normed(self, norm: Norm, waiting: nn.Linear | None, first: bool = False) -> Tensor:
        """norm(x) of several rows, once what is waiting was added to x. One row is normed where it is used."""
        if self.batch == 1:
            return self.x
        K, bias = self.x.shape[1], None if waiting is None else waiting.bias
        normed[(self.batch,)](
            self.x, self.halves, self.x if bias is None else bias, *_norms(norm, self.x), self.normed, self.batch,
            norm.eps, K=K, BK=triton.next_power_of_2(K), PARTS=0 if waiting is None else PARTS, BIAS=bias is not None,
            **_kind(norm), num_warps=4, **self._early(first),
        )  # fmt: skip
        return self.normed

    def _linear(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        out: Tensor,
        *,
        norm: Norm | None = None,
        bend: bool = False,
        gate: nn.Linear | None = None,
        add: bool = False,
        best: bool = False,
        first: bool = False,
    ) -> None:
        """out = act(norm(x) · weightᵀ + bias), or added to it; of several rows, x is normed and parts are left to add."""
        N, K = weight.shape
        shape = self._shape(N, K, matrices=1 if gate is None else 2)
        act = "none" if not bend else "gelu" if gate is None else "swiglu"
        # A pointer that a program will not follow: any tensor will do.
        gates = (weight if gate is None else gate.weight, x if gate is None or gate.bias is None else gate.bias)
        pointers = (x, weight, gates[0], x if bias is None else bias, gates[1])
        if self.batch == 1:
            linear_one[(self._programs(N, K),)](
                *pointers, *_norms(norm, x), out, self.best, self.at, N, 0.0 if norm is None else norm.eps,
                K=K, **_kind(norm), ACT=act, BIAS=bias is not None, ADD=add, BEST=best, **shape, **self._early(first),
            )  # fmt: skip
        else:
            parts = PARTS if add else 1
            linear_some[(self._programs(N, K), parts)](
                *pointers, self.halves if add else out, self.best, self.at, self.batch, N,
                K=K, PARTS=parts, ACT=act, BIAS=bias is not None and not add, BEST=best,
                PRECISION="ieee" if weight.dtype is torch.float32 else "tf32", **shape, **self._early(),
            )  # fmt: skip

    def _attend(self, layer: MultiHeadAttention, keys: Tensor, values: Tensor) -> None:
        q_norm, k_norm, D = layer.q_norm, layer.k_norm, layer.head_dim
        turn = "none" if layer.rotary is None else "pairs" if layer.rotary.interleaved else "halves"
        attend_one[(self.batch * layer.num_kv_heads, self.splits)](
            self.qkv, keys, values, self.slot, self.start,
            self.x if q_norm is None else q_norm.weight, self.x if k_norm is None else k_norm.weight,
            self.cos, self.sin, self.parts, self.tops, self.sums, self.arrived, self.context,
            keys.shape[2], layer.window or 0, D**-0.5 if layer.scale is None else layer.scale,
            0.0 if q_norm is None else q_norm.eps,
            H=layer.num_heads, HKV=layer.num_kv_heads, D=D, DP=self.width, G=self.group, BS=self.block,
            SPLITS=self.splits, ROTARY=turn, QK_NORM=q_norm is not None, WINDOW=layer.window is not None,
            PRECISION="ieee" if keys.dtype is torch.float32 else "tf32", num_warps=4, num_stages=1, **self._early(),
        )  # fmt: skip

    def _shape(self, N: int, K: int, matrices: int = 1) -> dict[str, int]:
        """How many outputs a program makes at a time, and with how many warps; as measured on an H200."""
        if self.batch > 1:
            BB, BN, BK = max(16, triton.next_power_of_2(self.batch)), 16 if N < 4096 else 64, 256
            # Of each block, two are in shared memory while one is worked on; of 64 rows and more, three.
            column = (BB + BN * matrices) * self.normed.element_size() * (2 if BB < 64 else 3)
            while BK > 16 and BK * column > self.shared:
                BK //= 2
            BK = min(BK, max(16, triton.next_power_of_2(K)))
            return {"BB": BB, "BN": BN, "BK": BK, "num_warps": 4, "num_stages": 3}
        BK = triton.next_power_of_2(K)
        return {"BN": max(1, min(8192 // BK, 16 if N > 16384 else 8 if N > 1536 else 4)), "BK": BK, "num_warps": 4}

    def _programs(self, N: int, K: int) -> int:
        """How many programs share N outputs: of one row, as many as run at once, each with several blocks."""
        blocks = -(-N // self._shape(N, K)["BN"])
        return blocks if self.batch > 1 else min(blocks, AT_ONCE)

    def _early(self, first: bool = False) -> dict[str, Any]:
        """The first program of a token waits for everything before it: what the others read ahead is then there."""
        return {"EARLY": self.early} | ({"launch_pdl": True} if self.early and not first else {})


def _kind(norm: Norm | None) -> dict[str, Any]:
    kind = "none" if norm is None else "layer" if isinstance(norm, nn.LayerNorm) else "rms"
    return {"NORM": kind, "NORM_BIAS": getattr(norm, "bias", None) is not None}


def _norms(norm: Norm | None, x: Tensor) -> tuple[Tensor, Tensor]:
    bias = getattr(norm, "bias", None)
    return x if norm is None else norm.weight, x if bias is None else bias
