"""`ringside generate`: text to stdout without a browser, figures to stderr; the same engine and worker as the page."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

from app.chat_settings import ChatSettings
from app.engine import Engine
from app.figures import figures_line, progress_line
from app.jobs import Job, NothingKept
from app.prompts import prompt_messages
from app.runs import Run, RunView
from app.settings import worker_log_path
from backends.requests import GenerationRequest, Message

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells expect of it; what came until then has been written."""

_LINE_EVERY_S = 5.0


def generate(settings: ChatSettings, prompt: str, as_json: bool) -> int:
    """Write one reply to stdout as it comes; return the exit code.

    Ctrl-C or SIGTERM ends the reply after the current token, a second one at once.
    """
    request = GenerationRequest(
        (*prompt_messages(settings.system_prompt, []), Message("user", prompt)),
        settings.sampling,
        settings.stop,
        settings.max_new_tokens,
        settings.keep_writing,
    )
    engine, run = Engine(worker_log_path()), Run(0, 0)
    show = _JsonLines(sys.stdout) if as_json else _Plain(sys.stdout, sys.stderr)
    interrupted = _stop_on_signals(lambda: engine.cancel(run))
    engine.submit(Job(run, settings.load, lambda: request, NothingKept()))
    try:
        _follow(run, show.show)
    except BrokenPipeError:  # the reader has had enough, as `| head` has
        engine.cancel(run)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        engine.close()
    if interrupted:
        return INTERRUPTED
    return 1 if run.view().reason == "error" else 0


def _follow(run: Run, show: Callable[[RunView], None]) -> None:
    """Show every state of the run, text in order and once, up to the last."""
    view = run.view()
    while True:
        show(view)
        if view.status == "finished":
            return
        run.wait_for_change(view.version, 0.25)
        view = run.view(view.offset + len(view.text))


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
