"""Takes the pictures of the documentation, while the system of docs/tutorial/first-light.md runs.

`python -m tools.docs.screenshots [URL]` writes them into docs/images. It needs chromium. A test
takes them too, and compares them with those that are there.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PICTURES = {"object.png": "/objects/ZTF25aaaaaab"}
WIDTH, HEIGHT = 1200, 1180  # pixels


def take(url: str, folder: Path = IMAGES) -> None:
    """Write each picture of the pages at this address into a folder."""
    folder.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        for name, path in PICTURES.items():
            page.goto(f"{url}{path}", wait_until="networkidle")
            page.locator("svg.plot a").nth(8).hover()
            page.wait_for_selector(".peek img")
            page.wait_for_load_state("networkidle")
            page.screenshot(path=folder / name)
        browser.close()


if __name__ == "__main__":
    take(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080")
