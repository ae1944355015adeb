"""Markdown to harmless HTML: CommonMark with tables, strikethrough and formulas, code in colour.

What a model writes is text, not a page: its raw HTML is shown as it stands (so `<think>` never vanishes), its images
become links (nothing leaves the machine by being looked at), and everything passes a sanitiser all the same.
Streaming is `app.transcript`'s business; here one finished piece of source becomes one piece of HTML.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from app.cjk_emphasis import CjkFriendlyInline
from app.formulas import use_formulas

MAX_LEVEL = 48
"""A piece nested deeper than this (a list in a list is two levels) is shown as plain text; the parser would drop what
is inside it."""

_MATH_TAGS = """
math mrow mi mo mn ms mtext mspace msup msub msubsup mfrac msqrt mroot mover munder munderover mmultiscripts
mtable mtr mtd mstyle mpadded mphantom menclose merror
"""
_MATH_ATTRIBUTES = """
display xmlns mathvariant mathsize mathcolor displaystyle scriptlevel stretchy fence separator form lspace rspace
minsize maxsize movablelimits accent accentunder linethickness columnalign rowspacing columnspacing columnlines
rowlines width height depth voffset notation
"""
_TEXT_TAGS = """
p h1 h2 h3 h4 h5 h6 em strong s a code pre blockquote ul ol li hr br table thead tbody tr th td div span button
"""
_ATTRIBUTES: dict[str, set[str]] = {
    "a": {"href", "title", "target"},
    "ol": {"start"},
    "code": {"class", "dir"},
    "pre": {"dir"},
    "div": {"class", "dir", "data-code", "tabindex", "role", "aria-label"},
    "span": {"class", "title"},
    "button": {"class", "type"},
    "th": {"class"},
    "td": {"class"},
    **{tag: set(_MATH_ATTRIBUTES.split()) for tag in _MATH_TAGS.split()},
}
_OWN_DIRECTION = {tag: {"dir": "auto"} for tag in ("p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "th", "td")}
"""Each begins at the side of its own first strong letter, whatever stands around it. Code says that it is from left to
right, which also keeps it from being that letter."""
_CLEANER = nh3.Cleaner(
    tags={*_TEXT_TAGS.split(), *_MATH_TAGS.split()},
    attributes=_ATTRIBUTES,
    url_schemes={"http", "https", "mailto"},
    link_rel="noopener noreferrer nofollow",
    set_tag_attribute_values=_OWN_DIRECTION,
)
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_CODE_FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True, classprefix="hl-")


def make_parser() -> MarkdownIt:
    """Return a parser; it holds no state between calls and can be shared by threads."""
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_LEVEL + 8})
    parser.inline = CjkFriendlyInline()
    parser.configure("commonmark", options_update=parser.options)
    parser.enable(["table", "strikethrough"])
    parser.use(use_formulas)
    parser.core.ruler.before("text_join", "cell_breaks", _cell_breaks)
    parser.core.ruler.push("headings_without_text", _headings_without_text)
    for rule, render in _RENDER_RULES.items():
        parser.add_render_rule(rule, render)
    return parser


def render(parser: MarkdownIt, source: str, env: dict[str, Any]) -> str:
    """Return source as sanitised HTML.

    `env` carries link definitions from piece to piece ("references"), code numbers in ("first_code", "continues") and
    code texts out ("codes").
    """
    tokens = parser.parse(source, env)
    if any(token.level > MAX_LEVEL for token in tokens):
        return plain(source)
    return _CLEANER.clean(parser.renderer.render(tokens, parser.options, env))


def plain(source: str) -> str:
    """Return text as it stands, as one block."""
    return f'<div class="plain" dir="auto">{html.escape(source)}</div>'


def code_frame(language: str, code_html: str, number: int, *, continues: bool) -> str:
    """Return one frame of code, or the next part of a long one (joined to the frame before it by the style sheet).

    `number` is the code's place in its message: the copy button asks the server for the text by it.
    """
    name = html.escape(language or "text")
    if continues:
        head = f'<div class="code continues" data-code="{number}">'
        return f'{head}<pre dir="ltr"><code>{code_html}</code></pre></div>'
    return (
        f'<div class="code" data-code="{number}"><div class="code-bar"><span class="code-language">{name}</span>'
        f'<button class="copy-code" type="button">Copy</button></div>'
        f'<pre dir="ltr"><code>{code_html}</code></pre></div>'
    )


def highlight_code(code: str, language: str) -> str:
    """Return code as HTML, in colour where the language is known."""
    lexer = _lexer(language.strip().lower())
    if lexer is None:
        return html.escape(code)
    return highlight(code, lexer, _CODE_FORMATTER)


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    if not language or len(language) > 40:
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _headings_without_text(state: StateCore) -> None:
    """Make a paragraph of a heading that says nothing, as one that is just being written: it is no place to go to."""
    for start, text, end in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if start.type == "heading_open" and not text.content:
            start.tag = end.tag = "p"


def _cell_breaks(state: StateCore) -> None:
    """Make `<br>` in table cells a line break: a row is one line of source, so there is no other way to write one.

    This runs while an escaped `\\<` is still a token of its own.
    """
    for before, token in pairwise(state.tokens):
        if before.type in ("th_open", "td_open") and "<" in token.content:
            token.children = [piece for child in token.children or () for piece in _broken(child)]


def _broken(token: Token) -> Iterator[Token]:
    parts = _BREAK.split(token.content) if token.type == "text" else []
    if len(parts) < 2:
        yield token
        return
    for number, part in enumerate(parts):
        if number:
            yield Token("hardbreak", "br", 0, level=token.level)
        if part:
            yield token.copy(content=part)


def _fence(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
    """Render code and note its text in `env["codes"]`, where copy buttons find it.

    With `env["continues"]`, the first code goes on with the last one of the pieces before.
    """
    token = tokens[at]
    codes: list[str] = env.setdefault("codes", [])
    continues = bool(env.pop("continues", False))
    first_number = int(env.get("first_code", 0))
    number = first_number + len(codes)
    codes.append(token.content)
    if continues and not token.content:  # only the closing fence was left
        return ""
    words = token.info.split()
    language = words[0] if words else ""
    return code_frame(language, highlight_code(token.content, language), number, continues=continues)


def _code_inline(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
    return f'<code dir="ltr">{html.escape(tokens[at].content)}</code>'


def _image(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
    token = tokens[at]
    address = html.escape(str(token.attrs.get("src", "")))
    text = html.escape(token.content) or address
    return f'<a href="{address}" target="_blank">{text}</a>'


def _link_open(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
    tokens[at].attrSet("target", "_blank")
    return self.renderToken(tokens, at, options, env)


def _table_open(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
    return '<div class="table" tabindex="0" role="region" aria-label="Table"><table>'


def _table_close(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
    return "</table></div>"


def _cell_open(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
    # the sanitiser strips style attributes, so alignment travels as a class
    token = tokens[at]
    align = str(token.attrs.get("style", "")).removeprefix("text-align:")
    return f'<{token.tag} class="{align}">' if align in ("left", "center", "right") else f"<{token.tag}>"


_RENDER_RULES = {
    "fence": _fence,
    "code_block": _fence,
    "code_inline": _code_inline,
    "image": _image,
    "link_open": _link_open,
    "table_open": _table_open,
    "table_close": _table_close,
    "th_open": _cell_open,
    "td_open": _cell_open,
}
