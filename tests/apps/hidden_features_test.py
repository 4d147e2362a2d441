#!/usr/bin/env python3
"""Processors of one model with features hidden, as hypervisors do it: the fingerprint names what each kernel
was compiled for, a resume elsewhere is refused, and nothing executes an instruction that is not reported.

usage: hidden_features_test.py PATH_OF_LOCKSTEP [unittest options]

qemu-x86_64 (Debian: qemu-user) is the processor. Exit code 77: it is not installed.
"""

import json
import shutil
import subprocess
import sys
import unittest

from support import COMMAND, CommandTest

QEMU = shutil.which("qemu-x86_64")
WHOLE = "max"
HIDDEN = {"BMI2": "max,-bmi2", "F16C": "max,-f16c", "FMA": "max,-fma", "AVX2": "max,-avx2", "AVX": "max,-avx"}


class HiddenFeatures(CommandTest):
    def on(self, processor, *arguments):
        return subprocess.run([QEMU, "-cpu", processor, COMMAND, *map(str, arguments)], cwd=self.folder,
                              capture_output=True, text=True, timeout=250)

    def fingerprint(self, processor):
        done = self.on(processor, "info", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["fingerprint"]

    def train(self, processor, out, *arguments):
        return self.on(processor, "train", "job.toml", "--threads", "1", "--quiet", "--out", out,
                       "--set", "max_epochs=1", *arguments)

    def test_each_hidden_feature_is_another_fingerprint(self):
        whole = self.fingerprint(WHOLE)
        self.assertEqual(whole["target of own kernels"], "AVX2")
        for name, processor in HIDDEN.items():
            with self.subTest(name):
                self.assertNotEqual(self.fingerprint(processor), whole)
        # oneDNN asks for AVX2 alone, and own kernels for more.
        for name in ["BMI2", "F16C"]:
            with self.subTest(name):
                expected = {**whole, "target of own kernels": "SSE4"}
                self.assertEqual(self.fingerprint(HIDDEN[name]), expected)

    def test_a_training_does_not_continue_where_a_feature_is_hidden(self):
        done = self.train(WHOLE, "run")
        self.assertEqual(done.returncode, 0, done.stderr)
        more = ["--set", "max_epochs=2", "--resume"]
        refused = self.train(HIDDEN["BMI2"], "run", *more)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertIn("target of own kernels: SSE4 here, AVX2 there", refused.stderr)
        self.assertIn("hint: ", refused.stderr)
        self.assertIn("allow_other_numerics", refused.stderr)
        allowed = self.train(HIDDEN["BMI2"], "run", *more, "--set", "allow_other_numerics=true")
        self.assertEqual(allowed.returncode, 0, allowed.stderr)

    def test_a_convolution_runs_without_fma(self):
        done = self.train(HIDDEN["FMA"], "run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.fingerprint(HIDDEN["FMA"])["instruction set"], "AVX")


if __name__ == "__main__":
    if not QEMU:
        print("skipped: qemu-x86_64 is not installed")
        sys.exit(77)
    unittest.main()
