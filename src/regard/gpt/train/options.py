"""The table of training options: type, default, help text and check of each, stated once.

`fit` takes its keyword arguments from it, `regard train` its flags, and a checkpoint the recipe that a resumed run must
repeat. To add an option, add a field here and use it where it acts.

    Recipe        decides what a run learns: must be the same when the run resumes
    FitOptions    + where and how it runs, and what it writes: may change when it resumes
    ModelOptions  which model `regard train` starts from: flags of the command only
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from regard.gpt.option_table import Option, Spec, at_least_one, check_options, flags_of, number, valid_seed
from regard.support.argument_names import named


def count(zero: str) -> Callable[[str, int], None]:
    """A number of at least 0; `zero` says what 0 means."""
    return number(lambda value: value >= 0, f"at least 0; 0 is {zero}")


def fraction(usual: str) -> Callable[[str, float], None]:
    """A number of at least 0 and below 1; `usual` is the remedy."""
    return number(lambda value: isinstance(value, (int, float)) and 0 <= value < 1, f"at least 0 and below 1; {usual}")


def precision(name: str, value: str) -> None:
    """A dtype to compute in."""
    if value not in ("fp32", "bf16"):
        raise ValueError(f"{named(name, value, repr)} must be 'fp32' or 'bf16'")


class StartingPoint(NamedTuple):
    """The command's batch size and peak learning rate for a kind of model."""

    batch: int
    learning_rate: float


MICRO = StartingPoint(32, 3e-3)
TINY = StartingPoint(16, 1e-3)
GPT2 = StartingPoint(8, 6e-4)
FINE_TUNING = StartingPoint(8, 5e-5)

_TENTH_OF_RUN = "steps / 10, from 100 to 1000"
_RATES = (
    f"{MICRO.learning_rate} for micro, {TINY.learning_rate} for tiny, {GPT2.learning_rate} for gpt2-…, "
    f"{FINE_TUNING.learning_rate} with --model"
)
_rate = number(lambda rate: 0 < rate < math.inf, "above 0; 1e-3 is usual for a small model")
_decay = number(lambda decay: 0 <= decay < math.inf, "at least 0; 0.1 is usual, 0 is none")
_norm = number(lambda norm: norm > 0, "above 0; 1.0 is usual, inf is none")
_kept = number(lambda kept: kept >= 1, "at least 1: a run resumes from its last checkpoint")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides what a run learns; a resumed run must have the same.

    >>> Recipe(steps=100, batch=4, learning_rate=1e-3).final_learning_rate
    0.0001
    """

    steps: Annotated[int, Option("Number of optimizer steps.", at_least_one, command_default=1000)]
    batch: Annotated[
        int,
        Option(
            "Batch size: rows per forward pass, over all processes.",
            at_least_one,
            default_text=f"{MICRO.batch} for micro, {TINY.batch} for tiny, else {GPT2.batch}",
            command_default=None,
        ),
    ]
    accumulate: Annotated[int, Option("Gradient accumulation: forward and backward passes per step.", at_least_one)] = 1
    context_length: Annotated[
        int | None, Option("Context length: tokens per row.", at_least_one, default_text="that of the model")
    ] = None
    learning_rate: Annotated[float, Option("Peak learning rate.", _rate, default_text=_RATES, command_default=None)]
    min_learning_rate: Annotated[
        float | None,
        Option("Learning rate at the end of the cosine schedule.", default_text="a tenth of learning_rate", flag=None),
    ] = None
    warmup: Annotated[
        int,
        Option(
            "Warmup: steps in which the learning rate rises to its peak.",
            default_text="steps / 10, at most 200",
            command_default=None,
        ),
    ] = 0
    weight_decay: Annotated[float, Option("Weight decay, applied to 2-D parameters.", _decay)] = 0.1
    betas: Annotated[tuple[float, float], Option("AdamW's two betas.", flag=None)] = (0.9, 0.95)
    clip: Annotated[float, Option("Clip the gradient norm to this value.", _norm)] = 1.0
    seed: Annotated[int, Option("Seed of the initial weights, the data order and dropout.", valid_seed)] = 0
    dtype: Annotated[
        str,
        Option(
            "Compute in fp32 or bf16 (autocast); weights stay float32.",
            precision,
            default_text="bf16 on a GPU, else fp32",
            command_default=None,
        ),
    ] = "fp32"
    val_fraction: Annotated[
        float, Option("Fraction of the data held out for validation.", fraction("0.01 is usual, 0 is none"))
    ] = 0.01
    evaluate_windows: Annotated[int, Option("Validation windows per evaluation.", count("none"))] = 64
    repeat: Annotated[
        float, Option("Fraction of rows that repeat a part of their text.", fraction("0 is none, 0.05 is plenty"))
    ] = 0.0

    def __post_init__(self) -> None:
        check_options(self)
        if not 0 <= self.final_learning_rate <= self.learning_rate:
            most = f"at most {named('learning_rate', self.learning_rate)}"
            raise ValueError(f"{named('min_learning_rate', self.final_learning_rate)} must be at least 0 and {most}")
        if not 0 <= self.warmup <= self.steps:
            most = f"at most {named('steps', self.steps)}"
            raise ValueError(f"{named('warmup', self.warmup)} must be at least 0 and {most}")

    @property
    def final_learning_rate(self) -> float:
        """The learning rate of the last step."""
        return self.learning_rate / 10 if self.min_learning_rate is None else self.min_learning_rate

    def recipe(self) -> dict[str, Any]:
        """The options that must be the same when a run resumes."""
        return {field.name: getattr(self, field.name) for field in fields(Recipe)}


# A checkpoint from before an option existed was trained with its default.
RECIPE_DEFAULTS = {field.name: field.default for field in fields(Recipe) if field.default is not MISSING}


def learning_rate_at(step: int, recipe: Recipe) -> float:
    """The learning rate of a step, counted from 0.

    >>> recipe = Recipe(steps=100, batch=4, learning_rate=1e-3, warmup=10)
    >>> [round(learning_rate_at(step, recipe), 5) for step in (0, 9, 10, 55, 99)]
    [0.0001, 0.001, 0.001, 0.00054, 0.0001]
    """
    if step < recipe.warmup:
        return recipe.learning_rate * (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / max(1, recipe.steps - 1 - recipe.warmup)
    low, high = recipe.final_learning_rate, recipe.learning_rate
    return low + (high - low) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True, kw_only=True)
class FitOptions(Recipe):
    """All options of `fit`: the recipe, and what may change when a run resumes."""

    out: Annotated[Path | str, Option("Directory of the run; the trained model is written to OUT/model.")]
    device: Annotated[
        Any, Option("Device to train on: cpu, cuda, cuda:1, …", default_text="cuda if available, else cpu")
    ] = None
    compile: Annotated[bool | None, Option("Compile the model with torch.compile.", default_text="on a GPU")] = None
    parallel: Annotated[
        str | None,
        Option("How torchrun's processes split the work: fsdp=2,tp=2, …", default_text="fsdp for all processes"),
    ] = None
    evaluate_every: Annotated[
        int | None, Option("Compute the validation loss every N steps.", count("never"), default_text=_TENTH_OF_RUN)
    ] = None
    checkpoint_every: Annotated[
        int | None, Option("Write a checkpoint every N steps.", count("never"), default_text=_TENTH_OF_RUN)
    ] = None
    keep: Annotated[int, Option("Number of checkpoints to keep.", _kept)] = 2
    atlas_every: Annotated[
        int | None,
        Option(
            "Measure what every head does every N steps; regard atlas OUT shows it.", count("never"), default_text="off"
        ),
    ] = None
    sample_every: Annotated[int | None, Option("Print a sample every N steps.", count("never"), default_text="off")] = (
        None
    )
    sample_prompt: Annotated[str, Option("How a sample begins.", flag=None)] = "The"
    log_every: Annotated[
        int | None,
        Option(
            "Fetch losses every N steps; a GPU waits each time.",
            count("never"),
            default_text="10 on a GPU, else 1",
            flag=None,
        ),
    ] = None
    resume: Annotated[
        bool, Option("Resume from the last checkpoint, or start over.", default_text="resume", flag="--resume/--fresh")
    ] = True
    progress: Annotated[bool, Option("Show progress on stderr.", flag=None)] = True
    on_step: Annotated[
        Callable[[dict[str, Any]], None] | None,
        Option("Called with each line of the log.", default_text="nothing", flag=None),
    ] = None


def interval(every: int | None, steps: int) -> int:
    """Steps between two evaluations or checkpoints: as given, or a tenth of the run, from 100 to 1000."""
    return min(1000, max(min(steps, 100), steps // 10)) if every is None else every


def checkpoint_interval(options: FitOptions) -> int:
    """The step of the first checkpoint of a run that is not interrupted."""
    return interval(options.checkpoint_every, options.steps) or options.steps


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model `regard train` starts from: a new one, or one that is trained already."""

    preset: Annotated[
        str | None,
        Option(
            "Size of a new model: micro, tiny, gpt2-small, gpt2-medium, gpt2-large or gpt2-xl.", default_text="tiny"
        ),
    ] = None
    model: Annotated[
        str | Path | None,
        Option("Fine-tune this model instead: a directory, or a name on the hub.", default_text="a new model"),
    ] = None
    tokenizer: Annotated[
        str | Path | None, Option("Path of a tokenizer.json.", default_text="trained on the data, or that of --model")
    ] = None
    dropout: Annotated[float | None, Option("Dropout of a new model.", default_text="0.0")] = None
    sinusoidal: Annotated[
        bool, Option("Initialize learned positions with sinusoids.", default_text="random", flag="--sinusoidal")
    ] = False

    @property
    def size(self) -> str:
        """The preset of a new model."""
        return "tiny" if self.preset is None else self.preset


def command_table() -> Iterator[Spec]:
    """The rows that are flags of `regard train`, with the defaults of the command."""
    return flags_of(ModelOptions, FitOptions)


def for_command(model: ModelOptions, cuda: bool, **flags: Any) -> FitOptions:
    """The options of fit from the flags of the command; what is None is chosen by model and device.

    >>> for_command(ModelOptions(), cuda=False, steps=50, out="runs/first").warmup
    5
    """
    flags = {spec.name: spec.default for spec in command_table() if spec.name not in model.__dict__} | flags
    new = {"micro": MICRO, "tiny": TINY}.get(model.size, GPT2)
    start = FINE_TUNING if model.model is not None else new
    computed = {**start._asdict(), "warmup": min(200, flags["steps"] // 10), "dtype": "bf16" if cuda else "fp32"}
    return FitOptions(**flags | {name: value for name, value in computed.items() if flags[name] is None})
