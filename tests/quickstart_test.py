#!/usr/bin/env python3
"""The targets of scripts/quickstart are enough for the installation and the programs of the README.

usage: quickstart_test.py ROOT BUILD

Asks the generator for the files of the targets of scripts/quickstart, without building them.
"""

import pathlib
import re
import subprocess
import sys

# They use what scripts/quickstart has built.
PAGES = ("README.md", "docs/command.md")
BUILT = re.compile(r"\bbuild/release/((?:bin|examples)/\w+)")


def quickstart_targets(root):
    """Targets that scripts/quickstart builds."""
    script = (root / "scripts/quickstart").read_text(encoding="utf-8")
    found = re.findall(r"^cmake --build --preset release --target (.+)$", script, re.M)
    if len(found) != 1:
        sys.exit("scripts/quickstart: one call of `cmake --build ... --target` is wanted")
    return found[0].split()


def made_by(build, targets):
    """Files below the build folder, relative to it, that Ninja makes for the targets."""
    # Includes order-only inputs, which represent dependencies between CMake targets. "-t inputs"
    # omits them.
    asked = subprocess.run(["ninja", "-C", build, "-t", "graph", *targets],
                           capture_output=True, text=True, timeout=120, check=False)
    if asked.returncode != 0:
        sys.exit(f"ninja does not know {targets}: {asked.stdout}{asked.stderr}")
    labels = re.findall(r'^"0x[0-9a-f]+" \[label="([^"]+)"', asked.stdout, re.M)
    return {label for label in labels if not pathlib.Path(label).is_absolute()}


def made_by_any(build):
    """Same, for all targets."""
    asked = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"],
                           capture_output=True, text=True, timeout=120, check=True)
    return {line.rsplit(":", 1)[0] for line in asked.stdout.splitlines()}


def installed(build):
    """Files below the build folder, relative to it, that `cmake --install` copies."""
    script = (build / "cmake_install.cmake").read_text(encoding="utf-8")
    paths = re.findall(r'"(%s/[^"]+)"' % re.escape(str(build)), script)
    return {str(pathlib.Path(path).relative_to(build)) for path in paths}


def main():
    root, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    everything = made_by_any(build)
    made = made_by(build, quickstart_targets(root))
    # Files that exist without a build (written by CMake's configuration) need no target.
    wanted = {path for path in installed(build) if path in everything}
    if not {"bin/lockstep", "share/lockstep.1"} <= wanted:
        sys.exit(f"{build}: cmake_install.cmake was not understood, it seems to install {wanted}")
    programs = set()
    for page in PAGES:
        programs |= set(BUILT.findall((root / page).read_text(encoding="utf-8")))
    if len(programs) < 2:
        sys.exit(f"{PAGES}: their programs were not found")
    missing = sorted((wanted | programs) - made)
    if missing:
        sys.exit(f"the README needs what scripts/quickstart does not build: {', '.join(missing)}")
    print(f"{len(wanted)} installed files and {len(programs)} programs are built by quickstart")


if __name__ == "__main__":
    main()
