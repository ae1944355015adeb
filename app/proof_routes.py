"""Routes of the proof: the pages Compare and Doctor, and what they ask for under /app/measurements."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field

from app.outlook import model_choices
from app.page_data import Json
from app.proof.background import Seen
from app.proof.report import Figure
from app.proof.verdicts import Symptom
from app.request_values import CleanText, Number
from app.service import Service
from app.settings import worker_log_path
from app.ui import proof_markup
from backends.errors import BadRequestError
from backends.registry import BACKENDS, BackendEntry
from backends.requests import CachePolicy, KVType, LoadRequest

MAX_POINTS_SHOWN = 300
"""Points a line of a live chart; the report that is downloaded has all."""


class Run(BaseModel):
    """One configuration."""

    backend: CleanText
    policy: CachePolicy = CachePolicy.RING
    window: Number = Field(512, ge=1)
    sinks: Number = Field(4, ge=0)
    kv_type: KVType = "auto"


class Comparison(BaseModel):
    """What to compare."""

    model: CleanText
    runs: list[Run]
    prompt: CleanText = ""
    seed: Number = Field(0, ge=0)
    temperature: float = Field(0.8, ge=0)
    tokens: Number = Field(2000, ge=1)
    reference_tokens: Number = Field(0, ge=0)
    unload: bool = False


class Visit(BaseModel):
    """What the doctor is to look at."""

    model: CleanText
    run: Run
    symptom: Symptom | None = None
    tokens: Number = Field(1600, ge=0)
    reference_tokens: Number = Field(1600, ge=0)
    unload: bool = False


class Experiment(BaseModel):
    """The minimal experiment needs no choices."""

    unload: bool = False


def proof_pages() -> APIRouter:
    """Return the two pages, documents of their own: they need nothing of Gradio."""
    router = APIRouter()

    @router.get("/compare", response_class=HTMLResponse)
    def compare() -> str:
        return proof_markup.COMPARE

    @router.get("/doctor", response_class=HTMLResponse)
    def doctor() -> str:
        return proof_markup.DOCTOR

    return router


def proof_routes(service: Service) -> APIRouter:
    """Return what the pages ask for."""
    router = APIRouter(prefix="/measurements")
    router.include_router(_starting(service))
    measurements = service.measurements

    @router.get("")
    def overview() -> Json:
        return {
            "engine": service.status().state,
            "running": measurements.running(),
            "kept": [seen_data(seen) for seen in measurements.kept()],
        }

    @router.post("/stop")
    def stop() -> Json:
        measurements.stop()
        return {}

    @router.get("/{name}")
    def seen(name: CleanText, version: Number | None = None) -> Json:
        """Return a measurement; without figures and tables where the page has this version already."""
        found = measurements.seen(name)
        return seen_data(found) if found.version == version else {**seen_data(found), **shown_data(found)}

    @router.get("/{name}/report.html")
    def html(name: CleanText) -> Response:
        return _download(measurements.html(name), f"ringside-{name}.html", "text/html")

    @router.get("/{name}/results.json")
    def results(name: CleanText) -> Response:
        return _download(measurements.results(name), f"ringside-{name}.json", "application/json")

    @router.delete("/{name}")
    def delete(name: CleanText) -> Json:
        measurements.delete(name)
        return {}

    return router


def _starting(service: Service) -> APIRouter:
    router = APIRouter()
    measurements, data_folder = service.measurements, service.application.data_folder

    @router.get("/choices")
    def choices() -> Json:
        return choices_data(service)

    @router.post("/compare")
    def compare(wanted: Comparison) -> Json:
        from app.proof.compare import DEFAULT_PROMPT
        from app.proof.compare import Experiment as Fixed
        from app.proof.configurations import parse_configurations
        from app.proof.scoring import reference_text
        from app.proof.work import Comparing

        base = _base(service, wanted.model, wanted.runs[0].backend if wanted.runs else "")
        runs = parse_configurations([_spec(run) for run in wanted.runs] or ["policy=ring"], base)
        runs = [replace(each, load=_fitting(each.load, base)) for each in runs]
        text = reference_text() if wanted.reference_tokens else None
        prompt = wanted.prompt.strip() or DEFAULT_PROMPT
        fixed = Fixed(prompt, wanted.tokens, wanted.seed, wanted.temperature, text, wanted.reference_tokens)
        work = Comparing(runs, fixed, data_folder, worker_log_path())
        return seen_data(measurements.start("compare", work, wanted.unload))

    @router.post("/doctor")
    def doctor(wanted: Visit) -> Json:
        from app.proof.scoring import reference_text
        from app.proof.work import examining

        run = wanted.run
        if run.backend == "echo":
            raise BadRequestError("The echo backend has no model to look into.", "Choose ring or llama.cpp.")
        load = replace(
            _base(service, wanted.model, run.backend),
            backend=run.backend,
            policy=run.policy,
            window=run.window,
            sinks=run.sinks,
            kv_type=run.kv_type,
        )
        text = reference_text() if wanted.reference_tokens else None
        work = examining(
            load,
            data_folder,
            wanted.symptom,
            num_tokens=wanted.tokens,
            reference=text,
            reference_tokens=wanted.reference_tokens,
            log_path=worker_log_path(),
        )
        return seen_data(measurements.start("doctor", work, wanted.unload))

    @router.post("/experiment")
    def experiment(wanted: Experiment) -> Json:
        from app.proof.work import Experimenting

        return seen_data(measurements.start("experiment", Experimenting(), wanted.unload))

    return router


def choices_data(service: Service) -> Json:
    """Return what the forms offer, and what they begin with: the settings of a new chat."""
    application, load = service.application, service.settings().load
    models = model_choices(application.data_folder, application.model_folders)
    return {
        "models": [dataclasses.asdict(choice) for choice in models],
        "backends": [
            {"name": name, "title": entry.title, "problem": _missing(entry)} for name, entry in BACKENDS.items()
        ],
        "chosen": {
            "model": load.model,
            "backend": load.backend,
            "policy": load.policy.value,
            "window": load.window,
            "sinks": 4 if load.sinks is None else load.sinks,
            "kv_type": load.kv_type,
        },
    }


def seen_data(seen: Seen) -> Json:
    """Return where a measurement is, without what it found."""
    return {
        "name": seen.name,
        "kind": seen.kind,
        "title": seen.title,
        "started_at_s": seen.started_at_s,
        "status": seen.status,
        "stage": dataclasses.asdict(seen.stage),
        "error": seen.error,
        "hint": seen.hint,
        "version": seen.version,
    }


def shown_data(seen: Seen) -> Json:
    """Return what a measurement has found so far, its figures thinned."""
    report = seen.report
    if report is None:
        return {"sentences": [], "figures": [], "tables": [], "verdicts": list(seen.verdicts)}
    return {
        "sentences": list(report.sentences),
        "figures": [_figure_data(figure) for figure in report.figures],
        "tables": [dataclasses.asdict(table) for table in report.tables],
        "verdicts": list(seen.verdicts),
    }


def _missing(entry: BackendEntry) -> str:
    missing = entry.missing_libraries()
    return f"{entry.title} needs {', '.join(missing)}. Run: {entry.install_command}" if missing else ""


def _figure_data(figure: Figure) -> Json:
    return {**dataclasses.asdict(figure), "data": [_thinned(trace) for trace in figure.data]}


def _thinned(trace: Mapping[str, Any]) -> Json:
    stride = -(-len(trace["x"]) // MAX_POINTS_SHOWN)
    if stride <= 1:
        return dict(trace)
    return {**trace, "x": trace["x"][::-stride][::-1], "y": trace["y"][::-stride][::-1]}  # the newest stays


def _base(service: Service, model: str, backend: str) -> LoadRequest:
    """Return the request that runs change: device and threads as a new chat would have them."""
    load = service.settings().load
    options = load.options if backend == load.backend else {}
    if backend != "echo" and not model.strip():
        raise BadRequestError("No model is chosen.", "Choose one from the list.")
    return replace(load, model=model.strip(), options=options)


def _spec(run: Run) -> str:
    """Write a run as the command line does."""
    named = run.model_dump(mode="json")
    return ",".join(f"{name}={value}" for name, value in named.items())


def _fitting(load: LoadRequest, base: LoadRequest) -> LoadRequest:
    """Leave out what belongs to another backend."""
    return load if load.backend == base.backend or not base.options else replace(load, options={})


def _download(content: str, file_name: str, media_type: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{file_name}"'}
    return Response(content, media_type=f"{media_type}; charset=utf-8", headers=headers)
