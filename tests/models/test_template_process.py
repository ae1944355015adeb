"""Templates render in a process that can be ended: one that overdoes it gives a sentence, and the next one renders."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from backends.errors import BadRequestError, ModelFileError
from backends.requests import Message
from models.chat_template import ChatTemplate
from models.templates.process import (
    BrokenTemplate,
    Limits,
    TemplateFailure,
    TemplateOverLimit,
    TemplateProcesses,
    TemplateRefusal,
)
from tests.models.hostile_templates import TOO_LARGE, TOO_MUCH_MEMORY, TOO_SLOW

ENDLESS = TOO_SLOW["nested lists, compared"]


@pytest.fixture
def processes() -> Iterator[TemplateProcesses]:
    processes = TemplateProcesses()
    yield processes
    processes.close()


def render(processes: TemplateProcesses, source: str, limits: Limits | None = None) -> str:
    return processes.render(source, 1_000_000, {"messages": [{"content": "hi"}]}, limits or Limits())


def renderers() -> set[int]:
    """Return the ids of the processes that render for this one."""
    children = psutil.Process().children()
    return {child.pid for child in children if any("models.templates.child" in each for each in child.cmdline())}


def test_a_process_is_kept_for_the_next_rendering(processes: TemplateProcesses) -> None:
    before = renderers()
    assert render(processes, "{{ messages[0].content }}") == "hi"
    (first,) = renderers() - before
    for source in ("{{ 1 + 1 }}", "{{ raise_exception('no') }}", "{% if %}", "{{ 1 / 0 }}", TOO_LARGE["wide number"]):
        with suppress(TemplateFailure):
            render(processes, source)
    assert renderers() - before == {first}


@pytest.mark.parametrize("source", TOO_SLOW.values(), ids=TOO_SLOW)
def test_what_takes_too_long_is_ended_and_the_next_one_renders(processes: TemplateProcesses, source: str) -> None:
    before = renderers()
    with pytest.raises(TemplateOverLimit, match="it takes longer than 1 seconds"):
        render(processes, source, Limits(cpu_s=1))
    assert renderers() == before
    assert render(processes, "fine") == "fine"


@pytest.mark.parametrize("source", TOO_MUCH_MEMORY.values(), ids=TOO_MUCH_MEMORY)
def test_what_needs_too_much_memory_is_ended_and_the_next_one_renders(
    processes: TemplateProcesses, source: str
) -> None:
    with pytest.raises(TemplateOverLimit, match="it needs more than 200 MB of memory"):
        render(processes, source, Limits(memory_bytes=200_000_000))
    assert render(processes, "fine") == "fine"


def test_memory_is_watched_where_the_system_does_not_limit_it(processes: TemplateProcesses) -> None:
    request = {"source": ENDLESS, "max_characters": 1, "variables": {}, "cpu_s": 9, "memory_bytes": 2**40}
    limits = Limits(memory_bytes=1_000_000)
    with pytest.raises(TemplateOverLimit, match="more than 1 MB of memory"), processes._process() as process:
        process.ask(request, limits)
    assert render(processes, "fine") == "fine"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_the_system_ends_what_takes_too_long_if_nobody_watches(processes: TemplateProcesses) -> None:
    request = {"source": ENDLESS, "max_characters": 10**6, "variables": {}, "cpu_s": 0.1, "memory_bytes": 2**40}
    with pytest.raises(TemplateOverLimit, match="it takes longer than 600 seconds"), processes._process() as process:
        process.ask(request, Limits(cpu_s=600))


def test_one_that_takes_long_does_not_hold_up_others(processes: TemplateProcesses) -> None:
    before = renderers()
    failures: list[str] = []

    def render_endless() -> None:
        try:
            render(processes, ENDLESS, Limits(cpu_s=600, wall_s=600))
        except TemplateFailure as failure:
            failures.append(failure.reason)

    thread = threading.Thread(target=render_endless)
    thread.start()
    try:
        assert render(processes, "quick") == "quick"
        assert thread.is_alive()
    finally:
        (busy,) = renderers() - before - {processes._idle[0].pid}
        psutil.Process(busy).kill()
        thread.join()
    if sys.platform != "win32":
        assert failures == ["it needs more than 512 MB of memory"]  # as when the system ends it for memory
    assert render(processes, "quick") == "quick"


def test_failures_are_told_apart(processes: TemplateProcesses) -> None:
    with pytest.raises(BrokenTemplate) as broken:
        render(processes, "a\n{% if %}")
    assert broken.value.line == 2
    with pytest.raises(TemplateRefusal, match="no chats today"):
        render(processes, "{{ raise_exception('no chats today') }}")
    with pytest.raises(TemplateFailure, match="division by zero"):
        render(processes, "{{ 1 / 0 }}")


def test_halves_of_characters_come_back_as_they_went(processes: TemplateProcesses) -> None:
    halves = "a\ud83d \ude00b \U0001f600"
    assert processes.render("{{ x }}", 100, {"x": halves}, Limits()) == halves


def test_the_process_ends_with_its_parent() -> None:
    code = (
        "import os; from models.templates.process import processes, Limits\n"
        "processes.render('x', 10, {}, Limits()); print(processes._idle[0].pid, flush=True); os._exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(done.stdout)).wait(60)


def test_a_template_that_overdoes_it_is_tried_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "for_chat", lambda num_characters: Limits(cpu_s=1))
    source = TOO_SLOW["long searches"]
    for _ in range(2):
        with pytest.raises(BadRequestError, match=r"The chat template of a file cannot be used: it takes longer than"):
            ChatTemplate(source, "a file", {})
    rendered: list[object] = []
    monkeypatch.setattr(TemplateProcesses, "render", lambda *args: rendered.append(args))
    with pytest.raises(BadRequestError, match="takes longer"):
        ChatTemplate(source, "another file", {})
    assert rendered == []


def test_a_template_far_longer_than_any_is_none() -> None:
    with pytest.raises(ModelFileError, match="1,000,001 characters"):
        ChatTemplate("x" * 1_000_001, "a file", {})


def test_a_chat_goes_on_after_a_template_hung_on_one_message() -> None:
    source = "{% if messages[0].content == 'hang' %}" + ENDLESS + "{% endif %}{{ messages[0].content }}"
    template = ChatTemplate(source, "a file", {})
    with pytest.raises(BadRequestError, match="does not take this chat: it takes longer than 5 seconds"):
        template.render([Message("user", "hang")])
    assert template.render([Message("user", "hello")]) == "hello"
