"""Routes of the session: whether there is one, and signing out, here or everywhere."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from app.login import Login
from app.page_data import Json
from app.running_instance import COOKIE
from backends.errors import BadRequestError


class SignOut(BaseModel):
    """Which sessions to end: that of this browser, or all."""

    everywhere: bool = False


def session_routes(login: Login | None) -> APIRouter:
    """Return the routes; `login` is None where there is no password."""
    router = APIRouter()

    @router.get("/session")
    def session() -> Json:
        return {"login": login is not None}

    @router.post("/sign-out")
    def sign_out(request: Request, wanted: SignOut | None = None) -> Response:
        if login is None:
            raise BadRequestError("There is no password, so nobody is signed in.", "Start with --password for one.")
        if wanted is not None and wanted.everywhere:
            login.sign_out_all()
        else:
            login.sign_out(request.cookies.get(COOKIE, ""))
        answer = JSONResponse({})
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    return router
