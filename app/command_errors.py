"""Errors of the command line: one sentence on stderr, or one JSON object where a script reads."""

from __future__ import annotations

import errno
import json

import typer

from backends.errors import RingsideError
from models.folders import HOME_VARIABLE

_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR}


def report(error: Exception, as_json: bool) -> None:
    """Tell what went wrong and what to do."""
    if isinstance(error, OSError):
        error = in_words(error)
    if as_json:
        message, hint = (error.message, error.hint) if isinstance(error, RingsideError) else (str(error), "")
        typer.echo(json.dumps({"event": "error", "error": message, "hint": hint}))
    else:
        typer.echo(f"Error: {error}", err=True)


def is_unwritable(error: OSError) -> bool:
    """Say whether a folder refused to be written: its rights, its disk, or a file in its place."""
    return error.errno in _UNWRITABLE


def in_words(error: OSError) -> RingsideError:
    """Return the system's error as a sentence that names the file."""
    where = error.filename or "A file"
    if not is_unwritable(error):
        return RingsideError(f"{where} cannot be used: {error.strerror or error}.")
    return RingsideError(
        f"{where} cannot be written: {error.strerror}.",
        f"Free some space, or set {HOME_VARIABLE} to a folder that can be written.",
    )
