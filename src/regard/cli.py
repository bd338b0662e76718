"""The command line: `regard COMMAND`. Wires the commands and reports errors; each command is a file in commands/.

Nothing here imports torch, so that `--help` is quick.
"""

import os
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from regard.commands.atlas import atlas
from regard.commands.card import card
from regard.commands.check import check
from regard.commands.compare import compare
from regard.commands.docs import docs
from regard.commands.effect import effect
from regard.commands.generate import generate
from regard.commands.grade import grade
from regard.commands.learn import learn
from regard.commands.notebook import notebook
from regard.commands.page import page
from regard.commands.play import play
from regard.commands.poster import poster
from regard.commands.see import see
from regard.commands.serve import serve
from regard.commands.terminal.ascii import use_ascii_where_needed
from regard.commands.terminal.interrupt import STATUS, interruptible
from regard.commands.terminal.old_spellings import new_spelling
from regard.commands.terminal.usage import NO_UTF8, HelpfulGroup, RegardCommand, explain_usage, read_argument
from regard.commands.trace import trace
from regard.commands.train import train
from regard.support.printable import printable_output

app = typer.Typer(
    cls=HelpfulGroup,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def regard(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    """Attention you can read, see, check and ship."""
    if version:
        from importlib import metadata

        typer.echo(f"regard {metadata.version('regard')}")
        raise typer.Exit


_COMMANDS = (
    trace,
    see,
    page,
    poster,
    play,
    compare,
    effect,
    atlas,
    serve,
    check,
    grade,
    notebook,
    card,
    docs,
    train,
    generate,
)
for _command in _COMMANDS:
    app.command(cls=RegardCommand)(_command)
app.add_typer(learn, name="learn")


def main() -> None:
    """Run the command. An error is one line on stderr, Ctrl-C and a closed pipe are none, never a traceback."""
    use_ascii_where_needed()
    with printable_output():
        with interruptible() as interruption:
            try:
                status = _flushed(_run())
            except KeyboardInterrupt:
                status = STATUS
        _leave(STATUS if interruption.arrived else status)


def _run() -> int:
    """Run the command and return its exit status."""
    try:
        sys.argv[1:] = map(read_argument, sys.argv[1:])
        # What installs the completion would color its message, and here escape codes are printed as text.
        color = False if sys.argv[1:2] == ["--install-completion"] else None
        result = app(prog_name="regard", standalone_mode=False, color=color)
        return result if isinstance(result, int) else 0  # typer returns the status of typer.Exit
    except SystemExit as exiting:
        if isinstance(exiting.__context__, BrokenPipeError):  # typer has caught it
            return 0
        return exiting.code if isinstance(exiting.code, int) else int(exiting.code is not None)
    except BrokenPipeError:  # whoever read the output has stopped, as head does
        return 0
    except UnicodeEncodeError as error:
        return _failed(f"{error.object[error.start : error.end]} cannot be in a file name here: {NO_UTF8}")
    except ValueError as error:
        return _failed(str(error))
    except OSError as error:  # a file without read permission, a full disk
        return _failed(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
    except typer.Abort:
        return 1
    except Exception as error:
        if not hasattr(error, "format_message"):  # of typer's usage errors; their class has moved between its versions
            raise
        return _misused(error)


def _misused(error: Any) -> int:
    """Report a wrong command line in one line; without any arguments, show the help."""
    if not error.format_message() or type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return int(error.exit_code)
    name, typed = (sys.argv[1:] or [""])[0], sys.argv[2:]
    if name == "see" and (moved := new_spelling(getattr(error, "option_name", ""), typed)):
        return _failed(moved)
    known = any(name in (one.name, getattr(one.callback, "__name__", "")) for one in app.registered_commands)
    usual = f"regard {name}" if known else "regard"
    command = error.ctx.command_path if getattr(error, "ctx", None) else usual
    message = explain_usage(error, typed, command)
    _failed(f"{message}{' See' if message.endswith('?') else '; see'} {command} --help")
    return int(error.exit_code)


def _failed(message: str) -> int:
    typer.echo(f"regard: {message}", err=True)
    return 2


def _flushed(status: int) -> int:
    """Write what is still in the buffer of stdout, where an error can be reported; the status after that."""
    try:
        sys.stdout.flush()
        return status
    except OSError as error:
        with suppress(OSError):  # Python flushes once more at exit, and would report the same again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status if isinstance(error, BrokenPipeError) else _failed(f"standard output: {error.strerror}")


def _leave(status: int) -> None:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # Under torchrun the process group is already destroyed, but threads of torch.distributed may still be freeing
        # tensors; they would abort the process if the interpreter shut down under them.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    raise SystemExit(status)
