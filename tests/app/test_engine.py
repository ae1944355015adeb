"""The engine with real spawned workers; the echo backend plays the model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from app.engine import Engine
from app.jobs import Job, NothingKept
from app.runs import Run
from app.worker_failures import is_out_of_memory
from backends.errors import RingsideError
from backends.requests import GenerationRequest, LoadRequest, Message, Sampling

PATIENCE_S = 60.0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path / "worker.log")
    yield engine
    engine.close()


def load_request(window: int = 16, **options: str) -> LoadRequest:
    return LoadRequest("echo", "", window=window, options={"rate": "max", **options})


def start(
    engine: Engine,
    load: LoadRequest | None = None,
    max_new_tokens: int | None = 20,
    prompt: str = "Go on",
    stop: tuple[str, ...] = (),
) -> Run:
    run = Run(1, 1)
    request = GenerationRequest((Message("user", prompt),), Sampling(seed=3), stop, max_new_tokens)
    engine.submit(Job(run, load or load_request(), lambda: request, NothingKept()))
    return run


def ended(run: Run) -> Run:
    assert run.wait_until_finished(PATIENCE_S), run.view()
    return run


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.01)


def worker_pid(engine: Engine) -> int:
    pid = engine.status().worker_pid
    assert pid is not None
    return pid


def test_a_reply_comes_whole_with_exact_counts_and_figures_of_the_worker(engine: Engine) -> None:
    run = ended(start(engine, max_new_tokens=3000))
    assert run.ending is not None
    assert (run.ending.reason, run.ending.seed) == ("length", 3)
    view = run.view()
    assert view.num_tokens == view.summary.num_tokens == 3000
    assert view.summary.position_tokens == 3002
    assert view.summary.window_filled_tokens == view.summary.window_tokens == 16 + 4
    assert view.summary.kv_full_bytes > 50 * view.summary.kv_held_bytes
    status = engine.status()
    assert status.state == "ready"
    assert status.model is not None
    assert status.model.name == "Echo"
    assert status.process_bytes == psutil.Process(status.worker_pid).memory_info().rss
    assert status.worker_pid != os.getpid()


def test_text_comes_in_at_most_twenty_messages_a_second(engine: Engine) -> None:
    run = ended(start(engine, load_request(rate="400"), max_new_tokens=400))
    assert run.view().num_tokens == 400
    assert run.metrics().sequence <= 25


def test_the_next_run_uses_the_loaded_model_and_another_window_loads_anew(engine: Engine) -> None:
    ended(start(engine))
    first = worker_pid(engine)
    ended(start(engine))
    assert worker_pid(engine) == first
    ended(start(engine, load_request(window=32)))
    assert worker_pid(engine) != first
    assert not psutil.pid_exists(first)


def test_unloading_ends_the_process_and_leaves_nothing_behind(engine: Engine) -> None:
    children = len(psutil.Process().children())
    for _ in range(3):
        ended(start(engine))
        pid = worker_pid(engine)
        engine.unload()
        assert not psutil.pid_exists(pid)
        assert engine.status().state == "empty"
    assert len(psutil.Process().children()) <= children + 1  # multiprocessing's resource tracker
    assert threading.active_count() < 10


@pytest.mark.parametrize(
    ("kind", "words"),
    [("kill", "was killed (SIGKILL)"), ("abort", "aborted (SIGABRT)")],
)
def test_a_dead_worker_is_one_sentence_the_text_stays_and_the_next_message_works(
    engine: Engine, kind: str, words: str
) -> None:
    run = ended(start(engine, load_request(rate="100", fail_at="40", fail_kind=kind), max_new_tokens=100))
    view = run.view()
    assert view.reason == "error"
    assert words in view.error
    assert "the next message loads the model again" in view.hint
    assert 25 <= view.num_tokens < 40
    assert len(view.text) > 60
    assert engine.status().state == "empty"
    assert ended(start(engine)).view().reason == "length"


def test_a_death_keeps_no_ids_whose_text_was_held_back_as_a_possible_stop_string(engine: Engine) -> None:
    script = json.dumps(["one ", "two ", "stop ", "here ", "not yet"])
    load = load_request(rate="10", text="script", script=script, fail_at="5", fail_kind="kill")
    view = ended(start(engine, load, stop=("stop here now",))).view()
    assert "was killed (SIGKILL)" in view.error
    assert (view.text, view.num_tokens) == ("one two ", 2)


def test_what_looks_like_a_stop_string_is_whole_at_the_end(engine: Engine) -> None:
    script = json.dumps(["one ", "two ", "stop ", "here "])
    view = ended(start(engine, load_request(text="script", script=script), stop=("stop here now",))).view()
    assert (view.text, view.num_tokens) == ("one two stop here ", 4)


def test_kill_9_from_outside_in_mid_reply_keeps_the_text(engine: Engine) -> None:
    run = start(engine, load_request(rate="200"), max_new_tokens=None)
    wait_until(lambda: run.num_tokens > 50)
    os.kill(worker_pid(engine), signal.SIGKILL)
    view = ended(run).view()
    assert "was killed (SIGKILL)" in view.error
    assert view.num_tokens > 50


def test_a_worker_that_dies_while_idle_is_noticed_and_replaced(engine: Engine) -> None:
    ended(start(engine))
    os.kill(worker_pid(engine), signal.SIGKILL)
    wait_until(lambda: engine.status().state == "empty")
    assert "was killed" in engine.status().error
    assert ended(start(engine)).view().reason == "length"


@pytest.mark.parametrize(
    ("kind", "words"),
    [("memory", "Memory ran out"), ("runtime", "The backend failed: RuntimeError: planted before token 30.")],
)
def test_an_error_in_the_backend_keeps_text_and_worker(engine: Engine, kind: str, words: str) -> None:
    load = load_request(fail_at="30", fail_kind=kind)
    view = ended(start(engine, load, max_new_tokens=100)).view()
    assert view.reason == "error"
    assert words in view.error
    assert view.num_tokens == 29
    pid = worker_pid(engine)
    assert ended(start(engine, load, max_new_tokens=100)).view().reason == "length"
    assert worker_pid(engine) == pid


def test_a_lost_gpu_ends_the_process_keeps_the_text_and_the_next_message_works(engine: Engine) -> None:
    load = load_request(fail_at="30", fail_kind="device")
    view = ended(start(engine, load, max_new_tokens=100)).view()
    assert view.error.startswith("The GPU stopped working for this model: CUDA error: an illegal memory access")
    assert view.hint == "The text so far is kept; the next message loads the model again."
    assert view.num_tokens == 29
    wait_until(lambda: engine.status().state == "empty")
    assert ended(start(engine)).view().reason == "length"


def test_an_error_in_prefill_and_a_refused_request_are_sentences_too(engine: Engine) -> None:
    load = load_request(fail_at="0", fail_kind="memory")
    assert "Memory ran out" in ended(start(engine, load)).view().error
    assert ended(start(engine, load, prompt="")).view().error == "The prompt is empty."


def test_what_the_backend_prints_and_its_stack_traces_go_to_the_log(engine: Engine, tmp_path: Path) -> None:
    view = ended(start(engine, load_request(fail_at="3"))).view()
    log = (tmp_path / "worker.log").read_text()
    assert "Traceback" in log
    assert "planted before token 3" in log
    assert "Traceback" not in view.error + view.hint + view.text


def test_a_load_that_fails_is_the_runs_error_and_the_next_one_works(engine: Engine) -> None:
    view = ended(start(engine, load_request(load_error="model.gguf is cut short."))).view()
    assert (view.reason, view.error) == ("error", "model.gguf is cut short.")
    assert engine.status().error == "model.gguf is cut short."
    assert engine.status().worker_pid is None
    assert ended(start(engine)).view().reason == "length"
    assert engine.status().error == ""


def test_a_model_that_is_not_there_is_named(engine: Engine) -> None:
    view = ended(start(engine, LoadRequest("ring", "/nowhere/model.gguf"))).view()
    assert view.reason == "error"
    assert "/nowhere/model.gguf" in view.error
    assert ended(start(engine, LoadRequest("rong", ""))).view().reason == "error"


def test_stopping_ends_within_a_token_frees_the_worker_and_twice_is_fine(engine: Engine) -> None:
    run = start(engine, load_request(rate="20"), max_new_tokens=10_000)
    wait_until(lambda: run.num_tokens >= 5)
    engine.cancel(run)
    engine.cancel(run)
    count = ended(run).num_tokens
    assert run.view().reason == "cancelled"
    assert count < 100
    engine.cancel(run)
    follow_up = ended(start(engine, load_request(rate="20"), max_new_tokens=3))
    assert (follow_up.num_tokens, run.num_tokens) == (3, count)


def test_stopping_during_a_long_prefill_ends_within_a_chunk(engine: Engine) -> None:
    run = start(engine, load_request(prefill_rate="500"), prompt="word " * 50_000)
    wait_until(lambda: run.view().prefill is not None)
    engine.cancel(run)
    view = ended(run).view()
    assert (view.reason, view.num_tokens) == ("cancelled", 0)
    assert view.prefill is not None
    assert view.prefill.done_tokens < 50_000
    assert ended(start(engine, load_request(prefill_rate="500"))).view().reason == "length"


def test_stopping_while_loading_ends_the_load(engine: Engine) -> None:
    run = start(engine, load_request(load_s="600"))
    wait_until(lambda: run.view().load_progress is not None)
    engine.cancel(run)
    assert ended(run).view().reason == "cancelled"
    assert engine.status().error == ""  # the end of its process was asked for
    assert ended(start(engine)).view().reason == "length"


def test_a_worker_that_does_not_stop_is_ended_by_force(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "worker.log", grace_s=0.2)
    try:
        run = start(engine, load_request(rate="50"), max_new_tokens=None)
        wait_until(lambda: run.num_tokens >= 3)
        os.kill(worker_pid(engine), signal.SIGSTOP)
        engine.cancel(run)
        assert ended(run).view().reason == "cancelled"
        assert run.num_tokens >= 3
        assert ended(start(engine)).view().reason == "length"
    finally:
        engine.close()


def test_a_second_request_waits_visibly_in_turn_and_can_be_cancelled_while_waiting(engine: Engine) -> None:
    slow = load_request(rate="20")
    first = start(engine, slow, max_new_tokens=None)
    wait_until(lambda: first.num_tokens > 0)
    waiting = [start(engine, slow, max_new_tokens=2) for _ in range(3)]
    assert [run.view().queue_position for run in waiting] == [1, 2, 3]
    assert engine.runs() == [first, *waiting]
    assert engine.status().num_waiting == 3
    engine.cancel(waiting[0])
    assert ended(waiting[0]).view().reason == "cancelled"
    assert [run.view().queue_position for run in waiting[1:]] == [1, 2]
    assert not first.finished
    engine.cancel(first)
    assert [ended(run).num_tokens for run in waiting[1:]] == [2, 2]


def test_fifty_starts_each_cancelled_at_once_leave_a_working_engine(engine: Engine) -> None:
    ended(start(engine))
    threads = threading.active_count()
    for _ in range(50):
        run = start(engine, max_new_tokens=None)
        run.wait_for_change(0, 1)
        engine.cancel(run)
        ended(run)
    assert ended(start(engine, max_new_tokens=30)).num_tokens == 30
    assert threading.active_count() <= threads


def test_unloading_stops_what_runs_and_what_waits(engine: Engine) -> None:
    runs = [start(engine, load_request(rate="20"), max_new_tokens=None) for _ in range(3)]
    wait_until(lambda: runs[0].num_tokens > 0)
    engine.unload()
    assert [run.view().reason for run in runs] == ["cancelled"] * 3
    assert engine.status().worker_pid is None


def test_loading_ahead_of_a_message_saves_the_wait(engine: Engine) -> None:
    engine.load(load_request())
    wait_until(lambda: engine.status().state == "ready")
    pid = worker_pid(engine)
    ended(start(engine))
    assert worker_pid(engine) == pid
    engine.load(load_request(load_error="cut short."))
    wait_until(lambda: engine.status().error == "cut short.")


def test_unloading_ends_a_load_under_way(engine: Engine) -> None:
    engine.load(load_request(load_s="600"))
    wait_until(lambda: engine.status().worker_pid is not None)
    engine.unload()
    assert engine.status().state == "empty"


def test_a_request_that_cannot_be_made_ends_its_run_only(engine: Engine) -> None:
    def fail() -> GenerationRequest:
        raise RingsideError("The chat is gone.", "Start a new one.")

    run = Run(1, 1)
    engine.submit(Job(run, load_request(), fail, NothingKept()))
    assert (ended(run).view().error, run.view().hint) == ("The chat is gone.", "Start a new one.")
    assert ended(start(engine)).view().reason == "length"


def test_a_closed_engine_takes_nothing_more(engine: Engine) -> None:
    engine.close()
    engine.close()
    with pytest.raises(RingsideError, match="Ringside is closing"):
        start(engine)


_PARENT = """
import sys, time
from app.engine import Engine
from app.jobs import Job, NothingKept
from app.runs import Run
from backends.requests import GenerationRequest, LoadRequest, Message
if __name__ == "__main__":
    engine, run = Engine(), Run(1, 1)
    request = GenerationRequest((Message("user", "Go on"),))
    engine.submit(Job(run, LoadRequest("echo", ""), lambda: request, NothingKept()))
    while not run.num_tokens:
        time.sleep(0.01)
    print(engine.status().worker_pid, flush=True)
    time.sleep(600)
"""


def test_a_worker_ends_when_the_process_that_owns_it_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    pid = json.loads(parent.stdout.readline())
    parent.kill()
    parent.wait()
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


class _TorchLikeError(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError(), True),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA"), True),
        (_TorchLikeError("CUDA out of memory. Tried to allocate 20 MiB"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("size mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_running_out_of_memory_is_told_from_other_errors(error: Exception, is_memory: bool) -> None:
    assert is_out_of_memory(error) is is_memory
