"""The key/value cache: memory for the whole text, allocated once, and advanced by the model after each forward.

A layer writes its new keys and values at `cache.length` and reads all of them back; it never changes the length.
When every layer has written, the model calls `cache.advance(T)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from regard.support.super_init import check_initialised

if TYPE_CHECKING:
    from regard.attention.layer import MultiHeadAttention


@dataclass(frozen=True)
class Slot:
    """One layer's share of a cache."""

    cache: Cache
    index: int

    @property
    def length(self) -> int:
        """How many tokens the cache holds before this step."""
        return self.cache.length

    def write(
        self, k: Float[Tensor, "B Hkv T D"], v: Float[Tensor, "B Hkv T D"]
    ) -> tuple[Float[Tensor, "B Hkv S D"], Float[Tensor, "B Hkv S D"]]:
        """Append the new keys and values to the old ones, and return all of them."""
        keys, end = self.cache.keys[self.index], self.cache.length + k.shape[2]
        if end > self.cache.capacity:
            held = f"the cache holds {self.cache.length} of {self.cache.capacity}"
            remedy = f"build it with capacity={end} or more, or reset() it"
            raise ValueError(f"{k.shape[2]} more tokens do not fit: {held}; {remedy}")
        if (k.shape[0], k.shape[1], k.shape[3]) != (keys.shape[0], keys.shape[1], keys.shape[3]):
            built = f"batch={keys.shape[0]}, num_kv_heads={keys.shape[1]}, head_dim={keys.shape[3]}"
            remedy = f"build it with Cache.of(layer, batch={k.shape[0]})"
            raise ValueError(f"keys are {tuple(k.shape)} but the cache was built for {built}; {remedy}")
        if v.shape != k.shape:
            raise ValueError(f"keys are {tuple(k.shape)} but values are {tuple(v.shape)}; every key needs a value")
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
            raise ValueError("a cache is for inference and keeps no gradients; call the layer under torch.no_grad()")
        values = self.cache.values[self.index]
        keys[:, :, self.cache.length : end] = k
        values[:, :, self.cache.length : end] = v
        return keys[:, :, :end], values[:, :, :end]


class Cache:
    """Keys and values of every layer, preallocated.

    >>> cache = Cache(num_layers=2, batch=1, num_kv_heads=3, capacity=8, head_dim=4)
    >>> k = v = torch.ones(1, 3, 5, 4)
    >>> for slot in cache:
    ...     keys, values = slot.write(k, v)
    >>> cache.advance(5)
    >>> cache
    Cache(2 layers, batch 1, 3 kv heads of 4, 5 of 8 tokens, float32, 1.5 KiB)
    """

    def __init__(
        self,
        *,
        num_layers: int,
        batch: int,
        num_kv_heads: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        sizes = {"num_layers": num_layers, "num_kv_heads": num_kv_heads, "capacity": capacity, "head_dim": head_dim}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} ({size}) must be at least 1")
        if batch < 0:
            raise ValueError(f"batch ({batch}) must be at least 0; it is the number of texts side by side")
        shape = (num_layers, batch, num_kv_heads, capacity, head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.length = 0

    @classmethod
    def of(cls, *layers: MultiHeadAttention, batch: int = 1, capacity: int | None = None) -> Cache:
        """A cache for these layers; `capacity` is their context_length unless given."""
        if not layers:
            raise ValueError("Cache.of() needs at least one layer")
        for layer in layers:
            check_initialised(layer)
        shapes = {(layer.num_kv_heads, layer.head_dim) for layer in layers}
        if len(shapes) > 1:
            differ = f"the layers differ in (num_kv_heads, head_dim): {sorted(shapes)}"
            raise ValueError(f"{differ}; build one cache for each")
        first = layers[0]
        capacity = first.context_length if capacity is None else capacity
        if capacity is None:
            raise ValueError("this layer has no context_length to go by; say Cache.of(layer, capacity=…)")
        weight = first.W_key.weight
        return cls(
            num_layers=len(layers),
            batch=batch,
            num_kv_heads=first.num_kv_heads,
            capacity=capacity,
            head_dim=first.head_dim,
            dtype=weight.dtype,
            device=weight.device,
        )

    @property
    def capacity(self) -> int:
        """How many tokens fit."""
        return self.keys.shape[3]

    def advance(self, tokens: int) -> None:
        """Count the tokens that every layer has written."""
        if not 0 <= tokens <= self.capacity - self.length:
            raise ValueError(f"cannot advance by {tokens}: the cache holds {self.length} of {self.capacity} tokens")
        self.length += tokens

    def reset(self) -> None:
        """Forget everything; the memory stays."""
        self.length = 0

    def __len__(self) -> int:
        return self.keys.shape[0]

    def __getitem__(self, index: int) -> Slot:
        if not -len(self) <= index < len(self):
            raise IndexError(f"layer {index} of a cache for {len(self)} layers")
        return Slot(self, index)

    def __repr__(self) -> str:
        layers, batch, heads, capacity, width = self.keys.shape
        size = 2 * self.keys.numel() * self.keys.element_size() / 1024
        text = f"{size:.1f} KiB" if size < 1024 else f"{size / 1024:.1f} MiB"
        return (
            f"Cache({layers} layer{'s' * (layers != 1)}, batch {batch}, {heads} kv heads of {width}, "
            f"{self.length} of {capacity} tokens, {str(self.keys.dtype).removeprefix('torch.')}, {text})"
        )


def remember(cache: Slot | None, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Write keys and values to a layer's share of a cache: all of them so far, with queries in the cache's dtype."""
    if cache is None:
        return q, k, v
    keys, values = cache.write(k, v)
    return q.to(keys.dtype), keys, values
