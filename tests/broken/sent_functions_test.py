#!/usr/bin/env python3
"""The compiler refuses functions that would lose what they hold on the way to workers, and no other.

usage: sent_functions_test.py COMPILER SOURCES [FLAGS...]

Compiles sent_functions.cpp, whose lines say in a comment which refusal they expect.
"""

import pathlib
import re
import subprocess
import sys

TEXTS = {
    "state": "a function that is sent to workers cannot have captures or data members",
    "pointer": "a pointer to a function cannot be sent to workers",
    "constructor": "a function that is sent to workers is made there by its default constructor",
    "name": "a function is named by its address",
}
EXPECTED = re.compile(r";  // (\w+)$")


def refusals(output, name):
    """The texts of the errors, by the line of the source that causes them."""
    # GCC writes the lines that led to an error before it, Clang after it.
    place = re.compile(re.escape(name) + r":(\d+):\d+:\s+(required from here|note: in instantiation)")
    found, before, waiting = [], None, None
    for line in output.splitlines():
        at = place.search(line)
        if at and "required" in at[2]:
            before = int(at[1])
        elif at and waiting is not None:
            found.append((int(at[1]), waiting))
            waiting = None
        if " error: " in line:
            if before is None:
                waiting = line
            else:
                found.append((before, line))
    if waiting is not None:
        sys.exit(f"an error at no line of {name}: {waiting}\n{output}")
    return found


def main():
    compiler, sources, *flags = sys.argv[1:]
    path = pathlib.Path(__file__).parent / "sent_functions.cpp"
    expected = {number: EXPECTED.search(line)[1]
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
                if EXPECTED.search(line)}
    if set(expected.values()) != set(TEXTS):
        sys.exit(f"{path} does not expect all refusals: {sorted(set(expected.values()))}")
    limit = ["-ferror-limit=0"] if "clang" in compiler else ["-fmax-errors=0"]
    done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{sources}", *limit, *flags,
                           str(path)], capture_output=True, text=True)
    found = {}
    for number, text in refusals(done.stderr, path.name):
        found.setdefault(number, text)  # those that follow come of the first
    problems = [f"line {number} compiles, but should be refused: {kind}"
                for number, kind in expected.items() if number not in found]
    problems += [f"line {number} is refused: {text}" for number, text in found.items()
                 if number not in expected]
    problems += [f"line {number} should be refused for its {kind}: {found[number]}"
                 for number, kind in expected.items()
                 if number in found and TEXTS[kind] not in found[number]]
    if problems or done.returncode == 0:
        sys.exit("\n".join(problems) or done.stderr)
    print(f"{len(found)} lines are refused")


if __name__ == "__main__":
    main()
