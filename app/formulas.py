"""Formulas in Markdown: `$...$`, `$$...$$`, `\\(...\\)` and `\\[...\\]`, and what they look like as MathML.

A dollar is a price, a variable of a shell or the edge of a formula. It is an edge only where both Pandoc and GitHub
take it for one: https://pandoc.org/MANUAL.html#extension-tex_math_dollars and
https://docs.github.com/en/get-started/writing-on-github/working-with-advanced-formatting/writing-mathematical-expressions
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import lru_cache

import latex2mathml.converter
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from mdit_py_plugins.dollarmath.index import dollarmath_plugin, math_inline_dollar

from app.cjk_emphasis import is_cjk

MAX_FORMULA_CHARS = 4_000

_dollars_of_plugin = math_inline_dollar(allow_space=False, allow_digits=False, allow_double=True)

_SHELL = re.compile(r"[@#?!].*|.*[/:;,=\"']\(|.*\{", re.DOTALL)
"""What stands from an opening dollar to the character after its partner, where both belong to variables of a shell:
`$@/$?`, `$FOO:$(pwd)`, `$HOME/${USER}`."""


def use_formulas(parser: MarkdownIt) -> None:
    """Let a parser know formulas."""
    parser.use(dollarmath_plugin)
    parser.inline.ruler.at("math_inline", _math_dollars_rule)
    parser.block.ruler.at("math_block", _math_block_rule, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.inline.ruler.before("escape", "math_brackets", _math_brackets_rule)
    parser.add_render_rule("math_inline", _math_inline)
    parser.add_render_rule("math_inline_double", _math_inline)
    parser.add_render_rule("math_block", _math_display)


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


def _math_dollars_rule(state: StateInline, silent: bool) -> bool:
    """Parse `$...$` and `$$...$$`, where neither edge touches a word or belongs to a variable."""
    start = state.pos
    if state.src[start] != "$" or _in_word(state.src[start - 1 : start]):
        return False
    if not _dollars_of_plugin(state, True):
        return False
    end = state.pos
    after = state.src[end : end + 1]
    content = state.src[start:end].strip("$")
    cuts_code = content.count("`") % 2 == 1
    if _in_word(after) or cuts_code or _SHELL.fullmatch(content + after):
        state.pos = start
        return False
    state.pos = start
    return _dollars_of_plugin(state, silent)


def _in_word(character: str) -> bool:
    """Tell whether a dollar beside this character is inside a word; words of scripts without spaces begin anywhere."""
    return character.isalnum() and not is_cjk(character)


def _math_block_rule(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Parse lines from `$$` or `\\[` to its partner, a blank line, or the end.

    The plugin's own rule waits for the partner. That would not do here: what a line means must not depend on lines to
    come, or the first lines of a formula would be finished as a list or heading before its end arrives.
    """
    first = _line(state, start_line)
    closing = {"$$": "$$", "\\[": "\\]"}.get(first[:2])
    if closing is None or state.is_code_block(start_line) or first.startswith("$$$"):
        return False
    if closing in first[2:-2]:  # text follows: the inline rules take it
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
