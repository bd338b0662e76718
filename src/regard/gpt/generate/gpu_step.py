"""One decoding step on a GPU: a model's operations for the next token as a fixed sequence of Triton kernels.

No kernel launch depends on a value that is on the device: where the next key goes (`slot`), where each row's text
begins (`start`), the last tokens and their scores all stay there. So the sequence can be captured as a CUDA graph.
The kernels are in gpu_kernels.py and gpu_attention_kernel.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
from torch import Tensor, nn

from regard.attention.cache import Cache
from regard.attention.layer import MultiHeadAttention
from regard.gpt.block import Norm, Product
from regard.gpt.generate.gpu_attention_kernel import attend_one
from regard.gpt.generate.gpu_kernels import add_and_norm, embed, linear_one, linear_some
from regard.gpt.generate.module_calls import is_unmodified

if TYPE_CHECKING:
    from regard.gpt.model import GPT

MAX_BATCH = 64  # larger batches are ordinary matrix products
MAX_PROGRAMS = 528  # of linear_one: four for each multiprocessor of an H200
PARTS = 4  # partial sums of a product with few outputs, so that there are enough programs
MAX_SPLITS = 16  # programs that share the keys of one head


def supports(model: GPT, batch: int) -> bool:
    """Can these kernels compute what the model computes? Not where its modules must be called."""
    weights = list(model.parameters())
    return (
        1 <= batch <= MAX_BATCH
        and weights[0].dtype in (torch.bfloat16, torch.float16, torch.float32)
        and is_unmodified(model)
        and all(w.is_contiguous() for w in weights)
    )


class GPUStep:
    """The kernels that compute the next token of each row, and their buffers.

    tokens: (capacity + 1, B), all tokens so far, `step` of them; −1 where the scores were NaN or infinite.
    ids: (B,), the last token of each row.
    key_block: keys that a program holds at once; the default was measured on an H200.
    """

    def __init__(self, model: GPT, batch: int, capacity: int, greedy: bool, key_block: int | None = None) -> None:
        config, weight = model.config, model.token_embedding.weight
        self.model, self.batch, self.greedy = model, batch, greedy
        self.cache: Cache = model.cache(batch, capacity)
        device, dtype = weight.device, weight.dtype
        self.early, self.shared_memory = False, 227 << 10
        if device.type == "cuda":
            gpu = torch.cuda.get_device_properties(device)
            self.early = gpu.major >= 9 and torch.version.hip is None
            self.shared_memory = getattr(gpu, "shared_memory_per_block_optin", 48 << 10)
        H, Hkv, D, E = config.num_heads, config.kv_heads, config.head_dim, config.d_model

        def buffer(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.x = buffer(batch, E, dtype=torch.float32)  # the residual stream is float32
        self.qkv = buffer(batch, (H + 2 * Hkv) * D)
        self.context = buffer(batch, H * D)
        self.normed = buffer(batch, E)
        self.partial_sums = buffer(PARTS, batch, E, dtype=torch.float32)
        self.inner = buffer(batch, config.inner)
        self.group = 1 if Hkv == H else max(16, triton.next_power_of_2(H // Hkv))
        self.head_width = max(16, triton.next_power_of_2(D))
        # For a single row, a program holds many keys: fewer programs then wait for each other.
        self.key_block = key_block or (64 if batch > 1 and Hkv == H else 128)
        self.splits = max(1, min(MAX_SPLITS, capacity // self.key_block, 528 // (batch * Hkv)))
        parts = batch * Hkv * self.splits * self.group
        self.parts = buffer(parts, self.head_width, dtype=torch.float32)
        self.tops, self.sums = buffer(2, parts, dtype=torch.float32)
        self.arrived = buffer(batch * Hkv, dtype=torch.int32)
        self.step, self.slot, self.start = buffer(3, batch, dtype=torch.int32)
        self.ids = buffer(batch, dtype=torch.int64)
        self.tokens = buffer(capacity + 1, batch, dtype=torch.int64)
        self.logits = buffer(batch, 1 if greedy else config.vocab_size, dtype=torch.float32)
        self.blocks = self._programs((config.vocab_size,), E)
        self.best = buffer(batch, self.blocks, dtype=torch.float32)
        self.at = buffer(batch, self.blocks, dtype=torch.int32)
        self.finite = buffer(batch, dtype=torch.float32)  # in place of the best scores, where they are not checked
        self.cos = self.sin = self.x
        if config.rotary is not None:
            positions = torch.arange(min(config.context_length, capacity), device=device)
            self.cos, self.sin = (t.contiguous() for t in config.rotary.angles(positions, D))

    def score(self) -> None:
        """Read the last tokens through all blocks and score the next: into `best` if greedy, else into `logits`."""
        *operations, head = self.model.operations()
        slots = zip(self.cache.keys, self.cache.values, strict=True)
        result = self.x
        added: Product | None = None  # the last product whose sum is still to be added to x
        for i, operation in enumerate(operations):
            if not isinstance(operation, Product):
                self._attend(operation.layer, *next(slots))
                result = self.context
                continue
            first = i == 0
            if operation.norm is not None:
                result = self._norm(operation.norm, added, first)
            out = self.x if operation.residual else self.qkv if operation.activation is None else self.inner
            self._linear(operation, result, out, first=first)
            result, added = out, operation if operation.residual else None
        assert isinstance(head, Product)
        assert head.norm is not None
        self._linear(head, self._norm(head.norm, added), self.logits, best=self.greedy)

    def embed_next(self, chosen: bool, best: Tensor | None = None) -> None:
        """Append the next token and load its vector: the one in `ids` if it was `chosen` already, else the best one.

        best: (B,), the best score of each row, by which one was chosen.
        """
        config, positions, weight = self.model.config, self.model.position_embedding, self.model.token_embedding.weight
        embed[(self.batch,)](
            (self.finite if best is None else best) if chosen else self.best, self.at, self.ids, self.tokens,
            self.step, self.slot, self.start, weight,
            weight if positions is None else positions.weight, self.x, self.blocks, config.vocab_size,
            config.context_length, E=config.d_model, BE=triton.next_power_of_2(config.d_model),
            BLOCKS=triton.next_power_of_2(self.blocks), PICK=not chosen, POSITIONS=positions is not None, num_warps=4,
            **self._launch_options(),
        )  # fmt: skip

    def _norm(self, norm: Norm, added: Product | None, first: bool = False) -> Tensor:
        """norm(x) for several rows, after the sums of `added` are added to x. linear_one norms a single row itself."""
        if self.batch == 1:
            return self.x
        K, bias = self.x.shape[1], None if added is None else added.weights[0].bias
        add_and_norm[(self.batch,)](
            self.x, self.partial_sums, self.x if bias is None else bias, *_norm_pointers(norm, self.x), self.normed,
            self.batch, norm.eps, K=K, BK=triton.next_power_of_2(K), PARTS=0 if added is None else PARTS,
            BIAS=bias is not None, **_norm_options(norm), num_warps=4, **self._launch_options(first),
        )  # fmt: skip
        return self.normed

    def _linear(self, product: Product, x: Tensor, out: Tensor, *, best: bool = False, first: bool = False) -> None:
        """A Product, from x into out. For several rows x is normed already, and residuals are left as partial sums."""
        weights, gate, residual = product.weights, product.gate, product.residual
        sizes = tuple(len(w.weight) for w in weights)
        K, has_bias = weights[0].weight.shape[1], weights[0].bias is not None
        q, k, v = weights * (3 // len(weights))  # one or three
        four = (q, k, v, q if gate is None else gate)
        # A pointer that is never read: any tensor will do.
        pointers = (x, *(w.weight for w in four), *(x if w.bias is None else w.bias for w in four))
        options = {
            "K": K, "ACTIVATION": "none" if product.activation is None else product.activation.name,
            "GATED": gate is not None, "THREE": len(weights) == 3, "BEST": best,
        }  # fmt: skip
        options |= self._block_sizes(sum(sizes), K, matrices=1 if gate is None else 2)
        programs = self._programs(sizes, K)
        if self.batch == 1:
            eps = 0.0 if product.norm is None else product.norm.eps
            linear_one[(programs,)](
                *pointers, *_norm_pointers(product.norm, x), out, self.best, self.at, sizes[0], sizes[-1], eps,
                BIAS=has_bias, ADD=residual, **_norm_options(product.norm), **options, **self._launch_options(first),
            )  # fmt: skip
        else:
            parts = PARTS if residual else 1
            linear_some[(programs, parts)](
                *pointers, self.partial_sums if residual else out, self.best, self.at, self.batch, sizes[0], sizes[-1],
                PARTS=parts, BIAS=has_bias and not residual, PRECISION=_precision(q.weight), **options,
                **self._launch_options(),
            )  # fmt: skip

    def _attend(self, layer: MultiHeadAttention, keys: Tensor, values: Tensor) -> None:
        q_norm, k_norm, D = layer.q_norm, layer.k_norm, layer.head_dim
        rotary = "none" if layer.rotary is None else "pairs" if layer.rotary.interleaved else "halves"
        attend_one[(self.batch * layer.num_kv_heads, self.splits)](
            self.qkv, keys, values, self.slot, self.start,
            self.x if q_norm is None else q_norm.weight, self.x if k_norm is None else k_norm.weight,
            self.cos, self.sin, self.parts, self.tops, self.sums, self.arrived, self.context,
            keys.shape[2], layer.window or 0, D**-0.5 if layer.scale is None else layer.scale,
            0.0 if q_norm is None else q_norm.eps,
            H=layer.num_heads, HKV=layer.num_kv_heads, D=D, DP=self.head_width, G=self.group, BS=self.key_block,
            SPLITS=self.splits, ROTARY=rotary, QK_NORM=q_norm is not None, WINDOW=layer.window is not None,
            PRECISION=_precision(keys), num_warps=4, num_stages=1, **self._launch_options(),
        )  # fmt: skip

    def _block_sizes(self, N: int, K: int, matrices: int = 1) -> dict[str, int]:
        """How many outputs a program computes at a time, and with how many warps; as measured on an H200."""
        if self.batch > 1:
            BB, BN, BK = max(16, triton.next_power_of_2(self.batch)), 16 if N < 4096 else 64, 256
            # Two blocks are in shared memory while one is used; from 64 rows on, three.
            column = (BB + BN * matrices) * self.normed.element_size() * (2 if BB < 64 else 3)
            while BK > 16 and BK * column > self.shared_memory:
                BK //= 2
            BK = min(BK, max(16, triton.next_power_of_2(K)))
            return {"BB": BB, "BN": BN, "BK": BK, "num_warps": 4, "num_stages": 3}
        BK = triton.next_power_of_2(K)
        return {"BN": max(1, min(8192 // BK, 16 if N > 16384 else 8 if N > 1536 else 4)), "BK": BK, "num_warps": 4}

    def _programs(self, sizes: tuple[int, ...], K: int) -> int:
        """How many programs share these outputs: for one row, as many as run at once, each with several blocks."""
        BN = self._block_sizes(sum(sizes), K)["BN"]
        blocks = sum(-(-size // BN) for size in sizes)
        return blocks if self.batch > 1 else min(blocks, MAX_PROGRAMS)

    def _launch_options(self, first: bool = False) -> dict[str, Any]:
        """The first kernel of a token waits for everything before it, so the others may load ahead."""
        return {"EARLY": self.early} | ({"launch_pdl": True} if self.early and not first else {})


def _norm_options(norm: Norm | None) -> dict[str, Any]:
    kind = "none" if norm is None else "layer" if isinstance(norm, nn.LayerNorm) else "rms"
    return {"NORM": kind, "NORM_BIAS": getattr(norm, "bias", None) is not None}


def _norm_pointers(norm: Norm | None, x: Tensor) -> tuple[Tensor, Tensor]:
    bias = getattr(norm, "bias", None)
    return x if norm is None else norm.weight, x if bias is None else bias


def _precision(t: Tensor) -> str:
    return "ieee" if t.dtype is torch.float32 else "tf32"
