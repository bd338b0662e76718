"""`regard page --live`: a page that holds the model and runs it in the browser."""

from pathlib import Path

from regard.gpt.model import GPT
from regard.show.page.live import live_page
from regard.show.page.long import LONGEST_EXACT
from regard.support.files import atomically


def write_live_page(output: str, name: str, text: str | None, max_tokens: int | None) -> None:
    """Write the page; its size is said before."""
    model = GPT.from_pretrained(name)
    content = live_page(model, Path(name).name or name, text, max_tokens or LONGEST_EXACT).html()
    print(f"\n  The page holds the model: {len(content.encode()) / 1e6:.1f} MB")
    with atomically(output) as temporary:
        temporary.write_text(content, encoding="utf-8")
