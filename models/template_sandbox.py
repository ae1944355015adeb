"""Chat templates are programs that come with a model file: compiled as transformers compiles them, and kept on a leash.

The environment is transformers' (block white space trimmed, loop controls, generation blocks, plain `tojson`,
`strftime_now`, `raise_exception`), so that the same template writes the same prompt. On top of Jinja's immutable
sandbox, loop steps and text length are counted, because a template may also just never end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

import jinja2.ext
from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_STEPS = 1_000_000
"""Loop steps in one rendering; a chat of 1,000 messages needs a few thousand."""

MAX_REPEAT = 1_000_000
"""Longest text or largest count that one multiplication may make."""


class TemplateLimitError(TemplateError):
    """A template ran for too long or wrote too much."""


class RaisedByTemplateError(TemplateError):
    """The template itself refused what it was given (`raise_exception`)."""


@dataclass
class _Budget:
    steps: int
    characters: int

    def spend_step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise TemplateLimitError(f"it loops more than {MAX_STEPS:,} times")

    def check_length(self, text: str) -> str:
        if len(text) > self.characters:
            raise TemplateLimitError(f"it writes more than {self.characters:,} characters")
        return text


_budget: ContextVar[_Budget] = ContextVar("budget")


class CompiledTemplate:
    """One template, ready to render any number of times."""

    def __init__(self, source: str, now: Callable[[], datetime] = datetime.now) -> None:
        """Compile a template.

        Args:
            source: Jinja text.
            now: clock behind `strftime_now`.

        Raises:
            jinja2.TemplateSyntaxError: the text is not a template.
        """
        environment = _Environment(now)
        tree = _Meter().visit(environment.parse(source))
        tree.set_environment(environment)
        code = environment.compile(tree, filename="<chat template>")
        self._template = environment.template_class.from_code(environment, code, environment.make_globals(None))

    def render(self, max_characters: int, **variables: Any) -> str:
        """Return the text the template writes.

        Raises:
            jinja2.TemplateError: it refused, named something undefined, or passed a limit; other exceptions are those
                of the expressions in it.
        """
        token = _budget.set(_Budget(MAX_STEPS, max_characters))
        try:
            chunks: list[str] = []
            num_left = max_characters
            for chunk in self._template.generate(**variables):
                num_left -= len(chunk)
                if num_left < 0:
                    raise TemplateLimitError(f"it writes more than {max_characters:,} characters")
                chunks.append(chunk)
            return "".join(chunks)
        finally:
            _budget.reset(token)


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}`: marks what the model wrote, for training; here its body is written as it is."""

    tags = {"generation"}  # noqa: RUF012  Jinja reads a plain class attribute

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

    def _write(self, caller: Macro) -> str:
        return caller()


class _Namespace(Namespace):
    """`namespace()` without names that begin with an underscore, which reach into Python."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, positional = args[0], args[1:]
        values = dict(*positional, **kwargs)
        for name in values:
            _refuse_underscore(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols])
        self.filters["tojson"] = _to_json
        self.filters[_Meter.STEPS] = _metered
        self.filters[_Meter.LENGTH] = _bounded
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda layout: now().strftime(layout)
        self.globals["dict"] = lambda *args, **kwargs: dict(*args, **kwargs)
        self.globals["namespace"] = _Namespace

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Do one sum, product or power, refusing the few that would fill the memory."""
        product = _size(left) * _size(right)
        is_repetition = hasattr(left, "__len__") or hasattr(right, "__len__")
        if operator == "*" and product > (MAX_REPEAT if is_repetition else MAX_REPEAT**2):
            raise TemplateLimitError("it multiplies into something too large")
        if operator == "**" and (_size(left) > MAX_REPEAT or _size(right) > 64):
            raise TemplateLimitError("it raises a number to too high a power")
        return _bounded(super().call_binop(context, operator, left, right))


def _size(value: Any) -> float:
    """Return the length of a text or list, the magnitude of a number."""
    if isinstance(value, (int, float)):
        return abs(value)
    return len(value) if hasattr(value, "__len__") else 1


class _Meter(NodeTransformer):
    """Puts a counter into every loop and a length check behind every `~`."""

    STEPS = "ringside metered"  # a space: no template can spell these
    LENGTH = "ringside bounded"

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  named by Jinja's visitor
        self.generic_visit(node)
        node.iter = _filtered(node.iter, self.STEPS)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(node, self.LENGTH)


def _filtered(node: nodes.Node, name: str) -> nodes.Expr:
    if not isinstance(node, nodes.Expr):
        raise TypeError(f"a loop runs over {node!r}, which is no expression")
    counted = nodes.Filter(node, name, [], [], None, None)
    counted.set_lineno(node.lineno)
    return counted


def _metered(items: Iterable[Any]) -> Iterator[Any]:
    budget = _budget.get()
    for item in items:
        budget.spend_step()
        yield item


def _bounded(value: Any) -> Any:
    if isinstance(value, str) and (budget := _budget.get(None)) is not None:
        budget.check_length(value)
    return value


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: Jinja's own filter escapes for HTML, which models were not trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise RaisedByTemplateError(message)
