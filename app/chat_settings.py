"""What a reply depends on besides its messages, as a value, as JSON in the store and as tables in `settings.toml`.

Both forms use the field names of `ChatSettings`, `LoadRequest` and `Sampling`, flat: `window`, `temperature`, `stop`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeGuard, get_args

from app.input_rules import clean_text
from app.limits import OnLoop
from app.sampling_text import logit_bias_from, logit_bias_json
from backends.requests import CachePolicy, LoadRequest, Sampling

NO_LIMIT = "none"
"""How TOML, which has no null, writes None."""

_LARGEST_WHOLE_NUMBER = 2**64 - 1  # as seeds go


@dataclass(frozen=True)
class ChatSettings:
    """Everything a reply depends on besides the messages.

    Attributes:
        load: backend, model, memory policy, window; a change reloads the model with the next message.
        system_prompt: first message of the prompt; empty for none.
        sampling: see `Sampling`.
        stop: strings that end a reply.
        stop_in_reasoning: they count inside the reasoning too, not only once it has closed.
        max_new_tokens: None writes until stopped.
        keep_writing: never draw the end-of-text token.
        max_minutes: of writing; None writes until stopped.
        on_loop: what is done about a reply that repeats itself over and over.
        steering_notes: given to the model on the way, see `app.steering`; one is repeated, several are an outline.
        steering_every_tokens: drawn tokens between two of them.
        json_schema, grammar: what a reply follows, one of them at most; see `GenerationRequest`.
    """

    load: LoadRequest
    system_prompt: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    stop_in_reasoning: bool = False
    max_new_tokens: int | None = None
    keep_writing: bool = False
    max_minutes: float | None = None
    on_loop: OnLoop = "notice"
    steering_notes: tuple[str, ...] = ()
    steering_every_tokens: int = 1000
    json_schema: str | None = None
    grammar: str | None = None


def chat_settings_from(table: Mapping[str, Any], base: ChatSettings) -> ChatSettings:
    """Return `base` with what the table says, names flat.

    Raises:
        ValueError: a name is unknown or a value is not one it can take.
    """
    changes: dict[str, Any] = {}
    for name, value in table.items():
        if name not in _PARSERS:
            raise ValueError(f"there is no setting {name!r}")
        try:
            changes[name] = _PARSERS[name](value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} cannot be {_shortened(value)}: {error}") from error
    _choose_constraint(changes)
    return replace(
        base,
        load=replace(base.load, **_among(changes, LoadRequest)),
        sampling=replace(base.sampling, **_among(changes, Sampling)),
        **_among(changes, ChatSettings),
    )


def to_json(settings: ChatSettings) -> str:
    """Return the settings as one flat JSON object."""
    return json.dumps(flat_settings(settings))


def flat_settings(settings: ChatSettings) -> dict[str, Any]:
    """Return the settings by their flat names, as JSON can hold them."""
    content = asdict(settings)
    flat: dict[str, Any] = {**content.pop("load"), **content.pop("sampling"), **content}
    flat["policy"] = settings.load.policy.value
    flat["logit_bias"] = logit_bias_json(flat["logit_bias"])
    return flat


def from_json(text: str, base: ChatSettings) -> ChatSettings:
    """Read what `to_json` wrote, perhaps in another version: what is not understood keeps its value of `base`."""
    try:
        table = json.loads(text)
    except ValueError:
        return base
    if not isinstance(table, dict):
        return base
    settings = base
    for name, value in table.items():
        try:
            settings = chat_settings_from({name: value}, settings)
        except ValueError:
            continue
    return settings


def with_changes(base: ChatSettings, former: ChatSettings, changed: ChatSettings) -> ChatSettings:
    """Return `base` with the settings in which `changed` differs from `former`.

    A model brings the backend it was chosen for; a schema takes the place of a grammar, and a grammar that of a schema.
    """
    load = _differing(former.load, changed.load)
    if "model" in load:
        load["backend"] = changed.load.backend
    changes = _differing(former, changed)
    changes["load"] = replace(base.load, **load)
    changes["sampling"] = replace(base.sampling, **_differing(former.sampling, changed.sampling))
    _choose_constraint(changes)
    return replace(base, **changes)


def _differing(former: Any, changed: Any) -> dict[str, Any]:
    """Return the fields of one dataclass in which it differs from another of its kind."""
    pairs = {each.name: (getattr(former, each.name), getattr(changed, each.name)) for each in fields(former)}
    return {name: after for name, (before, after) in pairs.items() if before != after}


def _choose_constraint(changes: dict[str, Any]) -> None:
    """Let a schema that is given take the place of a grammar, and a grammar that of a schema."""
    schema, grammar = changes.get("json_schema"), changes.get("grammar")
    if schema is not None and grammar is not None:
        raise ValueError("a reply cannot follow both a JSON schema and a grammar; leave one empty")
    if schema is not None:
        changes["grammar"] = None
    if grammar is not None:
        changes["json_schema"] = None


def _among(changes: dict[str, Any], owner: type) -> dict[str, Any]:
    names = {each.name for each in fields(owner)}
    return {name: value for name, value in changes.items() if name in names}


def _shortened(value: object) -> str:
    said = repr(value)
    return said if len(said) <= 60 else f"{said[:57]}..."


def _text(value: object) -> str:
    if isinstance(value, str):
        return clean_text(value)
    raise ValueError("give text")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("give true or false")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: object) -> float:
    if _is_number(value):
        try:
            return float(value)
        except OverflowError:
            raise ValueError("give a smaller number") from None
    raise ValueError("give a number")


def _above_zero(value: object) -> float:
    if (number := _number(value)) > 0 and math.isfinite(number):
        return number
    raise ValueError("give a number above 0")


def _whole(low: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= low:
            if value <= _LARGEST_WHOLE_NUMBER:
                return value
            raise ValueError("give a whole number below 2^64")
        raise ValueError(f"give a whole number of {low} or more")

    return parse


def _limit(low: int) -> Callable[[object], Any]:
    """Return a parser of a whole number or no limit, which other programs write as -1."""
    parse = _or_none(_whole(low))
    return lambda value: None if _is_number(value) and value == -1 else parse(value)


def _or_none(parse: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda value: None if value is None or value == NO_LIMIT else parse(value)


def _one_of(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        for choice in choices:
            if value == choice:  # not str(value): an enum's text is not its value
                return choice
        raise ValueError(f"choose from {', '.join(choices)}")

    return parse


def _policy(value: object) -> CachePolicy:
    return CachePolicy(_one_of(*(policy.value for policy in CachePolicy))(value))


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(_text(each) for each in value)
    raise ValueError("give a list of texts")


def _notes(value: object) -> tuple[str, ...]:
    """Return the notes on one line each, without those that say nothing."""
    return tuple(note for text in _texts(value) if (note := " ".join(text.split())))


def _schema(value: object) -> str | None:
    text = _text(value).strip()
    if not text:
        return None
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error
    if not isinstance(content, (dict, bool)):
        raise ValueError('give an object such as {"type": "object"}')
    return text


def _grammar(value: object) -> str | None:
    return _text(value).strip() or None


def _options(value: object) -> dict[str, str]:
    if isinstance(value, dict):
        return {_text(name): _text(each) for name, each in value.items()}
    raise ValueError("give a table of texts")


_PARSERS: dict[str, Callable[[object], Any]] = {
    "backend": _text,
    "model": _text,
    "policy": _policy,
    "window": _whole(1),
    "sinks": _or_none(_whole(0)),
    "device": _one_of("auto", "cpu", "cuda"),
    "precision": _one_of("auto", "float32", "bfloat16", "float16", "int8"),
    "kv_type": _one_of("auto", "int8", "fp8"),
    "growing_context_tokens": _whole(1),
    "num_threads": _or_none(_whole(1)),
    "chat_template": _or_none(_text),
    "options": _options,
    "temperature": _number,
    "top_k": _limit(1),
    "top_p": _number,
    "min_p": _number,
    "repetition_penalty": _number,
    "repetition_window": _limit(1),
    "seed": _or_none(_whole(0)),
    "presence_penalty": _number,
    "frequency_penalty": _number,
    "logit_bias": logit_bias_from,
    "typical_p": _number,
    "top_n_sigma": _or_none(_number),
    "xtc_probability": _number,
    "xtc_threshold": _number,
    "dry_multiplier": _number,
    "dry_base": _number,
    "dry_allowed_length": _whole(1),
    "dry_window": _limit(1),
    "dry_breakers": _texts,
    "mirostat_tau": _or_none(_number),
    "mirostat_eta": _number,
    "json_schema": _or_none(_schema),
    "grammar": _or_none(_grammar),
    "system_prompt": _text,
    "stop": _texts,
    "stop_in_reasoning": _flag,
    "max_new_tokens": _limit(1),
    "keep_writing": _flag,
    "on_loop": _one_of(*get_args(OnLoop)),
    "max_minutes": _or_none(_above_zero),
    "steering_notes": _notes,
    "steering_every_tokens": _whole(16),
}
