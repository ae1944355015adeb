"""`ringside chat`: one instance, one address, the page; everything heavy comes after the page is up."""

from __future__ import annotations

import json
import signal
import webbrowser
from collections.abc import Mapping
from typing import Any

from app.instance import Instance
from app.settings import read_settings


def serve_chat(given: Mapping[str, Any], port: int | None, open_browser: bool, as_json: bool) -> int:
    """Serve the page until Ctrl-C, or open the one that is already served; return the exit code.

    Args:
        given: settings from the command line, flat names.
        port: the only one to use; None tries the usual one and then the next free.

    Raises:
        RingsideError: no port, or the store cannot be opened.
        ValueError: a given setting cannot be.
    """
    settings = read_settings()
    instance = Instance(settings.data_folder)
    if not instance.claim():
        return _open_running(instance, open_browser, as_json)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does: replies are kept, the worker goes
    try:
        from app.first_run import fetch_demo
        from app.server import address, bind, serve  # the web framework takes a second; a second start goes without
        from app.service import Service

        bound = bind(port or settings.port, only_this=port is not None)
        service = Service.open(settings, given)
        try:
            first = service.settings().load
            if first.backend != "echo":
                fetch_demo(first.model, settings.data_folder)
            url = address(bound)
            instance.announce(url)
            _tell(f"Ringside is at {url} (Ctrl-C ends it)", url, as_json)
            if port is None and bound.getsockname()[1] != settings.port and not as_json:
                print(f"Port {settings.port} is in use by another program, so this is the next free one.", flush=True)
            serve(service, bound, open_browser=open_browser)
        except KeyboardInterrupt:
            pass  # the usual way to end it
        finally:
            service.close()
    finally:
        instance.release()
    return 0


def _open_running(instance: Instance, open_browser: bool, as_json: bool) -> int:
    url = instance.running_url()
    if instance.has_no_page:
        print("A reply is being written by `ringside generate`; wait for its end or stop it there.", flush=True)
        return 1
    if url is None:
        print("Ringside is already running but does not answer; end that process and start again.", flush=True)
        return 1
    _tell(f"Ringside is already running at {url}; settings given here were not passed on.", url, as_json)
    if open_browser:
        webbrowser.open(url)
    return 0


def _tell(sentence: str, url: str, as_json: bool) -> None:
    print(json.dumps({"event": "serving", "url": url}) if as_json else sentence, flush=True)
