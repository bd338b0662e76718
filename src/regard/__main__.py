"""`python -m regard`, and what the command `regard` starts."""

import signal

from regard.commands.interrupt import leave


def start() -> None:
    """Run the command; Ctrl-C ends the process quietly, also before the command is imported and after it is done."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, leave)
    from regard.cli import main

    main()


if __name__ == "__main__":
    start()
