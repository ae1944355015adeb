"""Figures as SVG files, for places that show no scripts: drawn by Plotly in a headless Chromium."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from app.proof.chromium import opened
from app.proof.report import Figure, plotly_script
from backends.errors import RingsideError

_STYLE = {"paper_bgcolor": "white", "plot_bgcolor": "white", "font": {"color": "#1f2937", "family": "sans-serif"}}
_GRID = {"gridcolor": "#e5e7eb", "zerolinecolor": "#d1d5db", "linecolor": "#9ca3af"}


def draw_svg(figures: Sequence[Figure], path: Path, width: int = 860, height: int = 380) -> list[Path]:
    """Write each figure as an SVG; the first as `path`, others with a number. Returns the paths.

    Raises:
        BackendUnavailableError: Playwright or Chromium is missing.
    """
    paths = [path if index == 0 else path.with_stem(f"{path.stem}-{index + 1}") for index in range(len(figures))]
    path.parent.mkdir(parents=True, exist_ok=True)
    # Playwright's plain calls refuse a thread in which an event loop runs, and the caller's may be one.
    with ThreadPoolExecutor(1) as pool:
        pictures = pool.submit(_drawn, figures, width, height).result()
    for target, svg in zip(paths, pictures, strict=True):
        target.write_text(svg, encoding="utf-8")
    return paths


def _drawn(figures: Sequence[Figure], width: int, height: int) -> list[str]:
    with opened() as browser:
        from playwright.sync_api import Error  # there: it opened

        try:
            page = browser.new_page()
            page.set_content("<!doctype html><title>figure</title>")
            page.add_script_tag(content=plotly_script())
            return [page.evaluate(_DRAW, [figure.data, _layout(figure), width, height]) for figure in figures]
        except Error as error:
            raise RingsideError(f"Chromium could not draw the figure: {str(error).splitlines()[0]}.") from error


_DRAW = """async ([data, layout, width, height]) => {
  const url = await Plotly.toImage({ data, layout }, { format: "svg", width, height });
  return decodeURIComponent(url.slice(url.indexOf(",") + 1));
}"""


def _layout(figure: Figure) -> dict[str, Any]:
    layout: dict[str, Any] = json.loads(json.dumps(figure.layout)) | _STYLE
    layout["title"] = {"text": figure.title, "x": 0.02, "font": {"size": 16}}
    layout["legend"] = {"orientation": "h", "y": -0.22}
    for axis in ("xaxis", "yaxis"):
        layout[axis] = {**layout[axis], **_GRID}
    return layout
