"""One spelling: the same for all that Unicode has for one text, and mapped back to the very characters of the text."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from unicodedata import category, normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.folding import fold, fold_for_index

SPELLINGS = [
    ("Café", "CAFE\u0301"),
    ("Straße", "STRASSE"),
    ("ẞ", "ß"),
    ("ΟΔΟΣ", "οδος"),
    ("σοφός", "ΣΟΦΌΣ"),
    ("ＡＢＣ１２３", "abc123"),
    ("ｶﾞｷﾞ", "ガギ"),
    ("か\u3099", "が"),
    ("한국어", normalize("NFD", "한국어")),
    ("ㅎㅏ", "하"),
    ("ﾡ", "ㄱ"),
    ("ﬁne", "FINE"),
    ("İstanbul", "istanbul"),
    ("①", "1"),
    ("Việt Nam", normalize("NFD", "VIỆT NAM")),
]
CHARACTERS = st.one_of(
    st.sampled_from([*"aßẞςσΣéİıǰŉﬁｶﾞがか한ㅎㅏㄱ\u0301\u0307\u0323\u3099\u1161\u11a8 \n…，①Å\u212bΐᾳ\u0345"]),
    st.characters(exclude_categories=["Cs"]),
)
TEXTS = st.text(CHARACTERS, max_size=40)


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_spellings_of_one_text_are_one(one: str, other: str) -> None:
    assert fold(one).text == fold(other).text


@pytest.mark.parametrize(("one", "other"), [("a", "á"), ("ss", "sz"), ("가", "각"), ("o", "ø"), ("は", "ば")])
def test_different_letters_stay_different(one: str, other: str) -> None:
    assert fold(one).text != fold(other).text


@given(TEXTS)
def test_composed_and_decomposed_texts_become_the_same(text: str) -> None:
    assert fold(normalize("NFC", text)).text == fold(normalize("NFD", text)).text


@given(TEXTS)
def test_every_character_leads_back_to_those_it_was_made_of(text: str) -> None:
    for folded in (fold(text), fold_for_index(text)):
        spans = [folded.span_of(at, at + 1) for at in range(len(folded.text))]
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert spans == sorted(spans)
        if spans:
            assert folded.span_of(0, len(spans)) == (0, len(text))
        covered = {at for start, end in spans for at in range(start, end)}
        assert covered == set(range(len(text)))


@given(TEXTS)
def test_folding_line_by_line_finds_what_folding_alone_finds(text: str) -> None:
    folded = fold(f"é {text}\n{text}\nplain {text}").text
    assert folded.count(fold(text).text) >= 1


def test_what_the_index_folds_itself_is_not_kept_twice() -> None:
    for text in ("The River, DÉJÀ VU; Ёлка и Ωmega", "其中，河流很长。“真的”？…", "アイウ"):
        assert fold_for_index(text).text == text
    assert fold_for_index("Straße ＡＢ e\u0301, ς…").text == "Strasse ab é, σ…"


def test_the_page_folds_as_the_application_does() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    texts = [chr(point) for point in range(0x110000) if category(chr(point)) not in ("Cn", "Cs", "Co")]
    texts += [spelling for pair in SPELLINGS for spelling in pair]
    script = Path(__file__).parents[2] / "assets" / "folding.js"
    program = (
        f"const {{ folded }} = await import({json.dumps(script.as_uri())});"
        "let given = ''; for await (const part of process.stdin) given += part;"
        "console.log(JSON.stringify(JSON.parse(given).map(folded)));"
    )
    ran = subprocess.run(
        [node, "--input-type=module", "-e", program],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(ran.stdout)
    different = [text for text, folded in zip(texts, theirs, strict=True) if folded != fold(text).text]
    assert different == []
