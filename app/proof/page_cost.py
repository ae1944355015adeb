"""What the page costs: the same reply written by the bare backend loop and on the page, in turn.

Bare is a process that loads the model and asks it for tokens, nothing else. On the page is everything a person has:
worker, engine, store, server-sent events, and a real Chromium that shows the text and draws the charts. Speed is that
of the tokens between two counts, the first tokens left out of both; processor time is what the kernel counted for the
server, its worker and the browser between the same two counts, as the page showed them.

Run by the benchmark, or alone: `python -m app.proof.page_cost MODEL`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer

from app.proof.isolated import stream
from app.proof.processes import cpu_seconds, family
from app.proof.slopes import median_and_quartiles
from backends import registry
from backends.events import TextChunk
from backends.requests import GenerationRequest, LoadRequest, Message, Sampling

if TYPE_CHECKING:
    from playwright.sync_api import Page

_PROMPT = "The history of the lighthouse begins"
_BACKENDS = ("ring", "llamacpp")
_WINDOW, _SINKS, _SEED = 512, 4, 7
_SKIPPED_TOKENS = 48  # while kernels warm up and the page draws its first charts
_PATIENCE_MS = 3_600_000

_READY = "body.rs-ready"
_WATCH = """() => {
  const shown = document.querySelector("[data-number=tokens]");
  window.counts = [];
  new MutationObserver(() => {
    const count = Number(shown.textContent.replace(/\\D/g, ""));
    if (count) window.counts.push([count, performance.now() / 1000]);
  }).observe(shown, { childList: true, characterData: true, subtree: true });
}"""
_REACHED = "count => window.counts.some(([tokens]) => tokens >= count)"
_FIRST_AT = "count => window.counts.find(([tokens]) => tokens >= count)"


@dataclass(frozen=True)
class PageCost:
    """One round: a bare reply, and the same on the page.

    Attributes:
        num_threads: of the model, in both.
        bare_rate, page_rate: tokens per second.
        bare_cpu_s, worker_cpu_s, server_cpu_s, browser_cpu_s: processor seconds per 1,000 tokens.
    """

    backend: str
    num_tokens: int
    num_threads: int
    bare_rate: float
    page_rate: float
    bare_cpu_s: float
    worker_cpu_s: float
    server_cpu_s: float
    browser_cpu_s: float

    @property
    def sentence(self) -> str:
        """As one line."""
        return (
            f"page on {self.backend}: {self.page_rate:.1f} tokens/s, bare {self.bare_rate:.1f} "
            f"({self.page_rate / self.bare_rate:.3f}x); per 1,000 tokens server {self.server_cpu_s:.2f} s, "
            f"browser {self.browser_cpu_s:.2f} s, worker {self.worker_cpu_s:.2f} s, bare {self.bare_cpu_s:.2f} s"
        )


@dataclass(frozen=True)
class Stretch:
    """Tokens written between two counts, with the time they took and the processor seconds by who used them."""

    num_tokens: int
    seconds: float
    cpu_s: Mapping[str, float]

    @property
    def rate(self) -> float:
        return self.num_tokens / self.seconds

    def cpu_per_thousand(self, who: str) -> float:
        """Return processor seconds per 1,000 tokens."""
        return self.cpu_s[who] / self.num_tokens * 1000


def page_rounds(
    gguf: Path, num_threads: int, num_tokens: int, num_rounds: int, backends: Sequence[str] = _BACKENDS
) -> Iterator[PageCost]:
    """Yield one cost a backend and round, bare and page in turn; which comes first changes from round to round."""
    for turn in range(num_rounds):
        for backend in backends:
            load = LoadRequest(
                backend, "" if backend == "echo" else str(gguf), window=_WINDOW, sinks=_SINKS, num_threads=num_threads
            )
            if turn % 2:
                page = on_page(load, num_tokens)
                bare = _bare(load, num_tokens)
            else:
                bare = _bare(load, num_tokens)
                page = on_page(load, num_tokens)
            yield PageCost(
                backend=backend,
                num_tokens=num_tokens,
                num_threads=num_threads,
                bare_rate=bare.rate,
                page_rate=page.rate,
                bare_cpu_s=bare.cpu_per_thousand("worker"),
                worker_cpu_s=page.cpu_per_thousand("worker"),
                server_cpu_s=page.cpu_per_thousand("server"),
                browser_cpu_s=page.cpu_per_thousand("browser"),
            )


def _bare(load: LoadRequest, num_tokens: int) -> Stretch:
    stretch: Stretch = next(stream("app.proof.page_cost", "bare_loop", load, num_tokens))
    return stretch


def bare_loop(load: LoadRequest, num_tokens: int) -> Iterator[Stretch]:
    """Write a reply and do nothing with it; runs in a process of its own."""
    backend = registry.load(load, lambda progress: None)
    request = GenerationRequest(
        messages=(Message("user", _PROMPT),),
        sampling=Sampling(seed=_SEED),
        max_new_tokens=num_tokens + 1,
        ignore_end=True,
    )
    written, first, last = 0, (0, 0.0, 0.0), (0, 0.0, 0.0)
    for event in backend.generate(request, lambda: False):
        if isinstance(event, TextChunk) and event.token_ids:
            written += len(event.token_ids)
            last = (written, time.perf_counter(), time.process_time())
            first = last if written <= _SKIPPED_TOKENS else first
    yield Stretch(last[0] - first[0], last[1] - first[1], {"worker": last[2] - first[2]})


def on_page(load: LoadRequest, num_tokens: int) -> Stretch:
    """Write the same reply on a page of its own, with a home of its own, in a browser of its own."""
    from app.proof.chromium import opened

    with tempfile.TemporaryDirectory(prefix="ringside-bench-") as home, _served(load, Path(home)) as (url, server):
        before = {process.pid for process in family(os.getpid())}
        with opened() as browser:
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(url)
            page.wait_for_selector(_READY, timeout=60_000)
            # What started since is Chromium: the driver that Playwright talks through is no part of what people run.
            started = [each for each in family(os.getpid()) if each.pid not in before and "chrom" in each.name()]
            return _followed(page, server, started, num_tokens)


def _followed(page: Page, server: int, browser: Sequence[psutil.Process], num_tokens: int) -> Stretch:
    page.evaluate(_WATCH)
    page.fill("#rs-input", _PROMPT)
    page.press("#rs-input", "Enter")
    cpu_s = []
    for count in (_SKIPPED_TOKENS, num_tokens):
        page.wait_for_function(_REACHED, arg=count, timeout=_PATIENCE_MS)
        cpu_s.append(_cpu(server, browser))
    (first, first_s), (last, last_s) = (page.evaluate(_FIRST_AT, count) for count in (_SKIPPED_TOKENS, num_tokens))
    used_s = {who: cpu_s[1][who] - cpu_s[0][who] for who in cpu_s[0]}
    return Stretch(last - first, last_s - first_s, used_s)


def _cpu(server: int, browser: Sequence[psutil.Process]) -> dict[str, float]:
    whole = family(server)
    return {"server": cpu_seconds(whole[:1]), "worker": cpu_seconds(whole[1:]), "browser": cpu_seconds(browser)}


@contextmanager
def _served(load: LoadRequest, home: Path) -> Iterator[tuple[str, int]]:
    """Start the application with the model loaded; yield its address and its process id."""
    given = {
        "backend": load.backend,
        "window": load.window,
        "sinks": load.sinks,
        "threads": load.num_threads,
        "seed": _SEED,
        **({"model": load.model} if load.model else {}),
    }
    options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "app", "chat", "--no-browser", "--json", "--keep-writing", *options]
    with (home / "server.log").open("w") as log:
        environment = os.environ | {"RINGSIDE_HOME": str(home)}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"], process.pid
        finally:
            process.terminate()
            process.wait(30)


def by_backend(costs: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rounds of each backend, as JSON-ready values."""
    return {
        backend: [cost for cost in costs if cost["backend"] == backend]
        for backend in dict.fromkeys(cost["backend"] for cost in costs)
    }


def sentences(costs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what rounds, as JSON-ready values, come to: one sentence a backend."""
    said = []
    for backend, rounds in by_backend(costs).items():
        ratio, low, high = median_and_quartiles([cost["page_rate"] / cost["bare_rate"] for cost in rounds])
        middle = {
            name: median_and_quartiles([cost[name] for cost in rounds])[0]
            for name in ("page_rate", "bare_rate", "server_cpu_s", "browser_cpu_s")
        }
        said.append(
            f"On the page the {backend} backend writes {middle['page_rate']:.1f} tokens/s, its bare loop "
            f"{middle['bare_rate']:.1f}: {ratio:.3f} times as fast ({low:.3f} to {high:.3f}, {len(rounds)} rounds of "
            f"{rounds[0]['num_tokens']:,} tokens). 1,000 tokens cost the server {middle['server_cpu_s']:.2f} s of "
            f"processor time and the browser {middle['browser_cpu_s']:.2f} s."
        )
    return said


def main(
    model: Annotated[str | None, typer.Argument(help="GGUF file or demo; the sliding-window demo by default.")] = None,
    backend: Annotated[list[str] | None, typer.Option(help="ring, llamacpp or echo; repeatable.")] = None,
    tokens: Annotated[int, typer.Option(min=64, help="Tokens of each reply.")] = 1500,
    rounds: Annotated[int, typer.Option(min=1, help="Bare and page, in turn.")] = 3,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of the model.")] = 1,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Results as JSON.")] = None,
) -> None:
    """Measure what the page costs beside the bare backend loop."""
    from app.proof.printing import errors_shown, note, print_text
    from app.proof.running import model_path

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: what was started is ended as well
    with errors_shown(as_json=False):
        backends = backend or list(_BACKENDS)
        gguf = Path() if backends == ["echo"] else model_path(model)
        costs = []
        for cost in page_rounds(gguf, threads, tokens, rounds, backends):
            costs.append(dataclasses.asdict(cost))
            note(cost.sentence)
            if output is not None:
                output.write_text(json.dumps(costs, indent=1) + "\n", encoding="utf-8")
        print_text("\n".join(sentences(costs)))


if __name__ == "__main__":
    typer.run(main)
