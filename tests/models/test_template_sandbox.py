"""Templates that overdo it are refused before anything large is made, inside a process that has little memory."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest

from models.templates.child import answer_to
from models.templates.sandbox import CompiledTemplate
from tests.models.hostile_templates import NOT_ALLOWED, TOO_LARGE

CHAT = [{"role": "user", "content": "Hello."}]


def answer(source: str) -> dict[str, Any]:
    return answer_to({"source": source, "max_characters": 1_000_000, "variables": {"messages": CHAT}})


@pytest.mark.parametrize("source", TOO_LARGE.values(), ids=TOO_LARGE)
def test_what_would_be_too_large_is_refused_before_it_is_made(source: str) -> None:
    refusal = answer(source)
    assert refusal["kind"] == "limit"
    assert refusal["reason"].startswith("it ")


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux alone")
def test_every_refusal_comes_within_little_memory() -> None:
    done = subprocess.run([sys.executable, "-c", _WITH_LITTLE_MEMORY], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


_WITH_LITTLE_MEMORY = """
import resource
from models.templates.child import answer_to
from tests.models.hostile_templates import TOO_LARGE

resource.setrlimit(resource.RLIMIT_AS, (150_000_000, 150_000_000))
answers = {name: answer_to({"source": source, "max_characters": 1_000_000, "variables": {}})
           for name, source in TOO_LARGE.items()}
print([name for name, answer in answers.items() if answer.get("kind") != "limit"])
"""


@pytest.mark.parametrize("source", NOT_ALLOWED.values(), ids=NOT_ALLOWED)
def test_what_no_chat_needs_is_not_there(source: str) -> None:
    refusal = answer(source)
    assert refusal["kind"] in ("failed", "broken"), refusal
    assert "text" not in refusal


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ 'x'.translate({}) }}", "it calls 'translate', which is not allowed"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ 'x'.center(10**10) }}", "it writes more than 1,000,000 characters"),
        ("{{ [1] + [1] * 1000000 }}", "it makes a list of more than 1,000,000 items"),
        ("{{ range(10**12) }}", "it counts over more than 100,000 numbers"),
        ("{{ " + "(" * 5000 + ")" * 5000 + " }}", "it is nested too deeply"),
        ("{% for a in b %}" * 30 + "{% endfor %}" * 30, "too many statically nested blocks"),
    ],
)
def test_a_refusal_says_what_is_too_much(source: str, reason: str) -> None:
    assert reason in answer(source)["reason"]


def test_a_reason_is_short_however_long_the_template_wants_it() -> None:
    assert len(answer("{{ raise_exception('no ' * 99999) }}")["reason"]) == 500


def test_a_long_chat_may_make_long_texts() -> None:
    text = "word " * 400_000
    template = CompiledTemplate("{{ messages[0].content.replace('word', 'words')|upper|trim }}")
    assert len(template.render(9_000_000, messages=[{"content": text}])) > len(text)


def test_the_date_is_that_of_the_clock() -> None:
    template = CompiledTemplate("{{ strftime_now('%d %b %Y') }}", now=lambda: datetime(2026, 2, 3))
    assert template.render(100) == "03 Feb 2026"
