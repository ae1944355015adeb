"""The service with a real store and real workers; the echo backend plays the model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.chat_settings import ChatSettings
from app.runs import Run
from app.service import Service
from app.settings import Settings
from app.store import StoredMessage
from backends.errors import BadRequestError
from backends.requests import LoadRequest, Sampling
from tests.app.conftest import EchoService

PATIENCE_S = 60.0
OpenService = Callable[..., Service]


@pytest.fixture
def open_service(echo_service: EchoService) -> OpenService:
    """Return a function that opens a service whose replies are short and come at once unless told otherwise."""

    def open_one(max_new_tokens: int | None = 30, rate: str = "max", **given: Any) -> Service:
        return echo_service(max_new_tokens, rate=rate, **given)

    return open_one


def ended(run: Run) -> Run:
    assert run.wait_until_finished(PATIENCE_S), run.view()
    return run


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.01)


def roles(service: Service, chat_id: int) -> list[str]:
    return [message.role for message in service.messages(chat_id)]


def last(service: Service, chat_id: int) -> StoredMessage:
    return service.messages(chat_id)[-1]


def test_a_message_brings_a_reply_that_is_kept_as_it_was_written(open_service: OpenService) -> None:
    service = open_service()
    chat = service.create_chat()
    run = ended(service.send(chat.id, "Write of rivers\n  and\tlamps "))
    asked, reply = service.messages(chat.id)
    assert asked.text == "Write of rivers\n  and\tlamps "
    assert (reply.text, reply.status, reply.finish_reason) == (run.text, "complete", "length")
    assert len(reply.token_ids) == run.num_tokens == 30
    assert (reply.backend, reply.model_name) == ("echo", "Echo")
    assert service.chat(chat.id).title == "Write of rivers and lamps"
    metrics = service.metrics(reply.id)
    assert metrics is not None
    assert metrics.summary.num_tokens == 30
    assert service.metrics_csv(reply.id).startswith("tokens,time_s,")


@pytest.mark.parametrize("text", ["  def f():\n      return 1", "\n\nhi\n\n", "a\tb", "tail  \n"])
def test_what_was_generated_goes_into_the_next_prompt_verbatim(open_service: OpenService, text: str) -> None:
    service = open_service(text="prompt")
    chat = service.create_chat()
    assert ended(service.send(chat.id, text)).text == text
    ended(service.send(chat.id, "next"))
    assert [message.text for message in service.messages(chat.id)] == [text, text, "next", "next"]


def test_stop_then_continue_writes_what_one_go_would_have(open_service: OpenService) -> None:
    service = open_service(max_new_tokens=40, rate="200")
    chat = service.create_chat()
    run = service.send(chat.id, "Go on")
    wait_until(lambda: run.num_tokens >= 5)
    service.stop(chat.id)
    ended(run)
    cut = last(service, chat.id)
    assert (cut.status, cut.text) == ("cancelled", run.text)
    more = ended(service.continue_reply(chat.id))
    whole = last(service, chat.id)
    assert whole.id == cut.id
    assert whole.text == more.text
    assert whole.text.startswith(cut.text)
    assert (whole.seed, whole.status) == (cut.seed, "complete")
    settings = service.settings(chat.id)
    service.apply_settings(
        replace(settings, sampling=Sampling(seed=cut.seed), max_new_tokens=len(whole.token_ids)), chat.id
    )
    in_one_go = ended(service.regenerate(chat.id))
    assert in_one_go.text == whole.text
    assert last(service, chat.id).token_ids == whole.token_ids


def test_a_continued_reply_has_the_figures_of_both_stretches(open_service: OpenService) -> None:
    service = open_service()
    chat = service.create_chat()
    ended(service.send(chat.id, "Go on"))
    run = ended(service.continue_reply(chat.id))
    assert run.view().summary.num_tokens == 60
    metrics = service.metrics(run.message_id)
    assert metrics is not None
    assert len(metrics.prefills) == 2
    assert metrics.traces["kv_held_bytes"][-1][0] == 60


def test_regenerate_replaces_the_reply_with_another(open_service: OpenService) -> None:
    service = open_service()
    chat = service.create_chat()
    first = ended(service.send(chat.id, "Go on"))
    second = ended(service.regenerate(chat.id))
    assert roles(service, chat.id) == ["user", "assistant"]
    assert last(service, chat.id).text == second.text != first.text
    assert service.message(first.message_id).text == first.text


def test_editing_the_last_message_replaces_it_its_reply_and_the_title_made_from_it(open_service: OpenService) -> None:
    service = open_service(text="prompt")
    chat = service.create_chat()
    ended(service.send(chat.id, "rivres"))
    ended(service.edit_last(chat.id, "rivers"))
    assert [message.text for message in service.messages(chat.id)] == ["rivers", "rivers"]
    assert service.chat(chat.id).title == "rivers"
    service.rename_chat(chat.id, " Of\nwater ")
    ended(service.edit_last(chat.id, "streams"))
    assert service.chat(chat.id).title == "Of water"


def test_what_cannot_be_done_is_one_sentence(open_service: OpenService) -> None:
    service = open_service(max_new_tokens=None, rate="20")
    chat = service.create_chat()
    for action, words in (
        (lambda: service.send(chat.id, " \n\t"), "The message is empty."),
        (lambda: service.send(999, "hello"), "This chat is no longer there."),
        (lambda: service.continue_reply(chat.id), "There is no reply to continue."),
        (lambda: service.regenerate(chat.id), "There is nothing to answer yet."),
        (lambda: service.edit_last(chat.id, "x"), "There is no message to edit."),
        (lambda: service.rename_chat(chat.id, "  "), "A chat needs a title."),
        (lambda: service.message(999), "This message is gone."),
        (lambda: service.metrics_csv(999), "This message has no figures."),
    ):
        with pytest.raises(BadRequestError) as caught:
            action()
        assert caught.value.message == words
        assert caught.value.hint
    run = service.send(chat.id, "Go on")
    for busy in (service.continue_reply, service.regenerate):
        with pytest.raises(BadRequestError, match=r"A reply is being written in this chat. Stop it first."):
            busy(chat.id)
    service.stop(chat.id)
    ended(run)
    assert roles(service, chat.id) == ["user", "assistant"]


def test_two_tabs_sending_at_once_are_served_in_turn_the_second_knowing_the_first_reply(
    open_service: OpenService,
) -> None:
    service = open_service(max_new_tokens=None, text="prompt", rate="100")
    chat = service.create_chat()
    runs: list[Run] = []
    tabs = [
        threading.Thread(target=lambda text=text: runs.append(service.send(chat.id, text)))
        for text in ("one two three", "four five six")
    ]
    for tab in tabs:
        tab.start()
    for tab in tabs:
        tab.join()
    for run in runs:
        ended(run)
    messages = service.messages(chat.id)
    assert [message.role for message in messages] == ["user", "assistant"] * 2
    assert [message.status for message in messages] == ["complete"] * 4
    assert messages[0].text == messages[1].text
    assert messages[2].text == messages[3].text


def test_a_waiting_reply_can_be_cancelled_and_the_running_one_goes_on(open_service: OpenService) -> None:
    service = open_service(max_new_tokens=None, rate="50")
    first, second = service.create_chat(), service.create_chat()
    running = service.send(first.id, "one")
    wait_until(lambda: running.num_tokens > 0)
    waiting = service.send(second.id, "two")
    assert [service.run(run.id) for run in service.active_runs()] == [running, waiting]
    assert last(service, second.id).status == "queued"
    service.cancel(waiting.id)
    ended(waiting)
    assert last(service, second.id).status == "cancelled"
    assert not running.finished
    service.stop(first.id)
    service.stop(first.id)
    ended(running)


def test_a_tab_that_comes_back_in_mid_reply_reads_on_without_gap_or_repetition(open_service: OpenService) -> None:
    service = open_service(max_new_tokens=150, rate="300")
    chat = service.create_chat()
    run = service.send(chat.id, "Go on")
    seen = ""
    while not run.finished:
        message = last(service, chat.id)
        again = service.run_of_message(message.id)
        assert again is run
        assert message.text.startswith(seen)
        seen = message.text + run.text_from(len(message.text))
    assert last(service, chat.id).text == run.text
    assert run.text.startswith(seen)


def test_an_error_is_kept_with_the_text_and_regenerate_tries_again(open_service: OpenService) -> None:
    service = open_service(fail_at="9")
    chat = service.create_chat()
    run = ended(service.send(chat.id, "Go on"))
    reply = last(service, chat.id)
    assert (reply.status, reply.text) == ("error", run.text)
    assert reply.error.startswith("The backend failed: RuntimeError: planted before token 9.")
    assert len(reply.token_ids) == 8
    assert ended(service.continue_reply(chat.id)).view().reason == "length"
    assert last(service, chat.id).error == ""


def test_a_load_that_fails_keeps_what_was_typed_and_the_next_message_works(open_service: OpenService) -> None:
    service = open_service(load_error="The file is cut short.")
    chat = service.create_chat()
    ended(service.send(chat.id, "typed with care"))
    assert service.messages(chat.id)[0].text == "typed with care"
    assert last(service, chat.id).error == "The file is cut short."
    settings = service.settings(chat.id)
    good = replace(settings, load=replace(settings.load, options={"rate": "max", "text": "prompt"}))
    service.apply_settings(good, chat.id)
    run = ended(service.send(chat.id, "again"))
    assert run.text == "typed with care\n\nagain"
    assert [message.text for message in service.messages(chat.id)][::2] == ["typed with care", "again"]


def test_settings_belong_to_a_chat_and_new_chats_start_with_the_last_used(open_service: OpenService) -> None:
    service = open_service()
    first = service.create_chat()
    settings = service.settings(first.id)
    service.apply_settings(replace(settings, system_prompt="Be brief."), first.id)
    second = service.create_chat()
    assert service.settings(second.id).system_prompt == "Be brief."
    service.apply_settings(replace(settings, load=replace(settings.load, window=7)), second.id)
    assert service.settings(first.id).load.window == 64
    assert service.settings().load.window == 7
    service.close()
    later = open_service()
    assert later.settings().load.window == 7
    assert later.settings(first.id).system_prompt == "Be brief."


def test_new_chats_take_over_what_was_changed_in_a_chat_and_nothing_else_of_it(open_service: OpenService) -> None:
    service = open_service()
    plain = service.settings()
    own = replace(
        plain,
        load=replace(plain.load, window=7, chat_template="{{ messages }}"),
        sampling=replace(plain.sampling, temperature=0.1),
        keep_writing=True,
        grammar="root ::= .",
    )
    chat = service.create_chat("with settings of its own", settings=own)
    assert service.settings(chat.id) == own
    assert service.settings() == plain
    changed = replace(own, sampling=replace(own.sampling, top_p=0.5), system_prompt="Be brief.")
    service.apply_settings(changed, chat.id)
    assert service.settings(chat.id) == changed
    assert service.settings() == replace(plain, sampling=replace(plain.sampling, top_p=0.5), system_prompt="Be brief.")
    service.close()
    assert open_service().settings() == replace(
        plain, sampling=replace(plain.sampling, top_p=0.5), system_prompt="Be brief."
    )


def test_a_model_chosen_in_a_chat_brings_its_backend_and_a_schema_replaces_a_grammar(
    open_service: OpenService,
) -> None:
    service = open_service()
    service.apply_settings(replace(service.settings(), grammar="root ::= ."))
    elsewhere = replace(service.settings(), load=LoadRequest("ring", "one"), grammar=None)
    chat = service.create_chat(settings=elsewhere)
    service.apply_settings(replace(elsewhere, load=LoadRequest("ring", "two"), json_schema="{}"), chat.id)
    load = service.settings().load
    assert (load.backend, load.model) == ("ring", "two")
    assert (service.settings().json_schema, service.settings().grammar) == ("{}", None)


def test_the_command_line_and_a_changed_file_come_before_what_was_last_used(
    open_service: OpenService, tmp_path: Path
) -> None:
    service = open_service()
    service.apply_settings(replace(service.settings(), system_prompt="Be brief.", keep_writing=True))
    service.close()
    assert open_service(overrides={"keep_writing": False}).settings().system_prompt == "Be brief."
    changed = Settings(defaults=ChatSettings(LoadRequest("echo", "")), data_folder=tmp_path, digest="another file")
    again = Service.open(changed)
    assert again.settings().system_prompt == ""
    again.close()


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (LoadRequest("echo", "", window=0), "A window of 0 tokens is below 1."),
        (LoadRequest("echo", "", sinks=-1), "-1 sinks are below 0."),
        (LoadRequest("ring", " "), "No model is chosen."),
        (LoadRequest("rong", "x"), "There is no backend 'rong'."),
    ],
)
def test_settings_no_model_could_take_are_refused(open_service: OpenService, load: LoadRequest, words: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        open_service().apply_settings(ChatSettings(load))
    assert caught.value.message == words


def test_changing_the_window_loads_anew_with_the_next_message(open_service: OpenService) -> None:
    service = open_service()
    chat = service.create_chat()
    assert service.load_request_changed(service.settings(chat.id).load)
    ended(service.send(chat.id, "Go on"))
    settings = service.settings(chat.id)
    assert not service.load_request_changed(settings.load)
    service.apply_settings(replace(settings, load=replace(settings.load, window=8)), chat.id)
    assert service.load_request_changed(service.settings(chat.id).load)
    ended(service.send(chat.id, "Go on"))
    assert service.status().model is not None
    assert service.status().model.window == 8  # type: ignore[union-attr]
    service.unload()
    assert service.status().state == "empty"


def test_a_deleted_chat_stops_writing_and_is_gone(open_service: OpenService) -> None:
    service = open_service(max_new_tokens=None, rate="50")
    chat, other = service.create_chat("one"), service.create_chat("two")
    run = service.send(chat.id, "Go on")
    wait_until(lambda: run.num_tokens > 0)
    service.delete_chat(chat.id)
    ended(run)
    assert [each.id for each in service.chats()] == [other.id]
    follow_up = service.send(other.id, "Go on")
    wait_until(lambda: follow_up.num_tokens > 0)


def test_a_lone_half_of_a_surrogate_pair_neither_fails_nor_harms_its_neighbours(open_service: OpenService) -> None:
    service = open_service()
    chat = service.create_chat()
    ended(service.send(chat.id, "a\ud83db \ud83d\ude00"))
    assert service.messages(chat.id)[0].text == "a\ufffdb 😀"


def test_long_first_messages_are_cut_between_words_for_the_title(open_service: OpenService) -> None:
    service = open_service()
    chat = service.create_chat()
    ended(service.send(chat.id, "word " * 40))
    title = service.chat(chat.id).title
    assert title == " ".join(["word"] * 12) + "…"
    assert service.create_chat("Given").title == "Given"


def test_only_a_few_finished_runs_are_kept_in_memory(open_service: OpenService) -> None:
    service = open_service(max_new_tokens=2)
    chat = service.create_chat()
    runs = [ended(service.send(chat.id, "Go on")) for _ in range(10)]
    assert service.run(runs[0].id) is None
    assert service.run(runs[-1].id) is runs[-1]
    assert len(service.messages(chat.id)) == 20
    assert service.metrics(runs[0].message_id) is not None
