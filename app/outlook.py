"""What a person should know before a model is loaded: which models there are, what one will take, how to begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.chat_settings import ChatSettings
from app.local_models import estimate_load, local_models
from app.openings import Opening, openings_for
from backends.errors import BadRequestError, ModelFileError, RingsideError
from backends.registry import BACKENDS
from backends.requests import LoadRequest, Message
from models.catalog import ModelEntry
from models.chat_template import ChatTemplate, find_templates
from models.demo import DEMOS, Demo
from models.hub import HubId
from models.model_files import ModelFiles
from models.sizing import Estimate

_ECHO_NOTE = "The echo backend writes a fixed text without any model, for trying out the page."


@dataclass(frozen=True)
class ModelChoice:
    """A line of the model list: what to show, and what `LoadRequest.model` becomes."""

    label: str
    model: str


@dataclass(frozen=True)
class Outlook:
    """What is known about the settings before anything is loaded.

    Attributes:
        name: of the model.
        estimate: None where there is nothing to weigh: echo, a model still to be fetched, a file at fault.
        continues_text: a base model goes on with the text instead of answering it.
        openings: fitting first messages.
        notes: sentences, the most important first.
        templates: names of the model's chat templates.
        problem, hint: why it will not load, and the way out; empty if nothing speaks against it.
    """

    name: str
    openings: tuple[Opening, ...]
    estimate: Estimate | None = None
    continues_text: bool = False
    notes: tuple[str, ...] = ()
    problem: str = ""
    hint: str = ""
    templates: tuple[str, ...] = ()


def model_choices(data_folder: Path, model_folders: Sequence[Path]) -> list[ModelChoice]:
    """Return the demo models and every usable model found, each once; a second where there are many."""
    choices = [ModelChoice(_demo_label(demo, data_folder), demo.name) for demo in DEMOS.values()]
    demo_paths = {demo.path(data_folder) for demo in DEMOS.values()}
    choices.extend(
        ModelChoice(_label(entry), str(entry.path))
        for entry in local_models(data_folder, model_folders)
        if not entry.problem and entry.path not in demo_paths
    )
    return choices


def outlook(settings: ChatSettings, data_folder: Path) -> Outlook:
    """Return what can be said about the settings now; reads file headers only."""
    request = settings.load
    entry = BACKENDS[request.backend]
    problem, hint = "", ""
    if missing := entry.missing_libraries():
        problem, hint = f"{entry.title} needs {', '.join(missing)}, which is not installed.", entry.install_command
    if request.backend == "echo":
        return Outlook("Echo", openings_for(continues_text=False), notes=(_ECHO_NOTE,))
    try:
        files = _files(request, data_folder)
        if files is None:
            return _to_be_fetched(request.model, problem, hint)
        templates = tuple(find_templates(files))
        continues = not request.chat_template and not templates
        _try_out(request.chat_template, files)
        estimate = estimate_load(request, data_folder)
    except RingsideError as error:
        return Outlook(
            request.model,
            openings_for(continues_text=False),
            problem=problem or error.message,
            hint=hint or error.hint,
        )
    notes = estimate.warnings if estimate else ()
    return Outlook(files.name, openings_for(continues), estimate, continues, notes, problem, hint, templates)


def _try_out(given: str | None, files: ModelFiles) -> None:
    """Write one message by a template given by hand; of the model's own see that it can be used at all.

    Raises:
        RingsideError: it cannot be.
    """
    found = ChatTemplate.find(files, given)
    if given and found is not None and not found.render([Message("user", "Hello.")]).strip():
        raise BadRequestError("The chat template of these settings writes nothing for a message.", "Correct it.")


def _to_be_fetched(model: str, problem: str, hint: str) -> Outlook:
    demo = DEMOS.get(model)
    continues = demo is not None and "base" in demo.title
    size = f" ({demo.download_bytes / 1e6:,.0f} MB, {demo.license})" if demo else ""
    note = f"The first message fetches this model{size} and keeps it on this machine."
    notes = (note, demo.about) if demo else (note,)
    name = demo.title if demo else model
    return Outlook(name, openings_for(continues), None, continues, notes, problem, hint)


def _files(request: LoadRequest, data_folder: Path) -> ModelFiles | None:
    """Return the files of the model, or None where it is still to be fetched."""
    demo = DEMOS.get(request.model)
    path = demo.path(data_folder) if demo else Path(request.model).expanduser()
    if path.exists():
        return ModelFiles.open(path)
    if demo is None and (request.model.startswith((".", "~", "/")) or HubId.parse(request.model) is None):
        raise ModelFileError(f"There is no model {request.model!r}.", "Choose one from the list, or check the path.")
    return None


def _demo_label(demo: Demo, data_folder: Path) -> str:
    if demo.is_here(data_folder):
        return f"{demo.title}, demo"
    return f"{demo.title}, demo, fetches {demo.download_bytes / 1e6:,.0f} MB"


def _label(entry: ModelEntry) -> str:
    return f"{entry.name}, {entry.stored_as}" if entry.stored_as else entry.name
