#!/usr/bin/env python3
"""Changes of files during a run, and invalid files: run folders that are moved, size limits, pipes and
devices in the place of files, models with non-finite values.

usage: faults_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time
import unittest

from sanitized import SANITIZED
from support import COMMAND, JOB, CommandTest


def read_model(path):
    """The header, and the tensors' bytes."""
    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    return json.loads(whole[8:8 + length]), whole[8 + length:]


def write_model(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Faults(CommandTest):
    LONG = ("--set", "max_epochs=100000", "--set", "checkpoint_frequency=20", "--set", "checkpoints_kept=3")

    def refused(self, done, *parts):
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("error: ", done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    # ---- things that are not files ----

    def special_files(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        link = self.folder / "link"
        link.symlink_to("pipe")
        path = self.folder / "socket"
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        self.addCleanup(listening.close)
        (self.folder / "directory").mkdir()
        return {"a pipe": pipe, "a device": "/dev/zero", "a socket": path, "": link}

    def test_what_is_not_a_file_is_refused_before_it_is_read(self):
        # Checkpoints keep the seconds that validations took: there is none before the last iteration.
        self.write(JOB + "\nvalidation_frequency = 50\n")
        self.works("train", "job.toml", "--out", "run", "--quiet")
        model = (self.folder / "run" / "model.safetensors").rename(self.folder / "model.safetensors")
        newest = sorted((self.folder / "run" / "checkpoints").iterdir())[-1]
        for kind, special in self.special_files().items():
            begun = time.monotonic()
            name = os.path.basename(special)
            with self.subTest(kind):
                self.refused(self.run_command("evaluate", special, "digits"), name, kind)
                self.refused(self.run_command("predict", special, "digits"), name, kind)
                self.refused(self.run_command("summary", special), name, kind)
                self.refused(self.run_command("train", special), name, kind)
                self.refused(self.run_command("train", "job.toml", "--initial-model", special, "--quiet"), name, kind)
                for part in ("receipt.jsonl", "log.jsonl", "job.json"):
                    self.replaced_by(self.folder / "run" / part, special, part)
                self.checkpoint_replaced_by(newest, special)
                table = self.folder / "table.csv"
                table.unlink(missing_ok=True)
                table.symlink_to(special)
                self.refused(self.run_command("train", "job.toml", "--check", "--set", "data.train=table.csv"),
                             "table.csv")
                image = self.folder / "image.png"
                image.unlink(missing_ok=True)
                image.symlink_to(special)
                self.refused(self.run_command("predict", model, "image.png"), "image.png")
            self.assertLess(time.monotonic() - begun, 60)

    def replaced_by(self, path, special, name):
        """Resumes with another object in the place of a file."""
        kept = path.rename(path.with_name("kept"))
        path.symlink_to(special)
        done = self.run_command("train", "job.toml", "--out", "run", "--quiet", "--resume")
        self.refused(done, name)
        path.unlink()
        kept.rename(path)

    def checkpoint_replaced_by(self, path, special):
        """Like a damaged one, it is named and set aside, and the checkpoint before it is used."""
        kept = path.rename(path.with_name("kept"))
        path.symlink_to(special)
        done = self.run_command("train", "job.toml", "--out", "run", "--quiet", "--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, f"note: .*{path.name}: it is a .*, not a file")
        self.assertEqual(path.read_bytes(), kept.read_bytes(), "it was computed again")
        path.with_name(path.name + ".damaged").unlink()
        kept.rename(path)

    def test_a_job_from_a_pipe_is_refused(self):
        read, write = os.pipe()
        os.write(write, (self.folder / "job.toml").read_bytes())
        os.close(write)
        done = subprocess.run([COMMAND, "train", f"/dev/fd/{read}", "--check"], cwd=self.folder, pass_fds=(read,),
                              capture_output=True, text=True, timeout=60)
        os.close(read)
        self.refused(done, f"/dev/fd/{read}: it is a pipe, not a file", "hint: copy its contents to a file first")

    def test_empty_names_are_refused(self):
        for option in (("--out", ""), ("--initial-model", "")):
            done = self.run_command("train", "job.toml", *option)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(option[0], done.stderr)
            self.assertFalse((self.folder / "runs").exists())

    # ---- limits of sizes ----

    def test_a_limit_of_file_sizes_is_an_error(self):
        def limited(size):
            return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        settings = ["--set", "max_epochs=400", "--set", "checkpoint_frequency=40", "--set", "validation_frequency=50"]
        whole = self.result("--out", "whole", *settings)
        size = (self.folder / "whole" / "receipt.jsonl").stat().st_size
        checkpoint = max(p.stat().st_size for p in (self.folder / "whole" / "checkpoints").iterdir())
        self.assertLess(checkpoint, size // 2, "the receipt or the log is what outgrows the limit")
        arguments = ["train", "job.toml", "--out", "run", "--quiet", *settings]
        done = self.run_command(*arguments, preexec_fn=limited(size // 2))
        self.refused(done, ".jsonl", "File too large", "ulimit -f")
        self.assertTrue(list((self.folder / "run" / "checkpoints").iterdir()))
        self.assertEqual(list((self.folder / "run").rglob("*.tmp")), [])
        # Also if the first checkpoint does not fit, and with worker processes.
        for more in ((), ("--workers", "2")):
            small = self.run_command(*arguments[:3], f"small{len(more)}", *arguments[4:], *more,
                                     preexec_fn=limited(checkpoint // 2))
            self.refused(small, "ulimit -f")
        done = json.loads(self.works(*arguments, "--resume", "--json").stdout)
        self.assertEqual(done["digest"], whole["digest"])
        for name in ("receipt.jsonl", "model.safetensors"):
            self.assertEqual((self.folder / "run" / name).read_bytes(), (self.folder / "whole" / name).read_bytes())
        with open(self.folder / "output", "w") as output:
            done = subprocess.run([COMMAND, "reference"], stdout=output, stderr=subprocess.PIPE, text=True,
                                  preexec_fn=limited(1000), timeout=60)
        self.refused(subprocess.CompletedProcess([], done.returncode, "", done.stderr), "standard output")

    # ---- run folders that are moved during a run ----

    def training(self, out):
        """Starts a long training and waits for its first checkpoint."""
        process = subprocess.Popen([COMMAND, "train", "job.toml", "--out", out, "--quiet", *self.LONG],
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while not list((self.folder / out).glob("checkpoints/*.safetensors")):
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(process.poll(), "it ended before a checkpoint was seen")
            time.sleep(0.002)
        return process

    def ends_with_an_error(self, process, *parts):
        output, errors = process.communicate(timeout=120)
        self.refused(subprocess.CompletedProcess([], process.returncode, output, errors), *parts)

    def test_a_run_folder_that_is_renamed(self):
        process = self.training("runs/a")
        (self.folder / "runs" / "a").rename(self.folder / "moved")
        self.ends_with_an_error(process, "runs/a", "removed or renamed")
        self.assertFalse((self.folder / "runs" / "a").exists())
        (self.folder / "moved").rename(self.folder / "runs" / "a")
        # Back in its place, the run continues.
        done = self.run_command("train", "job.toml", "--out", "runs/a", "--resume", "--quiet", *self.LONG,
                                "--set", "max_time=0.001")
        self.assertEqual(done.returncode, 130, done.stderr)

    def test_a_run_folder_that_is_removed(self):
        process = self.training("a")
        process.send_signal(signal.SIGSTOP)
        shutil.rmtree(self.folder / "a")
        process.send_signal(signal.SIGCONT)
        self.ends_with_an_error(process, "folder a was removed or renamed")
        self.assertFalse((self.folder / "a").exists(), "it is not made anew")

    def test_a_run_folder_that_is_replaced(self):
        for how in ("folder", "link"):
            with self.subTest(how):
                process = self.training(how)
                process.send_signal(signal.SIGSTOP)
                (self.folder / how).rename(self.folder / (how + "-moved"))
                other = self.folder / how
                if how == "link":
                    other = self.folder / "elsewhere"
                    (self.folder / how).symlink_to("elsewhere")
                (other / "checkpoints").mkdir(parents=True)
                (other / "mine").write_text("mine")
                process.send_signal(signal.SIGCONT)
                self.ends_with_an_error(process, f"folder {how} was replaced while files in it were written")
                self.assertEqual(sorted(str(p.relative_to(other)) for p in other.rglob("*")),
                                 ["checkpoints", "mine"])

    # ---- models ----

    def test_models_say_whether_they_are_whole(self):
        self.works("train", "job.toml", "--out", "run", "--quiet")
        model = self.folder / "run" / "model.safetensors"
        good = self.works("evaluate", model, "digits", "--json")
        self.assertEqual(good.stderr, "")
        header, data = read_model(model)
        self.assertRegex(header["__metadata__"]["lockstep.digest"], "^[0-9a-f]{32}$")
        changed = self.folder / "changed.safetensors"
        write_model(changed, header, data[:-1] + bytes([data[-1] ^ 1]))
        self.refused(self.run_command("evaluate", changed, "digits"), "changed.safetensors", "digest")
        # Models of other programs and earlier versions are read with a notice.
        del header["__metadata__"]["lockstep.digest"]
        write_model(changed, header, data)
        done = self.works("evaluate", changed, "digits", "--json")
        self.assertRegex(done.stderr, "^note: .*changed.safetensors has no digest")
        expected, got = json.loads(good.stdout), json.loads(done.stdout)
        self.assertEqual(expected | {"seconds": 0}, got | {"seconds": 0})
        for arguments in (("train", "job.toml", "--initial-model", changed, "--quiet", "--out", "from"),
                          ("train", "job.toml", "--initial-model", changed, "--check")):
            self.assertIn("note: ", self.works(*arguments).stderr)

    def test_values_that_are_not_numbers_are_named(self):
        self.works("train", "job.toml", "--out", "run", "--quiet")
        header, data = read_model(self.folder / "run" / "model.safetensors")
        del header["__metadata__"]["lockstep.digest"]
        name = "fully_connected_1.weights"
        begin = header[name]["data_offsets"][0]
        bad = self.folder / "bad.safetensors"
        for value in (float("nan"), float("inf")):
            write_model(bad, header, data[:begin + 8] + struct.pack("<f", value) + data[begin + 12:])
            for arguments in (("evaluate", bad, "digits"), ("predict", bad, "digits"),
                              ("train", "job.toml", "--initial-model", bad, "--quiet"),
                              ("train", "job.toml", "--initial-model", bad, "--check")):
                self.refused(self.run_command(*arguments), "bad.safetensors", name, "1 of ")
        self.assertIn("fully_connected", self.works("summary", bad).stdout)

    # ---- memory estimates ----

    def checked(self, *arguments):
        """The table of --check, with the memory and the time of the command itself."""
        begun = time.monotonic()
        process = subprocess.Popen([COMMAND, "train", "job.toml", "--check", *arguments], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        output, errors = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.returncode, 0, errors)
        return output, usage.ru_maxrss >> 10, time.monotonic() - begun

    @unittest.skipIf(SANITIZED, "sanitizers need additional memory")
    def test_the_memory_that_a_training_takes_is_told(self):
        # Wide bounds, because other processors' kernels need more or less. The header has measured
        # values.
        for settings in (("--set", "training.cache_mib=1"), ("--set", "width=64", "--set", "shard_size=50"),
                         ("--set", "width=512", "--set", "solver=adam", "--set", "training.threads=2")):
            table, _, _ = self.checked(*settings)
            told = int(re.search(r"^memory +about ([\d,]+) MiB", table, re.M).group(1).replace(",", ""))
            process = subprocess.Popen([COMMAND, "train", "job.toml", "--quiet", *settings], cwd=self.folder,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 0)
            with self.subTest(settings, told=told, took=usage.ru_maxrss >> 10):
                self.assertLess(told, 2 * usage.ru_maxrss >> 10)
                self.assertGreater(2 * told, usage.ru_maxrss >> 10)

    def test_a_huge_network_is_checked_without_its_values(self):
        _, usual, _ = self.checked()
        self.write((self.folder / "job.toml").read_text().replace(
            '{ type = "fully_connected", units = 10 },',
            '{ type = "fully_connected", units = 1400000 }, { type = "relu" },\n'
            '{ type = "fully_connected", units = 10 },'))
        table, memory, seconds = self.checked()
        parameters = int(next(line for line in table.splitlines() if line.startswith("parameters")).split()[1]
                         .replace(",", ""))
        self.assertGreater(parameters, 800_000_000)
        self.assertLess(memory, usual + 100, "MiB, where the values alone have 3,000")
        self.assertLess(seconds, 60)
        about = next(line for line in table.splitlines() if line.startswith("memory")).split()[2].replace(",", "")
        self.assertGreater(int(about), 4 * 4 * parameters >> 20, "values, velocity, gradients and a checkpoint")


if __name__ == "__main__":
    unittest.main(verbosity=2)
