"""The open end of a reply: changed in place as it grows, and in the end what the server said."""

from __future__ import annotations

import pytest

from app.transcript import Transcript
from tests.browser.conftest import NewTab, StartRingside

pytestmark = pytest.mark.browser

TEXT = """A *line* that **grows
into bold** with `code`, <b>no tag</b> and [a link](https://example.org "title").

- one
- two
  1. inner
  2. ~~gone~~

| a | b |
|---|--:|
| 1 | $x^2$ |

```python
def f(x):
    return "<&>"
```

Setext
======

$$
\\int_0^1
$$
> quoted
> > twice
"""

SHOW_EACH = """async pages => {
  const { showGrown } = await import('/app/assets/growing.js');
  const grown = document.createElement('div');
  const anew = document.createElement('div');
  return pages.filter(html => {
    showGrown(grown, html);
    anew.innerHTML = html;
    return grown.innerHTML !== anew.innerHTML;
  });
}"""

SELECT_BEGINNING = """() => {
  const text = document.querySelector('.reply > .live p').firstChild;
  window.getSelection().setBaseAndExtent(text, 0, text, 14);
}"""


def test_whatever_grows_is_shown_as_if_it_were_shown_anew(shared_ringside: StartRingside, new_tab: NewTab) -> None:
    transcript, pages = Transcript(), []
    for character in TEXT:
        transcript.append(character)
        pages.append(transcript.open_html())
    assert len(set(pages)) > 150
    tab = new_tab(shared_ringside(rate="40").url)
    assert tab.page.evaluate(SHOW_EACH, pages) == []
    assert tab.page.evaluate(SHOW_EACH, pages[::-1]) == []


def test_what_is_selected_in_the_paragraph_being_written_stays_selected(
    shared_ringside: StartRingside, new_tab: NewTab
) -> None:
    tab = new_tab(shared_ringside(rate="40", text="prompt").url)
    tab.send(" ".join(f"word{number}" for number in range(2000)))
    tab.wait_for_tokens(20)
    tab.page.evaluate(SELECT_BEGINNING)
    tab.wait_for_tokens(80)
    assert tab.page.evaluate("String(window.getSelection())") == "word0 word1 wo"
    tab.page.click("#rs-stop")
    tab.wait_for_end()
