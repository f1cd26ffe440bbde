"""The page in headless Chromium: sorted, filtered, saved, zoomed, dark, and attacked.

Some 10 s: a browser starts, and all figures are drawn.
"""

import csv
import shutil
import time

import pytest

from conftest import failed_row, make_row
from test_report_page import DOCUMENT, NASTY, render, trace, with_messages

selenium = pytest.importorskip("selenium", reason="selenium is not here; requirements.txt names it")
from selenium import webdriver  # noqa: E402
from selenium.webdriver import ActionChains, Keys  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

if not shutil.which("chromium") or not shutil.which("chromedriver"):
    pytest.skip("no chromium and chromedriver here; on Debian: apt-get install chromium chromium-driver",
                allow_module_level=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def browser(folder):
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1300,900"):
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def path(folder):
    nasty = {**make_row("dp2"), "case": NASTY}
    nasty["params"] = {**nasty["params"], "mesh": NASTY}
    rows = [make_row("pp4", 8), make_row("pp2", 2), make_row("dp4", 16), failed_row("crash", NASTY), nasty]
    named = trace(NASTY, stages=2, micro_batches=2)
    named["traceEvents"][1]["name"] = NASTY
    file = folder / "report.html"
    file.write_text(render(rows, [(with_messages(trace(stages=4, micro_batches=8)), None), (named, None)], DOCUMENT, title=NASTY), encoding="utf-8")
    return file


@pytest.fixture
def page(browser, path):
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    browser.get(path.as_uri())
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def cells(page, table, column):
    return [cell.text for cell in page.find_elements(By.CSS_SELECTOR, f"#table-{table} tbody tr:not([hidden]) td:nth-child({column})")]


def heading(page, table, column):
    return page.find_element(By.CSS_SELECTOR, f"#table-{table} th:nth-child({column})")


def view(page):
    canvas = page.find_element(By.ID, "timeline-canvas")
    return tuple(int(canvas.get_attribute(f"data-{key}")) for key in ("start", "end"))


def said(page):
    return page.find_element(By.ID, "timeline-said").text


def at(page, x, y):
    """Mouse actions that begin at a place of the canvas, from its upper left corner."""
    canvas = page.find_element(By.ID, "timeline-canvas")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    size = canvas.size
    return ActionChains(page, duration=20).move_to_element_with_offset(canvas, x - size["width"] // 2, y - size["height"] // 2)


def test_names_run_no_script_and_nothing_is_loaded(page):
    assert page.title == NASTY
    assert NASTY in cells(page, "cases", 1) and NASTY in cells(page, "outcomes", 3)
    Select(page.find_element(By.ID, "timeline-trace")).select_by_index(1)
    page.find_element(By.ID, "timeline-canvas").send_keys("n")
    assert said(page).startswith(NASTY) and page.title == NASTY
    assert page.execute_script("return performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length") == 0
    assert page.execute_script("return [...document.images].every(image => image.complete && image.naturalWidth > 100 && image.alt)"
                               ) or page.execute_script("return [...document.images].every(image => image.loading === 'lazy')")


def test_a_click_sorts_up_and_another_down_with_what_has_no_number_last(page):
    button = heading(page, "cases", 4).find_element(By.TAG_NAME, "button")
    button.click()
    up = cells(page, "cases", 4)
    assert up[-1] == "–" and [float(text.replace(",", "")) for text in up[:-1]] == sorted(float(t.replace(",", "")) for t in up[:-1])
    assert heading(page, "cases", 4).get_attribute("aria-sort") == "ascending"
    button.click()
    down = cells(page, "cases", 4)
    assert down[-1] == "–" and down[:-1] == up[-2::-1]
    assert heading(page, "cases", 4).get_attribute("aria-sort") == "descending"


def test_keys_sort_as_well(page):
    heading(page, "cases", 2).find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert cells(page, "cases", 2)[0] == "crashed" and heading(page, "cases", 2).get_attribute("aria-sort") == "ascending"


def test_a_filter_hides_lines_and_counts_them(page):
    page.find_element(By.CSS_SELECTOR, ".filter[data-table=cases]").send_keys("PP ran")
    assert cells(page, "cases", 1) == ["pp4", "pp2"]
    assert page.find_element(By.CSS_SELECTOR, ".shown[data-table=cases]").text == "2 of 5 lines"


def test_the_table_that_is_shown_is_saved(page, folder):
    page.find_element(By.CSS_SELECTOR, ".filter[data-table=cases]").send_keys("ran")
    page.find_element(By.CSS_SELECTOR, ".save[data-table=cases][data-form=csv]").click()
    file = folder / "cases.csv"
    for _ in range(100):
        if file.exists():
            break
        time.sleep(0.05)
    first, *lines = csv.reader(file.read_text(encoding="utf-8").splitlines())
    assert first[0] == "mesh" and [line[0] for line in lines] == ["pp4", "pp2", "dp4", NASTY]
    assert float(lines[0][3]) > 100


def test_buttons_zoom_about_the_middle_and_back(page):
    start, end = view(page)
    page.find_element(By.ID, "timeline-in").click()
    near = view(page)
    assert near[1] - near[0] == pytest.approx((end - start) / 2, abs=2) and sum(near) == pytest.approx(start + end, abs=2)
    page.find_element(By.ID, "timeline-out").click()
    assert view(page) == pytest.approx((start, end), abs=2)
    page.find_element(By.ID, "timeline-in").click()
    page.find_element(By.ID, "timeline-fit").click()
    assert view(page) == (start, end)


def test_keys_zoom_move_and_walk_through_operations(page):
    canvas = page.find_element(By.ID, "timeline-canvas")
    whole = view(page)
    canvas.send_keys("+", "+")
    near = view(page)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 4, abs=4)
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert view(page)[0] == pytest.approx(near[0] + 0.2 * (near[1] - near[0]), abs=4)
    canvas.send_keys("0", "n")
    assert said(page).startswith("forward (compute, rank 0") and "micro-batch 0" in said(page)
    canvas.send_keys("n", "n")
    assert "micro-batch 1" in said(page)
    canvas.send_keys(Keys.ARROW_DOWN)
    assert "stage 1" in said(page)
    canvas.send_keys(Keys.ESCAPE)
    assert said(page) == "No operation chosen." and view(page) == whole


def test_messages_are_drawn_where_they_are_in_view_and_wanted(page):
    canvas, box = page.find_element(By.ID, "timeline-canvas"), page.find_element(By.ID, "timeline-messages")
    whole = int(canvas.get_attribute("data-arrows"))
    assert whole == 16  # both operations of 8 forwards
    canvas.send_keys("+", "+", "+")
    assert 0 <= int(canvas.get_attribute("data-arrows")) < whole
    canvas.send_keys("0")
    box.click()
    assert int(canvas.get_attribute("data-arrows")) == 0
    box.click()
    Select(page.find_element(By.ID, "timeline-trace")).select_by_index(1)
    assert int(canvas.get_attribute("data-arrows")) == 0


def test_the_mouse_points_chooses_drags_and_zooms(page):
    at(page, 210, 32).perform()
    tip = page.find_element(By.ID, "timeline-tip")
    assert tip.is_displayed() and "micro-batch 0" in tip.text
    at(page, 210, 32).click().perform()
    assert "forward" in said(page)
    page.find_element(By.ID, "timeline-in").click()
    before = view(page)
    at(page, 600, 40).click_and_hold().move_by_offset(-120, 0).release().perform()
    assert view(page)[0] > before[0] and view(page)[1] - view(page)[0] == pytest.approx(before[1] - before[0], abs=2)
    at(page, 600, 40).double_click().perform()
    assert view(page)[1] - view(page)[0] == pytest.approx((before[1] - before[0]) / 3, rel=0.01)


def test_the_page_is_dark_where_one_wants_it_and_white_on_paper(page):
    def colour():
        return page.execute_script("return getComputedStyle(document.body).backgroundColor")

    def pixel():
        return page.execute_script("return [...document.getElementById('timeline-canvas').getContext('2d').getImageData(2, 2, 1, 1).data]")

    assert colour() == "rgb(255, 255, 255)" and pixel()[:3] == [255, 255, 255]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    assert colour() == "rgb(21, 23, 26)"
    WebDriverWait(page, 30).until(lambda _: pixel()[:3] == [21, 23, 26])  # the page is told, and draws anew
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [
        {"name": "prefers-color-scheme", "value": "dark"}]})
    assert colour() == "rgb(255, 255, 255)"
    assert page.execute_cdp_cmd("Page.printToPDF", {})["data"].startswith("JVBERi0")


def test_everything_can_be_reached_by_keys(page):
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    seen = set()
    for _ in range(120):
        seen.add(page.execute_script("const e = document.activeElement; return e.id || e.className || e.tagName"))
        ActionChains(page, duration=0).send_keys(Keys.TAB).perform()
    assert {"skip", "filter", "save", "wide", "timeline-trace", "timeline-all", "timeline-in", "timeline-canvas"} <= seen
