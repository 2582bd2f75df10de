"""The page in a browser, where there is one: it draws, complains of nothing, runs no name, and loads nothing."""

import copy
import shutil
from pathlib import Path

import pytest

from phalanx.frontends.sim.report.facts import collect_facts
from phalanx.frontends.sim.report.heading import make_heading
from phalanx.frontends.sim.report.page import make_page

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(params=["light", "dark", "phone"])
def window(request, browser, tmp_path, mixed, results):
    """The page of hostile names, opened; with everything it complained of."""
    attacked = copy.deepcopy(results)  # the results are everybody's
    for gang in attacked[0].gangs:
        gang.queue = "</script><img src=x onerror=alert(1)>"
    runs = [collect_facts(mixed, result, result.policy, 5) for result in attacked]
    file = tmp_path / "out.html"
    file.write_text(make_page(make_heading(mixed, "<b>x</b>", "x", [0]), runs))
    phone = request.param == "phone"
    page = browser.new_page(
        viewport={"width": 390 if phone else 1200, "height": 800},
        color_scheme="dark" if request.param == "dark" else "light",
    )
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("dialog", lambda dialog: page.complaints.append(dialog.message))
    page.on(
        "request", lambda wanted: page.complaints.append(wanted.url) if not wanted.url.startswith("file:") else None
    )
    page.goto(file.as_uri())
    yield page
    page.close()


def test_everything_is_drawn_without_a_complaint(window):
    assert window.locator("#usage svg path").count() >= 3
    assert window.locator("#ledger-bars rect").count() >= 3
    assert window.locator("#queues .chart svg").count() >= 2
    assert window.locator("img").count() == 0
    painted = window.evaluate(
        "() => { const c = document.querySelector('canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " return new Set(new Uint32Array(d.buffer)).size; }"
    )
    assert painted > 5
    assert window.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing hangs over the edge"
    assert window.complaints == []


def test_pointing_choosing_and_downloading(window):
    canvas = window.locator("canvas")
    canvas.scroll_into_view_if_needed()
    canvas.hover(position={"x": 150, "y": 40})
    assert "members" in window.locator("#tip").inner_text()
    window.get_by_text("by gang", exact=True).click()
    canvas.focus()
    for key in ("ArrowRight", "ArrowDown", "+", "-", "0"):
        window.keyboard.press(key)
    window.locator("select").select_option("wait")
    with window.expect_download() as expected:
        window.get_by_role("button", name="metrics.csv").click()
    assert Path(expected.value.path()).read_text().startswith("policy,seed")
    assert window.complaints == []
