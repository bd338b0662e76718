"""What is going on, on stderr: a bar, or a word after a second. Removed at the end; none without a terminal."""

import sys
import threading
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


@contextmanager
def said_after_a_second(activity: str, seconds: float = 1.0) -> Iterator[None]:
    """Inside this block, a line says what is going on if it takes longer than a second."""
    if not sys.stderr.isatty():
        yield
        return
    said = False

    def say() -> None:
        nonlocal said
        said = True
        print(f"  {activity} …", end="", file=styled(sys.stderr), flush=True)

    timer = threading.Timer(seconds, say)
    timer.daemon = True  # Ctrl-C does not wait for it
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if said:
            print(f"\r{' ' * (len(activity) + 4)}\r", end="", file=styled(sys.stderr), flush=True)
