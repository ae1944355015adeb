"""The process that renders chat templates: takes a request, answers it, waits for the next, ends with its parent.

A request comes in Python's own format, which is quick for long chats; an answer is text or JSON, so that nothing that
comes back can do anything. What a rendering may take is limited by the system where it has such limits;
`models.templates.process`, the other end, watches as well.
"""

from __future__ import annotations

import json
import marshal
import math
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import IO, Any

from jinja2 import TemplateSyntaxError

from models.templates.sandbox import CompiledTemplate, RaisedByTemplateError
from models.templates.sizes import TemplateLimitError

if sys.platform == "win32":
    resource = None
else:
    import resource

_LENGTH = struct.Struct(">Q")
_TEXT, _FAILURE = b"t", b"f"
_SPARE_CPU_S = 1.0  # the parent, which says it better, comes first
_MAX_REASON = 500


def write_frame(pipe: IO[bytes], data: bytes) -> None:
    """Send one request or answer."""
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """Return the next request or answer, None at the end."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    return data if len(data) == length else None


def packed_answer(answer: dict[str, Any]) -> bytes:
    """Return an answer as bytes: a text as it is, halves of characters included, or the JSON of a failure."""
    if "text" in answer:
        return _TEXT + str(answer["text"]).encode("utf-8", "surrogatepass")
    return _FAILURE + json.dumps(answer).encode()


def unpacked_answer(data: bytes) -> dict[str, Any]:
    """Return what `packed_answer` packed."""
    if data[:1] == _TEXT:
        return {"text": data[1:].decode("utf-8", "surrogatepass")}
    answer: dict[str, Any] = json.loads(data[1:])
    return answer


def serve() -> None:
    """Answer requests until the parent is gone, or memory has run out once: what is left of it is in pieces then."""
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing but answers goes to the parent
    while (data := read_frame(requests)) is not None:
        request: dict[str, Any] = marshal.loads(data)
        with _limited(request["cpu_s"], request["memory_bytes"]):
            answer = answer_to(request)
        write_frame(answers, packed_answer(answer))
        if answer.get("kind") == "memory":
            return


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """Render once: {"text": ...}, or why not as {"kind": ..., "reason": ..., "line": ...}."""
    try:
        template = _compiled(request["source"])
        return {"text": template.render(request["max_characters"], **request["variables"])}
    except TemplateSyntaxError as error:
        return _failure("broken", error.message or "it is no template", error.lineno)
    except RaisedByTemplateError as error:
        return _failure("refused", str(error))
    except TemplateLimitError as error:
        return _failure("limit", str(error))
    except MemoryError:
        return _failure("memory", "")
    except RecursionError:
        return _failure("failed", "it is nested too deeply")
    except Exception as error:  # a program of someone else's can raise anything, compiling it included
        return _failure("failed", str(error) or type(error).__name__)


def _failure(kind: str, reason: str, line: int | None = None) -> dict[str, Any]:
    return {"kind": kind, "reason": reason[:_MAX_REASON], "line": line}


@lru_cache(maxsize=16)
def _compiled(source: str) -> CompiledTemplate:
    return CompiledTemplate(source)


@contextmanager
def _limited(cpu_s: float, memory_bytes: int) -> Iterator[None]:
    """Let the system end what takes longer, and refuse memory beyond; nothing on Windows, where the parent watches."""
    if resource is None:
        yield
        return
    limits = {resource.RLIMIT_CPU: math.ceil(time.process_time() + cpu_s + _SPARE_CPU_S)}
    if sys.platform == "linux":  # elsewhere a process has far more address space than memory
        limits[resource.RLIMIT_AS] = memory_bytes
    before = {kind: resource.getrlimit(kind) for kind in limits}
    for kind, most in limits.items():
        soft, hard = before[kind]
        given = [each for each in (most, soft, hard) if each != resource.RLIM_INFINITY]
        resource.setrlimit(kind, (min(given), hard))
    try:
        yield
    finally:
        for kind, limit in before.items():
            resource.setrlimit(kind, limit)
