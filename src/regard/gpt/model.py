"""GPT: from token ids to a score for every possible next token.

Token and position embeddings are added, then come the blocks, a final norm and the head. With rotary positions there
is no position embedding: attention rotates queries and keys instead.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.cache import Cache, Slot
from regard.attention.positions import sinusoidal
from regard.gpt.block import AnyMask, Block, LinearWeights, Operation, Positions, Product, apply_norm, make_norm
from regard.gpt.config import GPTConfig
from regard.gpt.generate.options import GenerateOptions, StreamOptions
from regard.gpt.generate.result_types import typed_by_prompt
from regard.gpt.loss import next_token_loss
from regard.gpt.option_table import with_keywords
from regard.steps import step
from regard.support.arguments import autocast_dtype, check_length, describe_tensor, tensor_remedy
from regard.support.super_init import explain_in_subclasses

if TYPE_CHECKING:
    from regard.gpt.generate.generate import GenerationStream
    from regard.gpt.tokenizer.tokenizer import Tokenizer


@explain_in_subclasses
class GPT(nn.Module):
    """A language model: GPT-2, the Llama family and models between, according to its config.

    >>> model = GPT("tiny")
    >>> model(torch.tensor([[5, 6, 7]])).shape  # a score for each of 4096 tokens, after each of three
    torch.Size([1, 3, 4096])
    """

    tokenizer: Tokenizer | None

    def __init__(self, config: GPTConfig | str) -> None:
        super().__init__()
        config = GPTConfig.preset(config) if isinstance(config, str) else config
        if not isinstance(config, GPTConfig):
            raise ValueError(
                f"GPT takes a GPTConfig or the name of a preset, not {type(config).__name__}; write GPT('tiny') or "
                "GPT(GPTConfig(vocab_size=…, context_length=…, num_layers=…, d_model=…, num_heads=…))"
            )
        self.config = config
        self.tokenizer = None
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        learned = config.rotary is None
        self.position_embedding = nn.Embedding(config.context_length, config.d_model) if learned else None
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_norm = make_norm(config)
        # A tied head is the token embedding itself: one tensor, one name.
        self.head = None if config.tied else nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.initialise()

    @torch.no_grad()
    def initialise(self) -> None:
        """Initialise weights as GPT-2 does: normal, std 0.02, scaled by 1/√(2 · layers) where a residual is added."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif "norm" in name:
                parameter.fill_(1.0)
            elif name == "position_embedding.weight":
                parameter.normal_(std=0.01)
            elif name.endswith(("out_proj.weight", "down.weight")):
                parameter.normal_(std=0.02 / (2 * self.config.num_layers) ** 0.5)
            else:
                parameter.normal_(std=0.02)

    @torch.no_grad()
    def start_sinusoidal(self) -> None:
        """Initialise the position embedding with sines and cosines: neighbouring positions differ from the start.

        A position's vector is then about as long as a token's.
        """
        if self.position_embedding is None:
            raise ValueError("this model has rotary positions; there is no position embedding to initialise")
        weight = self.position_embedding.weight
        length, width = weight.shape
        weight.copy_(0.02 * 2**0.5 * sinusoidal(length, width, weight.device))

    def forward(
        self, ids: Int[Tensor, "B T"], *, mask: AnyMask = None, cache: Cache | None = None, positions: Positions = None
    ) -> Float[Tensor, "B T V"]:
        """Logits for the token after each token of the text.

        mask: regard.causal() and the like, a bool tensor (True = may attend) or key lengths; added to causal.
        cache: a regard.Cache for this model, `model.cache()`; it is advanced once all blocks have written.
        positions: (T,) or (B, T); by default they continue from the cache.
        """
        return self.score(self.hidden(ids, mask=mask, cache=cache, positions=positions))

    if TYPE_CHECKING:  # what nn.Module calls forward with, and returns, is Any

        def __call__(
            self, ids: Tensor, *, mask: AnyMask = None, cache: Cache | None = None, positions: Positions = None
        ) -> Tensor: ...

    def hidden(
        self, ids: Int[Tensor, "B T"], *, mask: AnyMask = None, cache: Cache | None = None, positions: Positions = None
    ) -> Float[Tensor, "B T E"]:
        """The final hidden state of each token, from which `score` computes logits."""
        if isinstance(cache, Slot):
            raise ValueError("this is the part of one layer; pass the whole cache, as model.cache() makes it")
        start = 0 if cache is None else cache.length
        self._check(ids, start)
        if positions is None:
            positions = torch.arange(start, start + ids.shape[1], device=ids.device)
        x = step("token vectors", self.token_embedding(step("tokens", ids, why="text as numbers")))
        if self.position_embedding is not None:
            added = step("position vectors", self.position_embedding(positions))
            x = step("embeddings", x + added, why="what, and where")
        dtype = autocast_dtype(x.device.type)
        if dtype is not None:  # blocks add 16-bit numbers, so the residual stream needs no more
            x = x.to(dtype)
        x = self.dropout(x)
        rotary_positions = None if self.config.rotary is None else positions
        for i, block in enumerate(self.blocks):
            x = block(x, mask=mask, cache=None if cache is None else cache[i], positions=rotary_positions)
        if cache is not None:
            cache.advance(ids.shape[1])
        return step("final norm", apply_norm(self.final_norm, x), why="each vector normalized")

    def score(self, x: Float[Tensor, "... E"]) -> Float[Tensor, "... V"]:
        """The head: a logit for every token of the vocabulary."""
        return step("logits", F.linear(x, self.head_weight), why="a score for every token")

    def loss(self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """Mean cross-entropy of the next tokens, without keeping all logits in memory.

        >>> _ = torch.manual_seed(5)
        >>> model, ids = GPT("tiny"), torch.tensor([[5, 6, 7, 8]])
        >>> round(model.loss(ids[:, :-1], ids[:, 1:]).item())  # untrained: near log 4096
        8
        """
        return next_token_loss(self.hidden(ids).flatten(0, 1), self.head_weight, targets.flatten())

    def operations(self) -> list[Operation]:
        """What follows the embeddings, from the first block to the logits, for decoders that call no modules."""
        blocks = [operation for block in self._blocks() for operation in block.operations()]
        return [*blocks, Product((LinearWeights(self.head_weight),), norm=self.final_norm)]

    @property
    def head_weight(self) -> Float[Tensor, "V E"]:
        """The head's weight: the token embedding where they are tied."""
        return self.token_embedding.weight if self.head is None else self.head.weight

    def cache(self, batch: int = 1, capacity: int | None = None) -> Cache:
        """An empty cache for this model; its capacity is the whole context by default."""
        return Cache.of(*(block.attention for block in self._blocks()), batch=batch, capacity=capacity)

    def _blocks(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]

    @typed_by_prompt
    @with_keywords(GenerateOptions)
    def generate(self, prompt: str | Sequence[Any] | Tensor, options: GenerateOptions) -> Any:
        """Continue a prompt; returns only what comes after it: a str for a str, ids for ids, a list for a list.

        >>> len(GPT("tiny").generate([5, 6, 7], max_new_tokens=3))
        3

        prompt: a text, token ids, several of either, or a tensor (T,) or (B, T); rows may have different lengths.

        A text ends before `stop` (a string, a token id, or several), at the model's end token, and when the context is
        full. Row i of a batch is the text of seed + i alone; with samples=n, a list of n texts for each prompt, sample
        j of prompt i is row i × n + j. `mask` allows padding on the left or on the right. With logprobs=True, each text
        is a regard.gpt.generate.text.Continuation, with the model's log-probability of every new token.

        Options; how the first four work together is said in regard.gpt.generate.options.SamplingOptions:
        """
        from regard.gpt.generate.generate import generate

        return generate(self, prompt, options)

    @with_keywords(StreamOptions)
    def stream(self, prompt: str | Sequence[int] | Tensor, options: StreamOptions) -> GenerationStream:
        """Continue a prompt; yields pieces of text (or ids, for ids) as they come. `.reason` says why the text ended.

        >>> stream = GPT("tiny").stream([5, 6, 7], max_new_tokens=3)
        >>> len(list(stream)), stream.reason
        (3, 'length')

        Options:
        """
        from regard.gpt.generate.generate import GenerationStream

        return GenerationStream(self, prompt, options)

    def _check(self, ids: Tensor, start: int) -> None:
        V = self.config.vocab_size
        if not isinstance(ids, Tensor):
            encoded = "one text is torch.tensor([model.tokenizer.encode(text)])"
            remedy = encoded if isinstance(ids, str) else tensor_remedy("ids", ids)
            raise ValueError(f"ids must be a tensor of shape (B, T), not {type(ids).__name__}; {remedy}")
        if ids.dim() != 2 or ids.is_floating_point():
            rule = f"ids must be whole numbers of shape (B, T), but are {describe_tensor(ids)}"
            raise ValueError(f"{rule}; one text is torch.tensor([[…]])")
        check_length(start + ids.shape[1], self.config.context_length, what="model")
        # On a GPU, the check would wait for all queued kernels.
        if ids.device.type == "cpu" and not torch.compiler.is_compiling():
            outside = ids[(ids < 0) | (ids >= V)]
            if len(outside):
                raise ValueError(
                    f"token id {int(outside[0])} is not among this model's {V} (0 to {V - 1}); "
                    "was the text tokenised for another model?"
                )

    @classmethod
    def from_pretrained(
        cls,
        name_or_dir: str | os.PathLike[str],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> GPT:
        """A trained model: from a directory, or by its name on the Hugging Face Hub.

        It takes transformers' GPT-2, Llama, Mistral, Qwen 2 and Qwen 3, safetensors only. tokenizer.json, where there
        is one, becomes model.tokenizer. dtype defaults to the file's, and to float32 for "tiny", the model in the
        package. The model is in eval mode.
        """
        from regard.gpt.checkpoint.pretrained import load_pretrained

        model, tokenizer = load_pretrained(cls, name_or_dir, device=device, dtype=dtype)
        model.tokenizer = tokenizer
        return model

    def save_pretrained(self, directory: str | os.PathLike[str]) -> None:
        """Write the model to a directory that `from_pretrained` and transformers load; all of it, or nothing."""
        from regard.gpt.checkpoint.saving import save

        save(self, directory)

    def extra_repr(self) -> str:
        """The parameter count."""
        return f"parameters={sum(p.numel() for p in self.parameters()):,}"
