"""The search among the fields of an alert, in a real browser."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
    pytest.mark.real,
]


def test_fields_are_searched_by_name_and_by_description(real):
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=150_000
        )
        page = browser.new_page()
        page.set_default_timeout(150_000)
        page.goto(f"{real.url}/alerts/1642404680815015001")
        fields, closed = page.locator("dl.fields > div"), page.locator("details:not([open])")
        total, folded = fields.count(), closed.count()
        assert fields.filter(visible=True).count() > 50
        search = page.get_by_role("searchbox", name="search the fields of this alert")
        for text, name in (("MAGPSF", "magpsf"), ("aperture mag", "magap")):
            search.fill(text)
            shown = fields.filter(visible=True)
            assert 0 < shown.count() < 10
            assert any(row.startswith(name) for row in shown.all_inner_texts())
        assert page.locator("details:visible:not([open])").count() == 0
        search.fill("no field has this")
        assert fields.filter(visible=True).count() == 0
        search.fill("")
        assert (fields.count(), closed.count()) == (total, folded)
        assert fields.filter(visible=True).count() > 50
        browser.close()
