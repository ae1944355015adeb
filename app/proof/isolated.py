"""A generator run in a process of its own, its items streamed back: how the proof reaches code that needs torch.

The app itself never imports torch; what runs there also leaves every byte with the system when it ends.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Generator, Iterator
from multiprocessing.connection import Connection
from typing import Any

from backends.errors import BackendUnavailableError, RingsideError, WorkerDiedError
from backends.registry import BACKENDS

_QUIET = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""The profiler logs to the terminal otherwise; read when torch is imported."""


def stream(module: str, function: str, *args: Any, **kwargs: Any) -> Generator[Any, None, None]:
    """Yield what `module.function(*args, **kwargs)` yields, from a spawned process.

    Closing the iterator early ends the process; arguments and items must pickle.

    Raises:
        RingsideError: as raised there; a library is missing; or the process died.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(sender, module, function, args, kwargs), daemon=True)
    process.start()
    sender.close()
    try:
        yield from _received(receiver, process)
    finally:
        process.terminate()
        process.join()
        receiver.close()


def _received(receiver: Connection, process: multiprocessing.process.BaseProcess) -> Iterator[Any]:
    while True:
        try:
            kind, value = receiver.recv()
        except EOFError:
            process.join()
            raise WorkerDiedError(
                f"The process that measured ended on its own (exit code {process.exitcode}).",
                "If it was killed for memory, choose a smaller window or fewer tokens.",
            ) from None
        if kind == "done":
            return
        if kind == "error":
            raise value
        yield value


def _serve(sender: Connection, module: str, function: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run in the child: Ctrl-C is the parent's to handle, it then ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(_QUIET)
    try:
        for item in getattr(importlib.import_module(module), function)(*args, **kwargs):
            sender.send(("item", item))
        sender.send(("done", None))
    except Exception as error:  # the one place where this process meets its pipe
        sender.send(("error", _displayable(error)))


def _displayable(error: Exception) -> RingsideError:
    match error:
        case RingsideError():
            return error
        case ModuleNotFoundError():
            return BackendUnavailableError(
                f"This needs {error.name}, which is not installed.", f"Run: {BACKENDS['ring'].install_command}"
            )
        case ValueError():
            return RingsideError(f"{error}.")
        case _:
            traceback.print_exception(error)
            return RingsideError(f"The measurement failed: {type(error).__name__}: {error}.")
