"""Formulas, emphasis and tables as models write them, in the texts where other renderers stumble."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest

from app.cjk_emphasis import is_cjk
from app.markdown import make_parser, render


def html_of(text: str) -> str:
    env: dict[str, Any] = {}
    return render(make_parser(), text, env)


def num_formulas(text: str) -> int:
    return html_of(text).count("<math")


@pytest.mark.parametrize(
    "text",
    [
        "set $HOME/bin:$PATH first",
        "export $FOO,$BAR",
        "$HOME/${USER} and ${A}/${B}",
        "$FOO:$(pwd) and $(a)=$(b)",
        "PATH=$HOME/bin:$PATH",
        'cp "$SRC"/"$NAME" .',
        "$@/$?, $# and $!",
        "print $1,$NF",
        "$env:PATH;$env:HOME",
        "$this->x = $y;",
        "it is $FOO or `$`",
        "match ^foo$|^bar$",
        "from $5-$10, US$5 or A$6",
        "5$ and 6$",
        "a $ b $ c",
        r"\$x\$",
    ],
)
def test_variables_paths_and_prices_are_no_formulas_and_stay_as_they_are(text: str) -> None:
    assert num_formulas(text) == 0
    shown = re.sub(r"<[^>]*>", "", html_of(text)).strip()
    assert shown.count("$") == text.count("$")


@pytest.mark.parametrize(
    ("text", "num"),
    [
        ("with $x^2$ and ($y$), or $z$.", 3),
        ("is it $x$? the $x$-axis: $x$", 3),
        ("其中$x$是实数，函数$f(x)$在", 2),
        ("한글 $x$는", 1),
        ("$x$", 1),
        ("**$x$** and _$y$_", 2),
        (r"$\text{a \$ b}$", 1),
        ("$\\{1, 2\\}$ and $(a, b)$", 2),
        ("in $HOME/bin:$PATH there is $x$", 1),
        ("so $$x$$ and $$y$$ inline", 2),
        ("$$x$$ and $$y$$", 2),
    ],
)
def test_formulas_are_found_where_pandoc_and_github_agree_and_between_ideographs(text: str, num: int) -> None:
    assert num_formulas(text) == num


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**「A」**なので**「B」**", "<strong>「A」</strong>なので<strong>「B」</strong>"),
        ("*「A」*なので*「B」*", "<em>「A」</em>なので<em>「B」</em>"),
        ("~~「A」~~なので~~「B」~~", "<s>「A」</s>なので<s>「B」</s>"),
        ("__「A」__。", "<strong>「A」</strong>。"),
        ("a。__「A」__", "a。<strong>「A」</strong>"),
        ("**この文は太字。**この文のせいで。", "<strong>この文は太字。</strong>この文のせいで。"),
        ("**该星号不会被识别。**这是因为", "<strong>该星号不会被识别。</strong>这是因为"),
        ("**별표는 인식된다(괄호 때문에)**이 문장", "<strong>별표는 인식된다(괄호 때문에)</strong>이 문장"),
        ("패키지를 **`npm publish`**를", '패키지를 <strong><code dir="ltr">npm publish</code></strong>를'),
        ("これは**[x](y)**です", '<strong><a href="y"'),
        ("葛󠄀**(あ)**", "葛󠄀<strong>(あ)</strong>"),
        ("あ**‘︁a’︁**い", "<strong>‘︁a’︁</strong>い"),
        ("禰︀**(あ)**い", "禰︀<strong>(あ)</strong>い"),
    ],
)
def test_emphasis_beside_cjk_punctuation_is_emphasis(text: str, html: str) -> None:
    assert html in html_of(text)


@pytest.mark.parametrize(
    "text",
    [
        'a*"foo"*',
        "**Go (Go)**Go",
        "a**😀**b",
        "snake_case_name",
        "中_文_字",
        "2 * 3 * 4",
        "*foo bar *",
    ],
)
def test_what_is_no_emphasis_in_commonmark_is_none_here(text: str) -> None:
    assert re.sub(r"</?p[^>]*>", "", html_of(text)).strip().replace("&quot;", '"') == text


def test_letters_and_punctuation_of_cjk_are_the_wide_ones_and_hangul() -> None:
    for character in map(chr, range(0x110000)):
        if unicodedata.category(character)[0] in "LP":
            is_wide = unicodedata.east_asian_width(character) in "WFH"
            is_hangul = "HANGUL" in unicodedata.name(character, "")
            assert is_cjk(character) == (is_wide or is_hangul), unicodedata.name(character, hex(ord(character)))
    assert not any(map(is_cjk, "😀✅⭐ aé—“"))


def test_a_break_in_a_cell_is_a_line_break_and_other_tags_stay_text() -> None:
    html = html_of(
        "| a<br>b |\n|---|\n"
        "| x<br>y<BR/>**z<br />w** |\n| `<br>` \\<br> <b>q</b> <br class=x> <brr> |\n\n"
        "out<br>side\n\n> | q |\n> |--|\n> | 1<br>2 |"
    )
    cells = re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", html, re.DOTALL)
    assert [cell.replace("\n", "") for cell in cells] == [
        "a<br>b",
        "x<br>y<br><strong>z<br>w</strong>",
        '<code dir="ltr">&lt;br&gt;</code> &lt;br&gt; &lt;b&gt;q&lt;/b&gt; &lt;br class=x&gt; &lt;brr&gt;',
        "q",
        "1<br>2",
    ]
    assert "out&lt;br&gt;side" in html


def test_each_piece_of_text_has_a_direction_of_its_own_and_code_is_from_left_to_right() -> None:
    source = "# כותרת\n\nשלום `ls`\n\n- פריט\n- item\n\n> ציטוט\n\n|א|b|\n|-|:-:|\n|1|ב|\n\n```\nls\n```\n"
    html = html_of(source)
    assert set(re.findall(r"<(?:p|h1|li|th|td)\b(?: class=[^ >]*)?([^>]*)>", html)) == {' dir="auto"'}
    assert set(re.findall("<(?:code|pre)([^>]*)>", html)) == {' dir="ltr"', ""}  # of code in a frame, the frame says so
    assert '<code dir="ltr">ls</code>' in html
    assert '<pre dir="ltr"><code>' in html


def test_a_heading_that_says_nothing_is_no_heading() -> None:
    assert html_of("## \n\ntext") == '<p dir="auto"></p>\n<p dir="auto">text</p>\n'
    assert html_of("#") == '<p dir="auto"></p>\n'
    assert "<h2" in html_of("## `code`")
    assert "<h1" in html_of("Title\n=")
