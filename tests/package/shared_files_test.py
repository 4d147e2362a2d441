#!/usr/bin/env python3
"""An installed Lockstep brings the manual page and the completions that the command prints.

usage: shared_files_test.py COMMAND PREFIX MANDIR DATADIR
"""

import pathlib
import subprocess
import sys

command, prefix, mandir, datadir = sys.argv[1:]
share = pathlib.Path(prefix) / datadir
for path, arguments in (
    (pathlib.Path(prefix) / mandir / "man1/lockstep.1", ["man"]),
    (share / "bash-completion/completions/lockstep", ["completion", "bash"]),
    (share / "zsh/site-functions/_lockstep", ["completion", "zsh"]),
    (share / "fish/vendor_completions.d/lockstep.fish", ["completion", "fish"]),
):
    printed = subprocess.run([command, *arguments], capture_output=True, timeout=60, check=True).stdout
    if not printed or path.read_bytes() != printed:
        sys.exit(f"error: {path} is not what `lockstep {' '.join(arguments)}` prints")
print("4 files are what the command prints")
