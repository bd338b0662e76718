"""Take the pictures of docs/page.md: `python docs/page/pictures.py BOOK.txt`, in the directory of the project."""

import sys
import tempfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import torch
from PIL import Image

import regard
from regard.commands.shared.texts import REPEATED
from regard.show.figures.poster import draw_poster
from regard.show.page.write import titled_texts, write_page
from regard.traces.trace import trace_layers

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "show" / "page"))
from chromium import chromium, opened

HERE = Path(__file__).parent
SIZES = {"": {"width": 1440, "height": 900}, "-phone": {"width": 390, "height": 844}}
LONG = 2048  # tokens; the model in the package reads 512, so its positions are repeated
model = regard.GPT.from_pretrained("tiny")
state = model.state_dict()
places = torch.arange(LONG) % model.config.context_length
state["position_embedding.weight"] = state["position_embedding.weight"][places]
reads_long = regard.GPT(replace(model.config, context_length=LONG)).eval()
reads_long.load_state_dict(state)
short, long = (model.tokenizer.encode(text) for text in (REPEATED, Path(sys.argv[1]).read_text(encoding="utf-8")))

with tempfile.TemporaryDirectory() as folder:
    pages = {}
    for name, reader, ids in (("short", model, short), ("long", reads_long, long[:LONG])):
        inputs = torch.tensor([ids])
        with torch.no_grad(), regard.watch(reader, tokenizer=model.tokenizer, keep=True) as seen:
            reader(inputs)
        pages[name] = Path(folder) / f"{name}.html"
        layers = trace_layers(model, {"ids": inputs}, [4]) if name == "short" else {}
        write_page(pages[name], titled_texts(seen, "tiny", layers))
        if name == "short":
            draw_poster(seen, "tiny").savefig(HERE / "poster.png", dpi=72)
    with chromium() as browser:
        for view in ("heads", "head", "layer", "flow", "steps", "long", "compare"):
            file = pages["long" if view == "long" else "short"]
            for theme in ("light", "dark"):
                for suffix, size in SIZES.items():
                    with opened(browser, file, f"view={view}", viewport=size, color_scheme=theme) as page:
                        page.tab.wait_for_timeout(300)
                        picture = Image.open(BytesIO(page.tab.screenshot())).convert("RGB")
                    small = picture.quantize(160, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
                    small.save(HERE / f"{view}-{theme}{suffix}.png", optimize=True)
