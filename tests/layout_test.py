#!/usr/bin/env python3
"""Checks the layout: a file includes only files of earlier modules, by paths from the root, and no
folder has too many files. Also finds "is no file" where "is not a file" is meant.

Without arguments the rules are tested on small trees that break them, then applied to this project.
"""

import pathlib
import re
import sys
import tempfile
import unittest

# Families of ops: the same in ops, kernels, kernels/cpu, kernels/cuda and layers.
FAMILIES = ["attention", "elementwise", "images", "losses", "matrices", "normalization", "recurrent",
            "reductions", "shapes", "solvers", "windows"]
# Components in order, each with its modules in order. A module is a folder with its subfolders. "."
# is the component's own folder without its modules. Families of one place form one module.
COMPONENTS = [
    ("lockstep/base", [".", "numeric", "threads", "os", "json", "toml"]),
    ("lockstep/storage", [".", "reading"]),
    ("lockstep/engine", ["device", "tensor", "kernels/interface", "kernels/FAMILY",
                         "kernels/backends", "kernels/cpu", "kernels/cuda", "kernels/self_test",
                         "kernels", "graph", "autograd", "ops", "plan", "nn", "formats"]),
    ("lockstep/data", ["images", "datastores", "batches"]),
    ("lockstep/parallel", ["messages", "process", "comm", "reduce", "pool"]),
    ("lockstep/train", ["options", "records", "profile", "optimizer", "input", "state", "programs",
                        "iteration", "evaluation", "loop", "workers", "."]),
    ("lockstep/cluster", ["profiles", "remote", "slurm", "login", "clouds", "."]),
    ("lockstep/runs", ["sources", "jobs", "folders", "store", "batch", ".", "sweeps", "folds"]),
    ("lockstep/report", [".", "tensorboard", "pages", "dashboard"]),
    ("apps/lockstep", [".", "documents", "data", "models", "runs", "batch"]),
]
# These may include everything.
CLIENTS = ["tests", "examples", "benchmarks"]
# A header for users that includes others. It belongs to no component, and no component includes it.
PUBLIC_HEADER = "lockstep/lockstep.h"
# Lines of the files of one folder, headers and sources together.
MOST_LINES = 4000
# Libraries whose headers take long to compile, and the headers that may include them. Others use
# forward declarations (nlohmann/json_fwd.hpp).
HEAVY = {
    "CLI/": [],
    "cereal/": ["lockstep/parallel/messages/serialize.h"],
    "hwy/": ["lockstep/engine/kernels/cpu/batch_lanes/vectors.h",
             "lockstep/engine/kernels/cpu/matrices/tiles.h",
             "lockstep/engine/kernels/cpu/vector_elements.h"],
    "muParser": [],
    "nlohmann/json.hpp": ["lockstep/base/field_words.h", "lockstep/base/toml/toml_tree.h",
                          "lockstep/runs/jobs/job_source.h",
                          "lockstep/train/state/checkpoint.h"],
    "toml++/": [],
}

# What one place alone may call: parsers of bytes from outside, which must bound the nesting.
ONE_PLACE = {
    re.compile(r"(?i)json\s*::\s*(parse|accept|sax_parse|from_(cbor|msgpack|ubjson|bson|bjdata))\s*\("):
        ["lockstep/base/json/json_text.cpp"],
    re.compile(r"\btoml::parse(_file)?\s*\("): ["lockstep/base/toml/toml_tree.cpp"],
}

# Texts in which "is no" and the like are looked for, and what may lie between two words of a sentence.
TEXTS = [".h", ".cpp", ".cu", ".cuh", ".py", ".md", ".cmake", ".txt", ".js", ".css", ".html", ""]
PLACES = ["lockstep", "apps", "docs", "tests", "scripts", "examples", "benchmarks", "cmake"]
GAP = r"""(?:[\s"/#*]|\\n)+"""
# "0 is no limit", "255 is no ink": the value means that there is none.
IS_NO = re.compile(rf"\b(?:is|are|was|were|be|been|being){GAP}no{GAP}(?!(?:longer|more|matter|limit|ink)\b)[\w`'{{<]", re.I)
# "there is no file" is right, and so is "there may be no file".
THERE = re.compile(rf"\bthere{GAP}(?:(?:may|can|could|would|will|must|should|might|also|still|then|to|not){GAP})*$"
                   rf"|\b(?:is|are|was|were){GAP}there{GAP}$", re.I)
IS_NO_IN_NAME = re.compile(r"(?<=[a-z])(?<!There)(?:Is|Are|Was|Were)No(?=[A-Z])|(?<!there)_(?:is|are|was|were)_no_(?=[a-z])")

# Words of the style (CONTRIBUTING.md), and what to write instead. They are looked for where users read.
WORDS = {
    r"behind": "after, or what else is meant",
    r"besides?": "next to, in addition to, other than, compared with",
    r"anew": "again",
    r"whoever|nobody|somebody": "the process, thread or file that is meant",
    r"one behind the other": "concatenated, in sequence",
    r"otherwise than": "differently from",
    r"(?:come|comes|came) to rest": "halt",
    r"by the tangent": "by the tanh approximation",
    r"start of the (?:weights|bias|parameters)": "initializer",
    r"numbers? at each (?:place|position)": "values per time step, channels",
}
ANY_WORD = re.compile(r"\b(?:" + "|".join(f"({GAP.join(word.split(' '))})" for word in WORDS) + r")\b", re.I)
WORDS_PLACES = ("lockstep/", "apps/", "docs/", "examples/", "README.md", "CHANGELOG.md")
# British spelling, in words and inside identifiers. "artefacts" in quotes is a key in stored files.
BRITISH = re.compile(
    r"analyse(?!s)|artefact(?!s\")|behaviour|catalogue|centre|colour|favour|grey|neighbour|labelled"
    r"|(?:capital|categor|custom|final|general|initial|maxim|minim|memor|normal|optim|parallel|random|recogn|regular|serial"
    r"|special|standard|summar|synchron|util|vector)is(?:e[drs]?|ing|ation)(?-i:(?![a-z]))", re.I)
# It had many meanings; each has a word of its own now (CONTRIBUTING.md). In words and inside identifiers of sources.
PIECE = re.compile(r"piece(?!wise)", re.I)

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def place(path):
    """(number of the component, number of the module) of a path from the root; else None."""
    for number, (component, modules) in enumerate(COMPONENTS):
        if not path.startswith(component + "/"):
            continue
        folders = path[len(component) + 1:].split("/")[:-1]
        for length in range(len(folders), -1, -1):
            name = "/".join(folders[:length]) or "."
            if length and folders[length - 1] in FAMILIES:
                family = "/".join(folders[:length - 1] + ["FAMILY"])
                name = family if family in modules else name
            if name == "." and folders:
                return None
            if name in modules:
                return number, modules.index(name)
        return None
    return None


def files_of(root):
    for folder in ["lockstep", "apps"] + CLIENTS:
        for suffix in ("*.h", "*.cpp", "*.cu", "*.cuh"):
            yield from sorted((root / folder).rglob(suffix))


def problems(root):
    """Problems as texts "file:line: problem" for all sources under `root`."""
    found = []
    crowded = {}
    for file in files_of(root):
        crowded.setdefault(file.parent, []).append(file)
    for folder, files in sorted(crowded.items()):
        name = folder.relative_to(root).as_posix()
        lines = sum(file.read_text(encoding="utf-8").count("\n") for file in files)
        if lines > MOST_LINES and name.split("/")[0] not in CLIENTS:
            found.append(f"{name}: {lines} lines, more than {MOST_LINES}: find its modules")
    for file in files_of(root):
        path = file.relative_to(root).as_posix()
        is_client = path.split("/")[0] in CLIENTS or path == PUBLIC_HEADER
        here = place(path)
        if here is None and not is_client:
            found.append(f"{path}:1: this folder is not a component or module")
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
            for call, places in ONE_PLACE.items():
                if path.startswith(("lockstep/", "apps/")) and path not in places and call.search(line):
                    found.append(f"{path}:{number}: only {places[0]} calls this parser: use its function")
            match = INCLUDE.match(line)
            if not match:
                continue
            kind, target = match.groups()
            where = f"{path}:{number}"
            if kind == "<":
                if target.startswith(("lockstep/", "apps/")):
                    found.append(f'{where}: {target} is ours: write it in quotes')
                for library, allowed in HEAVY.items():
                    if (file.suffix == ".h" and path.startswith(("lockstep/", "apps/"))
                            and target.startswith(library) and path not in allowed):
                        found.append(f"{where}: <{target}> takes long to compile: include it in "
                                     "sources")
                continue
            if not (root / target).is_file() or ".." in target.split("/"):
                if path.startswith("tests/package/") and target.startswith("lockstep/"):
                    continue
                found.append(f'{where}: "{target}" is not a file, written from the root')
                continue
            if target.endswith((".cpp", ".cu")):
                found.append(f"{where}: {target} is a source, not a header")
            there = place(target)
            if is_client:
                continue
            if there is None:
                found.append(f"{where}: {target} lies outside the components")
            elif there > here:
                found.append(f"{where}: {target} comes later in the order than {path}")
    return found


def texts_of(root):
    for folder in PLACES:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in TEXTS and file.is_file() and "__pycache__" not in file.parts:
                yield file
    yield from sorted(root.glob("*.md"))


def wrong_words(root):
    """Words that the style forbids, as "file:line: ..."."""
    found = []
    for file in texts_of(root):
        path = file.relative_to(root).as_posix()
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if path == "tests/layout_test.py":  # it has examples
            continue
        no = '"is no" means "there is none": write "is not a"'
        places = [(match.start(), no) for match in IS_NO.finditer(text)
                  if not THERE.search(text[max(0, match.start() - 60):match.start()])]
        places += [(match.start(), no) for match in IS_NO_IN_NAME.finditer(text)]
        if path != "CHANGELOG.md":  # it names what had another name
            places += [(match.start(), f'"{match.group()}" is British: write American spelling')
                       for match in BRITISH.finditer(text)]
        if path.startswith(("lockstep/", "apps/")):
            places += [(match.start(), f'"{match.group()}": write tile, update range, chunk, row range, segment, slice or block')
                       for match in PIECE.finditer(text)]
        if path.startswith(WORDS_PLACES):
            places += [(match.start(), f'"{" ".join(match.group().split())}": write {list(WORDS.values())[match.lastindex - 1]}')
                       for match in ANY_WORD.finditer(text)]
        for place, what in sorted(places):
            line = text.count("\n", 0, place) + 1
            found.append(f"{path}:{line}: {what}")
    return found


class Rules(unittest.TestCase):
    def check(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return problems(root)

    header = {"lockstep/base/a.h": "#pragma once\n", "lockstep/train/iteration/t.h": "#pragma once\n",
              "lockstep/engine/ops/o.h": "#pragma once\n",
              "lockstep/engine/kernels/cpu/k.h": "#pragma once\n"}

    def test_accepts_what_comes_before(self):
        self.assertEqual(self.check(self.header | {
            "lockstep/train/iteration/t.cpp": '#include "lockstep/train/iteration/t.h"\n#include <vector>\n'
                                    '#include "lockstep/engine/ops/o.h"\n',
            "lockstep/engine/nn/n.cpp": '#include "lockstep/engine/kernels/cpu/k.h"\n',
            "tests/base/a_test.cpp": '#include "lockstep/train/iteration/t.h"\n',
            "apps/lockstep/main.cpp": '#include "lockstep/train/iteration/t.h"\n'}), [])

    def test_refuses_what_comes_later(self):
        self.assertEqual(self.check(self.header | {
            "lockstep/base/b.cpp": '\n#include "lockstep/train/iteration/t.h"\n'}),
            ["lockstep/base/b.cpp:2: lockstep/train/iteration/t.h comes later in the order than "
             "lockstep/base/b.cpp"])
        self.assertEqual(len(self.check(self.header | {
            "lockstep/engine/kernels/k.cpp": '#include "lockstep/engine/ops/o.h"\n'})), 1)
        # From module to module, within a family too, and from a module to the component's folder.
        self.assertEqual(len(self.check(self.header | {
            "lockstep/base/b.h": '#pragma once\n#include "lockstep/base/os/f.h"\n',
            "lockstep/base/os/f.h": '#pragma once\n#include "lockstep/base/a.h"\n',
            "lockstep/engine/kernels/losses/l.h":
                '#pragma once\n#include "lockstep/engine/kernels/cpu/k.h"\n'})), 2)

    def test_refuses_crowded_folders(self):
        files = {"lockstep/base/f.h": "#pragma once\n" + "\n" * MOST_LINES}
        self.assertEqual(self.check(files),
                         [f"lockstep/base: {MOST_LINES + 1} lines, more than {MOST_LINES}: find "
                          "its modules"])

    def test_refuses_heavy_headers_in_headers(self):
        include = "#include <nlohmann/json.hpp>\n"
        self.assertEqual(self.check({
            "lockstep/base/a.h": "#pragma once\n" + include, "lockstep/base/b.cpp": include,
            "lockstep/base/c.h": "#pragma once\n#include <nlohmann/json_fwd.hpp>\n"}),
            ["lockstep/base/a.h:2: <nlohmann/json.hpp> takes long to compile: include it in sources"])

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

    def test_refuses_parsers_of_foreign_bytes_outside_their_place(self):
        line = "  auto a = nlohmann::ordered_json::parse(text, nullptr, false);\n"
        self.assertEqual(self.check({"lockstep/base/b.cpp": line, "lockstep/base/json/json_text.cpp": line,
                                     "tests/base/a_test.cpp": line}),
                         ["lockstep/base/b.cpp:1: only lockstep/base/json/json_text.cpp calls this parser: "
                          "use its function"])
        for other in ("json::parse (x)", "json::from_cbor(x)", "Json::accept(x)", "toml::parse_file(x)"):
            self.assertEqual(len(self.check({"lockstep/base/b.cpp": other})), 1, other)

    def test_refuses_unknown_modules_and_headers_without_guard(self):
        self.assertEqual(len(self.check({"lockstep/attic/a.cpp": ""})), 1)
        self.assertEqual(len(self.check({"lockstep/engine/attic/a.cpp": ""})), 1)
        self.assertEqual(len(self.check({"lockstep/base/a.h": ""})), 1)

    def test_refuses_a_source_that_does_not_include_its_header_first(self):
        self.assertEqual(self.check(self.header | {
            "lockstep/base/a.cpp": '#include <vector>\n#include "lockstep/base/a.h"\n'}),
            ["lockstep/base/a.cpp:1: its own header is not its first include"])
        self.assertEqual(self.check(self.header | {
            "lockstep/base/a.cpp": '#include "lockstep/base/a.h"\n#include <vector>\n'}), [])

    def test_finds_no_where_not_a_is_meant(self):
        def lines(text):
            with tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "docs").mkdir()
                (root / "docs/a.md").write_text(text)
                return [int(place.split(":")[1]) for place in wrong_words(root)]

        for wrong in ("It is no file.", "which are no files", "x\n// is no\n// file", '"` is "\n"no number"',
                      "TEST(A, WhatIsNoFile)", "def test_what_is_no_file(", "that were no better"):
            self.assertEqual(len(lines(wrong)), 1, wrong)
        self.assertEqual(lines("a\nthis is no file\nb\nthese are no files\n"), [2, 4])
        for right in ("There is no file.", "there\n// are no files", "there may be no file", "is no longer", "is not a file",
                      "Is there no file?", "TEST(A, ThereIsNoFile)", "def test_there_is_no_file(", "0 is no limit"):
            self.assertEqual(lines(right), [], right)

    def test_finds_words_that_the_style_forbids(self):
        def found(path, text):
            with tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / path).parent.mkdir(parents=True)
                (root / path).write_text(text)
                return wrong_words(root)

        for wrong in ("images beside PyTorch", "tasks behind it", "written anew", "Whoever reads", "start of the\n// weights",
                      "numbers at each place", "by the tangent"):
            self.assertTrue(found("docs/a.md", wrong), wrong)
            self.assertFalse(found("tests/a.cpp", wrong), wrong)  # the tests are not for users
        self.assertEqual(found("lockstep/a.h", "a\n// neighbours\n"),
                         ['lockstep/a.h:2: "neighbour" is British: write American spelling'])
        for wrong in ("network.analyse()", "no_colour", "PixelsAreNormalisedThere", "uninitialised", "optimisation"):
            self.assertEqual(len(found("tests/a.cpp", wrong)), 1, wrong)
        for wrong in ("// a piece of a sum", "kPiece", "CopyPieces"):
            self.assertEqual(len(found("lockstep/a.cpp", wrong)), 1, wrong)
            self.assertEqual(found("tests/a.cpp", wrong), [], wrong)
        self.assertEqual(found("lockstep/a.cpp", '"piecewise"'), [])
        for right in ("analyses", "the analysis", "capitals", "an otherwise equal run", "precise", "central", "minimalist"):
            self.assertEqual(found("docs/a.md", right), [], right)

    def test_the_project_keeps_them(self):
        root = pathlib.Path(__file__).resolve().parent.parent
        self.assertTrue(list(files_of(root)), "no sources found")
        found = problems(root) + wrong_words(root)
        self.assertFalse(found, "\n" + "\n".join(found))


if __name__ == "__main__":
    sys.exit(unittest.main())
