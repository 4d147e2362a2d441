#!/usr/bin/env python3
"""Runs the README's commands, in order, in a folder of their own, and compares its program.

usage: readme_test.py ROOT COMMAND
"""

import pathlib
import re
import subprocess
import sys
import tempfile

# These install, build and test: whoever runs this test came through them.
NOT_HERE = ("scripts/quickstart", "scripts/test")


def main():
    root, command = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    text = (root / "README.md").read_text(encoding="utf-8")

    programs = re.findall(r"```cpp\n(.*?)```", text, re.S)
    example = (root / "examples/train_digits.cpp").read_text(encoding="utf-8")
    if [p.strip() for p in programs] != [example.strip()]:
        sys.exit("README.md: its program is not examples/train_digits.cpp")

    commands = []
    for block in re.findall(r"```console\n(.*?)```", text, re.S):
        lines = block.splitlines()
        for number, line in enumerate(lines):
            if not line.startswith("$ "):
                continue
            output = []
            for following in lines[number + 1:]:
                if following.startswith("$ "):
                    break
                output.append(following)
            commands.append((line[2:], output))
    ran = 0
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        (here / "examples").symlink_to(root / "examples")
        (here / "build/release/bin").mkdir(parents=True)
        (here / "build/release/bin/lockstep").symlink_to(command)
        for line, output in commands:
            if line.startswith(NOT_HERE):
                continue
            print("$", line, flush=True)
            result = subprocess.run(["bash", "-c", line], cwd=here, text=True, timeout=500,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            print(result.stdout, flush=True)
            if result.returncode != 0:
                sys.exit(f"README.md: `{line}` ended with {result.returncode}")
            # What is the same everywhere is compared: names of files.
            if line.startswith("ls ") and result.stdout.splitlines() != output:
                sys.exit(f"README.md: `{line}` prints something else")
            ran += 1
    if ran < 5:
        sys.exit(f"README.md: only {ran} commands found")
    print(f"{ran} commands ran")


if __name__ == "__main__":
    main()
