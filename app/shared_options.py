"""Command line options that several commands share, each written once: those of loading and writing are here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from backends.requests import CachePolicy

Command = Callable[..., None]


def taking(options: Mapping[str, Any], as_settings: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., Any]:
    """Return a decorator that gives a command options.

    Args:
        options: annotations by parameter name; None is the default of each.
        as_settings: turns those that were given into flat settings, which the command takes as `**settings`.
    """

    def give(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in options.items()
        ]

        @functools.wraps(command)
        def with_options(**values: Any) -> None:
            given = {name: value for name in options if (value := values.pop(name)) is not None}
            command(**values, **as_settings(given))

        parameters = [*own, *shared]
        with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {each.name: each.annotation for each in parameters}
        return with_options

    return give


_OPTIONS: dict[str, Any] = {
    "backend": Annotated[str | None, typer.Option(help="ring, llamacpp or echo.", show_default=False)],
    "model": Annotated[
        str | None, typer.Option(help="GGUF file, Hugging Face folder, hub id, or a demo model's name.")
    ],
    "window": Annotated[int | None, typer.Option(help="Tokens that a token sees, itself included.", min=1)],
    "sinks": Annotated[str | None, typer.Option(help='First tokens kept for ever; "none" keeps the system prompt.')],
    "policy": Annotated[CachePolicy | None, typer.Option(help="How much of the past the cache keeps.")],
    "device": Annotated[str | None, typer.Option(help="auto, cpu or cuda.")],
    "precision": Annotated[str | None, typer.Option(help="auto, float32, bfloat16, float16 or int8.")],
    "kv_type": Annotated[str | None, typer.Option(help="Of the stored keys and values: auto, int8 or fp8.")],
    "threads": Annotated[int | None, typer.Option(help="CPU threads.", min=1)],
    "system": Annotated[str | None, typer.Option(help="System prompt.")],
    "temperature": Annotated[float | None, typer.Option(help="0 always takes the likeliest token.", min=0)],
    "seed": Annotated[int | None, typer.Option(help="The same seed writes the same text.", min=0)],
    "keep_writing": Annotated[bool | None, typer.Option("--keep-writing", help="Ignore the model's end of text.")],
    "option": Annotated[list[str] | None, typer.Option("--option", help="A backend's own switch, NAME=VALUE.")],
}
_SETTING_NAMES = {"threads": "num_threads", "system": "system_prompt", "option": "options"}


def _as_settings(given: dict[str, Any]) -> dict[str, Any]:
    settings = {_SETTING_NAMES.get(name, name): value for name, value in given.items()}
    sinks = settings.get("sinks")
    if sinks is not None and sinks.isdecimal():
        settings["sinks"] = int(sinks)
    if options := settings.pop("options", None):
        settings["options"] = _pairs(options)
    return settings


def _pairs(options: list[str]) -> dict[str, str]:
    pairs = [option.partition("=") for option in options]
    if wrong := next((name for name, equals, _ in pairs if not equals), None):
        raise typer.BadParameter(f"--option {wrong} has no value; write --option {wrong}=VALUE")
    return {name: value for name, _, value in pairs}


takes_settings = taking(_OPTIONS, _as_settings)
"""Gives a command these options; its `**settings` hold those that were given, as flat settings."""
