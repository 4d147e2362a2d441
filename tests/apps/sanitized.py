"""Whether the programs under test run with a sanitizer, which needs additional memory and time."""

import os

SANITIZED = any(name in os.environ for name in ("ASAN_OPTIONS", "TSAN_OPTIONS"))
