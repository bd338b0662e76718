"""`regard page --live`: a page that holds the model and runs it in the browser."""

from pathlib import Path

from regard.gpt.model import GPT
from regard.gpt.portable import portable
from regard.gpt.tokenizer.portable import portable_tokenizer
from regard.show.page.live import LivePage
from regard.show.page.long import LONGEST_EXACT
from regard.support.files import atomically

LARGEST = 100 << 20  # bytes of a model; the browser keeps it as text, unpacked and as float32


def live_page(model: GPT, name: str, text: str, longest: int = LONGEST_EXACT) -> LivePage:
    """The page of a model. longest: tokens that it reads at most."""
    if model.tokenizer is None:
        raise ValueError("a page that runs a model needs its tokenizer; set model.tokenizer, a regard.Tokenizer")
    plan, weights = portable(model)
    return LivePage(plan, weights, portable_tokenizer(model.tokenizer), name, text, longest)


def write_live_page(output: str, name: str, text: str, max_tokens: int | None) -> None:
    """Write the page; its size is said before."""
    model = GPT.from_pretrained(name)
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    if size > LARGEST:
        raise ValueError(
            f"{name} has {size / 2**20:,.0f} MiB of weights, and a page that runs its model holds at most "
            f"{LARGEST >> 20} MiB; without --live, the page shows this text only, for models of any size"
        )
    content = live_page(model, Path(name).name or name, text, max_tokens or LONGEST_EXACT).html()
    print(f"\n  The page holds the model: {len(content.encode()) / 1e6:.1f} MB")
    with atomically(output) as temporary:
        temporary.write_text(content, encoding="utf-8")
