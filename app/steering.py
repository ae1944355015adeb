"""Notes that steer a long reply on its way: given to the model between two of its tokens, never shown as its text."""

from __future__ import annotations


def note_for_model(note: str) -> str:
    """Return a note as it stands in the prompt: a bracketed line of its own, as authors leave them in drafts."""
    return f"\n[Author's note: {note}]\n"
