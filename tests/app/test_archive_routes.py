"""Search, folders, export, import and presets as the page asks for them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import quote

from fastapi.testclient import TestClient

from app.server import build_routes
from app.service import Service
from app.store import Store
from tests.app.conftest import EchoService


def client(service: Service) -> TestClient:
    return TestClient(build_routes(service), base_url="http://127.0.0.1:7878")


def written(service: Service, text: str, title: str = "") -> int:
    """Return a chat with a question and a reply by the echo backend."""
    chat = service.create_chat(title)
    assert service.send(chat.id, text).wait_until_finished(60)
    return chat.id


def test_a_hit_leads_to_the_block_it_is_in(echo_service: EchoService) -> None:
    service = echo_service(rate="max", end_after="3000")
    with client(service) as page:
        chat = written(service, "Write of rivers")
        text = service.messages(chat)[-1].text
        word = re.findall(r"\b[a-z]{4,}\b", text[len(text) // 2 :].lower())[1]  # the first may be cut
        found = page.get("/app/search", params={"query": word}).json()["messages"][0]
        assert found["chat_id"] == chat
        everywhere = page.get("/app/search", params={"query": word, "message": found["message_id"]}).json()["messages"]
        hit = everywhere[0]["hits"][-1]
        assert text[hit["start"] :].lower().startswith(word)
        (begin, end), *_ = hit["marks"]
        assert hit["snippet"][begin:end].lower().startswith(word)
        place = f"/app/messages/{found['message_id']}/place"
        blocks = page.get(f"/app/messages/{found['message_id']}/blocks").json()
        shown = [*blocks["blocks"], blocks["open"]]
        assert word in shown[page.get(place, params={"offset": hit["start"]}).json()["block"]].lower()
        assert page.get(place, params={"offset": 0}).json()["block"] == 0
        assert page.get(place, params={"offset": len(text) + 5}).json()["block"] == blocks["num_blocks"]
        assert page.get("/app/search", params={"query": word, "chat": chat + 1}).json()["messages"] == []


def test_a_chat_goes_into_a_folder_and_out_of_it(echo_service: EchoService) -> None:
    service = echo_service()
    with client(service) as page:
        chat = service.create_chat("A").id
        assert page.put(f"/app/chats/{chat}/folder", json={"folder": "  My\n novel "}).json()["folder"] == "My novel"
        assert page.get("/app/chats").json()["chats"][0]["folder"] == "My novel"
        assert page.put(f"/app/chats/{chat}/folder", json={"folder": "x" * 61}).status_code == 400
        assert page.put(f"/app/chats/{chat}/folder", json={"folder": ""}).json()["folder"] == ""
        assert page.put("/app/chats/99/folder", json={"folder": "x"}).status_code == 400


def test_a_folder_is_renamed_joined_with_another_and_dissolved(echo_service: EchoService) -> None:
    service = echo_service()
    with client(service) as page:
        for folder in ("Old", "Old", "Other", ""):
            chat = service.create_chat("A").id
            page.put(f"/app/chats/{chat}/folder", json={"folder": folder})

        def folders() -> list[str]:
            return sorted(chat.folder for chat in service.chats())

        assert page.patch("/app/folders", json={"folder": "Old", "name": "  New  one "}).json() == {"folder": "New one"}
        assert folders() == ["", "New one", "New one", "Other"]
        page.patch("/app/folders", json={"folder": "New one", "name": "Other"})
        assert folders() == ["", "Other", "Other", "Other"]
        assert page.patch("/app/folders", json={"folder": "Other", "name": "x" * 61}).status_code == 400
        page.patch("/app/folders", json={"folder": "", "name": "Everything"})
        assert folders() == ["", "Other", "Other", "Other"]
        page.patch("/app/folders", json={"folder": "Other", "name": ""})
        assert folders() == ["", "", "", ""]


def test_a_backup_comes_as_one_whole_file_and_leaves_nothing_behind(echo_service: EchoService, tmp_path: Path) -> None:
    service = echo_service(rate="max", end_after="10")
    with client(service) as page:
        chat = written(service, "Say it.", title="Kept")
        answer = page.get("/app/backup")
        assert ".sqlite" in answer.headers["content-disposition"]
        copy = Store(_saved(tmp_path / "copy.sqlite", answer.content))
        assert [each.title for each in copy.chats()] == ["Kept"]
        assert copy.messages(chat)[1].text == service.messages(chat)[1].text
        copy.close()
        assert not list(service.application.data_folder.glob(".backup-*"))


def _saved(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_chat_is_exported_in_every_form_and_its_json_comes_back_whole(echo_service: EchoService) -> None:
    service = echo_service(rate="max", end_after="40")
    with client(service) as page:
        chat = written(service, "Say é <b>", title="Ένα «θέμα»")
        reply = service.messages(chat)[-1]
        for format_, type_ in (("md", "markdown"), ("txt", "plain"), ("html", "html"), ("json", "json")):
            answer = page.get(f"/app/chats/{chat}/export.{format_}")
            assert type_ in answer.headers["content-type"]
            assert quote(f"Ένα θέμα.{format_}", safe="") in answer.headers["content-disposition"]
            assert max(filter(str.isalpha, reply.text.split()), key=len) in answer.text
        assert page.get(f"/app/chats/{chat}/export.exe").status_code == 422
        assert page.get("/app/chats/99/export.md").status_code == 400
        file = page.get(f"/app/chats/{chat}/export.json").text
        (added,) = page.post("/app/import", json={"name": "x.json", "content": file}).json()["chats"]
        copy = service.library.archived(added["id"])
        assert copy == service.library.archived(chat)
        assert copy.messages[1].text == reply.text
        assert copy.messages[1].packed_metrics is not None
        assert service.settings(added["id"]) == service.settings(chat)
        assert added["title"] == "Ένα «θέμα»"


def test_an_imported_text_goes_on(echo_service: EchoService) -> None:
    service = echo_service(rate="max", end_after="5")
    with client(service) as page:
        (chat,) = page.post("/app/import", json={"name": "a tale.txt", "content": "Once upon"}).json()["chats"]
        assert chat["title"] == "a tale"
        assert service.regenerate(chat["id"]).wait_until_finished(60)
        assert [message.role for message in service.messages(chat["id"])] == ["user", "assistant"]


def test_what_an_import_leaves_out_is_listed(echo_service: EchoService) -> None:
    lines = [{"user_name": "Me", "character_name": "Alice"}, {"name": "Alice", "is_user": False, "mes": "Hi"}, "broken"]
    content = "\n".join(map(json.dumps, lines))
    with client(echo_service()) as page:
        brought = page.post("/app/import", json={"name": "Alice.jsonl", "content": content}).json()
        assert (brought["chats"][0]["title"], brought["left_out"]) == ("Alice", "1 broken line")
        brought = page.post("/app/import", json={"name": "a tale.txt", "content": "Once upon"}).json()
        assert brought["left_out"] == ""


def test_a_bad_file_is_one_sentence_and_adds_nothing(echo_service: EchoService) -> None:
    service = echo_service()
    with client(service) as page:
        answer = page.post("/app/import", json={"name": "a.json", "content": '{"x": 1}'})
        assert answer.status_code == 400
        assert answer.json()["message"] == "a.json is not a file of chats that Ringside knows."
        assert service.chats() == []


def test_presets_are_saved_listed_given_away_taken_in_applied_and_deleted(echo_service: EchoService) -> None:
    service = echo_service()
    with client(service) as page:
        chat = service.create_chat().id
        assert page.post("/app/presets", json={"name": "Mine", "chat": chat}).json() == {"name": "Mine"}
        file = page.get("/app/presets/Mine").text.replace("window = 64", "window = 32")
        assert page.post("/app/presets/import", json={"name": "Theirs.toml", "content": file}).json() == {
            "name": "Theirs"
        }
        assert page.get("/app/presets").json() == {"names": ["Mine", "Theirs"]}
        applied = page.post(f"/app/presets/Theirs/apply?chat={chat}")
        assert applied.json()["window"] == service.settings(chat).load.window == 32
        assert service.settings(chat).load.backend == "echo"
        page.delete("/app/presets/Mine")
        assert page.get("/app/presets").json() == {"names": ["Theirs"]}
        assert page.get("/app/presets/Mine").status_code == 400
        for name in ("..", "..%2F..%2Fetc%2Fpasswd", "%2Fetc%2Fpasswd"):
            assert page.get(f"/app/presets/{name}").status_code in (400, 404)
        wrong = page.post("/app/presets/import", json={"name": "x", "content": json.dumps({"window": 0})})
        assert (wrong.status_code, page.get("/app/presets").json()) == (400, {"names": ["Theirs"]})


HOSTILE = "{{ '%400000000d' % 1 }}"


def chats_with_templates(*templates: str) -> str:
    chats = [
        {"title": f"Chat {number}", "settings": {"window": 32, "chat_template": template}, "messages": [MESSAGE]}
        for number, template in enumerate(templates)
    ]
    return json.dumps({"format": "ringside-chats", "version": 1, "chats": chats})


MESSAGE = {"role": "user", "text": "Hi."}


def test_imported_chats_bring_their_templates_only_when_asked_for(echo_service: EchoService) -> None:
    service = echo_service()
    file = {"name": "x.json", "content": chats_with_templates(HOSTILE, "{{ messages }}", "tool_use")}
    with client(service) as page:
        brought = page.post("/app/import", json=file).json()
        assert brought["left_out"] == "2 chat templates"
        settings = [service.settings(chat["id"]).load for chat in brought["chats"]]
        assert [each.chat_template for each in settings] == [None, None, "tool_use"]
        assert [each.window for each in settings] == [32, 32, 32]
        brought = page.post("/app/import?with_templates=true", json=file).json()
        assert brought["left_out"] == ""
        assert service.settings(brought["chats"][0]["id"]).load.chat_template == HOSTILE
