"""What is asked of a person's input before it goes anywhere, and what is made of it."""

from __future__ import annotations

import unicodedata

from backends.errors import BadRequestError
from backends.registry import BACKENDS
from backends.requests import LoadRequest, Sampling

MAX_TITLE_CHARS = 200
"""Of one that a person types or a file brings."""

MAX_FOLDER_CHARS = 60
MAX_VARIANTS = 8

_WIDEST_MARGIN = 20  # spaces and line ends among the words of a title; more of a long text is not looked at


def require_words(text: str) -> None:
    """Raise BadRequestError for a text that says nothing."""
    if not text.strip():
        raise BadRequestError("The message is empty.", "Type something first.")


def require_loadable(request: LoadRequest) -> None:
    """Raise BadRequestError for a request that no model could take."""
    if request.backend not in BACKENDS:
        raise BadRequestError(f"There is no backend {request.backend!r}.", f"Choose one of {', '.join(BACKENDS)}.")
    if request.window < 1:
        raise BadRequestError(f"A window of {request.window} tokens is below 1.", "Choose a window of 1 or more.")
    if request.sinks is not None and request.sinks < 0:
        raise BadRequestError(f"{request.sinks} sinks are below 0.", "Choose 0 or more.")
    if request.backend != "echo" and not request.model.strip():
        raise BadRequestError("No model is chosen.", "Choose a file, a folder or a demo model.")


def require_variants(num_variants: int, sampling: Sampling) -> None:
    """Raise BadRequestError for a number of variants that cannot be drafted, or that would all be the same."""
    if not 1 <= num_variants <= MAX_VARIANTS:
        raise BadRequestError(f"{num_variants} variants cannot be written.", f"Choose 1 to {MAX_VARIANTS}.")
    if num_variants > 1 and sampling.temperature == 0:
        raise BadRequestError(
            "At temperature 0 all variants would be the same.", "Raise it in the settings, or write one variant."
        )


def title_from(text: str, max_chars: int = 60) -> str:
    """Return the text's first words as a title."""
    title = one_line(text.lstrip()[: _WIDEST_MARGIN * max_chars])
    if len(title) <= max_chars:
        return title
    cut = title[:max_chars]
    return f"{cut.rpartition(' ')[0] or cut}…"


def one_line(text: str) -> str:
    """Return a text as one line without control characters, which are not seen and cut what is copied."""
    words = " ".join(clean_text(text).split())
    return "".join(each for each in words if unicodedata.category(each) != "Cc")


def checked_title(title: str) -> str:
    """Return a title as it is kept. Raises BadRequestError for one that says nothing or is too long."""
    title = one_line(title)
    if not title:
        raise BadRequestError("A chat needs a title.", "Type one, or leave the old one.")
    if len(title) > MAX_TITLE_CHARS:
        raise BadRequestError(
            f"A title has at most {MAX_TITLE_CHARS} characters; this one has {len(title):,}.", "Choose a shorter one."
        )
    return title


def clean_text(text: str) -> str:
    """Join surrogate pairs and replace lone halves: browsers can send them, UTF-8 and so the store cannot hold them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
