"""The command lines of all benchmarks. Needs nothing beyond Python: `--help` must not wait for torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

DESCRIPTIONS = {
    "layer": "Time one attention layer against other libraries' layers.",
    "memory": "Measure the memory of one layer over a long text, on the CPU.",
    "watch": "Time watched attention and models against unwatched ones.",
    "generate": "Time text generation against transformers.",
    "train": "Time a training step against transformers' GPT-2.",
}
DTYPES = {  # torch's names, by those of the command line
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float32": "float32",
    "fp16": "float16",
    "fp32": "float32",
}
MODES = ("forward", "step")  # of the layer benchmark; step is forward + backward
KINDS = ("kernel", "memory", "model")  # cases of the watch benchmark
LAYERS = (
    "regard",
    "textbook layer",
    "nn.MHA",
    "nn.MHA weights",
    "transformers",
    "x-transformers",
    "bare permute",
    "bare split",
)
MEMORY_TOKENS = 16384


def layer_parser() -> argparse.ArgumentParser:
    """Options of `regard bench layer`."""
    parser = _timing_parser("layer", rounds=20, seconds=3.0, quick="one small shape in float32")
    parser.add_argument(
        "--shape", action="append", metavar="E,H,B,T", help="width, heads, batch size and tokens; may be repeated"
    )
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="data type; may be repeated")
    parser.add_argument("--mode", action="append", choices=MODES, help="what to time [default: both]")
    parser.add_argument("--only", metavar="NAMES", help=f"comma-separated, from: {', '.join(LAYERS)} [default: all]")
    parser.add_argument(
        "--compiled",
        nargs="?",
        const=",".join(LAYERS),
        default="",
        metavar="NAMES",
        help="also time these with torch.compile; without names, all",
    )
    return parser


def memory_parser() -> argparse.ArgumentParser:
    """Options of `regard bench memory`."""
    parser = _parser("memory")
    parser.add_argument("--tokens", type=int, default=MEMORY_TOKENS, help="length of the text [default: %(default)s]")
    parser.add_argument(
        "--textbook", action="store_true", help="measure the textbook layer too; estimate it where it does not fit"
    )
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    return parser


def watch_parser() -> argparse.ArgumentParser:
    """Options of `regard bench watch`."""
    parser = _timing_parser("watch", rounds=20, seconds=3.0, quick="small sizes")
    parser.add_argument(
        "--case", action="append", choices=KINDS, help="what to measure; may be repeated [default: all]"
    )
    parser.add_argument("--tokens", action="append", type=int, metavar="T", help="length of the text; may be repeated")
    parser.add_argument(
        "--heads", action="append", metavar="HxD", help="number and width of heads, such as 12x64; may be repeated"
    )
    _add_dtype(parser, *DTYPES)
    return parser


def generate_parser() -> argparse.ArgumentParser:
    """Options of `regard bench generate`."""
    parser = _timing_parser("generate", rounds=10, seconds=20.0, quick="a very small model")
    _add_model(parser)
    parser.add_argument("--batch", action="append", type=int, help="batch size; may be repeated [default: 1]")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt [default: %(default)s]")
    parser.add_argument("--new", type=int, default=128, help="tokens to generate [default: %(default)s]")
    _add_dtype(parser, *DTYPES)
    return parser


def train_parser() -> argparse.ArgumentParser:
    """Options of `regard bench train`."""
    parser = _timing_parser("train", rounds=5, seconds=60.0, quick="a very small model")
    _add_model(parser)
    parser.add_argument(
        "--batch", action="append", type=int, help="batch size; may be repeated [default: 32 on a GPU, else 2]"
    )
    parser.add_argument("--tokens", type=int, help="tokens per row [default: 1024 on a GPU, else 256]")
    _add_dtype(parser, "bf16", "fp32")
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="torch.compile [default: on a GPU]; on a CPU set OMP_WAIT_POLICY=passive",
    )
    return parser


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "layer": layer_parser,
    "memory": memory_parser,
    "watch": watch_parser,
    "generate": generate_parser,
    "train": train_parser,
}


def check_positive(options: argparse.Namespace, *also: str) -> None:
    """Refuse rounds, seconds, threads and the named options unless they are above 0; lists number by number."""
    for option in ("rounds", "seconds", "threads", *also):
        value = getattr(options, option)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and number <= 0:
                raise ValueError(f"--{option} {number} must be above 0")


def _parser(name: str) -> argparse.ArgumentParser:
    # Wide enough for one line per option at 80 columns, whatever the terminal is.
    formatter = partial(argparse.HelpFormatter, max_help_position=28, width=80)
    return argparse.ArgumentParser(
        prog=f"regard bench {name}", description=DESCRIPTIONS[name], formatter_class=formatter
    )


def _timing_parser(name: str, *, rounds: int, seconds: float, quick: str) -> argparse.ArgumentParser:
    """The options of every benchmark that measures time."""
    parser = _parser(name)
    parser.add_argument("--device", help="cpu or cuda [default: cuda if available, else cpu]")
    parser.add_argument("--rounds", type=int, default=rounds, help="most rounds per contender [default: %(default)s]")
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="most time per contender and figure [default: %(default)g]"
    )
    parser.add_argument("--threads", type=int, help="CPU threads [default: PyTorch's]")
    parser.add_argument("--out", default="bench-out", metavar="DIR", help="output directory [default: %(default)s]")
    parser.add_argument("--quick", action="store_true", help=f"{quick}, for a run of a few seconds")
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", action="append", help="preset of GPTConfig; may be repeated [default: gpt2-small]")


def _add_dtype(parser: argparse.ArgumentParser, *names: str) -> None:
    parser.add_argument("--dtype", choices=names, help="data type [default: bf16 on a GPU, else fp32]")
