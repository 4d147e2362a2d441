#!/usr/bin/env python3
"""Checks the order of the house: a file includes only what comes before it, written from the root.

Without arguments the rules are tried on small trees that break them, then applied to this project.
"""

import pathlib
import re
import sys
import tempfile
import unittest

# Wings in order, each with its rooms in order.
WINGS = [
    ("lockstep/base", []),
    ("lockstep/engine", ["tensor", "kernels", "autograd", "ops", "plan", "nn", "formats"]),
    ("lockstep/data", []),
    ("lockstep/parallel", ["process", "comm", "launch", "pool"]),
    ("lockstep/train", []),
    ("lockstep/runs", []),
    ("lockstep/report", []),
    ("apps/lockstep", []),
]
# These may include everything in the house.
GUESTS = ["tests", "examples", "benchmarks"]
# Collects headers for users; belongs to no wing, and no wing includes it.
FRONT_DOOR = "lockstep/lockstep.h"

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def place(path):
    """(number of the wing, number of the room) of a path from the root; None outside the house.

    A file beside a wing's rooms comes after all of them.
    """
    for number, (wing, rooms) in enumerate(WINGS):
        if path.startswith(wing + "/"):
            parts = path[len(wing) + 1:].split("/")
            if len(parts) > 1 and rooms:
                return (number, rooms.index(parts[0])) if parts[0] in rooms else None
            return number, len(rooms)
    return None


def files_of(root):
    for folder in ["lockstep", "apps"] + GUESTS:
        for suffix in ("*.h", "*.cpp", "*.cu", "*.cuh"):
            yield from sorted((root / folder).rglob(suffix))


def problems(root):
    """Texts "file:line: what is wrong" for all sources under `root`."""
    found = []
    for file in files_of(root):
        path = file.relative_to(root).as_posix()
        is_guest = path.split("/")[0] in GUESTS or path == FRONT_DOOR
        here = place(path)
        if here is None and not is_guest:
            found.append(f"{path}:1: this folder is no wing or room of the house")
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        # Highway includes some headers once for each instruction set.
        guarded = "#pragma once" in lines or any("defined(HWY_TARGET_TOGGLE)" in x for x in lines)
        if file.suffix == ".h" and not guarded:
            found.append(f"{path}:1: the header has no #pragma once")
        own = file.with_suffix(".h")
        first = next((match.group(2) for match in map(INCLUDE.match, lines) if match), None)
        if file.suffix == ".cpp" and own.is_file() and first != own.relative_to(root).as_posix():
            found.append(f"{path}:1: its own header is not its first include")
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            kind, target = match.groups()
            where = f"{path}:{number}"
            if kind == "<":
                if target.startswith(("lockstep/", "apps/")):
                    found.append(f'{where}: {target} is ours: write it in quotes')
                continue
            if not (root / target).is_file() or ".." in target.split("/"):
                if path.startswith("tests/package/") and target.startswith("lockstep/"):
                    continue
                found.append(f'{where}: "{target}" is not a file, written from the root')
                continue
            if target.endswith((".cpp", ".cu")):
                found.append(f"{where}: {target} is a source, not a header")
            there = place(target)
            if is_guest:
                continue
            if there is None:
                found.append(f"{where}: {target} lies outside the house")
            elif there > here:
                found.append(f"{where}: {target} comes later in the house than {path}")
    return found


class Rules(unittest.TestCase):
    def check(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return problems(root)

    header = {"lockstep/base/a.h": "#pragma once\n", "lockstep/train/t.h": "#pragma once\n",
              "lockstep/engine/ops/o.h": "#pragma once\n",
              "lockstep/engine/kernels/cpu/k.h": "#pragma once\n"}

    def test_accepts_what_comes_before(self):
        self.assertEqual(self.check(self.header | {
            "lockstep/train/t.cpp": '#include "lockstep/train/t.h"\n#include <vector>\n'
                                    '#include "lockstep/engine/ops/o.h"\n',
            "lockstep/engine/nn/n.cpp": '#include "lockstep/engine/kernels/cpu/k.h"\n',
            "tests/base/a_test.cpp": '#include "lockstep/train/t.h"\n',
            "apps/lockstep/main.cpp": '#include "lockstep/train/t.h"\n'}), [])

    def test_refuses_what_comes_later(self):
        self.assertEqual(self.check(self.header | {
            "lockstep/base/b.cpp": '\n#include "lockstep/train/t.h"\n'}),
            ["lockstep/base/b.cpp:2: lockstep/train/t.h comes later in the house than "
             "lockstep/base/b.cpp"])
        self.assertEqual(len(self.check(self.header | {
            "lockstep/engine/kernels/k.cpp": '#include "lockstep/engine/ops/o.h"\n'})), 1)

    def test_refuses_includes_not_written_from_the_root(self):
        self.assertEqual(self.check(self.header | {
            "lockstep/base/b.cpp": '#include "a.h"\n#include <lockstep/base/a.h>\n'
                                   '#include "lockstep/train/../base/a.h"\n'}),
            ['lockstep/base/b.cpp:1: "a.h" is not a file, written from the root',
             "lockstep/base/b.cpp:2: lockstep/base/a.h is ours: write it in quotes",
             'lockstep/base/b.cpp:3: "lockstep/train/../base/a.h" is not a file, written from the '
             "root"])
        self.assertEqual(len(self.check(self.header | {
            "tests/base/b_test.cpp": '#include "a.h"\n'})), 1)

    def test_refuses_unknown_rooms_and_headers_without_guard(self):
        self.assertEqual(len(self.check({"lockstep/attic/a.cpp": ""})), 1)
        self.assertEqual(len(self.check({"lockstep/engine/attic/a.cpp": ""})), 1)
        self.assertEqual(len(self.check({"lockstep/base/a.h": ""})), 1)

    def test_refuses_a_source_that_does_not_include_its_header_first(self):
        self.assertEqual(self.check(self.header | {
            "lockstep/base/a.cpp": '#include <vector>\n#include "lockstep/base/a.h"\n'}),
            ["lockstep/base/a.cpp:1: its own header is not its first include"])
        self.assertEqual(self.check(self.header | {
            "lockstep/base/a.cpp": '#include "lockstep/base/a.h"\n#include <vector>\n'}), [])

    def test_the_project_keeps_them(self):
        root = pathlib.Path(__file__).resolve().parent.parent
        self.assertTrue(list(files_of(root)), "no sources found")
        found = problems(root)
        self.assertFalse(found, "\n" + "\n".join(found))


if __name__ == "__main__":
    sys.exit(unittest.main())
