"""The `ringside` command: `chat` (default), `generate`, `watch`, `models`, and the proof (`app.proof.commands`).

Importing this module loads no engine library and no web framework; each command imports what it needs.
"""

from __future__ import annotations

import codecs
import locale
import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from app import archive_commands as archive
from app.command_errors import is_unwritable, report
from app.proof import commands as proof
from app.sampling_options import takes_sampling
from app.shared_options import takes_settings
from backends.errors import RingsideError

cli = typer.Typer(
    help="Chat with local models for very long texts: a ring cache keeps memory and speed flat, and the page shows it.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for scripts.")]


def main() -> None:
    """Run the command line."""
    _speak_utf8()
    if len(sys.argv) == 1 or (sys.argv[1].startswith("-") and sys.argv[1] != "--help"):
        sys.argv.insert(1, "chat")
    try:
        cli()
    except OSError as error:  # of any folder of Ringside's, in any command
        if not is_unwritable(error):
            raise
        report(error, "--json" in sys.argv)
        sys.exit(1)


def _speak_utf8() -> None:
    """Start again in Python's UTF-8 mode where the locale knows ASCII only, as in containers and cron jobs.

    Without it paths, prompts and texts beyond ASCII cannot be read, shown or handed to an engine. The mode is fixed
    when the interpreter starts, and holds for the workers as well.
    """
    is_ascii = codecs.lookup(locale.getpreferredencoding(False)).name == "ascii"
    if is_ascii and not sys.flags.utf8_mode and os.name == "posix":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


@cli.command()
@takes_sampling
@takes_settings
def chat(
    port: Annotated[
        int | None, typer.Option(help="Port; by default a usual one, or the next that is free.", min=1, max=65_535)
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    password: Annotated[
        str | None,
        typer.Option(envvar="RINGSIDE_PASSWORD", help="Asked of everyone; needed with --host.", show_default=False),
    ] = None,
    allow_name: Annotated[
        list[str] | None, typer.Option(help="Host name it may be called by (a proxy's); may be given again.")
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address of a proxy in front, whose X-Forwarded-For and -Proto are believed; may be given again."
        ),
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Open the chat page (what `ringside` alone does); new chats start with the settings given here."""
    from app.chat_command import Reach, serve_chat

    try:
        reach = Reach(host, tuple(allow_name or ()), password, tuple(trusted_proxy or ()))
        code = serve_chat(settings, port, browser, as_json, reach)
    except (RingsideError, ValueError) as error:
        _fail(error, as_json)
    raise typer.Exit(code)


@cli.command()
@takes_sampling
@takes_settings
def generate(
    prompt: Annotated[
        str | None, typer.Option(help="What to answer or continue; read from stdin if not given.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(help="Stop after so many; endless if not given.", min=1)] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text; may be given again.")] = None,
    stop_in_reasoning: Annotated[
        bool | None, typer.Option("--stop-in-reasoning", help="Stop at such a text in the reasoning too.")
    ] = None,
    keep: Annotated[
        bool, typer.Option(help="Keep the reply as a chat, written by the running Ringside where there is one.")
    ] = True,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Write one reply to stdout, without a browser. Ctrl-C ends it and keeps what came."""
    wanted = {"max_new_tokens": tokens, "stop": stop or None, "stop_in_reasoning": stop_in_reasoning}
    given = settings | {name: value for name, value in wanted.items() if value is not None}
    from app.generate_command import generate as write

    try:
        code = write(given, _prompt(prompt), as_json, keep)
    except (RingsideError, ValueError) as error:
        _fail(error, as_json)
    raise typer.Exit(code)


@cli.command()
def watch(as_json: Json = False) -> None:
    """Follow the reply that is being written in the page or by another command; Ctrl-C leaves it running."""
    from app.generate_command import watch as follow

    try:
        code = follow(as_json)
    except RingsideError as error:
        _fail(error, as_json)
    raise typer.Exit(code)


@cli.command()
def sign_out(as_json: Json = False) -> None:
    """Sign out every browser that typed the password (a changed password does so too)."""
    from app.chat_command import sign_out_all

    try:
        code = sign_out_all(as_json)
    except RingsideError as error:
        _fail(error, as_json)
    raise typer.Exit(code)


@cli.command()
def models(as_json: Json = False) -> None:
    """List the models found on this machine and which backends can run them, and why not."""
    from app.models_command import list_models
    from app.settings import read_settings

    raise typer.Exit(list_models(read_settings(), as_json))


def _prompt(given: str | None) -> str:
    if given is None and not sys.stdin.isatty():
        given = sys.stdin.read()
    if given is None or not given.strip():
        raise ValueError('There is no prompt; give --prompt "..." or pipe a text in.')
    return given


def _fail(error: Exception, as_json: bool) -> NoReturn:
    report(error, as_json)
    raise typer.Exit(1)


proof.register(cli)
archive.register(cli)
