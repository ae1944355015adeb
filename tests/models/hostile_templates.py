"""Templates that ask for more than any machine has, and ones that reach for what no chat needs."""

from __future__ import annotations

_BIG = "{% set big = 'x' * 999999 %}"
_GROWING = "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = EXPRESSION %}{% endfor %}"
_NESTED = _GROWING.replace("EXPRESSION", "[ns.l, ns.l]")
_DOUBLED = "{% set ns = namespace(x='&x') %}{% for i in range(60) %}{% set ns.x = EXPRESSION %}{% endfor %}{{ ns.x }}"


def _doubling(expression: str) -> str:
    return _DOUBLED.replace("EXPRESSION", expression)


TOO_LARGE: dict[str, str] = {
    "wide number": "{{ '%1000000000d' % 1 }}",
    "wide number, at the page": "{{ '%400000000d' % 1 }}",
    "wide text": "{{ '%-1000000000s|' % 'x' }}",
    "precise number": "{{ '%.1000000000f' % 1.5 }}",
    "width given apart": "{{ '%*d' % (1000000000, 1) }}",
    "width given apart, twice": "{{ '%*d%*d' % (900000, 1, 900000, 1) }}",
    "width after a name with brackets": "{{ '%(a(b))1000000000d' % {'a(b)': 1} }}",
    "many widths": "{{ ('%99999d' * 100) % ((1,) * 100) }}",
    "one name many times": _BIG + "{{ ('%(a)s' * 1000) % {'a': big} }}",
    "format filter": "{{ '%1000000000d'|format(1) }}",
    "format filter by name": _BIG + "{{ ('%(a)s' * 1000)|format(a=big) }}",
    "str.format": "{{ '{:1000000000}'.format(1) }}",
    "str.format, nested width": "{{ '{:{}}'.format(1, 1000000000) }}",
    "str.format, precision": "{{ '{:.1000000000f}'.format(1.5) }}",
    "str.format, one field many times": _BIG + "{{ ('{0}' * 1000).format(big) }}",
    "str.format, nested lists": _NESTED + "{{ '{0!r}'.format(ns.l) }}",
    "str.format, nested lists unconverted": _NESTED + "{{ '{}'.format(ns.l) }}",
    "str.format_map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "str.format by item": "{{ '{:1000000000}'['format'](1) }}",
    "str.format by attr": "{{ ('{:1000000000}'|attr('format'))(1) }}",
    "str.format by map": "{{ (['{:1000000000}']|map(attribute='format')|first)(1) }}",
    "ljust": "{{ 'x'.ljust(10**10) }}",
    "rjust": "{{ 'x'.rjust(10**10) }}",
    "str.center": "{{ 'x'.center(10**10) }}",
    "zfill": "{{ '1'.zfill(10**10) }}",
    "center filter": "{{ 'x'|center(10**10) }}",
    "expandtabs": "{{ '\t'.expandtabs(10**10) }}",
    "many tabs": "{{ ('\t' * 1000).expandtabs(10**6) }}",
    "indent": "{{ ('x\n' * 1000)|indent(10**9) }}",
    "indent by a text": _BIG + "{{ ('x\n' * 1000)|indent(big) }}",
    "indent of blank lines": "{{ ('\n' * 1000)|indent(10**6, blank=true) }}",
    "join": _BIG + "{{ ([big] * 1000)|join }}",
    "join by a text": _BIG + "{{ ([''] * 1000)|join(big) }}",
    "join of an attribute": _BIG + "{{ ([{'a': big}] * 1000)|join(attribute='a') }}",
    "join of a generator": _BIG + "{{ ([big] * 1000)|map('lower')|join }}",
    "str.join": _BIG + "{{ big.join([''] * 1000) }}",
    "str.join of texts": _BIG + "{{ ''.join([big] * 1000) }}",
    "replace filter": _BIG + "{{ ('x' * 1000)|replace('x', big) }}",
    "replace of nothing": _BIG + "{{ ('x' * 1000)|replace('', big) }}",
    "str.replace": _BIG + "{{ ('x' * 1000).replace('x', big) }}",
    "truncate": _BIG + "{{ big|truncate(999990, end=big) }}",
    "slice": "{{ [1]|slice(10**10)|list|length }}",
    "batch": "{{ [1]|batch(10**10, 0)|list|length }}",
    "text times": "{{ 'x' * 10**9 }}",
    "list times": "{{ [1] * 10**9 }}",
    "times text": "{{ 10**9 * 'x' }}",
    "list of texts": _BIG + "{{ ([big] * 1000)|map('upper')|list|length }}",
    "sum of lists": "{{ ([[1] * 99999] * 99)|sum(start=[])|length }}",
    "power": "{{ 10**(10**9) }}",
    "power of powers": "{{ 10**60**60 }}",
    "rounding up": "{{ 1.5|round(10**9, 'ceil') }}",
    "large number": "{{ ('f' * 999999)|int(base=16) * 1 }}",
    "large remainder": "{{ ('f' * 999999)|int(base=16) % ('e' * 499999)|int(base=16) }}",
    "large sum": "{{ ([('f' * 999999)|int(base=16)] * 9)|sum }}",
    "doubling by +": _doubling("ns.x + ns.x"),
    "doubling by *": _doubling("ns.x * 2"),
    "doubling by ~": _doubling("ns.x ~ ns.x"),
    "doubling by %": _doubling("'%s%s' % (ns.x, ns.x)"),
    "doubling by % and names": _doubling("'%(a)s%(a)s' % {'a': ns.x}"),
    "doubling by format": _doubling("'%s%s'|format(ns.x, ns.x)"),
    "doubling by str.format": _doubling("'{0}{0}'.format(ns.x)"),
    "doubling by join": _doubling("[ns.x, ns.x]|join"),
    "doubling by str.join": _doubling("ns.x.join(['', '', ''])"),
    "doubling by replace": _doubling("ns.x|replace('x', 'xx')"),
    "doubling by str.replace": _doubling("ns.x.replace('x', 'xx')"),
    "doubling by JSON": _doubling("ns.x|tojson|tojson ~ ns.x"),
    "doubling of a list": _GROWING.replace("EXPRESSION", "ns.l + ns.l"),
    "doubling of a list by *": _GROWING.replace("EXPRESSION", "ns.l * 2"),
    "doubling of a tuple": _GROWING.replace("[1]", "(1,)").replace("EXPRESSION", "ns.l + ns.l"),
    "nested lists, written": _NESTED + "{{ ns.l }}",
    "nested lists, as text": _NESTED + "{{ ns.l|string }}",
    "nested lists, upper": _NESTED + "{{ ns.l|upper }}",
    "nested lists, tested": _NESTED + "{{ ns.l is upper }}",
    "nested lists, joined": _NESTED + "{{ [ns.l]|join }}",
    "nested lists, concatenated": _NESTED + "{{ ns.l ~ '' }}",
    "nested lists, formatted": _NESTED + "{{ '%s' % (ns.l,) }}",
    "nested lists, JSON": _NESTED + "{{ ns.l|tojson }}",
    "nested lists, raised": _NESTED + "{{ raise_exception(ns.l) }}",
    "nested dicts, written": _NESTED.replace("[ns.l, ns.l]", "{'a': ns.l, 'b': ns.l}") + "{{ ns.l }}",
    "nested dicts, their items": _NESTED.replace("[ns.l, ns.l]", "{'a': ns.l, 'b': ns.l}") + "{{ ns.l.items() }}",
    "JSON, indented": "{{ [[[1]]]|tojson(indent=10**9) }}",
    "JSON, separated": _BIG + "{{ ([1] * 1000)|tojson(separators=(big, big)) }}",
    "JSON, escaped": "{{ ('\U0001f600' * 400000)|tojson(ensure_ascii=true) }}",
    "date": _BIG + "{{ strftime_now(big) }}",
    "escaped": "{{ ('&' * 999999)|e }}",
    "range": "{{ range(10**12)|list }}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops in macros": "{% macro m() %}{% for i in range(99999) %}{% endfor %}{% endmacro %}" + "{{ m() }}" * 50,
    "macro text": _BIG + "{% macro m() %}{% for i in range(999) %}{{ big }}{% endfor %}{% endmacro %}{% set y = m() %}",
    "block text": _BIG + "{% set y %}{% for i in range(999) %}{{ big }}{% endfor %}{% endset %}",
    "written text": _BIG + "{% for i in range(999) %}{{ big }}{% endfor %}",
}
"""Each is refused before it is made."""

NOT_ALLOWED: dict[str, str] = {
    "lorem ipsum": "{{ lipsum(n=20000) }}",
    "lorem ipsum, larger": "{{ lipsum(n=10**8) }}",
    "translate": "{{ 'x'.translate({120: 'x' * 999999}) }}",
    "maketrans": "{{ ''.maketrans({}) }}",
    "encode": "{{ ('x' * 999999).encode('utf-32') }}",
    "to_bytes": "{{ (1).to_bytes(10**10, 'big') }}",
    "fromkeys": "{{ {}.fromkeys(range(99999)) }}",
    "append": "{{ messages.append(1) }}",
    "class": "{{ ''.__class__.__mro__ }}",
    "class by attr": "{{ (''|attr('__class__')) ~ (''|attr('__class__')).mro() }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "globals of a global": "{{ strftime_now.__globals__.x }}",
    "code of a macro": "{% macro m() %}{% endmacro %}{{ m._func.__code__ }}",
    "format to a class": "{{ '{0.__class__.__mro__}'.format('x') }}",
    "self": "{{ self._TemplateReference__context.environment }}",
    "include": "{% include 'secrets' %}",
    "import": "{% import 'os' as os %}",
    "random": "{{ [1, 2]|random }}",
    "pprint": "{{ messages|pprint }}",
    "urlize": "{{ ('http://' * 99999)|urlize }}",
}
"""What no chat template needs."""

TOO_SLOW: dict[str, str] = {
    "nested lists, compared": _NESTED
    + _NESTED.replace("ns.", "other.").replace("ns =", "other =")
    + "{{ ns.l == other.l }}",
    "macros that call macros": "{% macro m(n) %}{{ m(n - 1) ~ m(n - 1) if n }}{% endmacro %}{{ m(60) }}",
    "long searches": _BIG + "{% for i in range(99999) %}{{ big.count('xy') }}{% endfor %}",
}
"""Small for all they do: only time ends them."""

TOO_MUCH_MEMORY: dict[str, str] = {
    "a growing list": "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}"
    "{% set ns.l = ns.l + ['x' * 900000 ~ i] %}{% endfor %}",
    "sorted texts": _BIG + "{{ ([big] * 9999)|map('upper')|sort|length }}",
}
"""Each piece is small enough."""
