#!/usr/bin/env python3
"""The dashboard beside strangers and damaged files: usage: dashboard_strangers_test.py COMMAND"""

import contextlib
import http.client
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import threading
import time

from support import COMMAND, CommandTest, unittest

from dashboard_support import Dashboard, write_run, write_sweep
from sanitized import SANITIZED


class Strangers(CommandTest):
    """Files and connections of others."""

    def nested_files(self, run):
        """Each file of a run's folder with thousands of brackets, one run for each."""
        deep = {"list": "[" * 100_000 + "]" * 100_000, "object": '{"a":' * 100_000 + "1" + "}" * 100_000}
        for kind, inner in deep.items():
            for name in ("job.json", "state.json", "run.json", "notes.json", "confusion.json", "predictions.json",
                         "profile.json", "log.jsonl", "receipt.jsonl", "sweep.jsonl", "result.json"):
                folder = self.folder / "runs" / f"{name}-{kind}"
                shutil.copytree(run, folder)
                keys = {"log.jsonl": ('"event":"x","y"', '"iteration":9,"validation_loss"'),
                        "sweep.jsonl": ('"sweep"', '"decision":0,"starts"')}.get(name, ('"name"', '"validation"'))
                lines = "".join('{%s:%s}\n' % (key, inner) for key in keys)
                (folder / name).write_text(lines if name.endswith("l") else lines.splitlines()[0])

    def nested_models(self, model):
        """Models whose header, network and classes are such."""
        text = model.read_bytes()
        size = int.from_bytes(text[:8], "little")
        header = json.loads(text[8:8 + size])
        for key in header["__metadata__"]:
            changed = json.dumps({**header, "__metadata__": {**header["__metadata__"], key: "[" * 100_000 + "]" * 100_000}})
            yield key, len(changed).to_bytes(8, "little") + changed.encode() + text[8 + size:]
        changed = '{"__metadata__":' * 100_000 + "1" + "}" * 100_000
        yield "header", len(changed).to_bytes(8, "little") + changed.encode()

    def test_nested_json_ends_nothing(self):
        self.works("train", "job.toml", "--quiet", "--out", "first", "--profile", LOCKSTEP_HOME=str(self.folder / ".home"))
        self.nested_files(self.folder / "first")
        for key, text in self.nested_models(self.folder / "first" / "model.safetensors"):
            (self.folder / "nested.safetensors").write_bytes(text)
            done = self.run_command("evaluate", "nested.safetensors", "digits")
            self.assertEqual(done.returncode, 1, (key, done.stderr))
            self.assertIn("nested.safetensors", done.stderr)
        for name, text in (("j.json", '{"network":' * 100_000), ("j.toml", "a = " + "[" * 100_000), ("k.toml", "a" + ".a" * 100_000 + "=1"),
                           ("m.toml", "[" + "a." * 100_000 + "a]")):
            (self.folder / name).write_text(text)
            done = self.run_command("train", name, "--check")
            self.assertEqual(done.returncode, 1, (name, done.stderr))
            self.assertIn("nested", done.stderr)
        done = self.run_command("train", "job.toml", "--check", "--set", "a" + ".a" * 20_000 + "=1")
        self.assertIn(done.returncode, (1, 2), done.stderr)
        self.assertIn("a key has at most 64 parts", done.stderr)
        runs = sorted((self.folder / "runs").iterdir())
        home = {"LOCKSTEP_HOME": str(self.folder / ".home")}
        for run in runs:
            for arguments in (("report", run), ("info", run), ("diff", run, "first"),
                              ("evaluate", run, "digits")):
                done = self.run_command(*arguments, **home)
                self.assertIn(done.returncode, (0, 1), (arguments, done.stderr))
        for arguments in (("rebuild", "runs"), ("list", "--all"), ("list", "--all", "--where", "validation.loss < 100"),
                          ("list", "--all", "--json", "--columns", "name,max_epochs,note")):
            done = self.run_command("runs", *arguments, **home)
            self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        with Dashboard(self.folder, "--runs", "runs") as d:
            listed = d.json("/api/runs")
            self.assertEqual(len(listed["runs"]), len(runs))
            ids = [run["id"] for run in listed["runs"] + listed["sweeps"]]
            for one in ids:
                for path in ("/api/run", "/api/log", "/api/sweep", "/report"):
                    self.assertIn(d.ask("GET", f"{path}?id={one}")[0], (200, 400), (path, one))
            deep = "[" * 30_000
            for body in (deep, '{"tags":%s' % deep, '{"tags":[],"note":%s' % deep):
                self.assertEqual(d.ask("POST", "/api/notes?id=" + ids[0], body)[0], 400)
            for text in ("(" * 3000, "not " * 2000, "[" * 3000):
                self.assertIn("error", d.json("/api/filter?text=" + text.replace(" ", "+")))
            self.assertEqual(len(d.json("/api/runs")["runs"]), len(runs))

    def test_a_log_without_a_line_end(self):
        write_run(self.folder / "runs" / "a", 100)
        os.truncate(self.folder / "runs" / "a" / "log.jsonl", 20 << 30)
        write_run(self.folder / "runs" / "b", 100)
        for name in ("confusion.json", "predictions.json", "profile.json", "receipt.jsonl"):
            (self.folder / "runs" / "b" / name).write_text("{}")
            os.truncate(self.folder / "runs" / "b" / name, 5 << 30)
        write_sweep(self.folder / "runs" / "s")
        os.truncate(self.folder / "runs" / "s" / "sweep.jsonl", 5 << 30)
        with Dashboard(self.folder, "--runs", "runs") as d:
            def resident():
                with open(f"/proc/{d.process.pid}/status", encoding="utf-8") as status:
                    return int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1)) >> 10
            before = resident()
            for _ in range(4):
                listed = {run["folder"]: run for run in d.json("/api/runs")["runs"]}
                (self.folder / "runs" / "a" / "notes.json").write_text("{}")  # a change
            self.assertEqual(listed["runs/a"]["iteration"], 100)
            self.assertIn("log.jsonl has a line of more than 16 MiB", listed["runs/a"]["damage"])
            self.assertIsNone(listed["runs/b"]["damage"])
            log = d.json("/api/log?id=" + listed["runs/a"]["id"])
            self.assertEqual(len(log["loss"]), 100)
            self.assertIn("more than 16 MiB", log["events"][-1]["text"])
            d.json("/api/run?id=" + listed["runs/a"]["id"])
            notes = d.json("/api/run?id=" + listed["runs/b"]["id"])["notes"]
            self.assertEqual(len([note for note in notes if "is a hole without data" in note]), 4, notes)
            self.assertEqual(len(d.json("/api/sweep?id=" + d.json("/api/runs")["sweeps"][0]["id"])["trials"]), 6)
            self.assertEqual(len(d.json("/api/filter?text=iteration+=+100")["ids"]), 6)
            self.assertLess(resident() - before, 600 if SANITIZED else 150)
        done = self.run_command("runs", "rebuild", "runs", LOCKSTEP_HOME=str(self.folder / ".home"))
        self.assertEqual((done.returncode, done.stdout), (0, "8 runs recorded\n"))

    def test_a_finished_batch_job_is_finished(self):
        write_run(self.folder / "jobs" / "1" / "run", 100)
        for name in ("batch.json", "job.json", "state.json"):
            (self.folder / "jobs" / "1" / name).write_text("{}")
        with Dashboard(self.folder, "--runs", "jobs") as d:
            listed = [(run["folder"], run["status"], run["iteration"]) for run in d.json("/api/runs")["runs"]]
        self.assertEqual(listed, [("jobs/1/run", "finished", 100)])

    def slow(self, port, count):
        """Connections that send a byte of a head now and then, made anew when they are closed."""
        ended = threading.Event()
        def send():
            open_ones = []
            while not ended.is_set():
                while len(open_ones) < count and not ended.is_set():
                    try:
                        open_ones.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                    except OSError:
                        break
                kept = []
                for one in open_ones:
                    try:
                        one.send(b"G")
                        one.setblocking(False)
                        if one.recv(1, socket.MSG_PEEK) != b"":
                            kept.append(one)
                            continue
                    except BlockingIOError:
                        kept.append(one)
                        continue
                    except OSError:
                        pass
                    one.close()
                open_ones = kept
                ended.wait(1)
            for one in open_ones:
                one.close()
        thread = threading.Thread(target=send)
        thread.start()
        return lambda: (ended.set(), thread.join(30))

    def test_a_training_beside_slow_connections(self):
        """It serves its user, keeps its memory and descriptors, and ends."""
        training = subprocess.Popen([COMMAND, "train", "job.toml", "--quiet", "--json", "--out", "out", "--dashboard", "--set",
                                     "max_epochs=100000", "--set", "training.threads=1"], cwd=self.folder,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for end in (training.stdout.close, training.stderr.close, training.wait, training.kill):
            self.addCleanup(end)
        address = re.fullmatch(r"dashboard: http://127.0.0.1:(\d+)/\?token=(\S+)\n", training.stderr.readline())
        port, token = int(address.group(1)), address.group(2)

        def number(name):
            with open(f"/proc/{training.pid}/status", encoding="utf-8") as status:
                return int(re.search(name + r":\s+(\d+)", status.read()).group(1))

        def ask(path):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            with connection:
                connection.request("GET", path, headers={"Cookie": f"lockstep_{port}={token}"})
                answer = connection.getresponse()
                return answer.status, answer.read()

        def iterations():
            runs = json.loads(ask("/api/runs")[1])["runs"]
            return runs[0].get("iteration", 0) if runs else 0

        limit = time.monotonic() + 60
        while iterations() < 10:
            self.assertLess(time.monotonic(), limit, "the training makes no progress")
            time.sleep(0.1)
        descriptors = len(os.listdir(f"/proc/{training.pid}/fd"))
        memory = number("VmRSS")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        stop = self.slow(port, min(1000, hard // 2))
        try:
            began, first = time.monotonic(), iterations()
            while time.monotonic() - began < 6:
                before = time.monotonic()
                self.assertEqual(ask("/")[0], 200)
                self.assertLess(time.monotonic() - before, 2)
                self.assertLessEqual(len(os.listdir(f"/proc/{training.pid}/fd")), descriptors + 70)
                time.sleep(0.3)
            self.assertGreater(iterations(), first)
            self.assertLess((number("VmHWM") - memory) >> 10, 400 if SANITIZED else 64)
            began = time.monotonic()
            training.terminate()
            self.assertEqual(training.wait(30), 130)
            self.assertLess(time.monotonic() - began, 2)
        finally:
            stop()

    def test_an_error_does_not_wait_for_a_browser(self):
        training = subprocess.Popen([COMMAND, "train", "job.toml", "--quiet", "--out", "out", "--dashboard", "--set",
                                     "max_epochs=100000"], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        for end in (training.stderr.close, training.wait, training.kill):
            self.addCleanup(end)
        port = int(re.search(r":(\d+)/", training.stderr.readline()).group(1))
        with socket.create_connection(("127.0.0.1", port)) as silent, socket.create_connection(("127.0.0.1", port)) as slow:
            slow.send(b"GET / HTTP")
            while not (self.folder / "out" / "log.jsonl").exists() and training.poll() is None:
                time.sleep(0.05)
            (self.folder / "out").rename(self.folder / "gone")
            limit = time.monotonic() + 15  # the next write of the log
            with contextlib.suppress(OSError):  # one that is closed in time
                while time.monotonic() < limit and training.poll() is None:
                    slow.send(b"x")
                    time.sleep(0.2)
            self.assertEqual(training.wait(max(0.1, limit - time.monotonic())), 1)
            self.assertIn("was removed or renamed", training.stderr.read())
            self.assertEqual(silent.recv(1), b"")


if __name__ == "__main__":
    unittest.main()
