#!/usr/bin/env python3
"""scripts/check-deep itself: planted defects are found, finds can be repeated, seeds go on.

usage: check_deep_test.py BUILD [unittest options]

BUILD is a build folder. It takes its programs from there and builds nothing.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parent.parent
NETWORKS = BUILD / "tests/random_networks"
BROKEN = BUILD / "tests/random_networks_in_order_of_arrival"
FUZZ = BUILD / "tests/fuzz"


class CheckDeep(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.state = self.folder / "state"
        # The presets' names for the build under test.
        (self.folder / "builds").mkdir()
        (self.folder / "builds/release").symlink_to(BUILD)

    def check(self, *arguments, minutes="0.03"):
        return subprocess.run([ROOT / "scripts/check-deep", "--minutes", minutes, "--no-build", "--state",
                               self.state, "--builds", self.folder / "builds", *arguments],
                              cwd=self.folder, text=True, capture_output=True, timeout=300)

    def logged(self):
        return [json.loads(line) for line in (self.state / "log.jsonl").read_text().splitlines()]

    def position(self, name):
        return json.loads((self.state / "state.json").read_text())["next"][name]

    def row(self, done, part):
        """Cases and finds in the table at the end."""
        found = re.search(rf"^{part} +\d+ +(\d+) +(\d+)\b", done.stdout, re.M)
        self.assertTrue(found, done.stdout + done.stderr)
        return int(found[1]), int(found[2])

    def repeats(self, done):
        commands = re.findall(r"^  repeat: (.*)$", done.stdout, re.M)
        self.assertTrue(commands, done.stdout)
        return commands

    def test_a_defect_of_a_parser_is_found_and_repeated(self):
        done = self.check("--only", "fuzz", "--target", "planted_parser", "--replays", "--seed", "1")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("FOUND planted_parser: [planted] the defect", done.stdout)
        cases, finds = self.row(done, "fuzz")
        self.assertGreater(cases, 0)
        self.assertEqual(finds, 1)
        # The command is for the root of the repository, but keeps the mutation where it runs.
        program, *numbers = shlex.split(self.repeats(done)[0])
        again = subprocess.run([ROOT / program, *numbers], cwd=self.folder, text=True, capture_output=True)
        self.assertTrue((self.folder / "replay-failure").exists())
        self.assertEqual(again.returncode, 1)
        self.assertIn("[planted] the defect", again.stderr)
        kept = (self.state / "finds/fuzz-1.txt").read_text()
        self.assertIn(self.repeats(done)[0], kept)
        self.assertRegex(kept, r"commit \S+, seed 1\n")
        # The next call goes on behind the find and comes to another one.
        first = self.position("mutations of planted_parser")
        self.check("--only", "fuzz", "--target", "planted_parser", "--replays")
        self.assertGreater(self.position("mutations of planted_parser"), first)
        self.assertEqual([line["seed"] for line in self.logged()], [1, 1])

    def test_a_sound_parser_is_clean_and_its_numbers_go_on(self):
        for _ in range(2):
            before = self.logged()[-1]["cases"] if (self.state / "log.jsonl").exists() else 0
            done = self.check("--only", "fuzz", "--target", "tar", "--replays")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            cases, finds = self.row(done, "fuzz")
            self.assertEqual((cases > 0, finds), (True, 0))
        self.assertEqual(self.position("mutations of tar"), before + cases)

    @unittest.skipUnless(BROKEN.exists(), "there is no program that breaks the law")
    def test_a_broken_law_is_found_and_repeated(self):
        for _ in range(20):  # order of arrival is chance, so it goes on from where it was
            done = self.check("--only", "law", "--program", f"random_networks={BROKEN}", "--seed", "3")
            if done.returncode == 1:
                break
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"FOUND case \d+ of seed 3: .*differs from iteration")
        self.assertGreater(self.row(done, "law")[1], 0)
        command = self.repeats(done)[0]
        self.assertRegex(command, r"random_networks_in_order_of_arrival law --workers-every 1 --seed 3 --only \d+$")
        # Order of arrival is chance.
        self.assertTrue(any(subprocess.run(command, shell=True, cwd=ROOT, stdout=subprocess.DEVNULL).returncode == 1
                            for _ in range(20)))

    def test_the_law_goes_on_from_the_stored_number(self):
        done = self.check("--only", "law", "--seed", "11")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        first = self.position("law")
        self.assertEqual(first, self.row(done, "law")[0])
        done = self.check("--only", "law")
        self.assertEqual(self.position("law"), first + self.row(done, "law")[0])
        self.assertIn("seed 11", done.stdout)
        # Another seed begins anew.
        done = self.check("--only", "law", "--seed", "12")
        self.assertEqual(self.position("law"), self.row(done, "law")[0])

    def test_crashes_are_traced_to_their_cases(self):
        program = self.folder / "crashing"
        program.write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in\n'
                           '--first) first=$2;; --count) count=$2;; --only) first=$2; count=1;; esac; shift; done\n'
                           '[ $first -le 7 ] && [ $((first + count)) -gt 7 ] && kill -SEGV $$\nexit 0\n')
        program.chmod(0o755)
        done = self.check("--only", "law", "--program", f"random_networks={program}", "--seed", "1")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual([command.split()[-2:] for command in self.repeats(done)], [["--only", "7"]])

    def test_a_crashing_mutation_is_found(self):
        program = self.folder / "replay"
        program.write_text('#!/bin/sh\n[ $2 -le $(((4 << 32) + 321)) ] && '
                           '[ $(($2 + $1)) -gt $(((4 << 32) + 321)) ] && kill -SEGV $$\nexit 0\n')
        program.chmod(0o755)
        done = self.check("--only", "fuzz", "--target", "mine", "--program", f"replay_mine={program}",
                          "--replays", "--seed", "4")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(self.repeats(done)[0].split()[1:], ["1", str((4 << 32) + 321)])

    def fuzzer(self, name, body):
        """Options for a target with a libFuzzer program, and a replay that fails for files that begin with "bug"."""
        source = self.folder / f"{name}.cpp"
        source.write_text("#include <cstddef>\n#include <cstdint>\n"
                          'extern "C" int LLVMFuzzerTestOneInput(const uint8_t* d, size_t n) {' + body + "}\n")
        done = subprocess.run(["clang++", "-O1", "-fsanitize=fuzzer,address", source, "-o", self.folder / f"fuzz_{name}"],
                              text=True, capture_output=True)
        if done.returncode != 0:
            self.skipTest("clang++ makes no fuzzers: " + done.stderr[-200:])
        replay = self.folder / f"replay_{name}"
        replay.write_text('#!/bin/sh\n[ "$1" = --seeds ] && mkdir -p "$2" && echo seed > "$2/1" && exit 0\n'
                          '[ "$(head -c 3 "$1")" != bug ]\n')
        replay.chmod(0o755)
        return ["--only", "fuzz", "--target", name, *(word for kind in ("fuzz", "replay") for word in
                ("--program", f"{kind}_{name}={self.folder}/{kind}_{name}"))]

    @unittest.skipUnless(shutil.which("clang++"), "there is no clang++")
    def test_a_defect_is_found_by_libfuzzer_and_repeated(self):
        options = self.fuzzer("broken", "if (n > 2 && d[0] == 'b' && d[1] == 'u' && d[2] == 'g') __builtin_trap();"
                              "return 0;")
        done = self.check(*options, "--seed", "1", minutes="0.2")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"FOUND broken: (libFuzzer: deadly signal|AddressSanitizer)")
        self.assertEqual(self.row(done, "fuzz")[1], 1)
        program, kept = shlex.split(self.repeats(done)[0])
        self.assertTrue((ROOT / kept).read_bytes().startswith(b"bug"))
        self.assertEqual(subprocess.run([ROOT / program, ROOT / kept]).returncode, 1)

    @unittest.skipUnless(shutil.which("clang++"), "there is no clang++")
    def test_libfuzzer_goes_on_from_its_corpus(self):
        text, number = b"kept from an earlier round", 0
        for byte in text:
            number = (number * 31 + byte) % 2**64
        # Only an input with this number is a defect: the fuzzer cannot guess it.
        options = self.fuzzer("rare", "uint64_t h = 0; for (size_t i = 0; i < n; ++i) h = h * 31 + d[i];"
                              f"if (h == {number}ULL) __builtin_trap(); return 0;")
        done = self.check(*options, minutes="0.04")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue((self.state / "corpus/rare/seeds/1").exists())
        (self.state / "corpus/rare/kept").write_bytes(text)
        done = self.check(*options, minutes="0.04")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual((self.row(done, "fuzz")[1], self.position("fuzz rare")), (1, 2))

    def test_what_cannot_run_is_not_clean(self):
        done = self.check("--only", "asan")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("LEFT OUT: there is no build in", done.stdout)
        for arguments in (("--only", "nothing"), ("--program", "x"), ("--minutes", "0"), ("--minutes", "nan")):
            self.assertEqual(self.check(*arguments).returncode, 2, arguments)
        done = self.check("--only", "fuzz", "--target", "nothing", "--replays")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("replay_nothing is missing", done.stdout)

    def test_what_does_not_compile_is_a_find(self):
        (self.folder / "cmake").write_text("#!/bin/sh\n[ $1 = --preset ] && exit\necho a.cpp: error: it does not compile\nexit 1\n")
        (self.folder / "cmake").chmod(0o755)
        done = subprocess.run(
            [ROOT / "scripts/check-deep", "--minutes", "0.01", "--only", "asan", "--state", self.state,
             "--builds", self.folder / "builds"], text=True, capture_output=True, timeout=60,
            env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("FOUND the preset asan cannot be built", done.stdout)
        self.assertIn("cmake --build", self.repeats(done)[0])
        self.assertIn("it does not compile", (self.state / "finds/asan-1.txt").read_text())

    def test_tests_go_on_where_the_last_call_ended(self):
        """A tree of tests as ctest knows them, one of which fails."""
        tree = self.folder / "builds/asan"
        tree.mkdir()
        (tree / "CMakeCache.txt").touch()
        (tree / "CTestTestfile.cmake").write_text("".join(
            f'add_test([=[suite/case_{i}]=] "/bin/sh" "-c" "sleep 0.2; exit {int(i == 5)}")\n' for i in range(12)))
        seen, failed = 0, []
        for _ in range(20):
            done = self.check("--only", "asan", "--seed", "1", minutes="0.01")
            cases, _ = self.row(done, "asan")
            seen += cases
            failed += re.findall(r"FOUND (suite/case_\d+): Failed", done.stdout)
            if seen >= 12:
                break
        self.assertGreaterEqual(seen, 12)
        self.assertEqual(set(failed), {"suite/case_5"})
        done = self.check("--only", "asan", "--tests", "case_5", minutes="0.1")
        self.assertEqual(self.row(done, "asan"), (1, 1))
        again = subprocess.run(self.repeats(done)[0], shell=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        self.assertNotEqual(again.returncode, 0)

    def test_every_parser_of_foreign_bytes_is_a_target(self):
        """The targets that the script knows are those that the build has."""
        done = subprocess.run([sys.executable, "-c", "import importlib.machinery, importlib.util, types;"
                               "l = importlib.machinery.SourceFileLoader('c', 'scripts/check-deep');"
                               "m = types.ModuleType('c'); m.__file__ = 'scripts/check-deep'; l.exec_module(m);"
                               "print(*m.fuzz_targets(types.SimpleNamespace(targets=[])))"],
                              cwd=ROOT, text=True, capture_output=True,
                              env={"PYTHONDONTWRITEBYTECODE": "1"})
        built = {path.name[len("replay_"):] for path in FUZZ.glob("replay_*") if path.is_file()}
        self.assertEqual(set(done.stdout.split()), built - {"planted_parser"}, done.stderr)


if __name__ == "__main__":
    unittest.main()
