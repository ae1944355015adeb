"""Why a server of others ended, from what it wrote."""

from __future__ import annotations

from app.proof.peer_server import last_words

TRACEBACK = """Traceback (most recent call last):
  File "llama.py", line 481, in __init__
    self.scores = np.full((n_ctx, self._n_vocab), np.nan)
numpy._core._exceptions._ArrayMemoryError: Unable to allocate 32.2 GiB for an array with shape (33024, 262144)
"""


def test_the_exception_is_told_and_not_what_is_written_after_it() -> None:
    assert last_words(TRACEBACK + "~llama_context: buffer size\n") == "ArrayMemoryError: Unable to allocate 32.2 GiB"
    assert last_words("ValueError: one\nOSError: two") == "OSError: two"


def test_without_an_exception_it_is_the_last_line() -> None:
    assert last_words("loading\nno Error here: but at the end\n") == "no Error here: but at the end"
    assert last_words("") == ""
