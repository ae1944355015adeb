"""What goes wrong in a worker, made into errors that cross the pipe and hold nothing of the model."""

from __future__ import annotations

import gc
import logging
import traceback
from collections.abc import Callable

from backends.errors import DeviceLostError, OutOfMemoryError, RingsideError

logger = logging.getLogger(__name__)


def failure(action: Callable[[], object]) -> RingsideError | None:
    """Run the action; return what went wrong in it as an error that crosses the pipe, None if nothing did."""
    try:
        action()
    except RingsideError as error:
        return error.with_traceback(None)  # its frames must not outlive it
    except Exception as error:  # the one place that catches everything: nothing beyond the pipe could
        logger.exception("the backend failed")
        # The frames hold what the failed call was working on, a cache or a whole model for one.
        traceback.clear_frames(error.__traceback__)
        translated = _translated(error)
    else:
        return None
    gc.collect()
    return translated


def _translated(error: Exception) -> RingsideError:
    if is_out_of_memory(error):
        return OutOfMemoryError(
            "Memory ran out while the model was working.",
            "The text so far is kept; choose a smaller window, a smaller model, or close other programs.",
        )
    detail = " ".join(str(error).split())[:300] or "no further words"
    if type(error).__name__ == "AcceleratorError":  # torch's, which the application does not import
        return DeviceLostError(
            f"The GPU stopped working for this model: {detail}.",
            "The text so far is kept; the next message loads the model again.",
        )
    return RingsideError(f"The backend failed: {type(error).__name__}: {detail}.", "The log has the details.")


def is_out_of_memory(error: Exception) -> bool:
    """Tell host and device exhaustion, in the words of Python, torch and CUDA, without importing any of them."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and any(
        words in said
        for words in ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")
    )
