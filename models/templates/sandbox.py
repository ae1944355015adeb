"""The environment that chat templates are compiled in: transformers' own, so that the same template writes the same
prompt (block white space trimmed, loop controls, generation blocks, plain `tojson`, `strftime_now`, `raise_exception`).

Beyond Jinja's immutable sandbox, filters, globals and methods come from a list of those allowed, loops and calls are
counted, and sizes are checked before anything is made. What slips through meets the limits of `models.templates.child`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any, NoReturn

import jinja2.ext
from jinja2 import TemplateError, Undefined, nodes
from jinja2.exceptions import SecurityError
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import MAX_RANGE, ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from models.templates.filters import filters
from models.templates.methods import BoundFormat, checked_method, is_allowed
from models.templates.sizes import (
    Budget,
    TemplateLimitError,
    allow_characters,
    allow_items,
    allow_number,
    allow_text_of,
    budget,
    joined_length,
    printf_length,
    spending,
    text_length,
)

MAX_REPEAT = 1_000_000
"""Longest text or largest count that one multiplication may make."""

_MAX_DATE_LAYOUT = 1_000
_COMPILE_CHARACTERS = 1_000_000
_ATTRIBUTE_OWNERS = (Cycler, LoopContext, jinja2.ext.Extension)
_CALLABLE_VALUES = (Macro, BlockReference, LoopContext, Joiner, Undefined, BoundFormat)


class RaisedByTemplateError(TemplateError):
    """The template itself refused what it was given (`raise_exception`)."""


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
        with spending(Budget(_COMPILE_CHARACTERS)):  # expressions of constants are worked out already here
            code = environment.compile(tree, filename="<chat template>")
        self._template = environment.template_class.from_code(environment, code, environment.make_globals(None))

    def render(self, max_characters: int, **variables: Any) -> str:
        """Return the text the template writes.

        Raises:
            jinja2.TemplateError: it refused, named something undefined, or passed a limit; other exceptions are those
                of the expressions in it.
        """
        with spending(Budget(max_characters)) as spent:
            chunks: list[str] = []
            num_left = max_characters
            for chunk in self._template.generate(**variables):
                num_left -= len(chunk)
                if num_left < 0:
                    raise spent.too_long()
                chunks.append(chunk)
            return "".join(chunks)


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

    def __repr__(self) -> str:
        return "<Namespace>"  # one that holds others may be endless as text


def _refuse_underscore(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, now: Callable[[], datetime]) -> None:
        extensions = [_GenerationBlock, jinja2.ext.loopcontrols]
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions, finalize=_written)
        self.filters = {**filters(), _Meter.STEPS: _metered, _Meter.JOINED: _joined}
        self.globals = {
            "range": _range,
            "dict": lambda *args, **kwargs: dict(*args, **kwargs),
            "namespace": _Namespace,
            "cycler": Cycler,
            "joiner": Joiner,
            "raise_exception": _raise_exception,
            "strftime_now": lambda layout: now().strftime(_date_layout(layout)),
        }
        self._callables = frozenset(self.globals.values())
        self.tests["lower"], self.tests["upper"] = _text_test(str.islower), _text_test(str.isupper)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  as in Jinja
        """Call a macro, a global, or one of the methods allowed."""
        budget().spend_step()
        if isinstance(__obj, (BuiltinMethodType, MethodType)) and is_allowed(__obj):
            __obj = checked_method(__obj)
        elif not __self._is_known(__obj):
            raise SecurityError(f"it calls {getattr(__obj, '__name__', type(__obj).__name__)!r}, which is not allowed")
        return super().call(__context, __obj, *args, **kwargs)

    def _is_known(self, called: Any) -> bool:
        if isinstance(called, MethodType):
            return isinstance(called.__self__, _ATTRIBUTE_OWNERS)
        if isinstance(called, (FunctionType, type)):
            return called in self._callables
        return isinstance(called, _CALLABLE_VALUES)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a bounded stand-in for `format` and `format_map` of a text, None for everything else."""
        is_format = super().wrap_str_format(value) is not None
        return BoundFormat(self, value) if is_format else None

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Do one calculation, refusing the few that would fill the memory."""
        if operator == "%" and isinstance(left, str):
            allow_characters(printf_length(left, right))
        elif operator == "+" and isinstance(left, str) and isinstance(right, str):
            allow_characters(len(left) + len(right))
        elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            allow_items(len(left) + len(right))
        elif operator == "*":
            _allow_product(left, right)
        elif operator == "**" and (_size(left) > MAX_REPEAT or _size(right) > 64):
            raise TemplateLimitError("it raises a number to too high a power")
        else:
            allow_number(left)
            allow_number(right)
        return super().call_binop(context, operator, left, right)


def _allow_product(left: Any, right: Any) -> None:
    is_repetition = hasattr(left, "__len__") or hasattr(right, "__len__")
    if _size(left) * _size(right) > (MAX_REPEAT if is_repetition else MAX_REPEAT**2):
        raise TemplateLimitError("it multiplies into something too large")


def _size(value: Any) -> float:
    """Return the length of a text or list, the magnitude of a number."""
    if isinstance(value, (int, float)):
        return abs(value)
    return len(value) if hasattr(value, "__len__") else 1


class _Meter(NodeTransformer):
    """Puts a counter into every loop, and a length check before every `~`."""

    STEPS = "ringside metered"  # a space: no template can spell these
    JOINED = "ringside joined"

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  named by Jinja's visitor
        self.generic_visit(node)
        if not isinstance(node.iter, nodes.Expr):
            raise TypeError(f"a loop runs over {node.iter!r}, which is no expression")
        node.iter = _filtered(node.iter, self.STEPS)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), self.JOINED)


def _filtered(node: nodes.Expr, name: str) -> nodes.Expr:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _metered(items: Iterable[Any]) -> Iterator[Any]:
    spent = budget()
    for item in items:
        spent.spend_step()
        yield item


def _joined(values: list[Any]) -> str:
    allow_characters(joined_length(values, ""))
    return "".join(map(str, values))


def _written(value: Any) -> Any:
    """Check what is about to be written, in a macro or block too."""
    length = text_length(value)
    allow_characters(length)
    budget().spend_text(length)
    return value


def _text_test(test: Callable[[str], bool]) -> Callable[[Any], bool]:
    def is_so(value: Any) -> bool:
        allow_text_of(value)
        return test(str(value))

    return is_so


def _range(*bounds: int) -> range:
    try:
        return safe_range(*bounds)
    except OverflowError:
        raise TemplateLimitError(f"it counts over more than {MAX_RANGE:,} numbers") from None


def _date_layout(layout: str) -> str:
    if len(layout) > _MAX_DATE_LAYOUT:
        raise TemplateLimitError(f"it gives a date a layout of more than {_MAX_DATE_LAYOUT:,} characters")
    return layout


def _raise_exception(message: object) -> NoReturn:
    allow_text_of(message)
    raise RaisedByTemplateError(str(message))
