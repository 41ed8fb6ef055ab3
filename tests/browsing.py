"""A headless browser in front of an explorer, for tests; without one, a sentence says how to get it."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from waiting import until

HOW = "no browser: apt-get install chromium chromium-driver (.ci/run does) and pip install selenium"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


def need_browser():
    """Selenium's webdriver module and the two programs; skips the test where one is missing."""
    driver, browser = shutil.which("chromedriver"), shutil.which("chromium")
    selenium = pytest.importorskip("selenium.webdriver", reason=HOW)
    if not driver or not browser:
        pytest.skip(HOW)
    return selenium, driver, browser


@contextlib.contextmanager
def server(*words, prefix=()):
    """An explorer in a process of its own, as (process, address with the token)."""
    command = [*prefix, sys.executable, "-m", "needlepoint", "explore", "--no-browser", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), address
        yield process, address
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def browser(size="desktop", dark=False):
    """A browser whose console and requests are kept."""
    webdriver, driver, program = need_browser()
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for word in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"):
        options.add_argument(word)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # the sandbox of the browser does not start for root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        wide, high = SIZES[size]
        metrics = {"width": wide, "height": high, "deviceScaleFactor": 1, "mobile": size == "phone"}
        found.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        found.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield Page(found)
    finally:
        found.quit()


class Page:
    """What tests do with a page."""

    def __init__(self, driver):
        self.driver = driver
        self.requests = []

    def open(self, address):
        self.driver.get(address)

    def js(self, code, *given):
        return self.driver.execute_script(code, *given)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.js("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def data(self, selector, name):
        return self.js("return document.querySelector(arguments[0])?.dataset[arguments[1]]", selector, name)

    def click(self, selector):
        self.js("document.querySelector(arguments[0]).click()", selector)

    def set(self, name, value):
        """Type a number beside a slider."""
        code = "const e = document.getElementById('number-' + arguments[0]); e.value = arguments[1];"
        code += "e.dispatchEvent(new Event('change'))"
        self.js(code, name, str(value))

    def until(self, code, what, *pids):
        """Wait for what JavaScript returns while the processes make progress."""
        return until(lambda: self.js(f"return {code}"), what, *pids)

    def errors(self):
        """Messages of the console that are errors or warnings."""
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]

    def addresses(self):
        """Addresses of every request so far."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
        return self.requests

    def shoot(self, path):
        """Save a picture of the whole page."""
        high = self.js("return Math.ceil(document.documentElement.scrollHeight)")
        wide = self.js("return document.documentElement.clientWidth")
        clip = {"x": 0, "y": 0, "width": wide, "height": high, "scale": 1}
        found = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path.write_bytes(base64.b64decode(found["data"]))


def settled(page, seconds=0.3):
    """Give the page time to draw; nothing is decided by it."""
    time.sleep(seconds)
