"""The socket that the page is served on. Apart from the server, whose import takes seconds."""

from __future__ import annotations

import errno
import socket

from backends.errors import BadRequestError

LOOPBACK = "127.0.0.1"
_NUM_PORTS_TRIED = 20
_ALL_ADDRESSES = {"0.0.0.0": LOOPBACK, "::": "::1"}


def bind(port: int, *, host: str = LOOPBACK, only_this: bool = False) -> socket.socket:
    """Return a listening socket: on the port, or on the next one that is free.

    The port stays the same from start to start where it can: browsers keep drafts by address. Holding the socket until
    the server takes it leaves no gap in which another program could take the port.

    Args:
        host: the address to listen on; that of loopback by default.
        only_this: for a port that a person asked for.

    Raises:
        BadRequestError: the port is taken or not allowed and `only_this` says so, no port is free, or the address is
            not one of this machine.
    """
    try:
        return _listening(host, port)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            raise BadRequestError(
                f"{host} is no address of this machine.", "Give --host one, or leave it out."
            ) from error
        if only_this:
            reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise BadRequestError(f"Port {port} {reason}.", "Choose another one with --port.") from error
    for candidate in (*range(port + 1, port + _NUM_PORTS_TRIED), 0):
        try:
            return _listening(host, candidate)
        except OSError:
            continue
    raise BadRequestError("No port on this machine is free.", "Close some programs and try again.")


def address(bound: socket.socket) -> str:
    """Return the page's address as this machine reaches it."""
    host, port = bound.getsockname()[:2]
    host = _ALL_ADDRESSES.get(host, host)
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _listening(host: str, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(128)
    except OSError:
        bound.close()
        raise
    return bound
