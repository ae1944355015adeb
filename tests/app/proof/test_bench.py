"""The benchmark: fair prompts, one process a contestant, failures listed, and a table made from the results alone."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.proof import bench_report, bench_tables
from app.proof.bench import Benchmark
from app.proof.bench_ratios import ratios
from app.proof.bench_rounds import Plan, Row, expected_prefill_s, prompt_of, run
from app.proof.contestants import CONTESTANTS, Sample
from app.proof.page_cost import PageCost
from app.proof.processes import family
from models.sampler_cost import SamplerCost
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
    pytest.importorskip("sse_starlette")  # what its server needs
    names = [
        "Ringside llama.cpp",
        "transformers DynamicCache",
        "llama-cpp-python server",
    ]  # the second finds no weights
    plan = Plan(tiny_gguf, tmp_path / "nothing", names, (100,), num_rounds=2, num_tokens=4, window=32)
    rows = list(run(plan))
    for name in (names[0], names[2]):
        samples = [row.sample for row in rows if row.contestant == name and row.sample is not None]
        assert [sample.num_prompt_tokens for sample in samples] == [100, 100]
        assert all(3 <= sample.num_tokens <= 5 for sample in samples)  # half characters come with the next
        assert all(sample.peak_bytes >= sample.final_bytes > 10_000_000 for sample in samples)
    (broken,) = (row for row in rows if row.contestant == names[1])
    assert broken.sample is None
    assert broken.why_not
    assert not [each for each in family(os.getpid()) if "llama_cpp.server" in " ".join(each.cmdline())]


def test_a_contestant_that_is_or_would_be_too_slow_sits_out_and_is_listed(tiny_gguf: Path, tmp_path: Path) -> None:
    plan = Plan(tiny_gguf, tmp_path, ["slow"], (5120, 10_240), limit_s=10.0)
    expected, after_that = run(plan, [Row("slow", 512, 1, SAMPLE)])
    assert expected.why_not == after_that.why_not == "over 0 min"
    plan = Plan(tiny_gguf, tmp_path, ["Ringside ring"], (64,), limit_s=0.001)
    (interrupted,) = run(plan)
    assert (interrupted.sample, interrupted.why_not) == (None, "over 0 min")


def benchmark(*rows: Row, **changes: Any) -> Benchmark:
    return Benchmark("m.gguf", 31, {"cpu": "X"}, list(rows), **changes)


def test_what_an_earlier_run_measured_is_taken_over_and_only_from_the_same_machine() -> None:
    earlier = json.loads(json.dumps(benchmark(Row("ring", 512, 1, SAMPLE)).results()))
    later = benchmark()
    later.take_over(earlier)
    assert later.rows == [Row("ring", 512, 1, SAMPLE)]
    assert later.run == 2
    with pytest.raises(ValueError, match="cpu was X and is Y now"):
        Benchmark("m.gguf", 31, {"cpu": "Y"}).take_over(earlier)


def test_ratios_pair_what_one_round_of_one_run_measured() -> None:
    slower = replace(SAMPLE, decode_s=6.0)
    found = ratios(
        [
            Row("Ringside ring", 512, 1, SAMPLE),
            Row("peer", 512, 1, slower),
            Row("Ringside ring", 512, 2, slower),
            Row("peer", 512, 2, slower),
            Row("Ringside ring", 512, 1, SAMPLE, run=2),  # no peer beside it
            Row("peer", 1024, 1, SAMPLE),  # nothing of ours
        ]
    )
    (decode,) = (ratio for ratio in found if ratio["measure"] == "decode_rate")
    assert decode == {
        "ours": "Ringside ring",
        "peer": "peer",
        "depth": 512,
        "measure": "decode_rate",
        "median": 1.5,
        "low": 1.25,
        "high": 1.75,
        "num_rounds": 2,
    }


def results() -> dict[str, Any]:
    slower = replace(SAMPLE, first_token_s=4.0, decode_s=6.0)
    rows = [
        Row("other", 512, 0, None, "other: MemoryError: no memory"),
        Row("peer", 512, 1, slower),
        Row("Ringside ring", 512, 1, SAMPLE),
        Row("Ringside ring", 512, 2, slower),
    ]
    costs = [PageCost("ring", 1500, 1, 30.0, rate, 33.0, 33.0, 0.5, 1.5) for rate in (29.4, 27.0)]
    plain, dear = (SamplerCost(name, s, s, 2 * s, 0.03, 262_144) for name, s in (("temperature", 1e-3), ("XTC", 2e-3)))
    made = benchmark(*rows, page=[asdict(cost) for cost in costs], samplers=[asdict(plain), asdict(dear)])
    return json.loads(json.dumps(made.results()))  # type: ignore[no-any-return]


def test_the_tables_hold_medians_with_quartiles_ours_first_ratios_and_reasons() -> None:
    text = bench_tables.tables(results())
    decode = text.split("\n\n")[0].splitlines()
    assert decode == [
        "| Decode, tokens/s | 512 tokens |",
        "|:---|---:|",
        "| Ringside ring | 7.5 (6.2 to 8.8) |",
        "| other | no memory |",
        "| peer | 5.0 |",
    ]
    assert "| Ringside ring / peer | 2.00 |" in text
    assert "| XTC | 2,000 (2,000 to 4,000) | +1,000 | 6.2% |" in text
    assert "| page over bare | 0.940 (0.920 to 0.960) |" in text
    assert "quartiles of 2 rounds of 1,500 tokens, threads of the model 1; processor time" in text
    assert "m.gguf, 31 tokens after each prompt, median and quartiles of 2 rounds" in text
    assert "cpu X" in text


def test_how_often_each_was_measured_is_told_by_depth_where_it_differs() -> None:
    rows = [Row("peer", 512, turn, SAMPLE) for turn in (1, 2)] + [Row("peer", 32_768, 1, SAMPLE)]
    rows += [Row("other", 512, 1, SAMPLE), Row("other", 512, 2, None, "over 6 min")]
    measured = json.loads(json.dumps(benchmark(*rows).results()))
    assert (
        "quartiles of 2 rounds, 1 at 32,768 tokens, 1 of other at 512 tokens, contestants in turn"
        in bench_tables.tables(measured)
    )


def test_the_readme_s_table_is_replaced_between_its_marks_and_nowhere_else(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{bench_report.BEGIN_MARK}\nold\n{bench_report.END_MARK}\nafter\n", "utf-8")
    bench_report.update_readme(readme, results())
    bench_report.update_readme(readme, results())  # again: the same
    text = readme.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert text.count("| Decode, tokens/s |") == 1


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
    assert speed.data[2]["y"] == [5.0]


@pytest.mark.browser
def test_figures_are_drawn_as_svg(tmp_path: Path) -> None:
    from app.proof.picture import draw_svg

    first, second = draw_svg(bench_report.figures(results()), tmp_path / "bench.svg")
    assert (first.name, second.name) == ("bench.svg", "bench-2.svg")
    assert first.read_text("utf-8").startswith("<svg")
    assert "Tokens per second by depth" in first.read_text("utf-8")


def test_every_contestant_says_what_it_is() -> None:
    assert all(load.__doc__ for load in CONTESTANTS.values())
    assert len(CONTESTANTS) == 8


def test_the_command_line_of_the_benchmark_explains_itself() -> None:
    from typer import Typer

    from app.proof.bench import main

    cli = Typer()
    cli.command()(main)
    assert "--quick" in CliRunner().invoke(cli, ["--help"], env={"COLUMNS": "200"}).output
