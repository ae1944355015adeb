"""Settings of a chat and of the application: read once at the start, passed down as plain values.

`settings.toml` is the person's own file: Ringside reads it and never writes it. What is changed on the page is kept in
the store and holds until the file changes.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from app.chat_settings import ChatSettings as ChatSettings
from app.chat_settings import chat_settings_from
from backends.requests import LoadRequest
from models.demo import DEFAULT_DEMO
from models.folders import HOME_VARIABLE, data_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_PORT = 7878

BUILT_IN = ChatSettings(LoadRequest("ring", DEFAULT_DEMO))
"""What a first start begins with: the sliding-window demo in the ring backend."""


@dataclass(frozen=True)
class Settings:
    """The application's settings.

    Attributes:
        defaults: of a new chat.
        model_folders: scanned for models, besides Ringside's own and the Hugging Face cache.
        port: tried first.
        digest: of the file they came from; tells whether it changed since.
        notices: sentences for the person: a setting that was not understood, for one.
    """

    defaults: ChatSettings = BUILT_IN
    model_folders: tuple[Path, ...] = ()
    port: int = DEFAULT_PORT
    digest: str = ""
    notices: tuple[str, ...] = ()
    data_folder: Path = field(default_factory=data_folder)

    @property
    def database_path(self) -> Path:
        """Where chats are kept."""
        return self.data_folder / "chats.sqlite"


def settings_path() -> Path:
    """Return where `settings.toml` is looked for."""
    return _folder(platformdirs.user_config_path) / "settings.toml"


def worker_log_path() -> Path:
    """Return the file that workers print to, its folder made; the null device where there can be none."""
    path = _folder(platformdirs.user_log_path) / "worker.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError:  # a home that cannot be written is no reason not to write a text
        return Path(os.devnull)
    return path


def read_settings(path: Path | None = None) -> Settings:
    """Read `settings.toml`; one that cannot be read or understood is left alone, not used, and named in a notice."""
    path = path or settings_path()
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        return Settings(notices=(f"{path} cannot be read ({error.strerror}); the built-in settings are used.",))
    try:
        return _parsed(tomllib.loads(content.decode()), hashlib.sha256(content).hexdigest())
    except ValueError as error:  # not UTF-8, not TOML, or a value of the wrong kind
        notice = f"{path} was not understood ({error}); the built-in settings are used until it is corrected."
        return Settings(notices=(notice,))


def _parsed(table: Mapping[str, Any], digest: str) -> Settings:
    unknown = set(table) - {"defaults", "model_folders", "port"}
    if unknown:
        raise ValueError(f"there is no setting {sorted(unknown)[0]!r}")
    folders = table.get("model_folders", [])
    if not isinstance(folders, list) or not all(isinstance(folder, str) for folder in folders):
        raise ValueError("model_folders is a list of folders")
    port = table.get("port", DEFAULT_PORT)
    if not isinstance(port, int) or not 1 <= port <= 65_535:
        raise ValueError(f"port {port!r} is outside 1 to 65535")
    return Settings(
        defaults=chat_settings_from(table.get("defaults", {}), BUILT_IN),
        model_folders=tuple(Path(folder).expanduser() for folder in folders),
        port=port,
        digest=digest,
    )


def _folder(platform_folder: Any) -> Path:
    if os.environ.get(HOME_VARIABLE):
        return data_folder()
    folder: Path = platform_folder("ringside", appauthor=False)
    return folder
