"""Colours and type of Gradio's own controls, so that they look like the rest of the page. Fonts are local ones."""

from __future__ import annotations

from typing import Any

import gradio as gr

_SANS = [
    gr.themes.LocalFont("IBM Plex Sans"),
    "ui-sans-serif",
    "system-ui",
    "-apple-system",
    "Segoe UI",
    "Inter",
    "Noto Sans",
    "DejaVu Sans",
    "sans-serif",
]
_MONO = [
    gr.themes.LocalFont("IBM Plex Mono"),
    "ui-monospace",
    "SF Mono",
    "Cascadia Code",
    "JetBrains Mono",
    "Noto Sans Mono",
    "DejaVu Sans Mono",
    "monospace",
]


def theme() -> Any:
    """Return the theme; the colours themselves are variables of `assets/page.css`, light and dark."""
    base = gr.themes.Base(
        primary_hue="teal",
        neutral_hue="stone",
        font=_SANS,
        font_mono=_MONO,
        radius_size="md",
        spacing_size="md",
        text_size="md",
    )
    pairs = {
        "body_background_fill": "var(--rs-page)",
        "body_text_color": "var(--rs-ink)",
        "body_text_color_subdued": "var(--rs-ink-soft)",
        "background_fill_primary": "var(--rs-raised)",
        "background_fill_secondary": "var(--rs-page)",
        "block_background_fill": "transparent",
        "block_border_color": "transparent",
        "block_label_text_color": "var(--rs-ink)",
        "block_title_text_color": "var(--rs-ink)",
        "block_info_text_color": "var(--rs-ink-soft)",
        "border_color_primary": "var(--rs-line)",
        "border_color_accent": "var(--rs-accent)",
        "color_accent_soft": "var(--rs-accent-soft)",
        "input_background_fill": "var(--rs-field)",
        "input_border_color": "var(--rs-line)",
        "input_border_color_focus": "var(--rs-accent)",
        "input_placeholder_color": "var(--rs-ink-faint)",
        "checkbox_background_color": "var(--rs-field)",
        "checkbox_border_color": "var(--rs-line-strong)",
        "checkbox_background_color_selected": "var(--rs-accent)",
        "checkbox_border_color_selected": "var(--rs-accent)",
        "checkbox_label_background_fill": "var(--rs-field)",
        "checkbox_label_background_fill_hover": "var(--rs-hover)",
        "checkbox_label_background_fill_selected": "var(--rs-accent-soft)",
        "checkbox_label_border_color": "var(--rs-line)",
        "checkbox_label_text_color": "var(--rs-ink)",
        "checkbox_label_text_color_selected": "var(--rs-ink)",
        "slider_color": "var(--rs-accent)",
    }
    return base.set(
        **pairs,
        **{f"{name}_dark": value for name, value in pairs.items()},
        block_border_width="0px",
        input_border_width="1px",
        block_shadow="none",
        block_padding="0px",
        block_title_text_weight="600",
        block_title_text_size="0.875rem",
        block_info_text_size="0.8125rem",
        checkbox_label_padding="6px 12px",
        checkbox_label_gap="6px",
        layout_gap="16px",
        form_gap_width="16px",
    )
