"""The drawings on buttons, as inline SVG: a font may lack a character, and then shows a box.

Each page holds them once (`ICONS`). Markup takes one by `icon`, scripts by `assets/icons.js`, both by name.
"""

from __future__ import annotations

_LINES = {
    "chats": "M3 5h14M3 10h14M3 15h14",
    "check": "M4 10.5l4 4 8-9",
    "close": "M5 5l10 10M15 5L5 15",
    "down": "M5 8l5 5 5-5",
    "next": "M8 5l5 5-5 5",
    "notebook": "M5 3h10v14H5zM8 7h4M8 10h4",
    "plus": "M10 4v12M4 10h12",
    "previous": "M12 5l-5 5 5 5",
    "send": "M10 16V4M5 9l5-5 5 5",
    "up": "M5 12l5-5 5 5",
}
_DRAWINGS = {
    **{name: f'<path d="{path}"/>' for name, path in _LINES.items()},
    "more": '<path d="M4 10h.01M10 10h.01M16 10h.01" stroke-width="3"/>',
    "stop": '<rect x="5" y="5" width="10" height="10" rx="2" fill="currentColor" stroke="none"/>',
    "theme": '<circle cx="10" cy="10" r="6.5"/>'
    '<path d="M10 3.5a6.5 6.5 0 0 1 0 13z" fill="currentColor" stroke="none"/>',
}
_SYMBOLS = "".join(
    f'<symbol id="rs-icon-{name}" viewBox="0 0 20 20">{drawing}</symbol>' for name, drawing in _DRAWINGS.items()
)

ICONS = f'<svg width="0" height="0" class="icons" aria-hidden="true">{_SYMBOLS}</svg>'


def icon(name: str) -> str:
    """Return a drawing by its name; what it is for is said by the button around it."""
    assert name in _DRAWINGS, name
    return f'<svg class="line-icon" viewBox="0 0 20 20" aria-hidden="true"><use href="#rs-icon-{name}"/></svg>'
