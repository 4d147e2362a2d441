"""Whether the programs under test are instrumented: sanitizers take memory and time of their own."""

import os

SANITIZED = any(name in os.environ for name in ("ASAN_OPTIONS", "TSAN_OPTIONS"))
