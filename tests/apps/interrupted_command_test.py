#!/usr/bin/env python3
"""Tests of the command while it runs: signals, sudden death, terminals.

usage: interrupted_command_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import termios
import time
import unittest

from support import ANEW, COMMAND, CommandTest


class InterruptedCommand(CommandTest):
    # ---- stopping ----

    FREQUENCY = ("--set", "checkpoint_frequency=100")
    # So long that the test decides when the training ends.
    LONG = ("--set", "max_epochs=100000", *FREQUENCY)

    def end_of(self, out):
        """Options for the end of an epoch after the interrupted training; an epoch has two iterations."""
        lines = (self.folder / out / "receipt.jsonl").read_bytes().count(b"\n")
        return ("--set", f"max_epochs={lines // 2 + 3}", *self.FREQUENCY)

    def running(self, out, *more):
        """Starts a long training and waits until it runs."""
        arguments = ["train", "job.toml", "--out", out, *more, *self.LONG]
        process = subprocess.Popen([COMMAND, *arguments], cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for line in process.stderr:  # until the table has begun
            if line.startswith("epoch"):
                break
        return process

    def state(self, out):
        return json.loads(self.works("info", out, "--json").stdout)["state"]

    def test_a_killed_run_is_interrupted(self):
        process = self.running("out")
        self.assertEqual(self.state("out"), "running")
        done = self.run_command("train", "job.toml", "--out", "out", *self.LONG)
        self.assertIn("contains a run that is being trained", done.stderr)
        process.kill()
        process.communicate(timeout=60)
        self.assertEqual(self.state("out"), "interrupted")
        done = self.run_command("evaluate", "out", "digits")
        self.assertIn("was interrupted before it finished, and has no model yet", done.stderr)
        self.works("train", "job.toml", "--out", "out", "--resume", "--quiet", *self.end_of("out"))
        self.assertEqual(self.state("out"), "finished")

    def stop(self, out, number):
        """Sends the signal to a long training, and returns its end."""
        process = self.running(out, "--json")
        process.send_signal(number)
        output, errors = process.communicate(timeout=120)
        return process.returncode, output, errors

    def test_resume_after_a_signal_gives_the_same_digest(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            out, name = f"out{int(number)}", f"whole{int(number)}"
            code, output, errors = self.stop(out, number)
            self.assertEqual(code, 130, errors)
            stopped = json.loads(output.splitlines()[-1])
            self.assertTrue(stopped["stopped"])
            self.assertIsNone(stopped["test_accuracy"])
            self.assertEqual(stopped["iterations"],
                             (self.folder / out / "receipt.jsonl").read_bytes().count(b"\n"))
            self.assertEqual(stopped["model"], f"{out}/model.safetensors")
            self.assertEqual(self.state(out), "stopped")
            self.assertIn("note: " + out, self.works("evaluate", out, "digits").stderr)
            hint = re.search(r"^hint: continue with: lockstep (.*)$", errors, re.M).group(1)
            self.assertEqual(hint, f"train --out {out} --resume")
            more = self.end_of(out)
            whole = self.result("--out", name, *more)
            end = json.loads(self.works(*hint.split(), *more, "--json", "--threads", "3").stdout)
            self.assertEqual(end["digest"], whole["digest"])
            self.assertEqual(end["test_accuracy"], whole["test_accuracy"])
            for file in ("receipt.jsonl", "model.safetensors"):
                self.assertEqual((self.folder / out / file).read_bytes(),
                                 (self.folder / name / file).read_bytes())

    def test_the_hint_after_max_time_leads_to_the_end(self):
        more = ("--set", "batch_normalization_statistics=population")
        self.result("--out", "whole", *more)
        job = (self.folder / "job.toml").read_text()
        (self.folder / "limited job.toml").write_text(job + "\nmax_time = 0.00001\n")
        for out, name, limit in (("a", "job.toml", ["--set", "max_time=0.00001"]),
                                 ("b", "job.toml", ["--set", " training.max_time = 0.00001"]),
                                 ("c", "limited job.toml", [])):
            done = self.run_command("train", name, *limit, *more, "--out", out, "--quiet")
            self.assertEqual(done.returncode, 130, done.stderr)
            self.assertRegex(done.stderr, r"^stopped by max_time after iteration 1; checkpoint ")
            hint = re.search(r"^hint: continue with: lockstep (.*)$", done.stderr, re.M).group(1)
            self.assertNotIn("0.00001", hint)
            self.works(*shlex.split(hint), "--quiet")
            for file in ("receipt.jsonl", "model.safetensors"):
                self.assertEqual((self.folder / out / file).read_bytes(),
                                 (self.folder / "whole" / file).read_bytes())

    def test_the_folder_of_a_run_knows_its_job_and_its_initial_model(self):
        self.result("--out", "first", "--set", "max_iterations=3")
        begun = ("--initial-model", "first", "--set", "training.seed=3")
        self.result("--out", "whole", *begun, said=ANEW)
        self.result("--out", "out", *begun, "--set", "max_iterations=5", said=ANEW)
        (self.folder / "job.toml").rename(self.folder / "gone.toml")
        self.works("train", "--out", "out", "--resume", "--quiet", "--threads", "3", "--set", "max_iterations=0")
        for file in ("receipt.jsonl", "model.safetensors"):
            self.assertEqual((self.folder / "out" / file).read_bytes(),
                             (self.folder / "whole" / file).read_bytes())
        self.works("verify", "out", "--iteration", "1")
        (self.folder / "first").rename(self.folder / "moved")
        done = self.run_command("train", "--out", "out", "--resume", "--set", "max_epochs=9")
        self.assertEqual(done.returncode, 1)
        self.assertIn("out started from the values of ", done.stderr)
        self.assertIn("hint: put it back, or name its new path with --initial-model\n", done.stderr)
        self.works("train", "--out", "out", "--resume", "--set", "max_epochs=3", "--quiet", "--initial-model", "moved")
        self.fails(1, "error: [train] nothing contains no run that could be continued\n"
                      "hint: to start one there: lockstep train JOB --out nothing\n",
                   "train", "--out", "nothing", "--resume")
        self.assertFalse((self.folder / "nothing").exists())

    def test_a_finished_run_goes_on_with_more_epochs(self):
        self.result("--out", "whole", "--set", "max_epochs=6")
        self.result("--out", "out", "--set", "max_iterations=5")
        more = json.loads(self.works("train", "job.toml", "--out", "out", "--resume", "--json", "--quiet",
                                     "--set", "max_epochs=6", "--threads", "3").stdout)
        self.assertEqual(more["iterations"], 12)
        for file in ("receipt.jsonl", "model.safetensors"):
            self.assertEqual((self.folder / "out" / file).read_bytes(),
                             (self.folder / "whole" / file).read_bytes())
        self.works("verify", "out", "--iteration", "11")

    def test_no_handler_runs_where_something_computes(self):
        process = self.running("out")
        threads = []
        for task in os.listdir(f"/proc/{process.pid}/task"):
            with open(f"/proc/{process.pid}/task/{task}/status") as status:
                masks = dict(re.findall(r"^(Sig\w+):\s*([0-9a-f]+)$", status.read(), re.M))
            threads.append({name: int(mask, 16) for name, mask in masks.items()})
        process.kill()
        process.communicate(timeout=60)
        stops = sum(1 << (int(number) - 1) for number in (signal.SIGINT, signal.SIGTERM))
        self.assertGreater(len(threads), 1)
        for thread in threads:
            self.assertEqual(thread["SigCgt"] & stops, 0)
        # The command that waits for them receives them.
        self.assertEqual(sum(thread["SigBlk"] & stops != stops for thread in threads), 1)

    def test_the_second_signal_ends_at_once(self):
        process = self.running("out")
        # Both exist before the first one is read.
        process.send_signal(signal.SIGSTOP)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        self.assertIn(process.returncode, (-signal.SIGINT, -signal.SIGTERM), errors)

    def test_resume_after_sigkill_gives_the_same_digest(self):
        arguments = ["train", "job.toml", "--out", "out", "--quiet", *self.LONG]
        process = subprocess.Popen([COMMAND, *arguments], cwd=self.folder)
        deadline = time.monotonic() + 60
        while not list((self.folder / "out").glob("checkpoints/*.safetensors")):
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(process.poll(), "it ended before a checkpoint was seen")
            time.sleep(0.002)
        process.kill()
        process.wait()
        more = self.end_of("out")
        end = self.result("--out", "out", "--resume", *more)
        whole = self.result("--out", "whole", *more)
        self.assertEqual(end["digest"], whole["digest"])

    # ---- terminals ----

    def on_terminal(self, *arguments, **environment):
        """The output on standard error for a terminal of 60 columns."""
        master, slave = pty.openpty()

        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        process = subprocess.Popen([COMMAND, *arguments], cwd=self.folder, stderr=slave,
                                   stdout=subprocess.DEVNULL,
                                   env={**os.environ, "TERM": "xterm", **environment})
        os.close(slave)
        text = b""
        while True:
            try:
                ready, _, _ = select.select([master], [], [], 120)
                chunk = os.read(master, 65536) if ready else b""
            except OSError:  # the other end is closed
                chunk = b""
            if not chunk:
                break
            text += chunk
        os.close(master)
        self.assertEqual(process.wait(timeout=60), 0)
        return text.decode()

    def test_terminal_shows_a_bar_and_no_color_is_kept(self):
        text = self.on_terminal("train", "job.toml", NO_COLOR="")
        self.assertIn("\x1b[1mEpoch", text)
        self.assertIn("\x1b[32m", text)
        self.assertRegex(text, r"\d+%  epoch \d/3")
        self.assertTrue(text.endswith("\r\x1b[K"), repr(text[-80:]))
        text = self.on_terminal("train", "job.toml", NO_COLOR="1")
        self.assertRegex(text, r"\d+%  epoch \d/3")
        self.assertEqual(set(re.findall(r"\x1b\[[0-9;]*[A-Za-z]", text)), {"\x1b[K"})
        table = [line for line in text.replace("\r\x1b[K", "\n").replace("\r\n", "\n").split("\n")
                 if re.match(r"Epoch| +\d+ ", line)]
        self.assertGreater(len(table), 3)
        self.assertEqual(len({len(line) for line in table}), 1, table)
        self.assertLessEqual(len(table[0]), 60)


if __name__ == "__main__":
    unittest.main(verbosity=2)
