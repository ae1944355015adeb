"""From evidence to verdicts: pure functions, one a check. Gathering the evidence is `app.proof.doctor`'s."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from app.proof.curves import bytes_slope, past, rate_curve, speed_at
from app.proof.measurement import Measurement
from app.proof.pace import judge_pace
from app.proof.quantities import bytes_text, seconds_text
from app.proof.slopes import Mean, Slope, mean_of
from app.proof.verdicts import REMEDIES, Verdict
from backends.contract import LoadedModel
from backends.requests import CachePolicy, LoadRequest
from models.backend_support import slides_in_llamacpp
from models.config import ModelConfig
from models.findings import Finding

_UNNOTICED_NATS = 0.05
_LOOPING_SHARE = 0.5
_REPEATED_TOKENS = 8
_LEAST_RUN_S = 2.0


def judge_sliding(config: ModelConfig | None, load: LoadRequest, run: Measurement | None = None) -> Verdict:
    """Read the layers' windows, and whether the backend honours them; of an unknown config, what a run told."""
    if config is None:
        return _judge_unknown(load, None if run is None else run.model)
    windows = [layer.trained_window for layer in config.layers]
    listed = ", ".join("full" if window is None else f"{window:,}" for window in windows)
    evidence = (
        f"{config.architecture}: {config.num_sliding_layers} of {len(windows)} layers slide, {config.num_full_layers} "
        "were trained on everything.",
        f"Windows by layer: {listed}.",
        f"Context trained for: {config.context_tokens:,} tokens." if config.context_tokens else "No context is named.",
    )
    if not config.num_sliding_layers:
        return Verdict(
            "slides",
            "bad",
            "No layer was trained with a window: bounding them is an approximation.",
            evidence,
            "Choose a sliding-window model (Gemma 3, gpt-oss, Mistral 7B v0.1), or the policy 'full'.",
        )
    if load.backend == "llamacpp" and not slides_in_llamacpp(config.architecture, len(windows)):
        return Verdict(
            "slides",
            "bad",
            f"llama.cpp runs every layer of {config.architecture} with full attention, whatever the file says.",
            evidence,
            "Use the ring backend, which honours the windows.",
        )
    if config.num_full_layers and load.policy is CachePolicy.RING:
        return Verdict(
            "slides",
            "good",
            f"The sliding layers are exact; the {config.num_full_layers} full ones are bounded, which is approximate.",
            evidence,
            "Where old text must be quoted, use the policy 'as trained'.",
        )
    return Verdict("slides", "good", "The model slides, and the backend honours it.", evidence)


def _judge_unknown(load: LoadRequest, model: LoadedModel | None) -> Verdict:
    """Judge by what the backend says of an architecture whose config is not known here."""
    if model is None:
        words = "The architecture is known to the backend alone, and nothing was run to ask it."
        return Verdict("slides", "unsure", words, (), "Run the doctor with more tokens.")
    num_layers = model.num_sliding_layers + model.num_full_layers
    trained = f", window {model.trained_window:,}" if model.trained_window else ""
    slide = f"{model.architecture}: {model.num_sliding_layers} of {num_layers} layers slide{trained}."
    evidence = (slide, *model.notices)
    if not model.num_sliding_layers:
        words = "No layer was trained with a window, and this way of running it bounds none."
        return Verdict("slides", "bad", words, evidence, "Choose a sliding-window model.")
    if model.num_full_layers and load.policy is CachePolicy.RING:
        words = f"The sliding layers are rings; the {model.num_full_layers} full ones keep everything here."
        return Verdict("slides", "unsure", words, evidence, "For flat memory choose a model whose layers all slide.")
    return Verdict("slides", "good", "The model slides, and the backend honours it.", evidence)


def judge_bounds(load: LoadRequest, findings: Sequence[Finding], run: Measurement | None, settled: int) -> Verdict:
    """Look at the probes of the cache and at the memory of a real run."""
    probes = [finding for finding in findings if finding.topic == "bounded"]
    evidence = [finding.evidence for finding in probes]
    kv = process = None
    if run is not None and _lasts(run, settled):
        kv, process = bytes_slope(run, "kv_held_bytes", settled), bytes_slope(run, "process_bytes", settled)
        evidence += _bytes_by_length(run, settled)
        evidence += [f"Keys and values grow by {_slope(kv)}, the process by {_slope(process)}, past a full window."]
    faults = [finding.fault for finding in probes if finding.fault]
    if faults:
        return Verdict(
            "bounded",
            "bad",
            f"No: {_joined(faults)}.",
            tuple(evidence),
            " ".join(REMEDIES[f] for f in faults),
        )
    in_force = run.model.policy if run is not None and run.model is not None else load.policy
    if load.policy is CachePolicy.RING and in_force is not load.policy:
        return Verdict(
            "bounded",
            "bad",
            f"Not all of it: '{load.policy.value}' was asked for, and this way of running it keeps '{in_force.value}'.",
            tuple(evidence),
            "For flat memory choose a model whose layers all slide, or one that Ringside's own decoder runs.",
        )
    if load.policy is not CachePolicy.RING:
        return Verdict(
            "bounded",
            "good",
            f"No, and by choice: the policy '{load.policy.value}' keeps what grows.",
            tuple(evidence),
            "Use the policy 'ring' for flat memory.",
        )
    if not evidence:
        return Verdict("bounded", "unsure", "Nothing was measured.", (), "Run the doctor with more tokens.")
    if kv is not None and not _is_still(kv, run):
        return Verdict(
            "bounded", "bad", "Keys and values still grow past a full window.", tuple(evidence), "Please report this."
        )
    return Verdict("bounded", "good", "Keys and values stay at the size of the window.", tuple(evidence))


def judge_exactness(findings: Sequence[Finding], is_looked_into: bool = True) -> Verdict:
    """Look at the probes of mask and positions, made inside the cache or, on the model itself, from outside."""
    probes = [finding for finding in findings if finding.topic == "exact"]
    evidence = tuple(finding.evidence for finding in probes)
    faults = [finding.fault for finding in probes if finding.fault]
    if faults:
        return Verdict(
            "exact", "bad", f"No: {_joined(faults)}.", evidence, " ".join(REMEDIES[fault] for fault in faults)
        )
    if not probes:
        return Verdict("exact", "unsure", "Nothing was probed.")
    if not is_looked_into:
        words = "Every way to the same tokens leads to the same prediction, at any length that was tried."
        return Verdict("exact", "good", words, ("Probed on the model itself, from outside.", *evidence))
    evidence = ("Probed on the model's own heads, windows and rotary settings, scaled down in proportion.", *evidence)
    return Verdict("exact", "good", "Each token sees exactly its window, at the right distances.", evidence)


def judge_speed(
    run: Measurement | None,
    settled: int,
    parts: Mapping[str, float] | None,
    bandwidth: float | None,
    control: Measurement | None = None,
    drawing_s: float | None = None,
) -> Verdict:
    """Look at the time of a token by depth, where it goes, and what bounds it; `control` as in `app.proof.pace`."""
    _, rates = rate_curve(run.points) if run is not None else ([], [])
    if run is None or not rates:
        why = run.error if run is not None and run.error else "Nothing was measured."
        return Verdict("flat", "unsure", why, (), "Run the doctor with more tokens.")
    typical_s = 1 / sorted(rates)[len(rates) // 2]
    evidence = [f"A token takes {seconds_text(typical_s)} (median)."]
    for depth in (256, 512, 1024, 2048, 4096, 8192, 16_384):
        if rate := speed_at(run, depth):
            evidence.append(f"At {depth:,} tokens: {rate:.1f} tokens/s.")
    if parts:
        total_s = sum(parts.values())
        shares = sorted(parts.items(), key=lambda item: -item[1])
        evidence.append("Of a token's time: " + ", ".join(f"{name} {s / total_s:.0%}" for name, s in shares) + ".")
    if drawing_s is not None:
        evidence.append(
            f"Making HTML of it for the page takes the application {seconds_text(drawing_s)} a token: "
            f"{drawing_s / typical_s:.1%} of that time."
        )
    if bandwidth and run.model and run.model.weights_bytes and run.model.device == "cpu":
        floor_s = run.model.weights_bytes / bandwidth
        evidence.append(
            f"Reading {bytes_text(run.model.weights_bytes)} of weights at {bandwidth / 1e9:.1f} GB/s takes at least "
            f"{seconds_text(floor_s)}: {floor_s / typical_s:.0%} of a token's time."
        )
    return judge_pace(run, settled, control, tuple(evidence))


def judge_text(
    load: LoadRequest, losses: Mapping[str, Sequence[float]], settled: int, written: Sequence[int]
) -> Verdict:
    """Compare losses past a full window with those of a cache that keeps everything, and look for loops.

    Args:
        losses: by variant: "configured", "full" and, where it was tried, "as trained" and "with sinks".
        written: token ids of the run's reply.
    """
    past = {name: list(values[settled:]) for name, values in losses.items()}
    looping = repeated_share(written)
    evidence = [
        f"{name}: {fmean(values):.3f} nats a token past {settled:,} tokens." for name, values in past.items() if values
    ]
    if len(written) >= 4 * _REPEATED_TOKENS:
        evidence.append(
            f"{looping:.0%} of the last half of the reply repeats runs of {_REPEATED_TOKENS} earlier tokens."
        )
    if not past.get("configured") or not past.get("full"):
        return Verdict(
            "sound", "unsure", "Nothing was scored past a full window.", tuple(evidence), "Score more tokens."
        )
    gap = _paired(past["configured"], past["full"])
    evidence.append(f"Against a cache that keeps everything: {_gap(gap)}.")
    if gap is not None and gap.low > _UNNOTICED_NATS:
        return _explain(load, past, tuple(evidence))
    if looping > _LOOPING_SHARE:
        return Verdict(
            "sound",
            "bad",
            "The model still predicts real text, so the loop in its reply comes from sampling.",
            tuple(evidence),
            "Raise the temperature, or set a repetition penalty above 1.",
        )
    if gap is None or gap.high > 2 * _UNNOTICED_NATS:
        return Verdict("sound", "unsure", "No loss is seen, but too little was scored to be sure.", tuple(evidence))
    return Verdict(
        "sound", "good", "Yes: past the window text is predicted as well as with everything kept.", tuple(evidence)
    )


def is_worse(losses: Mapping[str, Sequence[float]], settled: int) -> bool:
    """Whether the configured cache predicts noticeably worse than a full one, past a full window."""
    gap = _paired(losses["configured"][settled:], losses["full"][settled:])
    return gap is not None and gap.low > _UNNOTICED_NATS


def repeated_share(tokens: Sequence[int]) -> float:
    """Return the share of the last half that stands in runs of 8 tokens which occurred before, 0 to 1."""
    half, size = len(tokens) // 2, _REPEATED_TOKENS
    runs = [tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)]
    last = range(half, len(runs))
    if not last:
        return 0.0
    first_at: dict[tuple[int, ...], int] = {}
    for start, run in enumerate(runs):
        first_at.setdefault(run, start)
    return sum(first_at[runs[start]] < start for start in last) / len(last)


def _explain(load: LoadRequest, past: Mapping[str, Sequence[float]], evidence: tuple[str, ...]) -> Verdict:
    """Name what restores the loss: sinks, or the full layers' window; else positions."""
    base, lost = fmean(past["configured"]), fmean(past["configured"]) - fmean(past["full"])

    def restored(name: str) -> float:
        return (base - fmean(past[name])) / lost if past.get(name) else 0.0

    if restored("with sinks") > 0.5:
        cause, remedy = "the first tokens are gone from the full layers", "Set sinks to 4."
    elif restored("as trained") > 0.5:
        cause = f"the full layers see only {load.window:,} tokens"
        remedy = "Raise the window, or use the policy 'as trained'."
    else:
        cause, remedy = "neither sinks nor the full layers explain it: look at the positions", "Please report this."
    return Verdict("sound", "bad", f"No: {cause}.", evidence, remedy)


def _paired(configured: Sequence[float], full: Sequence[float]) -> Mean | None:
    """Return the mean difference over the same tokens."""
    return mean_of([one - other for one, other in zip(configured, full, strict=False)])


def _gap(gap: Mean | None) -> str:
    return "too few tokens" if gap is None else f"{gap.value:+.3f} nats ({gap.low:+.3f} to {gap.high:+.3f})"


def _slope(slope: Slope | None) -> str:
    if slope is None:
        return "an unknown number of bytes a token"
    value, low, high = map(round, (slope.value, slope.low, slope.high))  # whole numbers have no "-0"
    return f"{value:,} ({low:,} to {high:,}) bytes a token"


def _is_still(slope: Slope, run: Measurement | None) -> bool:
    """Whether growth is none, or below a hundredth of what a cache that keeps everything grows by."""
    full = run.model.kv_bytes_per_token_full if run is not None and run.model is not None else 0
    return slope.is_flat or abs(slope.value) < 0.01 * full


def _lasts(run: Measurement, settled: int) -> bool:
    """Whether enough lies past a full window for memory, which is sampled a few times a second, to be judged."""
    points = past(run, settled)
    return len(points) > 8 and points[-1].time_s - points[0].time_s >= _LEAST_RUN_S


def _bytes_by_length(run: Measurement, window: int) -> list[str]:
    seen = []
    for factor in (1, 2, 10):
        point = next((p for p in run.points if (p.position_tokens or 0) >= factor * window), None)
        if point is not None and point.kv_held_bytes is not None:
            seen.append(f"{bytes_text(point.kv_held_bytes)} at {point.position_tokens:,} tokens")
    return [f"Keys and values held in the run: {', '.join(seen)}."] if seen else []


def _joined(faults: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(faults))
