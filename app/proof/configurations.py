"""Configurations to compare, written as a person types them: `policy=ring,window=512,backend=llamacpp`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from backends.errors import BadRequestError
from backends.requests import CachePolicy, LoadRequest

MIN_CONFIGURATIONS, MAX_CONFIGURATIONS = 2, 4

_NUMBERS = ("window", "sinks", "growing_context_tokens", "num_threads")
_WORDS = ("backend", "device", "precision", "kv_type")
_ENGINES = {"ring": "PyTorch", "llamacpp": "llama.cpp"}  # "ring" is also a policy
_CHOICES = {
    "device": ("auto", "cpu", "cuda"),
    "precision": ("auto", "float32", "bfloat16", "float16", "int8"),
    "kv_type": ("auto", "int8", "fp8"),
}


@dataclass(frozen=True)
class Configuration:
    """What is compared: a way to load the model, under a name that fits a chart's legend."""

    label: str
    load: LoadRequest


def parse_configurations(specs: Sequence[str], base: LoadRequest) -> list[Configuration]:
    """Return the configurations that the texts describe as changes to `base`; without any, the three cache policies.

    A key that is no field of the load request goes to the backend's own options. A growing cache is taken at the
    model's trained window, as no other window applies to it.

    Raises:
        BadRequestError: fewer than two or more than four, or a text that says nothing sensible.
    """
    specs = specs or tuple(f"policy={policy.value}" for policy in CachePolicy)
    if not MIN_CONFIGURATIONS <= len(specs) <= MAX_CONFIGURATIONS:
        raise BadRequestError(
            f"{len(specs)} configurations cannot be compared.",
            f"Give {MIN_CONFIGURATIONS} to {MAX_CONFIGURATIONS}, for instance --run policy=ring --run policy=full.",
        )
    parsed = [_parse(spec, base) for spec in specs]
    labels = [configuration.label for configuration in parsed]
    return [
        replace(each, label=f"{each.label} ({index})") if labels.count(each.label) > 1 else each
        for index, each in enumerate(parsed, 1)
    ]


def label_of(load: LoadRequest) -> str:
    """Return the words a legend shows: engine, policy, and the window where it means something."""
    words = [_ENGINES.get(load.backend, load.backend) + ",", load.policy.value]
    if load.policy is CachePolicy.RING:
        words.append(f"W={load.window:,}")
        words.append("S=prompt" if load.sinks is None else f"S={load.sinks}")
    if load.precision != "auto":
        words.append(load.precision)
    if load.kv_type != "auto":
        words.append(f"KV {load.kv_type}")
    return " ".join(words + [f"{key}={value}" for key, value in load.options.items()])


def _parse(spec: str, base: LoadRequest) -> Configuration:
    fields: dict[str, Any] = {"options": dict(base.options)}
    label = ""
    for part in spec.split(","):
        key, separator, value = (text.strip() for text in part.partition("="))
        if not separator or not key or not value:
            raise BadRequestError(f"{part!r} in the configuration {spec!r} is not of the form key=value.", _example())
        if key == "label":
            label = value
        elif key == "policy":
            fields[key] = _policy(value)
        elif key in _NUMBERS:
            fields[key] = _number(key, value)
        elif key in _WORDS:
            fields[key] = _word(key, value)
        else:
            fields["options"][key] = value
    load = replace(base, **fields)
    return Configuration(label or label_of(load), load)


def _policy(value: str) -> CachePolicy:
    try:
        return CachePolicy(value.replace("-", " "))
    except ValueError:
        known = ", ".join(policy.value for policy in CachePolicy)
        raise BadRequestError(f"There is no cache policy {value!r}.", f"Choose one of {known}.") from None


def _number(key: str, value: str) -> int | None:
    if value == "none" and key in ("sinks", "num_threads"):
        return None
    try:
        return int(value)
    except ValueError:
        raise BadRequestError(f"{key} of {value!r} is not a whole number.", _example()) from None


def _word(key: str, value: str) -> str:
    if key in _CHOICES and value not in _CHOICES[key]:
        raise BadRequestError(f"There is no {key} {value!r}.", f"Choose one of {', '.join(_CHOICES[key])}.")
    return value


def _example() -> str:
    return "Write, for instance, backend=ring,policy=ring,window=512,sinks=4."
