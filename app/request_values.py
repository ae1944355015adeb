"""Numbers and texts as requests may bring them, so that whatever lies behind the routes can hold them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from app.input_rules import clean_text

MAX_NUMBER = 2**63 - 1
"""The largest that SQLite and the C side of Python take; JSON itself knows no largest."""

Number = Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
"""An id, an offset or a count; what it may be beyond this is for the route to say."""

CleanText = Annotated[str, AfterValidator(clean_text)]
"""Text that has a form in UTF-8."""
