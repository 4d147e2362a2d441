"""Chromium without a window, for the tests of pages and for pictures of them."""

import atexit
import os
import tempfile
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service


class Browser:
    """A context. Offers the WebDriver as `driver`."""

    shared = None

    @classmethod
    def of_all_tests(cls):
        """One for the tests of a program, because its start takes longer than most of them. It has
        no page, no stored data and no messages of earlier tests."""
        if cls.shared is None:
            cls.shared = cls()
            atexit.register(cls.shared.driver.quit)
        driver = cls.shared.driver
        driver.get("about:blank")
        driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
        cls.shared.problems()
        cls.shared.look()
        return cls.shared

    def __init__(self, downloads=None):
        options = Options()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                         "--hide-scrollbars", "--force-color-profile=srgb"):
            options.add_argument(argument)
        if downloads:
            options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        options.binary_location = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver", log_path=os.devnull), options=options)
        self.driver.set_page_load_timeout(30)
        self.driver.set_script_timeout(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.driver.quit()

    def look(self, width=1400, height=900, dark=False):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def wait(self, script, seconds=20):
        """Until the script returns something true, which is the result."""
        limit = time.monotonic() + seconds
        while True:
            value = self.js(script)
            if value:
                return value
            if time.monotonic() > limit:
                raise AssertionError(f"not true after {seconds} s: {script}\n{self.js('return document.body.innerText')[:2000]}")
            time.sleep(0.05)

    def problems(self):
        """Errors on the console, such as exceptions and what the page's security policy refused."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
