"""`ringside generate` and `ringside watch`: text to stdout without a browser, figures to stderr."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TextIO

from app.chat_settings import ChatSettings, chat_settings_from
from app.engine import Engine
from app.figures import figures_line, progress_line
from app.instance import Instance
from app.jobs import Job, NothingKept
from app.listening import address, bind
from app.prompts import prompt_messages
from app.run_views import RunView
from app.running import FollowedRun, LocalRun, begin_run, current_run
from app.runs import Run
from app.served_when_asked import ServedWhenAsked
from app.service import Service
from app.settings import read_settings, worker_log_path
from app.without_effect import notes_on
from backends.errors import RingsideError
from backends.events import FinishReason
from backends.requests import GenerationRequest, Message

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells expect of it; what came until then has been written."""

_LINE_EVERY_S = 5.0
_TICK_S = 0.25


def generate(given: Mapping[str, Any], prompt: str, as_json: bool, keep: bool = True) -> int:
    """Write one reply to stdout as it comes; return the exit code.

    It is kept as a chat of its own, and written by the instance that is running where there is one, so that the page
    shows it too. Ctrl-C or SIGTERM ends it after the current token, a second one at once.

    Args:
        given: settings from the command line, flat names.
        keep: False writes it in this process and keeps nothing.

    Raises:
        RingsideError: the store cannot be opened, or the running instance refuses.
        ValueError: a given setting cannot be.
    """
    settings = read_settings()
    wanted = chat_settings_from(given, settings.defaults)  # refused before anything is started
    for notice in (*settings.notices, *notes_on(given, wanted)):
        print(notice, file=sys.stderr)
    if not keep:
        return _write_here(wanted, prompt, as_json)
    instance = Instance(settings.data_folder)
    if not instance.claim():
        return _write_there(instance, given, prompt, as_json)
    try:
        service = Service.open(settings)
        try:
            return _write_and_serve(service, instance, given, prompt, as_json)
        finally:
            service.close()
    finally:
        instance.release()


def watch(as_json: bool) -> int:
    """Follow the reply that the running instance is writing, from its start; return the exit code.

    Ctrl-C ends the watching and not the reply.

    Raises:
        RingsideError: none is being written, or no instance is running.
    """
    instance = Instance(read_settings().data_folder)
    running = None
    if instance.claim():
        instance.release()
    else:
        running = instance.running()
    run = None if running is None else current_run(running)
    if run is None:
        raise RingsideError("No reply is being written.", "Start one in the page or with `ringside generate`.")
    try:
        _follow(run, _shown_by(as_json))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _write_and_serve(service: Service, instance: Instance, given: Mapping[str, Any], prompt: str, as_json: bool) -> int:
    """Write as the running instance, whose page can be opened meanwhile; end when the reply has and nobody looks on."""
    page = ServedWhenAsked(service, bound := bind(service.application.port))
    instance.announce(url := address(bound))
    try:
        run = service.begin(prompt, given)
        code = _show(LocalRun(run, lambda: service.cancel(run.id)), as_json)
        if code != INTERRUPTED and page.is_looked_at:
            print(f"The page at {url} is open, so this goes on; Ctrl-C ends it.", file=sys.stderr)
            _wait_while(lambda: page.is_looked_at or bool(service.active_runs()))
        return code
    finally:
        page.close()


def _wait_while(condition: Callable[[], bool]) -> None:
    """Wait until the condition is false, or for Ctrl-C or SIGTERM."""
    seen = _stop_on_signals(lambda: None)
    while condition() and not seen:
        time.sleep(_TICK_S)


def _write_there(instance: Instance, given: Mapping[str, Any], prompt: str, as_json: bool) -> int:
    running = instance.running()
    if running is None:
        raise RingsideError(
            "Ringside is running but does not answer.", "End that process and start again, or give --no-keep."
        )
    return _show(begin_run(running, prompt, given), as_json)


def _write_here(settings: ChatSettings, prompt: str, as_json: bool) -> int:
    request = GenerationRequest(
        (*prompt_messages(settings.system_prompt, []), Message("user", prompt)),
        settings.sampling,
        settings.stop,
        settings.max_new_tokens,
        settings.keep_writing,
        json_schema=settings.json_schema,
        grammar=settings.grammar,
        stop_in_reasoning=settings.stop_in_reasoning,
    )
    engine, run = Engine(worker_log_path()), Run(0, 0)
    engine.submit(Job(run, settings.load, lambda: request, NothingKept()))
    try:
        return _show(LocalRun(run, lambda: engine.cancel(run)), as_json)
    finally:
        engine.close()


def _show(run: FollowedRun, as_json: bool) -> int:
    """Show a run up to its end, stopping it on signals and when nobody reads any more; return the exit code."""
    interrupted = _stop_on_signals(run.cancel)
    try:
        reason = _follow(run, _shown_by(as_json))
    except BrokenPipeError:  # the reader has had enough, as `| head` has
        run.cancel()
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if interrupted:
        return INTERRUPTED
    return 1 if reason == "error" else 0


def _shown_by(as_json: bool) -> Callable[[RunView], None]:
    return _JsonLines(sys.stdout).show if as_json else _Plain(sys.stdout, sys.stderr).show


def _follow(run: FollowedRun, show: Callable[[RunView], None]) -> FinishReason | None:
    """Show every state of the run, text in order and once, up to the last; return how it ended."""
    view = run.first_view()
    while True:
        show(view)
        if view.status == "finished":
            return view.reason
        view = run.next_view(view)


def _stop_on_signals(stop: Callable[[], None]) -> list[int]:
    """Call `stop` at the first Ctrl-C or SIGTERM and give the next its usual effect; return the signals seen."""
    seen: list[int] = []

    def handle(number: int, _frame: object) -> None:
        seen.append(number)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return seen


class _Plain:
    """Text to one stream; figures and progress to the other: a line in place, or plain lines if it is no terminal."""

    def __init__(self, text: TextIO, figures: TextIO) -> None:
        self._text = text
        self._figures = figures
        self._in_place = figures.isatty() and not text.isatty()  # in place, it would tear text on the same terminal
        self._shown_at_s = 0.0
        self._last_line = ""
        self._notices_shown = False

    def show(self, view: RunView) -> None:
        if view.model is not None and not self._notices_shown:
            self._notices_shown = True
            for notice in view.model.notices:
                self._say(notice)
        if view.text:
            self._text.write(view.text)
            self._text.flush()
        if view.status == "finished":
            self._end(view)
        else:
            self._show_line(progress_line(view) or (figures_line(view.summary) if view.num_tokens else ""), view)

    def _show_line(self, line: str, view: RunView) -> None:
        now_s = time.monotonic()
        if self._in_place and line != self._last_line:
            self._figures.write(f"\r\x1b[K{line}")
        elif self._is_due(line, view, now_s):
            self._shown_at_s = now_s
            self._say(line)
        self._last_line = line
        self._figures.flush()

    def _is_due(self, line: str, view: RunView, now_s: float) -> bool:
        """Lines of their own come now and then; none between words that a person reads on the same terminal."""
        if not line or line == self._last_line or (view.num_tokens and self._text.isatty()):
            return False
        return now_s - self._shown_at_s >= _LINE_EVERY_S

    def _end(self, view: RunView) -> None:
        if self._text.isatty():
            self._text.write("\n")
            self._text.flush()
        if self._in_place:
            self._figures.write("\r\x1b[K")
        if view.reason == "error":
            self._say(f"Error: {view.error} {view.hint}".strip())
        if view.num_tokens:
            self._say(figures_line(view.summary))

    def _say(self, line: str) -> None:
        self._figures.write(f"{line}\n")
        self._figures.flush()


class _JsonLines:
    """One object a line: "progress" while loading and reading, "model" once, "text" with figures, "finished"."""

    def __init__(self, text: TextIO) -> None:
        self._text = text
        self._model_written = False

    def show(self, view: RunView) -> None:
        if view.model is not None and not self._model_written:
            self._model_written = True
            self._write({"event": "model", **asdict(view.model)})
        if view.text:
            self._write({"event": "text", "text": view.text, "figures": asdict(view.summary)})
        elif (line := progress_line(view)) and view.status != "finished":
            self._write({"event": "progress", "status": view.status, "progress": line})
        if view.status == "finished":
            self._write(
                {
                    "event": "finished",
                    "reason": view.reason,
                    "error": view.error,
                    "hint": view.hint,
                    "figures": asdict(view.summary),
                }
            )

    def _write(self, line: dict[str, Any]) -> None:
        self._text.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._text.flush()
