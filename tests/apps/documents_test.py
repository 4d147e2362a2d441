#!/usr/bin/env python3
"""The documentation that the command prints: help, completion, manual page and reference.

usage: documents_test.py ROOT COMMAND [unittest options]
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))
COMMAND = sys.argv.pop(1)


def run(*arguments):
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=120)


def output(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands():
    listed = output("--help").split("Subcommands:\n")[1].split("\n\n")[0]
    return re.findall(r"^  ([a-z-]+) ", listed, re.M)


def options(command):
    listed = output(command, "--help").split("Options:\n")[1].split("\n\n")[0]
    return re.findall(r"^  (?:-\w,)?(--[a-z-]+)", listed, re.M)


class Help(unittest.TestCase):
    def test_every_command_has_examples_that_are_its_own(self):
        self.assertIn("train", commands())
        for command in commands():
            text = output(command, "--help")
            examples = re.findall(r"^  (\S.*)\n      \S", text.split("Examples:\n")[1], re.M)
            self.assertTrue(examples, command)
            for example in examples:
                self.assertIn("lockstep " + command, example)
                for option in re.findall(r" (--[a-z-]+)", example):
                    self.assertIn(option, options(command), example)
            # Examples stay on one line, so that they can be copied.
            for line in text.splitlines():
                self.assertLessEqual(len(line), 100 if line.startswith("  lockstep") else 80, line)

    def test_exit_codes(self):
        listed = output("--help").split("Exit codes:\n")[1]
        self.assertEqual(re.findall(r"^  (\d+) ", listed, re.M), ["0", "1", "2", "3", "130"])
        self.assertEqual(run("info").returncode, 0)
        self.assertEqual(run("train", "/nowhere/job.toml").returncode, 1)
        for wrong in ((), ("trian",), ("train",), ("info", "--jsn"), ("info", "one", "two"), ("completion", "csh")):
            done = run(*wrong)
            self.assertEqual(done.returncode, 2, wrong)
            self.assertTrue(done.stderr.startswith("error: "), wrong)
            self.assertEqual(done.stdout, "")
        # Status 130 is tested in command_test.py, with signals.

    def test_version(self):
        self.assertRegex(output("--version"), r"^lockstep \d+\.\d+\.\d+\n$")


class Bash(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_"))
        (cls.folder / "script").write_text(output("completion", "bash"), encoding="utf-8")
        for name in ("job.toml", "other.json", "model.safetensors", "notes.txt"):
            (cls.folder / name).touch()
        (cls.folder / "runs").mkdir()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def complete(self, line):
        """Completions of bash for the word at the end of the line."""
        # Words as readline splits them, at its word breaks too.
        words = re.findall(r"[=:]|[^\s=:]+", line)
        if line.endswith(" "):
            words.append("")
        quoted = " ".join("'" + word + "'" for word in words)
        program = (f"source ./script; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
                   f"COMP_LINE='{line}'; COMP_POINT={len(line)}; _lockstep; "
                   "printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "--norc", "-c", program], cwd=self.folder, capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.stderr, "", line)
        self.assertEqual(done.returncode, 0, line)
        return sorted(done.stdout.split())

    def test_commands(self):
        self.assertEqual(self.complete("lockstep "), sorted(commands()))
        self.assertEqual(self.complete("lockstep tr"), ["train"])
        self.assertEqual(self.complete("lockstep --v"), ["--version"])

    def test_every_option(self):
        for command in commands():
            self.assertEqual(set(self.complete(f"lockstep {command} --")), set(options(command)))
        self.assertEqual(self.complete("lockstep train job.toml --re"), ["--rebuild-receipt", "--resume"])

    def test_files(self):
        self.assertEqual(self.complete("lockstep train "), ["job.toml", "other.json", "runs"])
        self.assertEqual(self.complete("lockstep train --quiet j"), ["job.toml"])
        self.assertEqual(self.complete("lockstep evaluate "), ["model.safetensors", "runs"])
        self.assertEqual(self.complete("lockstep evaluate runs "), ["builtin:digits", "runs"])
        self.assertEqual(self.complete("lockstep evaluate runs builtin:"), ["digits"])
        self.assertEqual(self.complete("lockstep summary "),
                         ["job.toml", "model.safetensors", "other.json", "runs"])
        self.assertIn("notes.txt", self.complete("lockstep predict runs other.json "))
        self.assertEqual(self.complete("lockstep train job.toml --out "), ["runs"])
        self.assertEqual(self.complete("lockstep train job.toml --out=r"), ["runs"])

    def test_values(self):
        self.assertEqual(self.complete("lockstep train job.toml --device c"), ["cpu", "cuda"])
        self.assertEqual(self.complete("lockstep completion "), ["bash", "fish", "zsh"])
        self.assertEqual(self.complete("lockstep reference max_pooling2"), ["max_pooling2d"])
        self.assertEqual(self.complete("lockstep architecture resnet1"), ["resnet18"])
        self.assertEqual(self.complete("lockstep reference relu tra"),
                         ["training", "transformer_block", "transposed_convolution2d"])

    def test_fields_of_jobs(self):
        self.assertEqual(self.complete("lockstep train job.toml --set training.solv"),
                         ["training.solver="])
        self.assertEqual(self.complete("lockstep train job.toml --set solver="),
                         ["adam", "adamw", "rmsprop", "sgdm"])
        self.assertEqual(self.complete("lockstep train job.toml --set training.solver=adam"),
                         ["adam", "adamw"])
        self.assertEqual(self.complete("lockstep summary job.toml --set data.crop=r"),
                         ["random", "random_resized"])
        self.assertEqual(self.complete("lockstep train job.toml --set max_epochs=5 --set max_ep"),
                         ["max_epochs="])
        offered = self.complete("lockstep train job.toml --set ")
        for table in ("data", "augmentation", "noise", "network", "training"):
            fields = re.findall(r"^\| `(\w+)` ", output("reference", table), re.M)
            self.assertTrue(fields, table)
            for field in fields:
                self.assertIn(f"{table}.{field}=", offered)


class OtherShells(unittest.TestCase):
    def test_scripts_know_every_command_and_option(self):
        for shell, ending in (("zsh", "["), ("fish", " ")):
            text = output("completion", shell)
            for command in commands():
                self.assertIn(command, text)
                for option in options(command):
                    self.assertRegex(text, re.escape(option) if shell == "zsh" else f" -l {option[2:]} ")
            self.assertIn("training.solver=" + ("*" if shell == "zsh" else "rmsprop"), text)

    def test_shells_find_scripts_sound(self):
        for shell in ("bash", "zsh", "fish"):
            done = subprocess.run([shell, "-n"], input=output("completion", shell), text=True,
                                  capture_output=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""), shell)

    def test_fish_quotes_are_closed_where_they_open(self):
        for line in output("completion", "fish").splitlines():
            self.assertEqual(len(re.findall(r"(?<!\\)'", line)) % 2, 0, line)


class Manual(unittest.TestCase):
    def test_names_everything(self):
        text = output("man").replace("\\-", "-")
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "EXIT STATUS", "ENVIRONMENT",
                        "EXAMPLES"):
            self.assertIn(f".SH {section}\n", text)
        for command in commands():
            self.assertIn(f".SS \\fBlockstep {command}\\fR", text)
            for option in options(command):
                self.assertIn(f"\\fB{option}\\fR", text)

    def test_every_request_is_one_of_the_macros(self):
        for line in output("man").splitlines():
            if line.startswith((".", "'")):
                self.assertRegex(line, r'^\.(\\"|TH|SH|SS|PP|TP|br)\b|^\.\\"')
            self.assertNotRegex(line, r"\\(?![-&efR\"])", line)

    def test_groff_has_nothing_to_say(self):
        done = subprocess.run(["groff", "-man", "-ww", "-z"], input=output("man"), text=True,
                              capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Reference(unittest.TestCase):
    def test_docs_hold_what_the_command_prints(self):
        written = (ROOT / "docs/job-file.md").read_text(encoding="utf-8")
        self.assertEqual(written, output("reference"),
                         "make it anew: lockstep reference > docs/job-file.md")

    def test_every_field_is_documented(self):
        bare = [line for line in output("reference").splitlines() if re.search(r"^\| `.*\|\s*\|$", line)]
        self.assertEqual(bare, [], "fields without a word about them")
        headings = re.findall(r"^##+ (\S+)\n\n(.*)$", output("reference"), re.M)
        self.assertGreater(len(headings), 5)
        for heading, about in headings:
            self.assertTrue(about.strip(" ."), heading)

    def test_topics(self):
        page = output("reference")
        self.assertIn(output("reference", "relu", "training").split("\n\n## ")[0], page)
        done = run("reference", "convolution2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("did you mean `convolution2d`?", done.stderr)


if __name__ == "__main__":
    unittest.main()
