"""Markdown to harmless HTML: CommonMark with tables, strikethrough and formulas, code in colour.

What a model writes is text, not a page: its raw HTML is shown as it stands (so `<think>` never vanishes), its images
become links (nothing leaves the machine by being looked at), and everything passes a sanitiser all the same.
Streaming is `app.transcript`'s business; here one finished piece of source becomes one piece of HTML.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import latex2mathml.converter
import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

MAX_LEVEL = 48
"""A piece nested deeper than this (a list in a list is two levels) is shown as plain text; the parser would drop what
is inside it."""

MAX_FORMULA_CHARS = 4_000

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
    "code": {"class"},
    "div": {"class", "data-code", "tabindex", "role", "aria-label"},
    "span": {"class", "title"},
    "button": {"class", "type"},
    "th": {"class"},
    "td": {"class"},
    **{tag: set(_MATH_ATTRIBUTES.split()) for tag in _MATH_TAGS.split()},
}
_CLEANER = nh3.Cleaner(
    tags={*_TEXT_TAGS.split(), *_MATH_TAGS.split()},
    attributes=_ATTRIBUTES,
    url_schemes={"http", "https", "mailto"},
    link_rel="noopener noreferrer nofollow",
)
_CODE_FORMATTER: HtmlFormatter[str] = HtmlFormatter(nowrap=True, classprefix="hl-")


def make_parser() -> MarkdownIt:
    """Return a parser; it holds no state between calls and can be shared by threads."""
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_LEVEL + 8})
    parser.enable(["table", "strikethrough"])
    parser.use(dollarmath_plugin, allow_digits=False, allow_space=False, double_inline=True)
    parser.block.ruler.at("math_block", _math_block_rule, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.inline.ruler.before("escape", "math_brackets", _math_brackets_rule)
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
    return f'<div class="plain">{html.escape(source)}</div>'


def code_frame(language: str, code_html: str, number: int, *, continues: bool) -> str:
    """Return one frame of code, or the next part of a long one (joined to the frame before it by the style sheet).

    `number` is the code's place in its message: the copy button asks the server for the text by it.
    """
    name = html.escape(language or "text")
    if continues:
        return f'<div class="code continues" data-code="{number}"><pre><code>{code_html}</code></pre></div>'
    return (
        f'<div class="code" data-code="{number}"><div class="code-bar"><span class="code-language">{name}</span>'
        f'<button class="copy-code" type="button">Copy</button></div><pre><code>{code_html}</code></pre></div>'
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


@lru_cache(maxsize=512)
def formula(tex: str, *, display: bool) -> str:
    """Return a formula as MathML, or its source where it cannot be read.

    latex2mathml raises a dozen kinds of error on half-written formulas, which streaming makes common.
    """
    source = html.escape(tex.strip())
    if len(tex) <= MAX_FORMULA_CHARS:
        try:
            markup = latex2mathml.converter.convert(tex.strip(), display="block" if display else "inline")
        except Exception:
            markup = f'<code class="formula-source">{source}</code>'
    else:
        markup = f'<code class="formula-source">{source}</code>'
    if display:
        return f'<div class="formula">{markup}</div>'
    return f'<span class="formula">{markup}</span>'


def _math_block_rule(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Parse lines from `$$` or `\\[` to its partner, a blank line, or the end.

    The plugin's own rule waits for the partner. That would not do here: what a line means must not depend on lines to
    come, or the first lines of a formula would be finished as a list or heading before its end arrives.
    """
    first = _line(state, start_line)
    closing = {"$$": "$$", "\\[": "\\]"}.get(first[:2])
    if closing is None or state.is_code_block(start_line) or first.startswith("$$$"):
        return False
    if closing in first[2:] and not first.endswith(closing):  # text follows: the inline rules take it
        return False
    if silent:
        return True
    line, closed = start_line, closing in first[2:]
    while (
        not closed and line + 1 < end_line and not state.isEmpty(line + 1) and state.sCount[line + 1] >= state.blkIndent
    ):
        line += 1
        closed = closing in _line(state, line)
    content = state.getLines(start_line, line + 1, state.blkIndent, False).strip()[2:]
    tex, _, after = content.partition(closing)
    token = state.push("math_block", "math", 0)
    token.content, token.info, token.markup = tex, after.strip(), first[:2]
    token.meta = {"closed": closed}
    token.map = [start_line, line + 1]
    token.block = True
    state.line = line + 1
    return True


def _continues(state: StateBlock, line: int) -> bool:
    return not state.isEmpty(line) and state.sCount[line] >= state.blkIndent


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].rstrip()


def _math_brackets_rule(state: StateInline, silent: bool) -> bool:
    r"""Parse `\(...\)` and `\[...\]` inside a line of text."""
    opening = state.src[state.pos : state.pos + 2]
    closing = {"\\(": "\\)", "\\[": "\\]"}.get(opening)
    if closing is None:
        return False
    end = state.src.find(closing, state.pos + 2, state.posMax)
    if end < 0:
        return False
    if not silent:
        token = state.push("math_inline", "math", 0)
        token.content = state.src[state.pos + 2 : end]
        token.markup = opening
    state.pos = end + 2
    return True


def _math_inline(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
    return formula(tokens[at].content, display=False)


def _math_display(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: EnvType) -> str:
    token = tokens[at]
    if not token.meta["closed"]:
        source = html.escape(token.markup + token.content)
        return f'<div class="formula"><code class="formula-source">{source}</code></div>'
    after = f"<p>{html.escape(token.info)}</p>" if token.info else ""
    return formula(token.content, display=True) + after


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
    "math_inline": _math_inline,
    "math_inline_double": _math_inline,
    "math_block": _math_display,
    "fence": _fence,
    "code_block": _fence,
    "image": _image,
    "link_open": _link_open,
    "table_open": _table_open,
    "table_close": _table_close,
    "th_open": _cell_open,
    "td_open": _cell_open,
}
