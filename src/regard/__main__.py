"""`python -m regard`, and what the command `regard` starts."""

import os
import signal


def start() -> None:
    """Run the command; Ctrl-C ends the process quietly, also before the command is imported and after it is done."""
    listens = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    if listens:  # until the import below is done, nothing has been printed that must be flushed
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from regard.commands.terminal.interrupt import leave

    if listens:
        signal.signal(signal.SIGINT, leave)
    from regard.cli import main

    main()


if __name__ == "__main__":
    start()
