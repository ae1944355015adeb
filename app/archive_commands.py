"""The commands that keep and share chats: `export`, `import`, `backup`, `check`; beside a running Ringside too."""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from app.archive import Archive, ArchivedChat
from app.command_errors import report
from app.figures import byte_count
from app.imported_parts import PROGRAMS, left_out_words
from app.instance import Instance
from app.settings import read_settings
from app.store import Store
from app.store_backup import copy_store
from app.store_check import CheckReport, check
from app.store_file import StoreError, store_error
from backends.errors import BadRequestError, RingsideError

if TYPE_CHECKING:
    from app.chat_export import ExportFormat  # renders Markdown; only `export` waits for that

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for scripts.")]
FORMATS = ("md", "txt", "html", "json")

_SQLITE_MAGIC = b"SQLite format 3\0"


def register(cli: typer.Typer) -> None:
    """Add the commands to the command line."""
    cli.command("export")(export)
    cli.command("import")(import_)
    cli.command("backup")(backup)
    cli.command("check")(check_store)


def export(
    chats: Annotated[
        list[str] | None, typer.Argument(help="Numbers, or parts of titles; none lists the chats.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every chat.")] = False,
    format_: Annotated[str, typer.Option("--format", "-f", help="md, txt, html, or json, which loses nothing.")] = "md",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file, or a folder for several.")] = None,
    as_json: Json = False,
) -> None:
    """Write chats as Markdown, plain text, an HTML page or JSON."""
    with _failing_in_words(as_json), _store() as store:
        if format_ not in FORMATS:
            raise BadRequestError(f"There is no format {format_!r}.", f"Choose from {', '.join(FORMATS)}.")
        if not chats and not all_:
            _list(store, as_json)
            return
        archive = Archive(store.database)
        wanted = [archive.chat(chat_id) for chat_id in (archive.chat_ids() if all_ else _chosen(store, chats or ()))]
        _write(wanted, cast("ExportFormat", format_), output, as_json)


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(help=f"JSON of Ringside, {PROGRAMS}; plain text, or a backup."),
    ],
    with_templates: Annotated[
        bool, typer.Option("--with-templates", help="Their chat templates too, which are programs.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Add the chats of files to your own."""
    with _failing_in_words(as_json), _store(new=True) as store:
        for path in files:
            archive = Archive(store.database)
            read = _read(path, with_templates)
            added = archive.add(read)
            chats = [store.chat(chat_id) for chat_id in added]
            titles = ", ".join(chat.title or "(no title)" for chat in chats[:3]) + (" ..." if len(chats) > 3 else "")
            left_out = left_out_words(read)
            _say(
                f"{path}: {_count(len(chats), 'chat')} added: {titles}"
                + (f" (left out: {left_out})" if left_out else ""),
                {
                    "event": "imported",
                    "file": str(path),
                    "chats": [{"id": chat.id, "title": chat.title} for chat in chats],
                    "left_out": left_out,
                },
                as_json,
            )


def backup(
    output: Annotated[Path | None, typer.Argument(help="A file that is not there yet, or a folder.")] = None,
    as_json: Json = False,
) -> None:
    """Copy all chats into one file, whole and checked, even while Ringside is writing."""
    with _failing_in_words(as_json):
        settings = read_settings()
        if not settings.database_path.is_file():
            raise StoreError("There are no chats yet, so there is nothing to back up.")
        target = _backup_path(output, settings.data_folder)
        num_bytes = copy_store(settings.database_path, target)
        _say(
            f"Backed up to {target} ({byte_count(num_bytes)}). 'ringside import {target}' brings the chats back.",
            {"event": "backed up", "file": str(target), "num_bytes": num_bytes},
            as_json,
        )


def check_store(
    file: Annotated[
        Path | None, typer.Argument(help="A store; yours if not given. Others are left as they are.")
    ] = None,
    repair: Annotated[bool, typer.Option(help="Repair what can be repaired.")] = True,
    as_json: Json = False,
) -> None:
    """Check the chats, repair what can be repaired, and set aside what cannot.

    The exit code is 1 if problems were found and are still there.
    """
    with _failing_in_words(as_json):
        settings = read_settings()
        path = file or settings.database_path
        if not path.is_file():
            raise StoreError(f"There are no chats at {path}.")
        with _alone(settings.data_folder) as alone:
            is_own = path.resolve() == settings.database_path.resolve()
            may_repair = repair and (alone or not is_own)
            report = check(path, repair=may_repair, in_place=is_own)
    if as_json:
        print(json.dumps({"event": "checked", **asdict(report)}, default=str))
    else:
        _tell(report, path, is_own)
        if repair and not may_repair and report.problems:
            print("Ringside is running: end it and run this again to repair.")
    raise typer.Exit(1 if report.problems and not report.repairs else 0)


@contextmanager
def _store(*, new: bool = False) -> Iterator[Store]:
    """Open the store; `new` makes one where there is none."""
    path = read_settings().database_path
    if not new and not path.is_file():
        raise StoreError("There are no chats yet.", "Run 'ringside' and write one.")
    store = Store(path)
    try:
        for notice in store.notices:
            typer.echo(notice, err=True)
        yield store
    finally:
        store.close()


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Hold the claim on the data folder; False if a running Ringside has it."""
    instance = Instance(folder)
    if not instance.claim():
        yield False
        return
    try:
        yield True
    finally:
        instance.release()


@contextmanager
def _failing_in_words(as_json: bool) -> Iterator[None]:
    try:
        yield
    except (RingsideError, OSError) as error:
        report(error, as_json)
        raise typer.Exit(1) from error
    except sqlite3.Error as error:
        report(store_error(read_settings().database_path, error), as_json)
        raise typer.Exit(1) from error


def _list(store: Store, as_json: bool) -> None:
    for chat in store.chats():
        folder = f"  [{chat.folder}]" if chat.folder else ""
        data = {"id": chat.id, "title": chat.title, "folder": chat.folder, "pinned": chat.pinned}
        _say(f"{chat.id:>5}  {chat.title or '(no title)'}{folder}", data, as_json)


def _chosen(store: Store, chosen: Sequence[str]) -> Iterator[int]:
    """Yield the ids meant by numbers and parts of titles. Raises BadRequestError unless each names one chat."""
    for each in chosen:
        found = [chat for chat in store.chats() if str(chat.id) == each] or store.chats(each)
        if not found:
            raise BadRequestError(f"No chat has the number or title {each!r}.", "'ringside export' lists them.")
        if len(found) > 1:
            numbers = ", ".join(f"{chat.id} ({chat.title})" for chat in found[:5])
            raise BadRequestError(f"{each!r} is in the titles of several chats: {numbers}.", "Give a number.")
        yield found[0].id


def _write(chats: list[ArchivedChat], format_: ExportFormat, output: Path | None, as_json: bool) -> None:
    from app import chat_json
    from app.chat_export import exported, file_name
    from app.routes import assets_folder

    pieces: dict[str, Iterable[str]] = {}
    if format_ == "json":
        pieces = {f"chats.{format_}" if len(chats) != 1 else file_name(chats[0], "json"): [chat_json.to_file(chats)]}
    else:
        for chat in chats:
            pieces[_free_name(file_name(chat, format_), pieces)] = exported(chat, format_, assets_folder())
    if output is None and len(pieces) > 1:
        raise BadRequestError("Several chats do not go into one text.", "Give a folder with --output, or use json.")
    if output is None:
        for piece in next(iter(pieces.values())):
            sys.stdout.write(piece)
        return
    into_folder = len(pieces) > 1 or output.is_dir()
    for name, text in pieces.items():
        path = output / name if into_folder else output
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            file.writelines(text)
        _say(f"Wrote {path}", {"event": "exported", "file": str(path)}, as_json)


def _free_name(name: str, taken: dict[str, Any]) -> str:
    stem, dot, suffix = name.rpartition(".")
    names = (name, *(f"{stem} ({number}){dot}{suffix}" for number in range(2, len(taken) + 3)))
    lower = {each.casefold() for each in taken}
    return next(each for each in names if each.casefold() not in lower)


def _read(path: Path, with_templates: bool) -> list[ArchivedChat]:
    from app.imported_templates import without_templates

    chats = _read_all(path)
    return chats if with_templates else without_templates(chats)


def _read_all(path: Path) -> list[ArchivedChat]:
    from app.chat_import import read_chats

    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadRequestError(f"{path} cannot be read ({error.strerror}).") from error
    if not content.startswith(_SQLITE_MAGIC):
        return read_chats(path.name, content)
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # opening a store may bring it up to date, which is not asked for here
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        store = Store(copy)
        try:
            if store.notices:
                raise BadRequestError(f"{path} is damaged.", f"'ringside check {path}' recovers what can be read.")
            archive = Archive(store.database)
            return [archive.chat(chat_id) for chat_id in archive.chat_ids()]
        finally:
            store.close()


def _backup_path(output: Path | None, data_folder: Path) -> Path:
    name = time.strftime("chats-%Y%m%d-%H%M%S.sqlite")
    if output is None:
        return data_folder / "backups" / name
    target = output / name if output.is_dir() else output
    if target.exists():
        raise BadRequestError(f"{target} is already there.", "Choose another name; a backup replaces nothing.")
    return target


def _tell(report: CheckReport, path: Path, is_own: bool) -> None:
    if not report.problems:
        print(f"{path} is fine: {_count(report.num_chats, 'chat')}, {_count(report.num_messages, 'message')}.")
    for sentence in report.problems:
        print(f"Found: {sentence}")
    for sentence in report.repairs:
        print(f"Done: {sentence}")
    if report.kept_as:
        print(f"The damaged file is kept as {path.with_name(report.kept_as)}.")
    if report.recovered is not None and not is_own:
        print(f"'ringside import {report.recovered}' adds what was recovered to your chats.")
    if is_own:
        for other in sorted(path.parent.glob(f"{path.stem}.damaged-*{path.suffix}")):
            if other.name != report.kept_as:
                print(f"{other} was set aside earlier; 'ringside check {other}' recovers what can be read of it.")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _say(sentence: str, data: dict[str, Any], as_json: bool) -> None:
    print(json.dumps(data, ensure_ascii=False) if as_json else sentence)
