"""The commands as a person types them, on a real store in a folder of its own."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.archive import Archive
from app.cli import cli
from app.instance import Instance
from app.settings import read_settings
from app.store import Store


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(read_settings().database_path)
    for title in ("Rivers & mills", "Rivers of ice", "Lamps"):
        chat = store.add_chat(title, "{}")
        reply = store.add_turn(chat.id, f"Write of {title}")
        store.append(reply, f"A reply about {title}.\r\n", array("i", [1, 2]))
        store.finish(reply, "complete", "stop")
    yield store
    store.close()


def ringside(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(each) for each in arguments])


def test_chats_are_listed_and_written_to_stdout_or_a_folder(store: Store, tmp_path: Path) -> None:
    assert "    3  Lamps" in ringside("export").output.splitlines()
    assert ringside("export", "3").output.startswith("# Lamps\n\n## You\n\nWrite of Lamps\n")
    assert ringside("export", "lamp", "-f", "txt").output.startswith("Lamps\n=====\n")
    assert "<!DOCTYPE html>" in ringside("export", "lamp", "-f", "html").output
    out = tmp_path / "out"
    assert ringside("export", "--all", "-f", "md", "-o", out).exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == ["Lamps.md", "Rivers mills.md", "Rivers of ice.md"]
    assert b"A reply about Lamps.\r\n" in (out / "Lamps.md").read_bytes()


def test_chats_of_one_name_get_files_of_their_own(store: Store, tmp_path: Path) -> None:
    store.rename_chat(1, "lamps")
    ringside("export", "--all", "-o", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "Lamps (2).md",
        "Rivers of ice.md",
        "lamps.md",
    ]


def test_everything_goes_out_as_one_json_and_comes_back(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    assert ringside("export", "--all", "-f", "json", "-o", file).exit_code == 0
    result = ringside("import", file)
    assert result.output == f"{file}: 3 chats added: Rivers & mills, Rivers of ice, Lamps\n"
    assert [message.text for message in store.messages(6)] == [message.text for message in store.messages(3)]
    assert store.messages(6)[1].token_ids == array("i", [1, 2])


def newest_settings(store: Store) -> object:
    archive = Archive(store.database)
    return json.loads(archive.chat(archive.chat_ids()[-1]).settings)


def test_chat_templates_come_along_only_when_asked_for(store: Store, tmp_path: Path) -> None:
    template = "{{ messages }}"
    store.add_chat("Theirs", json.dumps({"window": 32, "chat_template": template}))
    file, copy = tmp_path / "all.json", tmp_path / "copy.sqlite"
    assert ringside("export", "--all", "-f", "json", "-o", file).exit_code == 0
    assert ringside("backup", copy).exit_code == 0
    for path in (file, copy):
        assert "(left out: 1 chat template)" in ringside("import", path).output
        assert newest_settings(store) == {"window": 32}
        assert "left out" not in ringside("import", path, "--with-templates").output
        assert newest_settings(store) == {"window": 32, "chat_template": template}


def test_a_chat_that_is_not_meant_clearly_is_asked_for(store: Store) -> None:
    for arguments, sentence in (
        (["export", "rivers"], "'rivers' is in the titles of several chats: 2 (Rivers of ice), 1 (Rivers & mills)."),
        (["export", "seas"], "No chat has the number or title 'seas'."),
        (["export", "--all"], "Several chats do not go into one text."),
        (["export", "3", "-f", "pdf"], "There is no format 'pdf'. Choose from md, txt, html, json."),
        (["import", "nowhere.txt"], "nowhere.txt cannot be read (No such file or directory)."),
    ):
        result = ringside(*arguments)
        assert (result.exit_code, sentence in result.output) == (1, True), result.output


def test_without_any_chats_each_command_says_so() -> None:
    for command in ("export", "backup", "check"):
        result = ringside(command)
        assert (result.exit_code, "There are no chats" in result.output) == (1, True), result.output
    assert not read_settings().database_path.exists()


def test_a_first_import_makes_the_store(tmp_path: Path) -> None:
    (tmp_path / "tale.txt").write_text("Once upon a time")
    result = ringside("import", tmp_path / "tale.txt", "--json")
    assert json.loads(result.output)["chats"] == [{"id": 1, "title": "tale"}]


def test_what_an_import_leaves_out_is_listed(tmp_path: Path) -> None:
    lines = ['{"user_name": "Me", "character_name": "Alice"}', '{"name": "Alice", "is_user": false, "mes": "Hi"}', "{"]
    (tmp_path / "Alice.jsonl").write_text("\n".join(lines))
    assert "1 chat added: Alice (left out: 1 broken line)" in ringside("import", tmp_path / "Alice.jsonl").output
    assert json.loads(ringside("import", tmp_path / "Alice.jsonl", "--json").output)["left_out"] == "1 broken line"


def test_a_backup_is_made_where_asked_replaces_nothing_and_is_imported_like_any_file(
    store: Store, tmp_path: Path
) -> None:
    target = tmp_path / "mine.sqlite"
    assert f"Backed up to {target}" in ringside("backup", target).output
    assert "is already there" in ringside("backup", target).output
    made = json.loads(ringside("backup", "--json").output)
    assert Path(made["file"]).parent.name == "backups"
    content = target.read_bytes()
    assert "3 chats added" in ringside("import", target).output
    assert target.read_bytes() == content
    assert len(store.chats()) == 6


def test_check_tells_what_is_fine_and_what_was_recovered(store: Store) -> None:
    path = store.path
    assert ringside("check").output == f"{path} is fine: 3 chats, 6 messages.\n"
    store.close()
    path.write_bytes(b"not chats any more")
    path.with_name(path.name + "-wal").unlink(missing_ok=True)
    result = ringside("check")
    assert result.exit_code == 0
    assert "Found: file is not a database" in result.output
    (kept,) = path.parent.glob("chats.damaged-*.sqlite")
    assert f"The damaged file is kept as {kept}." in result.output
    assert f"{path} is fine: 0 chats, 0 messages." in ringside("check").output
    assert "was set aside earlier" in ringside("check").output
    assert "'ringside import" in ringside("check", kept).output
    assert kept.read_bytes() == b"not chats any more"


def test_nothing_is_repaired_while_ringside_is_running(store: Store) -> None:
    store.database.write("UPDATE chats SET leaf_id = 999")
    running = Instance(store.path.parent)
    assert running.claim()
    result = ringside("check")
    running.release()
    assert result.exit_code == 1
    assert "Ringside is running: end it and run this again to repair." in result.output
    assert ringside("check", "--no-repair").exit_code == 1
    report = json.loads(ringside("check", "--json").output)
    assert report["repairs"] == ["3 chats have lost the message they ended with: put right."]
    assert [message.role for message in store.messages(2)] == ["user", "assistant"]
