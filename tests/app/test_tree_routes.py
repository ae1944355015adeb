from __future__ import annotations

from fastapi.testclient import TestClient

from app.server import build_routes
from app.service import Service
from tests.app.conftest import EchoService

HOST = "http://127.0.0.1:7878"


def client(service: Service) -> TestClient:
    return TestClient(build_routes(service), base_url=HOST)


def wait_for(service: Service, started: dict[str, str]) -> None:
    run = service.run(started["run"])
    assert run is not None
    assert run.wait_until_finished(60)


def test_a_chat_is_walked_edited_and_mended_through_the_routes(echo_service: EchoService) -> None:
    service = echo_service(text="prompt", rate="max")
    with client(service) as page:
        chat = page.post("/app/chats").json()["id"]
        wait_for(service, page.post(f"/app/chats/{chat}/send", json={"text": "one"}).json())
        asked, reply = page.get(f"/app/chats/{chat}").json()["messages"]
        wait_for(service, page.post(f"/app/messages/{reply['id']}/answer").json())
        shown = page.get(f"/app/chats/{chat}/variants").json()
        (variants,) = [group for group in shown["variants"].values() if len(group) == 2]
        assert variants[0] == reply["id"]
        page.post(f"/app/messages/{reply['id']}/select")
        changed = page.patch(f"/app/messages/{reply['id']}", json={"text": "o <b>", "version": reply["version"]}).json()
        assert changed["version"] == reply["version"] + 1
        stale = page.patch(f"/app/messages/{reply['id']}", json={"text": "x", "version": reply["version"]})
        assert stale.status_code == 400
        edited = page.get(f"/app/chats/{chat}").json()["messages"][1]
        assert "o &lt;b&gt;" in edited["open"] + "".join(edited["blocks"])
        assert page.post(f"/app/messages/{reply['id']}/cut", json={"num_chars": 1}).json()["message"] not in variants
        page.post(f"/app/messages/{asked['id']}/branch")
        page.delete(f"/app/messages/{asked['id']}")
        assert page.get(f"/app/chats/{chat}").json()["messages"] == []
        while page.get(f"/app/chats/{chat}/variants").json()["num_steps"]:
            page.post(f"/app/chats/{chat}/undo")
        (first, *_) = page.get(f"/app/chats/{chat}/tree").json()["messages"]
        assert first == {"id": asked["id"], "parent": None, "role": "user", "status": "complete", "start": "one"}
        assert page.get(f"/app/messages/{reply['id']}/text").text == "one"
        wait_for(service, page.post(f"/app/messages/{asked['id']}/ask", json={"text": "two"}).json())
        assert [row["num_chars"] for row in page.get(f"/app/chats/{chat}").json()["messages"]] == [3, 3]


def test_a_notebook_is_typed_in_and_written_at_the_cursor_through_the_routes(echo_service: EchoService) -> None:
    service = echo_service(max_new_tokens=5, rate="max")
    with client(service) as page:
        chat = page.post("/app/notebooks").json()
        assert chat["kind"] == "notebook"
        url = f"/app/notebooks/{chat['id']}"
        version = page.get(url).json()["version"]
        typed = {"start": 0, "end": 0, "text": "Once. End.", "version": version}
        version = page.patch(url, json=typed).json()["version"]
        wait_for(service, page.post(f"{url}/write", json={"version": version, "at": 6}).json())
        document = page.get(url).json()
        assert document["text"].startswith("Once. ")
        assert document["text"].endswith("End.")
        assert (document["behind"], document["num_tokens"]) == ("", 5)
        assert page.patch(url, json=typed).status_code == 400
