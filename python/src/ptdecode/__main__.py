"""The command line: ``python -m ptdecode`` and ``ptdecode``."""
import os
import sys

from . import program


def main() -> None:
    """Replaces this process by the command line of the package."""
    path = program()
    os.execvp(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
