"""The page's routes: everything by offset, the text exact, and nobody but this machine's own page let in."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.following import Event, Follower
from app.runs import Run
from app.server import bind, build_routes
from app.service import Service
from app.transcript import Transcript
from app.transcripts import Transcripts
from backends.errors import BadRequestError
from tests.app.conftest import EchoService

HOST = "http://127.0.0.1:7878"


def client(service: Service) -> TestClient:
    return TestClient(build_routes(service), base_url=HOST)


def finished(run: Run) -> Run:
    assert run.wait_until_finished(60)
    return run


def blocks_of(text: str) -> tuple[list[str], str]:
    transcript = Transcript()
    transcript.append(text)
    return [block.html for block in transcript.blocks], transcript.open_html()


def test_a_chat_is_made_filled_renamed_found_and_deleted(echo_service: EchoService) -> None:
    service = echo_service(rate="max", end_after="20")
    with client(service) as page:
        chat = page.post("/app/chats").json()["id"]
        started = page.post(f"/app/chats/{chat}/send", json={"text": "About rivers"}).json()
        run = service.run(started["run"])
        assert run is not None
        finished(run)
        shown = page.get(f"/app/chats/{chat}").json()
        assert [message["role"] for message in shown["messages"]] == ["user", "assistant"]
        assert shown["messages"][0]["text"] == "About rivers"
        assert (shown["messages"][1]["blocks"], shown["messages"][1]["open"]) == blocks_of(run.text)
        assert page.patch(f"/app/chats/{chat}", json={"title": "Of lakes"}).json()["title"] == "Of lakes"
        assert [row["id"] for row in page.get("/app/chats?query=lake").json()["chats"]] == [chat]
        assert page.get("/app/chats?query=river").json()["chats"] == []
        page.delete(f"/app/chats/{chat}")
        assert page.get(f"/app/chats/{chat}").status_code == 400


TEXTS = ["  def f():\n      return 1", "\n\nhi\n\n", "a\tb", "👩‍👩‍👧 \r\n<b>x</b>", "```\n\tcode\n"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_goes_round_unchanged_and_so_does_the_next_prompt(echo_service: EchoService, text: str) -> None:
    service = echo_service(rate="max", text="script", script=json.dumps([text]))
    with client(service) as page:
        chat = service.create_chat().id
        sent = f"{text} "
        run = finished(service.send(chat, sent))
        assert page.get(f"/app/messages/{run.message_id}/text").content.decode() == text
        assert page.get(f"/app/chats/{chat}").json()["messages"][0]["text"] == sent
        again = finished(service.send(chat, "more"))
        prompt = service.messages(chat)
        assert [message.text for message in prompt[:2]] == [sent, text]
        assert "[{'" not in again.text


def test_code_is_given_exactly_and_a_missing_one_is_one_sentence(echo_service: EchoService) -> None:
    service = echo_service(rate="max", text="script", script=json.dumps(["```py\n\ta = 1\n", "\n```\n"]))
    with client(service) as page:
        run = finished(service.send(service.create_chat().id, "code"))
        assert page.get(f"/app/messages/{run.message_id}/code/0").content == b"\ta = 1\n\n"
        missing = page.get(f"/app/messages/{run.message_id}/code/7")
        assert missing.status_code == 400
        assert missing.json()["message"]


def test_a_long_reply_comes_in_pages_that_join_without_gaps(echo_service: EchoService) -> None:
    piece = "Some *words* in a paragraph. " * 40 + "\n\n"
    service = echo_service(rate="max", text="script", script=json.dumps([piece] * 600))
    with client(service) as page:
        run = finished(service.send(service.create_chat().id, "long"))
        got: list[str] = []
        answers = 0
        while True:
            answer = page.get(f"/app/messages/{run.message_id}/blocks?first={len(got)}").json()
            answers += 1
            assert answer["first"] == len(got)
            got.extend(answer["blocks"])
            if answer["open"] is not None:
                break
        assert answers > 1
        assert (got, answer["open"]) == blocks_of(run.text)


def test_an_error_is_a_sentence_and_a_way_out_and_never_a_trace(echo_service: EchoService) -> None:
    with client(echo_service()) as page:
        for path in ("/app/chats/99/send", "/app/chats/99/edit"):
            answer = page.post(path, json={"text": "x"})
            assert answer.status_code == 400
            assert set(answer.json()) == {"message", "hint"}
            assert "Traceback" not in answer.text
        empty = page.post(f"/app/chats/{page.post('/app/chats').json()['id']}/send", json={"text": "  "})
        assert empty.json()["message"] == "The message is empty."


def test_stop_twice_is_fine_and_ends_the_reply(echo_service: EchoService) -> None:
    service = echo_service(rate="50")
    with client(service) as page:
        run = service.send(service.create_chat().id, "go")
        while run.num_tokens < 5:
            time.sleep(0.02)
        for _ in range(2):
            assert page.post(f"/app/chats/{run.chat_id}/stop").status_code == 200
        finished(run)
        assert service.messages(run.chat_id)[-1].status == "cancelled"
        assert page.get(f"/app/messages/{run.message_id}/metrics").json()["metrics"]["summary"]["num_tokens"] >= 5


def followed(follower: Follower, until_s: float = 60.0) -> Iterator[Event]:
    """Poll until the reply is over and its last event is given."""
    deadline = time.monotonic() + until_s
    while time.monotonic() < deadline:
        for event in follower.poll():
            yield event
            if event.name == "run" and event.data["state"]["status"] == "finished":
                return
        time.sleep(0.02)
    raise AssertionError("the reply did not finish")


def assembled(events: list[Event], have: list[str]) -> tuple[list[str], str]:
    """Do with the events what the page does."""
    blocks, open_html = list(have), ""
    for event in events:
        text = event.data.get("text") if event.name == "run" else None
        if text is None:
            continue
        assert text["first"] <= len(blocks)
        blocks = blocks[: text["first"]] + text["blocks"] if text["blocks"] else blocks
        open_html = text["open"] if text["open"] is not None else open_html
    return blocks, open_html


def test_any_number_of_tabs_see_the_whole_reply_however_late_they_come(echo_service: EchoService) -> None:
    service = echo_service(rate="400", end_after="400")
    transcripts = Transcripts()
    run = service.send(service.create_chat().id, "go")
    early = Follower(service, transcripts, run.chat_id)
    events = list(followed(early))
    late = Follower(service, transcripts, run.chat_id, message_id=run.message_id, block=3)
    assert assembled(events, []) == blocks_of(run.text)
    assert assembled(list(followed(late)), blocks_of(run.text)[0][:3]) == blocks_of(run.text)


def test_the_series_goes_on_where_the_tab_left_it(echo_service: EchoService) -> None:
    service = echo_service(rate="400", end_after="300")
    run = service.send(service.create_chat().id, "go")
    events = [event for event in followed(Follower(service, Transcripts(), run.chat_id)) if event.name == "run"]
    whole = [event.data["metrics"] for event in events if "metrics" in event.data]
    assert len(whole) == 1
    sampled = [sample for event in events for sample in event.data.get("samples", [])]
    num_before = len(whole[0]["traces"]["kv_held_bytes"][0])
    assert num_before + len(sampled) == events[-1].data["sequence"] == run.metrics().sequence
    tokens = [sample[0] for sample in sampled]
    assert tokens == sorted(tokens)


def test_a_tab_whose_reply_is_over_is_told_to_load_the_chat_again(echo_service: EchoService) -> None:
    service = echo_service(rate="max", end_after="5")
    run = finished(service.send(service.create_chat().id, "go"))
    service.close()
    reopened = echo_service(rate="max")
    follower = Follower(reopened, Transcripts(), run.chat_id, message_id=run.message_id, block=1)
    assert Event("reload", {"message": run.message_id}) in follower.poll()


def bytes_per_update(service: Service, chat_id: int, text: str) -> float:
    """Send, follow to the end at the page's pace, and return the size of an event of the stream."""
    run = service.send(chat_id, text)
    sizes: list[int] = []
    follower = Follower(service, Transcripts(), chat_id)
    while not run.finished:
        sizes.extend(len(json.dumps(event.data)) for event in follower.poll() if event.name == "run")
        time.sleep(0.1)
    return sum(sizes[2:]) / len(sizes[2:])  # the first hold the series and the model


def test_an_update_costs_the_same_in_a_chat_of_2_000_messages(echo_service: EchoService) -> None:
    service = echo_service(rate="300", max_new_tokens=400)
    short, long = service.create_chat().id, service.create_chat().id
    store: Any = service._store
    for number in range(1_000):
        reply = store.add_turn(long, f"question {number}")
        store.mark(reply, "complete")
    assert len(service.messages(long)) == 2_000
    assert bytes_per_update(service, long, "now") < 2 * bytes_per_update(service, short, "now")


FOREIGN = [
    {"host": "evil.example"},
    {"host": "evil.example:7878"},
    {"host": "127.0.0.1.evil.example"},
    {"host": ""},
    {"origin": "https://evil.example"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "null"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize(("method", "path"), [("GET", "/app/chats"), ("POST", "/app/chats"), ("GET", "/app/stream")])
def test_a_foreign_page_is_refused(echo_service: EchoService, headers: dict[str, str], method: str, path: str) -> None:
    service = echo_service()
    with client(service) as page:
        answer = page.request(method, path, headers=headers)
        assert answer.status_code == 403
        assert answer.json()["message"].startswith("Requests ")
    assert service.chats() == []


@pytest.mark.parametrize("host", ["127.0.0.1:7878", "localhost:7878", "[::1]:7878"])
def test_this_machine_is_let_in_by_any_of_its_names(echo_service: EchoService, host: str) -> None:
    with client(echo_service()) as page:
        headers = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
        assert page.get("/app/chats", headers=headers).status_code == 200


def test_a_plain_form_cannot_send_a_message(echo_service: EchoService) -> None:
    service = echo_service()
    chat = service.create_chat().id
    with client(service) as page:
        body = json.dumps({"text": "hi"})
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            answer = page.post(f"/app/chats/{chat}/send", content=body, headers={"content-type": kind})
            assert answer.status_code == 403
    assert service.messages(chat) == []


@pytest.mark.parametrize(
    "name", ["../pyproject.toml", "..%2Fpyproject.toml", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd"]
)
def test_no_path_leads_out_of_the_assets(echo_service: EchoService, name: str) -> None:
    with client(echo_service()) as page:
        assert page.get(f"/app/assets/{name}").status_code == 404


def test_scripts_and_plotly_come_from_this_machine_and_the_page_may_ask_no_other(echo_service: EchoService) -> None:
    with client(echo_service()) as page:
        for name in ("main.js", "page.css", "plotly.min.js"):
            answer = page.get(f"/app/assets/{name}")
            assert answer.status_code == 200
            assert answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "http" not in policy


def test_a_busy_port_moves_on_unless_it_was_asked_for() -> None:
    with bind(0) as first:
        port = first.getsockname()[1]
        with bind(port) as second:
            assert second.getsockname()[1] != port
        with pytest.raises(BadRequestError, match=f"Port {port} is in use"):
            bind(port, only_this=True)
