from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from app.chat_settings import ChatSettings
from app.runs import Run
from app.saved_states import SavedStates, StateKeeper, StatePlan
from app.service import Service
from app.settings import Settings
from backends.contract import Cancelled, LoadedModel
from backends.errors import BadRequestError
from backends.events import Event, MemoryFigures
from backends.requests import GenerationRequest, LoadRequest, Sampling
from tests.backends.tiny_gguf import write_tiny_gguf


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


class Tokens:
    """The smallest backend that keeps state: some tokens it has read."""

    def __init__(self, num_tokens: int = 1000, save_takes: Callable[[], None] = lambda: None) -> None:
        self.num_tokens = num_tokens
        self.loaded: list[str] = []
        self._save_takes = save_takes

    info: LoadedModel

    def generate(self, request: GenerationRequest, cancelled: Cancelled) -> Iterator[Event]:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def memory(self) -> MemoryFigures:
        return MemoryFigures(0, 0, 0, self.num_tokens, 0, 0, 0)

    def save_state(self, path: str, budget_bytes: int) -> int:
        self._save_takes()
        return Path(path).write_bytes(b"x" * self.num_tokens) if self.num_tokens <= budget_bytes else 0

    def load_state(self, path: str) -> int:
        self.loaded.append(path)
        if Path(path).read_bytes()[:1] != b"x":
            raise BadRequestError("This is another model's.", "The text is read anew.")
        return self.num_tokens


def test_states_are_written_in_one_step_every_few_minutes_and_at_the_end(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "chat-1.state"
    keeper = StateKeeper(Tokens(), clock)
    keeper.begin(StatePlan(str(path), every_s=60))
    for later_s, is_there in ((0, False), (59.9, False), (0.1, True)):
        clock.now_s += later_s
        keeper.save_if_due()
        assert path.exists() == is_there
    path.unlink()
    keeper.save_if_due()
    assert not path.exists()
    keeper.save()
    assert [each.name for each in tmp_path.glob("chat-*")] == ["chat-1.state"]


def test_writing_takes_no_more_than_a_hundredth_of_the_time(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "chat-1.state"

    def takes_nine_seconds() -> None:
        clock.now_s += 9.0

    keeper = StateKeeper(Tokens(save_takes=takes_nine_seconds), clock)
    keeper.begin(StatePlan(str(path), every_s=60))
    clock.now_s += 60
    keeper.save_if_due()
    path.unlink()
    clock.now_s += 899
    keeper.save_if_due()
    assert not path.exists()
    clock.now_s += 1
    keeper.save_if_due()
    assert path.exists()


def test_short_texts_and_large_states_are_not_kept(tmp_path: Path) -> None:
    for keeper, plan in (
        (StateKeeper(Tokens(10)), StatePlan(str(tmp_path / "a"))),
        (StateKeeper(Tokens(1000)), StatePlan(str(tmp_path / "a"), budget_bytes=999)),
        (StateKeeper(Tokens(1000)), StatePlan(str(tmp_path / "nowhere" / "a"))),
    ):
        keeper.begin(plan)
        keeper.save()
    assert list(tmp_path.glob("a*")) == []


def test_a_state_is_taken_up_where_the_chat_is_not_in_memory_and_a_foreign_one_is_left_alone(tmp_path: Path) -> None:
    one, other, foreign = (StatePlan(str(tmp_path / name)) for name in ("one", "other", "foreign"))
    Path(one.path).write_bytes(b"x")
    Path(foreign.path).write_bytes(b"?")
    backend = Tokens()
    keeper = StateKeeper(backend)
    for plan in (one, one, other, one, foreign):
        keeper.begin(plan)
    assert backend.loaded == [one.path, one.path, foreign.path]


def test_the_longest_unused_states_go_first_and_unfinished_ones_always(tmp_path: Path) -> None:
    states = SavedStates(tmp_path / "states", budget_bytes=250)
    for number in range(3):
        path = Path(states.plan(number).path)
        path.write_bytes(b"x" * 100)
        os.utime(path, (1000 + number, 1000 + number))
    (tmp_path / "states" / "chat-1.state.1234").write_bytes(b"half")
    states.plan(9)
    assert sorted(path.name for path in (tmp_path / "states").iterdir()) == ["chat-1.state", "chat-2.state"]
    states.forget(1)
    states.forget(1)
    states.keep_only([1, 3])
    assert list((tmp_path / "states").iterdir()) == []


def ended(run: Run) -> Run:
    assert run.wait_until_finished(120), run.view()
    return run


def test_a_reply_goes_on_after_its_worker_was_killed_without_being_read_again(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", sliding_window=8, sliding_pattern=2)
    load = LoadRequest("ring", str(model), window=8, sinks=2, precision="float32", device="cpu", num_threads=1)
    sampling = Sampling(temperature=1.0, top_k=None, top_p=1.0, seed=5)
    settings = ChatSettings(load, sampling=sampling, max_new_tokens=40, keep_writing=True)
    service = Service.open(Settings(defaults=settings, data_folder=tmp_path))
    try:
        chat = service.create_chat().id
        ended(service.send(chat, "a-prompt-" * 40))
        ended(service.continue_reply(chat))  # waits for the state of the first stretch to be written
        pid = service.status().worker_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        while service.status().state != "empty":
            time.sleep(0.01)
        run = ended(service.continue_reply(chat))
        assert service.status().worker_pid != pid
        metrics = service.metrics(run.message_id)
        assert metrics is not None
        assert metrics.summary.reused_tokens > 360  # the prompt, and at least the first stretch
        in_one_go = replace(settings, max_new_tokens=120)
        service.apply_settings(in_one_go)
        whole = ended(service.send(service.create_chat().id, "a-prompt-" * 40))
        assert whole.text == run.text
    finally:
        service.close()
