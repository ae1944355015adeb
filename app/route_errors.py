"""Errors as the routes answer them: always one sentence and the way out, as JSON, and never a trace."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from app.request_limits import RequestRefusedError
from backends.errors import RingsideError

_MOST_CHARS = 200


def add_error_answers(app: FastAPI) -> None:
    """Have an application answer every error in words."""
    app.add_exception_handler(RingsideError, _displayable)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(Exception, _broken)


async def _displayable(request: Request, error: Exception) -> Response:
    assert isinstance(error, RingsideError)
    if isinstance(error, RequestRefusedError):
        return error.response()
    return _said(400, error.message, error.hint)


async def _not_understood(request: Request, error: Exception) -> Response:
    """Name the first value that is not what it should be; the value itself may be one that JSON cannot carry."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    problem = f"{where[:_MOST_CHARS]}: {first['msg']}"
    return _said(422, f"The request is not understood: {problem[:_MOST_CHARS]}.", "Load the page again.")


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {404: "There is nothing here.", 405: "This cannot be done here."}
    message = sentences.get(error.status_code, "The request is not understood.")
    answer = _said(error.status_code, message, "")
    answer.headers.update(error.headers or {})
    return answer


async def _broken(request: Request, error: Exception) -> Response:
    return _said(500, "Something in Ringside went wrong.", "The terminal it was started in says more.")


def _said(status: int, message: str, hint: str) -> JSONResponse:
    # a lone half of a surrogate pair, named as a wrong value, has no form in UTF-8
    sayable = [text.encode("utf-8", "replace").decode() for text in (message, hint)]
    return JSONResponse(dict(zip(("message", "hint"), sayable, strict=True)), status_code=status)
