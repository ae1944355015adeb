"""Where Ringside keeps things on this machine. Reads the environment, creates nothing."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

HOME_VARIABLE = "RINGSIDE_HOME"
"""Moves everything Ringside writes (chats, settings, models, converted files) below one folder."""


def data_folder() -> Path:
    """Return the folder for what must survive: chats, settings, demo models."""
    if home := os.environ.get(HOME_VARIABLE):
        return Path(home).expanduser().absolute()
    return platformdirs.user_data_path("ringside", appauthor=False)


def cache_folder() -> Path:
    """Return the folder for what can be made again: converted tokenizers and weights."""
    if home := os.environ.get(HOME_VARIABLE):
        return Path(home).expanduser().absolute() / "cache"
    return platformdirs.user_cache_path("ringside", appauthor=False)
