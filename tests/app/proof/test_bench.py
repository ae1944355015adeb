"""The benchmark: fair prompts, one process a contestant, failures listed, and a table made from the results alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.proof import bench_report
from app.proof.bench import Benchmark, Plan, Row, expected_prefill_s, prompt_of, run
from app.proof.contestants import CONTESTANTS, Sample
from tests.backends.tiny_gguf import write_tiny_gguf

SAMPLE = Sample(512, first_token_s=2.0, decode_s=3.0, num_tokens=31, peak_bytes=2**30, final_bytes=2**29)


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("bench") / "tiny.gguf", sliding_window=32)


def test_prompts_begin_alike_are_as_long_as_asked_and_share_no_more_than_that() -> None:
    tokens = [1, *range(100, 5000)]
    prompts = [prompt_of(tokens, 600, turn) for turn in range(4)]
    assert all(len(prompt) == 600 and prompt[0] == 1 for prompt in prompts)
    assert len({prompt[1] for prompt in prompts}) == 4
    assert len(prompt_of([1, 7, 8], 50, 3)) == 50  # a short text is repeated


def test_a_contestant_s_next_prefill_is_expected_from_its_deepest_one() -> None:
    rows = [Row("a", 512, 1, SAMPLE), Row("a", 1024, 1, None, "too slow"), Row("b", 4096, 1, SAMPLE)]
    assert expected_prefill_s(rows, "a", 2048) == 8.0
    assert expected_prefill_s(rows, "c", 2048) is None


def test_real_contestants_are_measured_in_turn_and_a_broken_one_is_listed(tiny_gguf: Path, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp")
    names = ["Ringside llama.cpp", "transformers DynamicCache"]  # the latter finds no weights in its folder
    plan = Plan(tiny_gguf, tmp_path / "nothing", names, (100,), num_rounds=2, num_tokens=4, window=32, num_threads=1)
    benchmark = Benchmark("tiny", 4, {})
    rows = list(run(plan, benchmark))
    assert benchmark.rows == rows
    samples = [row.sample for row in rows if row.contestant == names[0]]
    assert [sample and (sample.num_prompt_tokens, sample.num_tokens) for sample in samples] == [(100, 4), (100, 4)]
    assert all(sample and sample.peak_bytes >= sample.final_bytes > 10_000_000 for sample in samples)
    (broken,) = (row for row in rows if row.contestant == names[1])
    assert broken.sample is None
    assert broken.why_not


def test_a_contestant_whose_prefill_would_take_too_long_sits_out(tiny_gguf: Path, tmp_path: Path) -> None:
    plan = Plan(tiny_gguf, tmp_path, ["slow"], (5120,), limit_s=10.0)
    benchmark = Benchmark("tiny", 4, {}, [Row("slow", 512, 1, SAMPLE)])
    (row,) = run(plan, benchmark)
    assert row.why_not == "reading 5,120 tokens would take about 0 min"


def results() -> dict[str, object]:
    slower = Sample(512, 4.0, 6.0, 31, 2**30, 2**29)
    rows = [Row("ring", 512, 1, SAMPLE), Row("ring", 512, 2, slower), Row("other", 512, 0, None, "no memory")]
    return json.loads(json.dumps(Benchmark("m.gguf", 31, {"cpu": "X"}, rows).results()))  # type: ignore[no-any-return]


def test_the_table_holds_medians_with_quartiles_and_reasons() -> None:
    lines = bench_report.table(results()).splitlines()
    assert lines[2] == (
        "| 512 | ring | 3.00 s (2.50 s to 3.50 s) | 192 (160 to 224) | 7.5 (6.2 to 8.8) | 1.00 GiB | 512 MiB |"
    )
    assert lines[3] == "| 512 | other | no memory | | | | |"
    assert "m.gguf, 31 tokens after each prompt, median and quartiles of 2 rounds" in lines[-1]
    assert "cpu X" in lines[-1]


def test_the_readme_s_table_is_replaced_between_its_marks_and_nowhere_else(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{bench_report.BEGIN_MARK}\nold\n{bench_report.END_MARK}\nafter\n", "utf-8")
    bench_report.update_readme(readme, results())
    bench_report.update_readme(readme, results())  # again: the same
    text = readme.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert text.count("| 512 | ring |") == 1


def test_a_readme_without_marks_is_left_alone_with_a_sentence(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing here\n", "utf-8")
    with pytest.raises(ValueError, match="has no place for the table"):
        bench_report.update_readme(readme, results())
    assert readme.read_text("utf-8") == "nothing here\n"


def test_figures_show_medians_by_depth() -> None:
    speed, memory = bench_report.figures(results())
    assert speed.data[0]["y"] == [7.5]
    assert memory.data[0]["y"] == [1.0]
    assert speed.data[1]["y"] == []


@pytest.mark.browser
def test_figures_are_drawn_as_svg(tmp_path: Path) -> None:
    from app.proof.picture import draw_svg

    first, second = draw_svg(bench_report.figures(results()), tmp_path / "bench.svg")
    assert (first.name, second.name) == ("bench.svg", "bench-2.svg")
    assert first.read_text("utf-8").startswith("<svg")
    assert "Tokens per second by depth" in first.read_text("utf-8")


def test_every_contestant_says_what_it_is() -> None:
    assert all(load.__doc__ for load in CONTESTANTS.values())
    assert len(CONTESTANTS) == 6


def test_the_command_line_of_the_benchmark_explains_itself() -> None:
    from typer import Typer

    from app.proof.bench import main

    cli = Typer()
    cli.command()(main)
    assert "--quick" in CliRunner().invoke(cli, ["--help"], env={"COLUMNS": "200"}).output
