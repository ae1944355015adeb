"""Errors a person can act on.

    RingsideError                 base: one sentence and, where there is one, the way out
    ├── BackendUnavailableError   a library is missing; the hint is the exact command that adds it
    ├── ModelFileError            a file is missing, truncated, or not what its name says
    ├── UnsupportedModelError     an architecture, quantisation or option this backend cannot run
    ├── BadRequestError           a setting or prompt outside what the loaded model can take
    ├── OutOfMemoryError          host or device memory ran out; the partial text is kept
    ├── DeviceLostError           the GPU takes no more work from this process; the next message reloads the model
    └── WorkerDiedError           the process that held the model is gone; the next message reloads it

They cross the process boundary, so they hold plain strings only and pickle as they are.
"""

from __future__ import annotations


class RingsideError(Exception):
    """Something a person can act on, said in one sentence.

    Args:
        message: what is wrong, naming the file or value.
        hint: what to do about it; empty where the message says it all.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class BackendUnavailableError(RingsideError):
    """A library the backend needs is not installed or does not load."""


class ModelFileError(RingsideError):
    """A model file is missing, truncated, or not what its name says."""


class UnsupportedModelError(RingsideError):
    """The architecture, quantisation or option is one this backend cannot run."""


class BadRequestError(RingsideError):
    """A setting or prompt lies outside what the loaded model can take."""


class OutOfMemoryError(RingsideError):
    """Host or device memory ran out."""


class DeviceLostError(RingsideError):
    """The GPU refuses every further call of this process, as after an illegal access: it has to be replaced."""


class WorkerDiedError(RingsideError):
    """The process that held the model is gone."""
