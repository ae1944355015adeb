"""`ringside chat`: one instance, one address, the page; everything heavy comes after the page is up."""

from __future__ import annotations

import json
import secrets
import signal
import socket
import sys
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.instance import Instance
from app.native_memory import give_freed_memory_back
from app.settings import read_settings
from backends.errors import BadRequestError, RingsideError

if TYPE_CHECKING:
    from app.doors import Doors
    from app.login import Login


@dataclass(frozen=True)
class Reach:
    """From where the page can be reached.

    Attributes:
        host: the address to listen on.
        names: host names it may be called by, besides this machine's own.
        password: what every request needs; needed itself where `host` is not loopback.
        proxies: addresses of proxies that are believed when they tell for whom they ask.
    """

    host: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    password: str | None = None
    proxies: tuple[str, ...] = ()


def serve_chat(
    given: Mapping[str, Any], port: int | None, open_browser: bool, as_json: bool, reach: Reach = Reach()
) -> int:
    """Serve the page until Ctrl-C, or open the one that is already served; return the exit code.

    Args:
        given: settings from the command line, flat names.
        port: the only one to use; None tries the usual one and then the next free.
        reach: from where.

    Raises:
        RingsideError: no port, no password where one is needed, or the store cannot be opened.
        ValueError: a given setting cannot be, or the password is too short.
    """
    give_freed_memory_back()
    settings = read_settings()
    instance = Instance(settings.data_folder)
    if not instance.claim():
        return _open_running(instance, open_browser, as_json)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: replies are kept, the worker goes
    try:
        from app.first_run import fetch_demo
        from app.server import address, bind, serve  # the web framework takes a second; a second start goes without
        from app.service import Service

        doors = _doors(reach, settings.data_folder)
        bound = bind(port or settings.port, host=reach.host, only_this=port is not None)
        service = Service.open(settings, given)
        try:
            first = service.settings().load
            if first.backend != "echo":
                fetch_demo(first.model, settings.data_folder)
            url = address(bound)
            _announce(instance, url, doors.login)
            _tell(f"Ringside is at {url} (Ctrl-C ends it)", url, as_json)
            if doors.any_address and not as_json:
                print(_for_others(bound.getsockname()[1]), flush=True)
            if port is None and bound.getsockname()[1] != settings.port and not as_json:
                print(f"Port {settings.port} is in use by another program, so this is the next free one.", flush=True)
            serve(service, bound, open_browser=open_browser, doors=doors)
        except KeyboardInterrupt:
            pass  # the usual way to end it
        finally:
            service.close()
    finally:
        instance.release()
    return 0


def _announce(instance: Instance, url: str, login: Login | None) -> None:
    """Tell other commands where the page is; they are let in again after everybody was signed out."""
    if login is None:
        instance.announce(url)
        return
    instance.announce(url, login.cookie())
    login.on_all_signed_out = lambda: instance.announce(url, login.cookie())


def sign_out_all(as_json: bool) -> int:
    """End every session of the page, in the running Ringside or for the next one; return the exit code."""
    from app.sessions import kept_sessions

    data_folder = read_settings().data_folder
    instance = Instance(data_folder)
    if instance.claim():
        try:
            kept_sessions(data_folder).end_all()
        finally:
            instance.release()
    else:
        running = instance.running()
        if running is None:
            raise RingsideError("Ringside is running but does not answer.", "End that process and try again.")
        running.ask("sign-out", {"everywhere": True})
    print(json.dumps({"event": "signed out"}) if as_json else "Every browser is signed out.", flush=True)
    return 0


def _open_running(instance: Instance, open_browser: bool, as_json: bool) -> int:
    running = instance.running()
    if running is None:
        print("Ringside is already running but does not answer; end that process and start again.", flush=True)
        return 1
    url = running.url
    _tell(f"Ringside is already running at {url}; settings given here were not passed on.", url, as_json)
    if open_browser:
        webbrowser.open(url)
    return 0


def _doors(reach: Reach, data_folder: Path) -> Doors:
    from app.doors import Doors, is_loopback
    from app.login import Login, kept_salt
    from app.sessions import kept_sessions

    password = reach.password
    if password is None and not is_loopback(reach.host):
        password = _asked_for(reach.host)
    login = None if password is None else Login(password, kept_salt(data_folder), sessions=kept_sessions(data_folder))
    return Doors.to(reach.host, reach.names, login, reach.proxies)


def _asked_for(host: str) -> str:
    """Ask for a password in the terminal, or make one up."""
    if not sys.stdin.isatty():
        raise BadRequestError(
            f"--host {host} lets other machines in, and there is no password for them.",
            "Give --password, set RINGSIDE_PASSWORD, or leave --host out.",
        )
    import typer

    typed: str = typer.prompt(
        "Password for the page (Enter makes one up)", default="", show_default=False, hide_input=True
    )
    if not typed:
        typed = secrets.token_urlsafe(9)
        print(f"The password is {typed}", flush=True)
    return typed


def _for_others(port: int) -> str:
    return (
        f"Other machines reach it at http://{socket.gethostname()}:{port}/ or by this machine's address. "
        "The password and all texts travel unencrypted: use a network you trust, or a proxy that speaks HTTPS."
    )


def _tell(sentence: str, url: str, as_json: bool) -> None:
    print(json.dumps({"event": "serving", "url": url}) if as_json else sentence, flush=True)
