"""JSON schemas that refer to themselves: a tree of nodes ends somewhere, a node that must hold a node does not.

A reply that follows the second kind could only stop at its limit, so such a schema is told before anything is written.
Knows JSON Schema's words for what must be there and nothing of grammars; see `models.constraint`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

_NOWHERE = object()


def endless_reference(schema: object) -> str | None:
    """Return the reference that keeps every text of a schema from ending; None where some text can end.

    Example: `{"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#"}}}` gives "#"; without
    "required", or with `"anyOf": [{"type": "null"}, {"$ref": "#"}]` for "next", it gives None.
    """
    known = {reference: False for reference in _references(schema) if _target(schema, reference) is not _NOWHERE}
    changed = True
    while changed:  # what ends is found from the inside out; what is not found never ends
        ending = [each for each in known if not known[each] and _can_end(_target(schema, each), known)]
        known.update(dict.fromkeys(ending, True))
        changed = bool(ending)
    if _can_end(schema, known):
        return None
    return next((reference for reference, ends in known.items() if not ends), None)


def _references(schema: object) -> Iterator[str]:
    """Yield the texts of all references, from the outside in."""
    waiting = [schema]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, Mapping):
            if isinstance(reference := part.get("$ref"), str):
                yield reference
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def _target(schema: object, reference: str) -> object:
    """Return what a reference within the schema points to; `_NOWHERE` for any other."""
    if reference != "#" and not reference.startswith("#/"):
        return _NOWHERE
    part = schema
    for step in unquote(reference).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(part, Mapping) and key in part:
            part = part[key]
        elif isinstance(part, list) and key.isdecimal() and int(key) < len(part):
            part = part[int(key)]
        else:
            return _NOWHERE
    return part


def _can_end(schema: object, known: Mapping[str, bool]) -> bool:
    """Tell whether some text of a schema ends, as far as is known of what it refers to."""
    if not isinstance(schema, Mapping):
        return True
    if "enum" in schema or "const" in schema:
        return True
    needed = [known.get(str(schema["$ref"]), True)] if "$ref" in schema else []
    needed += [all(_can_end(part, known) for part in _list(schema, "allOf"))]
    needed += [any(_can_end(part, known) for part in _list(schema, key)) for key in ("anyOf", "oneOf") if key in schema]
    if schema.get("type") in ("object", ["object"]):
        needed += [_can_end(part, known) for part in _required(schema)]
    if schema.get("type") in ("array", ["array"]):
        needed += [_can_end(part, known) for part in _first_items(schema)]
    return all(needed)


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _required(schema: Mapping[str, Any]) -> Iterator[object]:
    properties = schema.get("properties")
    for name in _list(schema, "required"):
        if isinstance(properties, Mapping) and name in properties:
            yield properties[name]
        elif not schema.get("patternProperties"):
            yield schema.get("additionalProperties", True)


def _first_items(schema: Mapping[str, Any]) -> list[object]:
    least = schema.get("minItems", 0)
    if not isinstance(least, int) or least < 1:
        return []
    listed = _list(schema, "prefixItems")
    return [*listed[:least], *([schema.get("items", True)] if least > len(listed) else [])]
