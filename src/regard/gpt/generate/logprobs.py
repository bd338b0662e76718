"""Log-probabilities: how likely a model finds each token of a text after its prompt.

The text is read once more, as a whole. That costs far less than generating it token by token, and is the same for
every decoder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.gpt.generate.unmodified import needs_module_calls

if TYPE_CHECKING:
    from regard.gpt.model import GPT

AT_ONCE = 64  # tokens whose scores, one for each token of the vocabulary, are in memory at once


@torch.inference_mode()
def log_probabilities(model: GPT, prompt: list[int], ids: list[int]) -> list[float]:
    """log p(token | prompt and the tokens before it), for each of `ids`; in float32 or wider.

    >>> from regard.gpt import GPT
    >>> _ = torch.manual_seed(5)
    >>> values = log_probabilities(GPT("tiny").eval(), [5, 6], [7, 8, 9])
    >>> [-10 < value < -7 for value in values]  # untrained: near -log 4096, which is -8.3
    [True, True, True]
    """
    if not prompt:
        raise ValueError("the prompt is empty, so nothing comes before the first token; give it a token at least")
    if not ids:
        return []
    device = model.token_embedding.weight.device
    read = torch.tensor([prompt + ids[:-1]], device=device)  # nothing follows the last token
    targets = torch.tensor(ids, device=device)
    if needs_module_calls() or model._forward_hooks or model._forward_pre_hooks:
        scores: Tensor = model(read)
        parts = scores[0, len(prompt) - 1 :].split(AT_ONCE)
    else:
        parts = (model.score(x) for x in model.hidden(read)[0, len(prompt) - 1 :].split(AT_ONCE))
    values: list[float] = []
    for logits, expected in zip(parts, targets.split(AT_ONCE), strict=True):
        wide = logits if logits.dtype is torch.float64 else logits.float()
        values += (wide.gather(-1, expected[:, None])[:, 0] - wide.logsumexp(-1)).tolist()
    return values
