"""The command line: ``python -m pt_convsearch COMMAND``. Each command is a file in ``commands/``."""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import sys

from pt_convsearch import __version__

_COMMANDS = ("quickstart", "answers", "datasets", "scale")
#: input that cannot be used: said in one line
_NO_USE = (
    ValueError,
    KeyError,
    ImportError,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
)


def parser() -> argparse.ArgumentParser:
    """The parser with all its sub-commands; nothing heavy is imported for it."""
    top = argparse.ArgumentParser(prog="python -m pt_convsearch", description="Conversational search for PyTerrier.")
    top.add_argument("--version", action="version", version=f"pt_convsearch {__version__}")
    levels = ["debug", "info", "warning", "error"]
    top.add_argument("--log", default="warning", choices=levels, help="what is logged to stderr")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in _COMMANDS:
        importlib.import_module(f"pt_convsearch.commands.{name}").add_parser(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run a command.

    The exit status is 0 when all went well, 2 for input that cannot be used, 130 after Ctrl-C, 141 where whoever read
    the output has stopped.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that lacks a character is shown its number: no report dies of an emoji
            stream.reconfigure(errors="backslashreplace")
    arguments = parser().parse_args(argv)
    logging.basicConfig(level=arguments.log.upper(), format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    try:
        status = int(arguments.run(arguments) or 0)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # whoever read the output has seen enough; what is still to be written goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except _NO_USE as error:
        if arguments.log == "debug":
            raise
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        print(f"{arguments.command}: {message}", file=sys.stderr)
        return 2
