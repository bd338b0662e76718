"""The options of all benchmarks. Needs nothing beyond Python: `--help` must not wait for torch."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from regard.bench.command_line import BenchParser

DESCRIPTIONS = {
    "layer": "Time one attention layer against other libraries' layers.",
    "memory": "Measure the memory of one layer over a long text, on the CPU.",
    "watch": "Time watched attention and models against unwatched ones.",
    "cut": "Time a model with a head switched off against TransformerLens.",
    "generate": "Time text generation against transformers.",
    "train": "Time a training step against transformers' GPT-2.",
    "check": "Put known mistakes into right layers, and count how many `regard check` names.",
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
PROMPT, NEW = 64, 128  # tokens of the generate benchmark


def layer_parser() -> BenchParser:
    """Options of `regard bench layer`."""
    parser = _timing_parser("layer", rounds=20, seconds=3.0, quick="One small shape in float32")
    parser.add_argument(
        "--shape",
        action="append",
        metavar="E,H,B,T",
        help="Width, heads, batch size and tokens; may be repeated. [default: sizes of GPT-2]",
    )
    parser.add_argument(
        "--dtype",
        action="append",
        choices=DTYPES,
        help="Data type; may be repeated. [default: bf16 on a GPU, else fp32 and bf16]",
    )
    parser.add_argument("--mode", action="append", choices=MODES, help="What to time. [default: both]")
    parser.add_argument("--only", metavar="NAMES", help=f"Comma-separated, from: {', '.join(LAYERS)}. [default: all]")
    parser.add_argument(
        "--compiled",
        nargs="?",
        const=",".join(LAYERS),
        default="",
        metavar="NAMES",
        help="Also time these with torch.compile; without names, all. [default: none]",
    )
    return parser


def memory_parser() -> BenchParser:
    """Options of `regard bench memory`."""
    parser = _parser("memory")
    parser.add_argument("--tokens", type=int, default=MEMORY_TOKENS, help="Length of the text. [default: %(default)s]")
    parser.add_argument(
        "--textbook",
        action="store_true",
        help="Measure the textbook layer too; estimate it where it does not fit. [default: off]",
    )
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    return parser


def watch_parser() -> BenchParser:
    """Options of `regard bench watch`."""
    parser = _timing_parser("watch", rounds=20, seconds=3.0, quick="Small sizes")
    parser.add_argument(
        "--case", action="append", choices=KINDS, help="What to measure; may be repeated. [default: all]"
    )
    parser.add_argument(
        "--tokens", action="append", type=int, help="Length of the text; may be repeated. [default: by case and device]"
    )
    parser.add_argument(
        "--heads",
        action="append",
        metavar="HxD",
        help="Number and width of heads; may be repeated. [default: 12x64, on a GPU also 16x128]",
    )
    _add_dtype(parser, *DTYPES)
    return parser


def cut_parser() -> BenchParser:
    """Options of `regard bench cut`."""
    parser = _timing_parser("cut", rounds=20, seconds=5.0, quick="A very small model")
    parser.add_argument(
        "--tokens", action="append", type=int, help="Length of the text; may be repeated. [default: 128 and 1024]"
    )
    _add_dtype(parser, *DTYPES)
    return parser


def generate_parser() -> BenchParser:
    """Options of `regard bench generate`."""
    parser = _timing_parser("generate", rounds=10, seconds=20.0, quick="A very small model, 7 + 11 tokens")
    _add_model(parser)
    parser.add_argument("--batch", action="append", type=int, help="Batch size; may be repeated. [default: 1]")
    parser.add_argument("--prompt", type=int, help=f"Tokens of the prompt. [default: {PROMPT}]")
    parser.add_argument("--new", type=int, help=f"Tokens to generate. [default: {NEW}]")
    _add_dtype(parser, *DTYPES)
    return parser


def train_parser() -> BenchParser:
    """Options of `regard bench train`."""
    parser = _timing_parser("train", rounds=5, seconds=60.0, quick="A very small model")
    _add_model(parser)
    parser.add_argument(
        "--batch", action="append", type=int, help="Batch size; may be repeated. [default: 32 on a GPU, else 2]"
    )
    parser.add_argument("--tokens", type=int, help="Tokens per row. [default: 1024 on a GPU, else 256]")
    _add_dtype(parser, "bf16", "fp32")
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="Use torch.compile; on a CPU, set OMP_WAIT_POLICY=passive. [default: on a GPU]",
    )
    return parser


def check_parser() -> BenchParser:
    """Options of `regard bench check`."""
    parser = _parser("check")
    parser.add_argument("--pairs", type=int, default=150, help="Pairs of mistakes to try. [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=0, help="Which pairs are tried. [default: %(default)s]")
    parser.add_argument("--table", metavar="FILE", help="Write the tables to this Markdown file. [default: off]")
    return parser


PARSERS: dict[str, Callable[[], BenchParser]] = {
    "layer": layer_parser,
    "memory": memory_parser,
    "watch": watch_parser,
    "cut": cut_parser,
    "generate": generate_parser,
    "train": train_parser,
    "check": check_parser,
}


def check_positive(options: argparse.Namespace, *also: str) -> None:
    """Refuse rounds, seconds, threads and the named options unless they are above 0; lists number by number."""
    for option in ("rounds", "seconds", "threads", *also):
        value = getattr(options, option, None)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and number <= 0:
                raise ValueError(f"--{option} {number} must be above 0")


def _parser(name: str) -> BenchParser:
    return BenchParser(prog=f"regard bench {name}", description=DESCRIPTIONS[name])


def _timing_parser(name: str, *, rounds: int, seconds: float, quick: str) -> BenchParser:
    """The options of every benchmark that measures time."""
    parser = _parser(name)
    parser.add_argument("--device", help="Device: cpu, cuda, … [default: cuda if available, else cpu]")
    parser.add_argument("--rounds", type=int, default=rounds, help="Most rounds per contender. [default: %(default)s]")
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="Most time per contender and figure. [default: %(default)g]"
    )
    parser.add_argument("--threads", type=int, help="CPU threads. [default: PyTorch's]")
    parser.add_argument("--out", default="bench-out", metavar="DIR", help="Output directory. [default: %(default)s]")
    parser.add_argument("--quick", action="store_true", help=f"{quick}, for a run of a few seconds. [default: off]")
    return parser


def _add_model(parser: BenchParser) -> None:
    parser.add_argument("--model", action="append", help="Preset of GPTConfig; may be repeated. [default: gpt2-small]")


def _add_dtype(parser: BenchParser, *names: str) -> None:
    parser.add_argument("--dtype", choices=names, help="Data type. [default: bf16 on a GPU, else fp32]")
