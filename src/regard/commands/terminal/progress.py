"""A progress bar on stderr that is removed at the end; none without a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from regard.support.printable import styled


@contextmanager
def progress_bar(activity: str, shown: bool = True) -> Iterator[Callable[..., None]]:
    """Inside this block, a bar; the function takes how much is done, of how much in all, None where that is unknown."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(f"  {activity}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = not (shown and sys.stderr.isatty())
    with Progress(*columns, console=Console(file=styled(sys.stderr)), transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, *_: bar.update(task, completed=done, total=total)
