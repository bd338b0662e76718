"""`regard bench NAME`: the benchmarks. Their options are in regard.bench.options: they also run where typer is missing."""

from __future__ import annotations

from importlib import import_module

import typer

from regard.bench.options import DESCRIPTIONS, PARSERS

bench = typer.Typer(help="Measure side by side with other libraries, in one run.", no_args_is_help=True)

# All arguments, and -h too, go to the benchmark's own parser.
_FORWARD = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def _add(name: str) -> None:
    @bench.command(name, context_settings=_FORWARD, help=DESCRIPTIONS[name])
    def run(context: typer.Context) -> None:
        PARSERS[name]().parse_args(context.args)  # --help and mistakes end here, before torch is imported
        import_module(f"regard.bench.{name}").main(context.args)


for _name in PARSERS:
    _add(_name)
