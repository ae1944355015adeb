"""Every sampler, on both backends: the same logits give the same tokens, and llama.cpp's own samplers agree."""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.draws import second, uniform
from backends.errors import BadRequestError, RingsideError
from backends.requests import GenerationRequest, Message, Sampling
from backends.token_rules import TokenRules, token_rules

torch = pytest.importorskip("torch")
lib = pytest.importorskip("llama_cpp.llama_cpp")

from backends.llamacpp import filters  # noqa: E402
from backends.llamacpp.sampling import Sampler  # noqa: E402
from models import sampling_filters  # noqa: E402
from models.sampling import INVALID_TOKEN, draw  # noqa: E402
from models.token_sampler import TokenSampler  # noqa: E402

PLAIN = Sampling(temperature=1.0, top_k=None, top_p=1.0)
NUM_TOKENS = 24
CPU = torch.device("cpu")

samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    top_k=st.sampled_from([None, 1, 3, 17, 1000]),
    top_p=st.sampled_from([0.0, 0.5678, 1.0]),
    min_p=st.sampled_from([0.0, 0.0123]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    repetition_window=st.sampled_from([None, 1, 6]),
    presence_penalty=st.sampled_from([0.0, 0.7, -0.4]),
    frequency_penalty=st.sampled_from([0.0, 0.3, -0.2]),
    typical_p=st.sampled_from([0.0, 0.1234, 0.8765, 1.0]),
    top_n_sigma=st.sampled_from([None, 0.0, 1.0, 100.0]),
    xtc_probability=st.sampled_from([0.0, 0.5, 1.0]),
    xtc_threshold=st.sampled_from([0.0, 0.0567, 0.6]),
    dry_multiplier=st.sampled_from([0.0, 0.8, 100.0]),
    dry_base=st.sampled_from([1.0, 1.75, 100.0]),
    dry_allowed_length=st.sampled_from([1, 2]),
    dry_window=st.sampled_from([1, 7, 64, None]),
    mirostat_tau=st.sampled_from([None, None, 0.0, 2.5]),
)


@settings(max_examples=80, deadline=None)  # the first draw sets torch up
@given(
    sampling=samplings,
    seed=st.integers(0, 2**32),
    prompt=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    biases=st.dictionaries(st.integers(0, NUM_TOKENS - 2), st.sampled_from([-math.inf, -1.5, 2.0]), max_size=4),
    breakers=st.sets(st.integers(0, 5), max_size=1),
)
def test_equal_logits_give_equal_tokens_on_both_backends(
    sampling: Sampling, seed: int, prompt: list[int], biases: dict[int, float], breakers: set[int]
) -> None:
    rules = TokenRules(tuple(sorted(biases.items())), tuple(sorted(breakers)))
    on_device = TokenSampler(sampling, rules, NUM_TOKENS, CPU)
    on_device.restart([9] * 70)
    on_device.restart(prompt)
    in_numpy = Sampler(sampling, NUM_TOKENS, prompt, rules)
    random = np.random.default_rng(seed)
    for index in range(12):
        logits = random.normal(0, 2, NUM_TOKENS).astype(np.float32)
        number = uniform(seed, index)
        on_device.prepare(number)
        token = int(on_device.draw(torch.from_numpy(logits.copy()).unsqueeze(0)))
        on_device.note_drawn(token)
        assert token == in_numpy.draw(logits, number)
        assert biases.get(token) != -math.inf
        in_numpy.push(token)


tied_samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 1.0, 2.0]),
    top_k=st.sampled_from([None, 1, 2, 5, 12]),
    top_p=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.5, 1.0]),
    typical_p=st.sampled_from([0.25, 0.5, 1.0]),
    top_n_sigma=st.sampled_from([None, 0.0, 1.0]),
    xtc_probability=st.sampled_from([0.0, 1.0]),
    xtc_threshold=st.sampled_from([0.0, 0.1, 0.25, 0.5]),
    mirostat_tau=st.sampled_from([None, None, 1.0]),
)


@settings(max_examples=150, deadline=None)
@given(
    sampling=tied_samplings,
    levels=st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.0, -math.inf]), min_size=1, max_size=NUM_TOKENS),
    repeats=st.integers(1, 40),
    number=st.floats(0, 1, exclude_max=True),
)
def test_equal_logits_of_several_tokens_give_the_same_token_on_both_backends(
    sampling: Sampling, levels: list[float], repeats: int, number: float
) -> None:
    logits = np.tile(np.array([*levels, 0.0], np.float32), repeats)
    on_device = TokenSampler(sampling, TokenRules(), len(logits), CPU)
    on_device.restart([0])
    on_device.prepare(number)
    token = int(on_device.draw(torch.from_numpy(logits.copy()).unsqueeze(0)))
    assert token == Sampler(sampling, len(logits)).draw(logits.copy(), number)


@pytest.mark.parametrize("num_rows", [1, 2], ids=["alone", "as a graph would"])
@pytest.mark.parametrize("count", [1, 2, 3, 50, 1000])
def test_of_equal_logits_those_with_the_lowest_ids_are_kept(count: int, num_rows: int) -> None:
    logits = np.random.default_rng(1).integers(0, 3, 2000).astype(np.float32)
    expected = np.sort(np.lexsort((np.arange(2000), -logits))[:count])
    ids, _ = filters.top_k(np.arange(2000, dtype=np.int32), logits, count)
    assert ids.tolist() == expected.tolist()
    rows = torch.from_numpy(logits).expand(num_rows, -1)
    for row in sampling_filters.keep_top_k(rows, count):
        assert (row != -math.inf).nonzero().flatten().tolist() == expected.tolist()
    greedy = Sampling(temperature=0)
    assert draw(rows, greedy).tolist() == [logits.argmax()] * num_rows
    assert Sampler(greedy, 2000).draw(logits.copy(), 0.0) == logits.argmax()


@pytest.mark.parametrize(
    ("make", "ours", "on_device"),
    [
        (
            lambda: lib.llama_sampler_init_top_k(23),
            lambda ids, logits: filters.top_k(ids, logits, 23),
            lambda logits: sampling_filters.keep_top_k(logits, 23),
        ),
        (
            lambda: lib.llama_sampler_init_top_p(0.83, 1),
            lambda ids, logits: filters.top_p(ids, logits, 0.83),
            None,
        ),
        (
            lambda: lib.llama_sampler_init_min_p(0.07, 1),
            lambda ids, logits: filters.min_p(ids, logits, 0.07),
            None,
        ),
        (
            lambda: lib.llama_sampler_init_typical(0.71, 1),
            lambda ids, scores: filters.typical(ids, scores, 0.71),
            lambda logits: sampling_filters.keep_typical(logits, 0.71),
        ),
        (
            lambda: lib.llama_sampler_init_top_n_sigma(1.3),
            lambda ids, scores: filters.top_sigma(ids, scores, 1.3),
            lambda logits: sampling_filters.keep_top_sigma(logits, 1.3),
        ),
        (
            lambda: lib.llama_sampler_init_xtc(1.0, 0.05, 1, 1),
            lambda ids, scores: filters.exclude_top_choices(ids, scores, 0.05),
            lambda logits: sampling_filters.exclude_top_choices(logits.double(), 1.0, 0.05, 0.5),
        ),
    ],
    ids=["top-k", "top-p", "min-p", "typical-p", "top-n-sigma", "xtc"],
)
def test_filters_keep_what_the_samplers_of_llama_cpp_keep(
    make: Callable[[], Any], ours: Callable[..., Any], on_device: Callable[..., Any] | None
) -> None:
    for seed in range(20):
        logits = np.random.default_rng(seed).normal(0, 2, 200).astype(np.float32)
        theirs = set(applied(make(), logits))
        ids, _ = ours(np.arange(200, dtype=np.int32), logits.astype(np.float64))
        assert set(ids.tolist()) == theirs
        if on_device is None:  # not a function of its own there; the draws are compared above
            continue
        assert set((on_device(torch.from_numpy(logits)) != -math.inf).nonzero().flatten().tolist()) == theirs


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    window=st.sampled_from([1, 5, 64]),
    base=st.sampled_from([1.0, 1.75, 4.0]),
)
def test_penalties_are_those_of_llama_cpp(tokens: list[int], window: int, base: float) -> None:
    sampling = replace(
        PLAIN,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        repetition_window=window,
        dry_multiplier=0.8,
        dry_base=base,
        dry_window=window,
        dry_breakers=(),
    )
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_penalties(6, window, 1.2, 0.25, 0.5))
    lib.llama_sampler_chain_add(chain, lib.llama_sampler_init_dry(None, 0.8, base, 2, window, None, 0))
    logits = np.linspace(-1, 2, 6).astype(np.float32)
    expected = logits.copy()
    for token, logit in applied(chain, logits, tokens).items():
        expected[token] = logit
    sampler = Sampler(sampling, 6, tokens)
    sampler.draw(logits, 0.5)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


def test_xtc_leaves_the_least_likely_of_the_top_choices_as_often_as_it_is_told() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().expand(4000, 4)
    numbers = [uniform(1, index) for index in range(4000)]
    chances = torch.tensor([second(number) for number in numbers], dtype=torch.float64)
    sampling = replace(PLAIN, xtc_probability=0.25, xtc_threshold=0.1)
    tokens = draw(logits, sampling, torch.tensor(numbers, dtype=torch.float64), chance_B=chances)
    counts = Counter(tokens.tolist())
    assert counts[0] / 4000 == pytest.approx(0.75 * 0.5, abs=0.03)
    assert counts[2] / 4000 == pytest.approx(0.75 * 0.15 + 0.25 * 0.75, abs=0.03)


@pytest.mark.parametrize("tau", [1.0, 2.0, 3.0])
def test_mirostat_holds_the_average_surprise_at_tau(tau: float) -> None:
    """Over Zipf's law, whose entropy of 6.1 bits is above every tau asked for."""
    logits = -np.log(np.arange(1, 301)).astype(np.float32)
    sampler = Sampler(replace(PLAIN, mirostat_tau=tau, mirostat_eta=0.1), 300)
    limits = []
    for index in range(600):
        sampler.draw(logits.copy(), uniform(5, index))
        limits.append(sampler._most_bits)
    log_p = filters.log_softmax(logits.astype(np.float64))
    learnt = float(np.mean(limits[300:]))  # type: ignore[arg-type]
    _, kept = filters.within_surprise(np.arange(300, dtype=np.int32), log_p, learnt)
    kept_log_p = filters.log_softmax(kept)
    assert -(np.exp(kept_log_p) * kept_log_p).sum() / math.log(2) == pytest.approx(tau, abs=0.4)


def test_mirostat_begins_anew_with_each_reply() -> None:
    sampler = TokenSampler(replace(PLAIN, mirostat_tau=1.0), TokenRules(), 50, CPU)
    logits_BV = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))

    def reply() -> list[int]:
        sampler.restart([1])
        tokens = []
        for index in range(10):
            sampler.prepare(uniform(7, index))
            tokens.append(int(sampler.draw(logits_BV)))
            sampler.note_drawn(tokens[-1])
        return tokens

    assert reply() == reply()


def test_histories_stay_where_they_are_and_do_not_grow() -> None:
    sampling = replace(PLAIN, frequency_penalty=0.1, dry_multiplier=1.0, dry_window=8, repetition_window=4)
    sampler = TokenSampler(sampling, TokenRules(breakers=(1,)), 10, CPU)
    sampler.restart([1, 2])

    def storage() -> list[tuple[int, int]]:
        assert sampler._repeats is not None
        tensors = [value for history in sampler._histories for value in vars(history).values()]
        tensors.append(sampler._repeats._penalty_V)
        return [(each.data_ptr(), each.nbytes) for each in tensors if isinstance(each, torch.Tensor)]

    before = storage()
    for index in range(30):
        sampler.prepare(uniform(0, index))
        sampler.note_drawn(int(sampler.draw(torch.zeros(1, 10))))
    assert storage() == before


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(
    "changes",
    [
        {"typical_p": 0.5},
        {"top_n_sigma": 1.0},
        {"xtc_probability": 1.0},
        {"mirostat_tau": 2.0},
        {"dry_multiplier": 1.0, "frequency_penalty": 1.0},
        {"temperature": 5e-324, "mirostat_tau": 2.0},
    ],
    ids=str,
)
def test_logits_that_are_not_numbers_are_reported_whatever_is_on(bad: float, changes: dict[str, Any]) -> None:
    sampling = replace(PLAIN, **changes)
    on_device = TokenSampler(sampling, TokenRules(), 5, CPU)
    on_device.restart([0, 1, 0])
    on_device.prepare(0.5)
    assert int(on_device.draw(torch.tensor([[0.0, 1.0, bad, 2.0, -math.inf]]))) == INVALID_TOKEN
    in_numpy = Sampler(sampling, 5, [0, 1, 0])
    with pytest.raises(RingsideError, match="not a number"):
        in_numpy.draw(np.array([0.0, 1.0, bad, 2.0, -math.inf], np.float32), 0.5)


def test_only_allowed_tokens_are_drawn() -> None:
    allowed = np.array([False, False, True, False, True])
    on_device = TokenSampler(PLAIN, TokenRules(), 7, CPU, constrained=True)
    in_numpy = Sampler(PLAIN, 7)
    on_device.restart([0])
    for index in range(20):
        on_device.prepare(uniform(0, index))
        on_device.allow(torch.from_numpy(allowed))
        token = int(on_device.draw(torch.ones(1, 7)))
        assert token in (2, 4)
        assert in_numpy.draw(np.ones(7, np.float32), uniform(0, index), allowed) == token


def test_token_rules_find_ids_and_texts_and_refuse_what_the_model_lacks() -> None:
    pieces = [b"a", b"b", b"a\n", b"c"]
    sampling = Sampling(logit_bias=((1, 0.5), ("ab", 1.0), (3, -math.inf)), dry_multiplier=1.0)

    def encode(text: str) -> list[int]:
        return [pieces.index(letter.encode()) for letter in text]

    rules = token_rules(sampling, encode, pieces.__getitem__, 4, banned=[0])
    assert rules == TokenRules(((0, -math.inf), (1, 1.5), (3, -math.inf)), (2,))
    known: dict[tuple[str, ...], tuple[int, ...]] = {}
    token_rules(sampling, encode, pieces.__getitem__, 4, known_breakers=known)
    found = known[sampling.dry_breakers]
    assert token_rules(sampling, encode, lambda token: b"", 4, known_breakers=known).breakers is found
    with pytest.raises(BadRequestError, match="names token 9, and this model's tokens end at 3"):
        token_rules(Sampling(logit_bias=((9, 1.0),)), encode, pieces.__getitem__, 4)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("presence_penalty", math.nan, "presence penalty of nan is outside -100 to 100"),
        ("typical_p", 1.5, "typical-p of 1.5 is outside 0 to 1"),
        ("top_n_sigma", -1, "top-n-sigma of -1 is outside 0 to 100"),
        ("xtc_probability", math.nan, "xtc probability of nan is outside 0 to 1"),
        ("dry_base", 0.5, "dry base of 0.5 is outside 1 to 100"),
        ("dry_window", 0, "DRY window of 0 is below 1; leave it empty for no limit"),
        ("mirostat_tau", math.inf, "mirostat tau of inf is outside 0 to 100"),
        ("logit_bias", ((1, math.nan),), "logit bias of 1 of nan is outside -1000 to 1000"),
        ("logit_bias", (("a", math.inf),), "logit bias of 'a' of inf is outside -1000 to 1000"),
        ("logit_bias", ((-1, 1.0),), "logit bias names token -1; give an id of 0 or more, or a text"),
        ("dry_breakers", ("",), "a DRY breaker is empty; give at least one character"),
    ],
)
def test_values_outside_their_range_are_refused_by_name(name: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**{name: value})  # type: ignore[arg-type]


def test_a_schema_and_a_grammar_together_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot follow both"):
        GenerationRequest((Message("user", "x"),), json_schema="{}", grammar="start: /a/")


def applied(sampler: Any, logits: npt.NDArray[np.float32], accepted: list[int] | None = None) -> dict[int, float]:
    """Return id -> logit of what a sampler of llama.cpp leaves with a probability above 0, and free it."""
    for token in accepted or ():
        lib.llama_sampler_accept(sampler, token)
    data = (lib.llama_token_data * len(logits))(*((token, logit, 0.0) for token, logit in enumerate(logits.tolist())))
    array = lib.llama_token_data_array(data=data, size=len(logits), selected=-1, sorted=False)
    lib.llama_sampler_apply(sampler, ctypes.byref(array))
    left = {array.data[place].id: array.data[place].logit for place in range(array.size)}
    lib.llama_sampler_free(sampler)
    return {token: logit for token, logit in left.items() if logit != -math.inf}
