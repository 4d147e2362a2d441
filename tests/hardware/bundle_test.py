#!/usr/bin/env python3
"""What scripts/bundle-for-gpu packs runs, and keeps what it found out.

usage: bundle_test.py BUILD [--in-full]

The short form runs the commands of a bundle whose executables are those of the build. In full, the
bundle is packed, unpacked in an empty folder, and each command runs whole on the processor within
its time.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
IN_FULL = "--in-full" in sys.argv
if IN_FULL:
    sys.argv.remove("--in-full")


def environment():
    return {k: v for k, v in os.environ.items() if k not in ("LOCKSTEP_TEST_DATA", "OUT")}


def read_rows(out, command):
    with open(out / command / "rows.jsonl") as file:
        return [json.loads(line) for line in file]


class Bundle(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.out = self.folder / "results"
        (self.folder / "libexec").mkdir()
        (self.folder / "lib").mkdir()
        (self.folder / "sources").symlink_to(TOP)
        for name in ("bin/lockstep", "tests/engine_test", "examples/custom_loop"):
            (self.folder / "libexec" / pathlib.Path(name).name).symlink_to(BUILD / name)

    def start(self, command, *more):
        script = self.folder / "sources" / "tests" / "hardware" / "run.py"
        # pylint: disable-next=consider-using-with
        return subprocess.Popen([sys.executable, script, command, "--device", "cpu", "--short",
                                 "--out", self.out, *more], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, env=environment())

    def run_command(self, command, *more):
        process = self.start(command, *more)
        text = process.communicate(timeout=300)[0]
        return process.returncode, text

    def replace(self, name, script):
        """Puts a shell script in the place of an executable."""
        path = self.folder / "libexec" / name
        path.unlink()
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def states(self, command):
        return {row["step"]: row["state"] for row in read_rows(self.out, command)}

    def test_correctness(self):
        code, text = self.run_command("correctness")
        self.assertEqual(code, 0, text)
        rows = read_rows(self.out, "correctness")
        self.assertGreater(sum(row.get("tests", 0) for row in rows), 100, text)
        self.assertEqual(self.states("correctness")["info"], "passed")
        self.assertEqual(self.states("correctness")["compute-sanitizer"], "not tested")

    def test_law(self):
        code, text = self.run_command("law")
        self.assertEqual(code, 0, text)
        states = self.states("law")
        self.assertEqual(states.pop("recordings"), "not tested")  # by a processor
        self.assertEqual(set(states.values()), {"passed"})
        self.assertIn("digits fp32 stopped and resumed", self.states("law"))
        self.assertIn("custom loop digest", self.states("law"))
        with open(self.out / "law" / "digits-fp32-first" / "job.json") as file:
            job = json.load(file)
        self.assertIn('"shard_size": 32', json.dumps(job))  # several shards
        with tarfile.open(self.out / "results.tar.gz") as archive:
            names = archive.getnames()
        self.assertIn("law/digits-fp32-first/receipt.jsonl", names)
        self.assertIn("law/table.md", names)
        self.assertFalse([name for name in names if name.endswith(".safetensors")])

    def test_failed_recordings_are_counted(self):
        real = BUILD / "bin" / "lockstep"
        self.replace("lockstep", """if [ -n "$LOCKSTEP_DEVICE_LOG" ]; then
  echo '{"recording":"made"}' >> "$LOCKSTEP_DEVICE_LOG"
  echo '{"recording":"failed","why":"planted"}' >> "$LOCKSTEP_DEVICE_LOG"
  echo '{"convolution":{"x":"1x1"},"forward":{"algorithm":1}}' >> "$LOCKSTEP_DEVICE_LOG"
fi
exec """ + f'{real} "$@"')
        code, text = self.run_command("law")
        self.assertEqual(code, 1, text)
        row = read_rows(self.out, "law")[-1]
        self.assertEqual((row["state"], row["why"]), ("FAILED", "planted"))
        self.assertEqual((row["made"], row["failed"], row["kernels"]), (5, 5, 1))
        self.assertEqual((self.out / "law" / "algorithms.jsonl").read_text().count("\n"), 1)

    # A command that is wrong, in one run alone.
    def test_another_digest_fails(self):
        real = BUILD / "bin" / "lockstep"
        self.replace("lockstep", f'case "$*" in *threads-2*) exec {real} "$@" --set seed=7;; '
                                 f'*) exec {real} "$@";; esac')
        code, text = self.run_command("law")
        self.assertEqual(code, 1, text)
        states = self.states("law")
        self.assertEqual(states["digits fp32 threads 2"], "FAILED")
        self.assertEqual(states["digits fp32 repeated"], "passed")

    def test_a_crash_of_tests_is_named(self):
        self.replace("engine_test", 'case "$*" in *list_tests*) printf "All.\\n  A\\n  B\\n";; *) '
                                    'echo "[ RUN      ] All.B"; kill -SEGV $$;; esac')
        code, text = self.run_command("correctness")
        self.assertEqual(code, 1, text)
        rows = [r for r in read_rows(self.out, "correctness") if r["step"].startswith("tests of")]
        self.assertTrue(rows)
        self.assertTrue(all(r["state"] == "FAILED" and r["ended_in"] == "All.B" for r in rows), rows)

    def test_no_time_is_left(self):
        self.replace("lockstep", 'case "$*" in *--version*) ;; *) sleep 100;; esac')
        before = time.monotonic()
        code, text = self.run_command("law", "--minutes", "0.12")
        self.assertLess(time.monotonic() - before, 60)
        self.assertEqual(code, 1, text)
        rows = read_rows(self.out, "law")
        self.assertEqual(rows[0]["exit"], "over its limit")
        self.assertEqual({r["state"] for r in rows[1:]}, {"not tested"})

    def test_kill_leaves_what_was_known(self):
        real = BUILD / "bin" / "lockstep"
        self.replace("lockstep", f'case "$*" in *threads-2*) sleep 100;; *) exec {real} "$@";; esac')
        process = self.start("law")
        # The archive follows the row of the first step; the second one sleeps.
        path = self.out / "results.tar.gz"
        for _ in range(1200):
            if path.exists():
                break
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        self.assertEqual(self.states("law"), {"digits fp32 repeated": "passed"})
        with tarfile.open(self.out / "results.tar.gz") as archive:
            kept = archive.extractfile("law/rows.jsonl").read().decode()
        self.assertEqual(json.loads(kept)["step"], "digits fp32 repeated")


class InFull(unittest.TestCase):
    def test_each_command_within_its_time(self):
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder)
            subprocess.run([TOP / "scripts" / "bundle-for-gpu", target, BUILD], check=True)
            self.assertLess((target / "bundle.tar.gz").stat().st_size, 40 << 20)
            for command in ("correctness", "law", "speed"):
                before = time.monotonic()
                done = subprocess.run([target / "run", command, "--device", "cpu"], cwd=target,
                                      env=environment(), check=False)
                seconds = time.monotonic() - before
                print(f"{command}: {seconds:.0f} s", flush=True)
                self.assertEqual(done.returncode, 0)
                self.assertLess(seconds, 600)
                states = {row["state"] for row in read_rows(target / "results", command)}
                self.assertIn("passed", states)
            with tarfile.open(target / "results" / "results.tar.gz") as archive:
                names = archive.getnames()
            for name in ("correctness/table.md", "law/table.md", "speed/measurements.jsonl"):
                self.assertIn(name, names)


def load_tests(loader, _, __):
    return loader.loadTestsFromTestCase(InFull if IN_FULL else Bundle)


if __name__ == "__main__":
    unittest.main(verbosity=2)
