"""The command line where the locale knows ASCII only, and where its folders cannot be written."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from app.command_errors import in_words, report
from tests.backends.tiny_gguf import write_tiny_gguf

ASCII_ONLY = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "LANG": "C"}
NAME = "模型 Übung"
PROMPT = "Grüße, мир 🦜"
ECHO = ("--backend", "echo", "--model", "echo")
_ROOT = Path(__file__).parents[2]


def run(*command: str, home: Path, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a person would; everything it prints is UTF-8."""
    return subprocess.run(
        [sys.executable, "-m", "app", *command],
        cwd=_ROOT,
        env=os.environ | {"RINGSIDE_HOME": str(home)} | environment,
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
    )


def fill(path: Path) -> None:
    """Write until the disk takes no more."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / NAME
    folder.mkdir()
    return write_tiny_gguf(folder / f"{NAME}.gguf", "llama")


@pytest.mark.parametrize("backend", ["ring", "llamacpp"])
def test_an_ascii_locale_writes_with_a_model_in_a_folder_of_any_name(
    isolated_home: Path, model: Path, backend: str
) -> None:
    if backend == "llamacpp":
        pytest.importorskip("llama_cpp")
    done = run(
        "generate", "--backend", backend, "--model", str(model), "--prompt", PROMPT, "--tokens", "4", "--no-keep",
        home=isolated_home, **ASCII_ONLY,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "4 tokens" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_ascii_locale_keeps_lists_and_brings_back_texts_of_any_script(
    isolated_home: Path, tmp_path: Path, model: Path
) -> None:
    def done(*command: str, stdin: str = "") -> str:
        result = run(*command, home=isolated_home, stdin=stdin, **ASCII_ONLY)
        assert result.returncode == 0, result.stderr
        assert "Traceback" not in result.stderr
        return result.stdout

    done("generate", "--tokens", "4", *ECHO, stdin=PROMPT)
    assert PROMPT in done("export")
    exported = tmp_path / f"{NAME}.md"
    exported.write_text(done("export", "1"), "utf-8")
    assert PROMPT in exported.read_text("utf-8")
    assert NAME in done("import", str(exported))
    assert NAME in json.loads(done("estimate", str(model), "--json").splitlines()[0])["model"]
    assert "2 chats" in done("check")


def test_a_home_that_cannot_be_written_still_writes_what_is_not_kept(tmp_path: Path) -> None:
    home = tmp_path / "file" / "home"
    home.parent.write_text("a file stands where the folder should be")
    done = run("generate", "--prompt", "hi", "--tokens", "3", "--no-keep", *ECHO, home=home)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert "3 tokens" in done.stderr


@pytest.mark.parametrize(
    "command", [("generate", "--prompt", "hi", *ECHO), ("chat", "--no-browser"), ("watch",), ("import", "{file}")]
)
def test_a_home_that_cannot_be_written_is_told_in_one_sentence(tmp_path: Path, command: tuple[str, ...]) -> None:
    home = tmp_path / "file" / "home"
    home.parent.write_text("Human: hi\n")
    text = tmp_path / "chat.md"
    text.write_text("hello")
    given = [part.format(file=text) for part in command]
    done = run(*given, home=home)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"Error: {home} cannot be written: Not a directory. "
        "Free some space, or set RINGSIDE_HOME to a folder that can be written."
    )
    as_json = run(*given, "--json", home=home)
    assert json.loads(as_json.stdout.splitlines()[-1])["error"] == f"{home} cannot be written: Not a directory."


def test_a_full_disk_is_told_in_one_sentence_and_keeps_what_was_there(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a disk of half a megabyte")
    try:
        command = ("generate", "--prompt", "hi", "--tokens", "3", *ECHO)
        assert run(*command, home=disk).returncode == 0
        fill(disk / "filler")
        full = run(*command, home=disk)
        assert full.returncode == 1
        assert full.stderr.splitlines()[-1] == (
            f"Error: The disk with {disk / 'chats.sqlite'} is full. Free some space; nothing already kept is lost."
        )
        for command_too in (("check",), ("export",), ("backup", str(tmp_path / "backup.sqlite"))):
            assert "Traceback" not in run(*command_too, home=disk).stderr
        (disk / "filler").unlink()
        assert "1 chat, 2 messages" in run("check", home=disk).stdout
        assert run(*command, home=disk).returncode == 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_an_error_of_the_system_names_the_file_and_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    error = OSError(errno.EROFS, "Read-only file system", "/data/ringside.lock")
    assert in_words(error).hint.startswith("Free some space, or set RINGSIDE_HOME")
    report(error, as_json=False)
    assert capsys.readouterr().err.startswith("Error: /data/ringside.lock cannot be written: Read-only file system.")
    report(OSError(errno.EIO, "Input/output error", "/data/chats"), as_json=False)
    assert capsys.readouterr().err == "Error: /data/chats cannot be used: Input/output error.\n"
