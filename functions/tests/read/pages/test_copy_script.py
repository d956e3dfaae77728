"""The buttons that copy, in a real browser."""

import shutil

import pytest

from tests.support.read.read_service import ZTF_OBJECT

CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]
WITHOUT_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', {value: undefined})"


@pytest.mark.parametrize("script", ["", WITHOUT_CLIPBOARD], ids=["secure", "plain HTTP"])
def test_positions_and_examples_are_copied(read, script):
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=150_000
        )
        context = browser.new_context()
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=read.url)
        reader = context.new_page()
        reader.goto(read.url + "/help")
        page = context.new_page()
        page.set_default_timeout(150_000)
        page.add_init_script(script or "0")
        page.goto(f"{read.url}/objects/{ZTF_OBJECT}")
        for name, text in (
            ("copy 10.000000 -5.000000", "10.000000 -5.000000"),
            ("copy 00:40:00.00 -05:00:00.0", "00:40:00.00 -05:00:00.0"),
        ):
            page.bring_to_front()
            page.get_by_role("button", name=name).click()
            page.get_by_text("Copied").first.wait_for()
            reader.bring_to_front()
            assert reader.evaluate("navigator.clipboard.readText()") == text
        page.bring_to_front()
        page.get_by_role("button", name="copy the example").first.click()
        page.get_by_text("Copied").first.wait_for()
        reader.bring_to_front()
        assert reader.evaluate("navigator.clipboard.readText()").startswith("curl --fail")
        browser.close()
