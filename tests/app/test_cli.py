"""The command line as a person or a script starts it: real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ECHO = ("generate", "--backend", "echo", "--option", "text=prompt", "--option", "rate=max")


def ringside(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments], input=given, capture_output=True, text=True, timeout=120, check=False
    )


def events(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_generate_writes_the_text_to_stdout_and_figures_to_stderr() -> None:
    done = ringside(*ECHO, "--prompt", "  Once upon\ta time… 👩‍👩‍👧")
    assert done.returncode == 0
    assert done.stdout == "  Once upon\ta time… 👩‍👩‍👧"
    assert "tokens/s" in done.stderr.splitlines()[-1]
    assert "KV " in done.stderr.splitlines()[-1]


def test_generate_reads_the_prompt_from_a_pipe_and_counts_tokens() -> None:
    done = ringside(*ECHO, "--keep-writing", "--tokens", "7", given="ab")
    assert done.stdout == "ab" * 7


def test_generate_as_json_is_one_object_a_line() -> None:
    done = ringside(*ECHO, "--json", "--prompt", "one two", "--window", "9", "--sinks", "none")
    lines = events(done.stdout)
    assert next(line["event"] for line in lines if line["event"] != "progress") == "model"
    assert "".join(line["text"] for line in lines if line["event"] == "text") == "one two"
    assert lines[-1]["event"] == "finished"
    assert (lines[-1]["reason"], lines[-1]["figures"]["num_tokens"]) == ("stop", 2)
    model = next(line for line in lines if line["event"] == "model")
    assert (model["window"], model["sinks"]) == (9, 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((*ECHO,), "There is no prompt"),
        ((*ECHO, "--prompt", " "), "There is no prompt"),
        ((*ECHO, "--prompt", "x", "--option", "rate=-1"), "Option 'rate' of the echo backend cannot be '-1'."),
        (("generate", "--backend", "rong", "--prompt", "x", "--model", "/nowhere.gguf"), "/nowhere.gguf"),
        (("generate", "--prompt", "x", "--device", "tpu"), "device cannot be 'tpu': choose from auto, cpu, cuda"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_exit_code_1(arguments: tuple[str, ...], words: str) -> None:
    plain, as_json = ringside(*arguments, given=""), ringside(*arguments, "--json", given="")
    assert plain.returncode == as_json.returncode == 1
    assert words in plain.stderr
    assert plain.stdout == ""
    assert words in events(as_json.stdout)[-1]["error"]
    assert "Traceback" not in plain.stderr + as_json.stderr


def test_ctrl_c_ends_an_endless_reply_and_keeps_what_came() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "generate", "--backend", "echo", "--option", "rate=100", "--prompt", "x"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    first = process.stdout.read(40)
    os.killpg(process.pid, signal.SIGINT)  # the whole group, as a terminal does
    rest, figures = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (first + rest).decode().startswith("## 1. ")
    assert b"tokens/s" in figures
    assert b"Traceback" not in figures


def test_a_reader_that_has_had_enough_ends_the_reply() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "generate", "--backend", "echo", "--option", "rate=max", "--prompt", "x"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1000)
    process.stdout.close()
    figures = process.stderr.read()
    assert process.wait(60) == 0
    assert b"Traceback" not in figures


def test_models_lists_what_is_found_with_reasons(isolated_home: Path) -> None:
    (isolated_home / "models").mkdir()
    (isolated_home / "models" / "broken.gguf").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    (line,) = [line for line in events(ringside("models", "--json").stdout) if line["name"] == "broken.gguf"]
    assert line["backends"]["ring"]["runs"] is False
    assert "git-lfs" in line["backends"]["llamacpp"]["why_not"]
    listed = ringside("models")
    assert "broken.gguf" in listed.stdout
    assert "git-lfs" in listed.stdout
    assert "gemma-3-270m can be fetched with --model gemma-3-270m" in listed.stdout


def test_importing_the_command_line_loads_no_engine_and_no_web_framework() -> None:
    check = "import app.cli, sys; print({'torch', 'gradio', 'fastapi', 'llama_cpp', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_help_names_every_command() -> None:
    done = ringside("--help")
    for command in ("chat", "generate", "models"):
        assert command in done.stdout
