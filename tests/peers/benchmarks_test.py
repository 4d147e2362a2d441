#!/usr/bin/env python3
"""Short runs of the programs of benchmarks/: they succeed and print what the documentation shows.

usage: benchmarks_test.py PATHS_OF lockstep convolutions exchange pool products compiled_functions [unittest options]
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy

import files

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMAND, CONVOLUTIONS, EXCHANGE, POOL, PRODUCTS, COMPILED = (sys.argv.pop(1) for _ in range(6))


def run(*command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def peer(script, *arguments):
    return run(sys.executable, os.path.join(TOP, "benchmarks", "peers", script), "--command", COMMAND,
               *arguments)


class Benchmarks(unittest.TestCase):
    def test_convolutions(self):
        rows = run(CONVOLUTIONS, "--turns", "1").splitlines()[2:]
        self.assertGreater(len(rows), 5)
        for row in rows:
            self.assertRegex(row, r"^\d+ to \d+ +(\d+)x\1 +(\d)x\2(/2)?( dw| g\d+)?( +\d+){6}( +\d+\.\d\d){3}$")

    def test_products(self):
        rows = run(PRODUCTS, "--turns", "1").splitlines()[1:]
        self.assertEqual(len(rows) % 4, 0)
        for row in rows:
            self.assertRegex(row, r"^(\d+ \d+ \d+)? +[a-z]+(( +\d+\.\d){2} +\d+\.\d\d){1,2}$")

    def test_compiled_functions(self):
        rows = run(COMPILED, "--turns", "1").splitlines()[1:]
        self.assertEqual(len(rows), 8)
        for row in rows:
            self.assertRegex(row, r"^(likelihood|robust) +\d+ x +\d+( +\d+\.\d{4}){2} +\d+\.\d\d$")

    def test_exchange(self):
        rows = run(EXCHANGE, "--sums", "20").splitlines()[1:]
        self.assertEqual(len(rows), 3)
        for row in rows:
            self.assertRegex(row, r"^ +\d+ +2 +([\d.]+|-) +[\d.]+ +[\d.]+$")

    def test_pool(self):
        text = run(sys.executable, os.path.join(TOP, "benchmarks", "peers", "pool.py"), "--program",
                   POOL, "--rounds", "1")
        rows = text.splitlines()[1:]
        self.assertTrue(rows, text)
        for row in rows:
            self.assertRegex(row, r"^[12]( +\d+){2} +\d\.\d\d +\d+( +[\d,]+){2}$")

    def test_dense(self):
        text = peer("dense.py", "--network", "small", "--rounds", "1", "--seconds", "0.05",
                    "--python", sys.executable, "--before", COMMAND)
        with open("/proc/cpuinfo") as file:
            narrow = [", bf16"] if "avx512_bf16" in file.read() else []
        for row in (way + precision for precision in ["", *narrow] for way in
                    ("Lockstep", "Lockstep before", "PyTorch [^,]+, 2 threads, eager")):
            found = re.findall(rf"(?m)^{row}( +[\d,]+ +[\d.]+ +[\d.-]+ +[\d.-]+)$", text)
            self.assertEqual(len(found), 2, text)  # sgdm, adam

    def test_large_images(self):
        text = peer("large_images.py", "--architecture", "resnet20", "--precision", "fp32", "--way",
                    "channels-last", "--steps", "1", "--rounds", "1")
        for row in ("Lockstep", r"PyTorch [\d.a-z]+, channels-last"):
            self.assertRegex(text, rf"(?m)^{row} +[\d,]+\.\d +\d+\.\d\d$")

    def test_photographs(self):
        text = peer("photographs.py", "--only", "Lockstep", "--images", "32", "--epochs", "1")
        for cut in ("center", "random"):
            self.assertRegex(text, rf"(?m)^{cut}: 32 photographs of 1632 x 1224 and \d+ KB, 1 epochs$")
        rows = re.findall(r"(?m)^Lockstep(?:, scaled decoding)? +[\d.]+ +([\d.]+) +[\d,]+$", text)
        self.assertEqual(len(rows), 4, text)

    def test_speed(self):
        # This Python has PyTorch, which may be too old to compile, and neither of the other
        # libraries.
        text = peer("speed.py", "--network", "s3", "--rounds", "1", "--seconds", "0.1", "--newest",
                    sys.executable)
        for row in ("Lockstep, 2 threads", "the same without the law", "PyTorch, 1 thread, NCHW",
                    "PyTorch, 2 threads, channels-last", "ratio", "ratio to the best of these"):
            self.assertRegex(text, rf"(?m)^{row} +[\d.,]+$")
        self.assertRegex(text, r"(?m)^PyTorch [\d.a-z]+, channels-last +[\d,]+$")
        with open("/proc/cpuinfo") as file:
            narrow = "avx512_bf16" in file.read()
        self.assertEqual(bool(re.search(r"(?m)^bf16 / fp32 +\d+\.\d\d$", text)), narrow)
        for name in ("JAX", "TensorFlow"):
            self.assertRegex(text, rf"(?m)^{name} ([\d.]+, \w+ +[\d,]+|is left out: .+)$")

    def test_threads(self):
        environment = {k: v for k, v in os.environ.items() if k != "LOCKSTEP_TEST_DATA"}
        text = run(sys.executable, os.path.join(TOP, "benchmarks", "peers", "threads.py"),
                   "--command", COMMAND, "--seconds", "1", "--rounds", "1", "--mini-batch", "128",
                   env=environment)
        self.assertIn("\nmini-batch 128, 8 shards; medians of 1 rounds\n", text)
        rows = text.splitlines()[-5:]
        self.assertRegex(rows[0], r"^digits +1 +[\d,]+ +1\.00 \(1\.00 to 1\.00\) +1\.00$")
        cores = len(os.sched_getaffinity(0))
        for count, row in zip((2, 4, 8, 16), rows[1:]):
            measured = r"[\d,]+ +\d\.\d\d \(\d\.\d\d to \d\.\d\d\)"
            figures = measured if count <= cores else "no cores +-"
            self.assertRegex(row, rf"^ +{count} +{figures} +[01]\.\d\d$")
        # Eight shards are too few for sixteen threads.
        self.assertLessEqual(float(rows[4].split()[-1]), 0.5)

    # The GPU's part is measured on the processor here.
    def test_gpu(self):
        environment = {k: v for k, v in os.environ.items() if k != "LOCKSTEP_TEST_DATA"}
        common = [sys.executable, os.path.join(TOP, "benchmarks", "peers", "gpu.py"), "--command",
                  COMMAND, "--device", "cpu", "--network", "s3", "--precision", "fp32",
                  "--mini-batch", "16", "--seconds", "0.3", "--rounds", "1"]
        with tempfile.TemporaryDirectory() as folder:
            journal = os.path.join(folder, "journal")
            text = run(*common, "--json", journal, env=environment)
            entries = files.read_json_lines(journal)
        self.assertRegex(text, r"(?m)^\| S3, depth 1, width 16, 16 \| fp32 \| [\d,]+ \| [\d,]+ \| "
                               r"([\d,]+|-) \| [\d,]+ \| [\d.]+ \| [\d.]+ \| (operations|bytes) \|$")
        self.assertEqual([e["way"] for e in entries if "way" in e],
                         ["Lockstep", "eager", "compiled", "captured"])
        self.assertTrue(all(e.get("seconds", 1) > 0 for e in entries))
        # Lockstep is measured where there is no PyTorch.
        text = run(*common, "--python", "/no/python", env=environment)
        self.assertRegex(text, r"(?m)^\| S3, depth 1, width 16, 16 \| fp32 \| [\d,]+( \| -){6} \|$")
        self.assertIn("left out: S3, depth 1, width 16, fp32, eager: ", text)

    def test_workers(self):
        environment = {k: v for k, v in os.environ.items() if k != "LOCKSTEP_TEST_DATA"}
        text = run(sys.executable, os.path.join(TOP, "benchmarks", "peers", "workers.py"),
                   "--command", COMMAND, "--seconds", "1.5", "--rounds", "1", env=environment)
        self.assertRegex(text.splitlines()[1],
                         r"^digits( +[\d,]+){2} +[\d.]+ \([\d.]+ to [\d.]+\) +[\d,]+ +[\d.]+ \(")

    def test_end_to_end(self):
        with tempfile.TemporaryDirectory() as data:
            for part in ("train", "test"):
                for number in range(200):
                    folder = os.path.join(data, "cifar10", part, f"class{number % 10}")
                    os.makedirs(folder, exist_ok=True)
                    image = numpy.random.RandomState(number).randint(256, size=(32, 32, 3),
                                                                     dtype=numpy.uint8)
                    files.write_png(os.path.join(folder, f"{number}.png"), image)
            text = peer("end_to_end.py", "--data", data, "--epochs", "1", "--rounds", "1")
        self.assertIn("; 180 images in 1 epochs, 2 threads; medians of 1\n", text)
        rates = {name: float(rate.replace(",", "")) for name, rate in re.findall(
            r"(?m)^(Lockstep|PyTorch) +[\d.]+ +([\d,]+) +[\d,]+$", text)}
        ratio = float(re.search(r"(?m)^ratio ([\d.]+)$", text).group(1))
        self.assertAlmostEqual(ratio, rates["Lockstep"] / rates["PyTorch"], delta=0.05 * ratio)


if __name__ == "__main__":
    unittest.main(verbosity=2)
