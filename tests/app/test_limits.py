"""Replies that go round in circles, written by a real worker: the echo backend says its prompt again and again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.limits import Limits, OnLoop
from app.loops import MIN_RUN_TOKENS
from app.runs import Run
from app.service import Service
from tests.app.conftest import EchoService

SENTENCE = "The river ran slow past the mill, and nobody on the bank could say when the lamps had gone out. "


def looping(service: Service, on_loop: OnLoop, max_new_tokens: int) -> Run:
    """Return an ended run that repeated one sentence to the end."""
    chat = service.create_chat()
    settings = replace(service.settings(), on_loop=on_loop, keep_writing=True, max_new_tokens=max_new_tokens)
    service.apply_settings(settings, chat.id)
    run = service.send(chat.id, SENTENCE)
    assert run.wait_until_finished(60)
    return run


def test_a_loop_is_told_of_and_the_reply_goes_on(echo_service: EchoService) -> None:
    service = echo_service(rate="max", text="prompt")
    view = looping(service, "notice", 1_500).view()
    assert (view.reason, view.num_tokens) == ("length", 1_500)
    assert view.notice.startswith("The text repeats itself: the same ")


def test_a_loop_ends_the_reply_where_that_is_wished_and_the_text_is_kept(echo_service: EchoService) -> None:
    service = echo_service(rate="2000", text="prompt")
    run = looping(service, "stop", 1_000_000)
    message = service.message(run.message_id)
    assert (run.view().reason, message.finish_reason, message.status) == ("loop", "loop", "complete")
    assert len(message.token_ids) >= MIN_RUN_TOKENS
    assert message.text.startswith(SENTENCE * 2)


def test_a_loop_is_nobodys_business_where_that_is_wished(echo_service: EchoService) -> None:
    service = echo_service(rate="max", text="prompt")
    view = looping(service, "ignore", 1_500).view()
    assert (view.reason, view.notice) == ("length", "")


def test_the_share_of_distinct_words_is_recorded_like_any_figure(echo_service: EchoService) -> None:
    service = echo_service(rate="max", text="prompt")
    run = looping(service, "notice", 1_500)
    shares = [value for _, _, value in run.metrics().traces["distinct_share"]]
    assert 0 < shares[-1] < 0.2
    assert "distinct_share" in service.metrics_csv(run.message_id).splitlines()[0]


@pytest.mark.parametrize(("on_loop", "is_told"), [("ignore", False), ("notice", True), ("stop", True)])
def test_without_a_loop_there_is_nothing_to_tell(on_loop: OnLoop, is_told: bool) -> None:
    limits = Limits(on_loop=on_loop)
    assert limits.warning(None) == ""
    assert bool(limits.warning(20)) is is_told
