"""Figures as SVG files, for places that show no scripts: drawn by Plotly in a headless Chromium."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.proof.report import Figure, plotly_script
from backends.errors import BackendUnavailableError, RingsideError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_STYLE = {"paper_bgcolor": "white", "plot_bgcolor": "white", "font": {"color": "#1f2937", "family": "sans-serif"}}
_GRID = {"gridcolor": "#e5e7eb", "zerolinecolor": "#d1d5db", "linecolor": "#9ca3af"}


def draw_svg(figures: Sequence[Figure], path: Path, width: int = 860, height: int = 380) -> list[Path]:
    """Write each figure as an SVG; the first as `path`, others with a number. Returns the paths.

    Raises:
        BackendUnavailableError: Playwright or Chromium is missing.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise BackendUnavailableError("Drawing needs Playwright.", "Run: pip install playwright") from None
    browser_path = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if browser_path is None:
        raise BackendUnavailableError("Drawing needs Chromium.", "On Debian: apt-get install chromium")
    paths = [path if index == 0 else path.with_stem(f"{path.stem}-{index + 1}") for index in range(len(figures))]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
            page = browser.new_page()
            page.set_content("<!doctype html><title>figure</title>")
            page.add_script_tag(content=plotly_script())
            for figure, target in zip(figures, paths, strict=True):
                svg = page.evaluate(_DRAW, [figure.data, _layout(figure), width, height])
                target.write_text(svg, encoding="utf-8")
            browser.close()
    except Error as error:
        raise RingsideError(f"Chromium could not draw the figure: {str(error).splitlines()[0]}.") from error
    return paths


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
