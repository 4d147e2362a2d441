#!/usr/bin/env python3
"""Sweeps by the command, with real workers, kills and interruptions.

usage: sweep_test.py COMMAND [--in-full] [unittest options]

--in-full: 27 trials by each method, with 1, 2, 3 and 8 workers and kills; some minutes.
"""

import csv
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from support import COMMAND

IN_FULL = "--in-full" in sys.argv
if IN_FULL:
    sys.argv.remove("--in-full")

JOB = """
[data]
train = "digits"
validation_fraction = 0.2
test_fraction = 0.1
[variables]
width = 4
[network]
input = { height = 28, width = 28, channels = 1 }
layers = [
  { type = "convolution2d", filters = "width", kernel = 5, stride = 2 },
  { type = "batch_normalization" },
  { type = "relu" },
  { type = "fully_connected", units = 10 },
  { type = "softmax" },
]
[training]
mini_batch_size = 40
shard_size = 7
max_epochs = 4
validation_frequency = "epoch"
device = "cpu"
[sweep]
method = "successive-halving"
trials = 6
reduction = 2
[sweep.parameters]
initial_learning_rate = { low = 0.001, high = 0.5, scale = "log" }
width = [2, 4, 8]
"""


class SweepTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_"))
        subprocess.run([COMMAND, "export-digits", cls.shared / "digits", "--per-class", "20"], check=True,
                       capture_output=True, timeout=120)
        (cls.shared / "job.toml").write_text(JOB, encoding="utf-8")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def arguments(self, *arguments):
        return [COMMAND, *map(str, arguments)]

    def run_command(self, *arguments):
        return subprocess.run(self.arguments(*arguments), cwd=self.folder, capture_output=True, text=True,
                              timeout=300)

    def works(self, *arguments):
        done = self.run_command(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def sweep(self, name, *arguments, job=None):
        self.works("sweep", job or self.shared / "job.toml", "--out", name, *arguments)
        return self.table(name)

    def begin(self, name, *arguments):
        return subprocess.Popen(self.arguments("sweep", self.shared / "job.toml", "--out", name, *arguments),
                                cwd=self.folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)

    def table(self, name):
        return (self.folder / name / "trials.csv").read_text(encoding="utf-8")

    def rows(self, name):
        return list(csv.DictReader(self.table(name).splitlines()))

    def record(self, name):
        text = (self.folder / name / "sweep.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]

    def decisions(self, name):
        return sorted(json.dumps(line) for line in self.record(name) if "decision" in line)

    def await_results(self, name, count):
        path = self.folder / name / "sweep.jsonl"
        for _ in range(1200):
            if path.exists() and path.read_text(encoding="utf-8").count('"result"') >= count:
                return
            time.sleep(0.05)
        self.fail("no results")

    def write_job(self, *changes):
        text = JOB.replace('"digits"', json.dumps(str(self.shared / "digits")))
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        (self.folder / "own.toml").write_text(text, encoding="utf-8")
        return self.folder / "own.toml"


class OneAnswer(SweepTest):
    """The table and the decisions are the same however a sweep is computed."""

    def test_for_any_number_of_workers(self):
        one = self.sweep("one", "--workers", 1)
        self.assertEqual(one.count("\n"), 7)
        for workers in (2, 3):
            self.assertEqual(self.sweep(f"by{workers}", "--workers", workers), one, "trained by others")
            self.assertEqual(self.decisions(f"by{workers}"), self.decisions("one"))
        self.assertEqual(self.sweep("alone", "--workers", 3, "--no-lending"), one)
        # A pruned trial is the beginning of a complete training.
        for row in self.rows("one"):
            settings = [f"--set={name}={row[name]}" for name in ("initial_learning_rate", "width")]
            self.works("train", self.shared / "job.toml", *settings, "--quiet", "--out", "t" + row["trial"])
            complete = (self.folder / ("t" + row["trial"]) / "receipt.jsonl").read_bytes()
            trial = (self.folder / "one" / "trials" / row["trial"] / "receipt.jsonl").read_bytes()
            self.assertEqual(complete[:len(trial)], trial)
            self.assertEqual(len(complete) == len(trial), row["state"] == "finished")
            self.assertIn(row["receipt"], trial.decode().splitlines()[-1])

    def test_after_kills(self):
        one = self.sweep("one", "--workers", 2)
        self.killed_sweep("killed", 4)
        self.assertEqual(self.table("killed"), one, "trained with kills")
        self.assertEqual(self.decisions("killed"), self.decisions("one"))

    HOSTS = ("--host-launch", "env HOST={host}", "--hosts")

    def test_on_hosts_whose_idle_workers_join_other_trials(self):
        # There are fewer trials than workers.
        how = ["--set", "max_epochs=30", "--set", "sweep.parameters.width=[16]", "--set", "sweep.method=random",
               "--set", "sweep.trials=2"]
        one = self.sweep("one", "--workers", 1, *how)
        told = self.works("sweep", self.shared / "job.toml", "--out", "far", *self.HOSTS,
                          "localhost:1,127.0.0.2:2", *how).stderr
        self.assertIn("3 workers on 2 hosts", told)
        self.assertEqual(self.table("far"), one, "trained on hosts")
        self.assertEqual(self.decisions("far"), self.decisions("one"))
        events = [json.loads(line) for log in (self.folder / "far" / "trials").glob("*/log.jsonl")
                  for line in log.read_text().splitlines() if '"worker ' in line]
        self.assertEqual([e for e in events if e["event"] == "worker lost"], [])
        self.assertGreater(max(e["members"] for e in events), 1, "no idle worker has helped")
        self.assertEqual({e.get("host", "") for e in events}, {"", "127.0.0.2"})
        alone = self.works("sweep", self.shared / "job.toml", "--out", "alone", *self.HOSTS, "localhost:2",
                           "--no-lending", *how)
        self.assertEqual(self.table("alone"), one)
        self.assertEqual(max(json.loads(line)["members"] for log in (self.folder / "alone" / "trials").glob("*/log.jsonl")
                             for line in log.read_text().splitlines() if '"worker joined"' in line), 1)
        refused = self.run_command("sweep", self.shared / "job.toml", "--out", "no", *self.HOSTS, "localhost:0")
        self.assertIn("hosts must name each host once", refused.stderr)

    def test_on_hosts_after_kills(self):
        one = self.sweep("one", "--workers", 2)
        client = self.begin("killed", *self.HOSTS, "127.0.0.2:3")
        self.await_results("killed", 3)
        client.kill()
        client.communicate(timeout=60)
        client = self.begin("killed", *self.HOSTS, "127.0.0.2:3", "--resume")
        killed, draw = 0, random.Random(2)
        while client.poll() is None:
            time.sleep(0.3 if killed else 0.01)
            agents = [int(w) for w in self.read_children(client.pid)]
            workers = [int(w) for agent in agents for w in self.read_children(agent)]
            if workers and killed < 3:
                self.kill(draw.choice(workers))
                killed += 1
        error = client.communicate(timeout=60)[1]
        self.assertEqual(client.returncode, 0, error)
        self.assertGreater(killed, 0)
        self.assertEqual(self.table("killed"), one, "trained on hosts with kills")
        self.assertEqual(self.decisions("killed"), self.decisions("one"))

    def read_children(self, process):
        return [w for c in pathlib.Path(f"/proc/{process}/task").glob("*/children") for w in self.read(c).split()]

    @unittest.skipUnless(IN_FULL, "takes minutes")
    def test_27_trials_by_each_method(self):
        for method in ("grid", "random", "sobol", "successive-halving", "hyperband", "tpe"):
            how = ["--set", f"sweep.method={method}", "--set", f"sweep.trials={0 if method == 'grid' else 27}",
                   "--set", "sweep.reduction=3", "--set", "max_epochs=9"]
            if method == "grid":
                how += ["--set", "sweep.parameters.initial_learning_rate.steps=9"]
            one = self.sweep(method, "--workers", 1, *how)
            self.assertEqual(one.count("\n"), 28)
            for workers in (2, 3, 8):
                name = f"{method}-{workers}"
                self.assertEqual(self.sweep(name, "--workers", workers, *how), one, name)
                self.assertEqual(self.decisions(name), self.decisions(method))
            killed = self.killed_sweep(method + "-killed", 13, *how)
            self.assertEqual(self.table(method + "-killed"), one)
            self.assertEqual(self.decisions(method + "-killed"), self.decisions(method))
            print(f"{method}: one table, receipts included, for 1, 2, 3, 8 workers and {killed} kills")

    def killed_sweep(self, name, results, *how):
        """Kills the client after some results, then workers of its continuation."""
        client = self.begin(name, "--workers", 2, *how)
        self.await_results(name, results)
        client.kill()
        client.communicate(timeout=60)
        draw = random.Random(1)
        client = self.begin(name, "--workers", 3, "--resume")
        killed = 0
        while client.poll() is None:
            time.sleep(0.01 if killed == 0 else 0.4 if results < 10 else 1.5)
            children = pathlib.Path(f"/proc/{client.pid}/task").glob("*/children")
            workers = [int(w) for c in children for w in self.read(c).split()]
            if workers and killed < results:
                self.kill(draw.choice(workers))
                killed += 1
        error = client.communicate(timeout=60)[1]
        self.assertEqual(client.returncode, 0, error)
        return killed + 1

    @staticmethod
    def read(path):
        try:
            return path.read_text()
        except OSError:
            return ""

    @staticmethod
    def kill(process):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Use(SweepTest):
    def test_the_end(self):
        done = self.works("sweep", self.shared / "job.toml", "--out", "s", "--workers", 2)
        self.assertRegex(done.stdout, r"best trial     \d, validation.accuracy \d")
        again = done.stdout.split("again")[1].strip()
        best = json.loads((self.folder / "s" / "result.json").read_text())["best"]
        row = [row for row in self.rows("s") if row["rank"] == "1"][0]
        self.assertEqual((int(row["trial"]), row["state"]), (best, "finished"))
        self.works(*again.split()[1:], "--out", "again", "--quiet")
        for name in ("receipt.jsonl", "model.safetensors"):
            self.assertEqual((self.folder / "again" / name).read_bytes(),
                             (self.folder / "s" / "trials" / str(best) / name).read_bytes())
        self.assertEqual((self.folder / "again" / "model.safetensors").read_bytes(),
                         (self.folder / "s" / "model.safetensors").read_bytes())
        # Piped output has a line for each event, without codes of terminals.
        self.assertIn("rung 2 of 3: trials", done.stderr)
        self.assertNotIn("\x1b", done.stderr)
        # Nothing is computed again, and the command is still one that works.
        again = self.works("sweep", "--out", "s", "--resume")
        self.assertNotIn("has reached", again.stderr)
        repeated = again.stdout.split("again")[1].strip()
        self.assertTrue(repeated.startswith(f"lockstep train {(self.shared / 'job.toml').resolve()} --set "), repeated)
        self.works(*repeated.split()[1:], "--out", "third", "--quiet")
        self.assertEqual((self.folder / "third" / "model.safetensors").read_bytes(),
                         (self.folder / "s" / "model.safetensors").read_bytes())
        self.assertIn("contains a sweep", self.run_command("sweep", self.shared / "job.toml", "--out", "s").stderr)

    def test_stop_of_a_trial_and_of_the_sweep(self):
        job = self.write_job(("max_epochs = 4", "max_epochs = 4000"), ("trials = 6", "trials = 1"))
        client = subprocess.Popen(self.arguments("sweep", job, "--out", "s", "--set", "sweep.method=random"),
                                  cwd=self.folder, stderr=subprocess.PIPE, text=True)
        log = self.folder / "s" / "trials" / "1" / "log.jsonl"
        for _ in range(600):
            if log.exists() and log.stat().st_size > 0:
                break
            time.sleep(0.05)
        client.send_signal(signal.SIGINT)
        self.assertIn("--resume", client.communicate(timeout=60)[1])
        self.assertEqual(client.returncode, 130)
        # A request is also taken by the process that continues the sweep.
        self.works("sweep", "--out", "s", "--stop-trial", 1)
        done = self.run_command("sweep", "--out", "s", "--resume", "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["best"]), (1, 0))
        self.assertIn("error: [sweep] no trial has a result: all 1 have failed or were stopped\n", done.stderr)
        self.assertEqual(self.rows("s")[0]["state"], "stopped")
        self.assertEqual([line["trial"] for line in self.record("s") if line.get("event") == "stop"], [1])

    def test_trials_are_in_the_run_store(self):
        home = {**os.environ, "LOCKSTEP_HOME": str(self.folder / "home")}
        how = ["sweep", self.shared / "job.toml", "--workers", 2, "--quiet", "--set", "sweep.trials=3"]

        def listed(*more):
            done = subprocess.run(self.arguments("runs", "list", "--json", *more), cwd=self.folder, env=home,
                                  capture_output=True, text=True, timeout=60)
            return json.loads(done.stdout) if done.returncode == 0 else done.stderr

        def swept(out, *more):
            return subprocess.run(self.arguments(*how, "--out", out, *more), cwd=self.folder, env=home,
                                  capture_output=True, text=True, timeout=300)

        self.assertEqual(swept("left-out", "--not-recorded").returncode, 0)
        self.assertEqual(listed(), [])
        self.assertEqual(swept("s").returncode, 0)
        runs = listed()
        self.assertEqual(sorted(pathlib.Path(run["folder"]).name for run in runs), ["1", "2", "3"])
        self.assertEqual(len(listed("--where", "sweep ~ s and trial = 2")), 1)
        states = {row["trial"]: row["state"] for row in self.rows("s")}
        self.assertEqual({pathlib.Path(run["folder"]).name: run["state"] for run in runs}, states)
        self.assertEqual(set(states.values()), {"finished", "pruned"})
        self.assertEqual(len(listed("--where", "state = pruned")), list(states.values()).count("pruned"))
        for run in runs:
            facts = json.loads((pathlib.Path(run["folder"]) / "run.json").read_text())
            self.assertEqual(facts["sweep"], str((self.folder / "s").resolve()))
            self.assertIn(facts["variables"]["width"], (2, 4, 8))
        # A sweep goes on without its store, and says so once.
        (self.folder / "home" / "runs.sqlite").write_text("no database " * 100)
        done = swept("t")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.table("t"), self.table("s"))
        self.assertEqual(done.stderr.count("are not recorded in the run store"), 1)

    def test_extension_is_a_longer_sweep(self):
        self.sweep("grown", "--set", "sweep.trials=3", "--set", "max_epochs=2")
        self.works("sweep", "--out", "grown", "--resume", "--set", "sweep.trials=6", "--set", "max_epochs=4",
                   "--set", "sweep.repeats=2")
        self.assertEqual(self.table("grown"), self.sweep("whole", "--set", "sweep.repeats=2"))
        self.assertIn("spread", self.table("whole"))
        refused = self.run_command("sweep", "--out", "grown", "--resume", "--set", "sweep.trials=5")
        self.assertIn("[sweep] trials is smaller than there", refused.stderr)
        refused = self.run_command("sweep", "--out", "grown", "--resume", "--set", "momentum=0.5")
        self.assertIn("momentum", refused.stderr)

    def test_trials_that_fail(self):
        job = self.write_job(("width = [2, 4, 8]", 'width = [0, 4]\n"network.layers.4.type" = ["softmax", "nonsense"]'),
                             ("{ low = 0.001, high = 0.5, scale = \"log\" }", "[0.05, 1e30]"),
                             ('"successive-halving"', '"grid"'), ("max_epochs = 4", "max_epochs = 1"),
                             ("trials = 6", "trials = 8"))
        self.sweep("s", job=job)
        states = {row["state"] for row in self.rows("s")}
        self.assertEqual(states, {"finished", "diverged", "unbuildable"})
        ranks = {row["state"]: int(row["rank"]) for row in sorted(self.rows("s"), key=lambda r: int(r["rank"]))}
        self.assertLess(ranks["finished"], min(ranks["diverged"], ranks["unbuildable"]))
        self.assertTrue(all(row["reason"] for row in self.rows("s") if row["state"] != "finished"))
        self.assertNotIn(str(self.folder), self.table("s"))
        before = self.table("s")
        self.works("sweep", "--out", "s", "--resume", "--rerun-failed")
        self.assertEqual(self.table("s"), before)

    def test_a_sweep_without_a_result_fails(self):
        job = self.write_job(("{ low = 0.001, high = 0.5, scale = \"log\" }", "[1e30, 2e30]"),
                             ("width = [2, 4, 8]", "width = [2]"), ('"successive-halving"', '"grid"'),
                             ("trials = 6", "trials = 2"))
        for more in ([], ["--json"], ["--quiet"]):
            done = self.run_command("sweep", job, "--out", "s" + "".join(more), *more)
            self.assertEqual(done.returncode, 1)
            self.assertIn("error: [sweep] no trial has a result: all 2 have failed or were stopped\n"
                          "hint: 2 of them: ", done.stderr)
            self.assertIn("is not a finite number", done.stderr)
            self.assertFalse((self.folder / ("s" + "".join(more)) / "model.safetensors").exists())

    def test_a_network_whose_validation_loss_is_not_a_number_is_not_the_best(self):
        rows = "".join(f"{i % 2}.5,{i % 2},{'ab'[i % 2]}\n" for i in range(20))
        (self.folder / "train.csv").write_text("x,y,kind\n" + rows)
        # Products of the weights overflow, and their sum is not a number: but it has a class.
        (self.folder / "wide.csv").write_text("x,y,kind\n3e38,-3e38,a\n-3e38,3e38,b\n3e38,3e38,a\n")
        (self.folder / "table.toml").write_text("""
[data]
train = "train.csv"
validation = "wide.csv"
[network]
layers = [ { type = "feature_input", features = 2 }, { type = "fully_connected", units = 8 },
           { type = "fully_connected", units = 2 }, { type = "softmax" } ]
[training]
mini_batch_size = 10
max_epochs = 2
validation_frequency = "epoch"
[sweep]
method = "grid"
[sweep.parameters]
initial_learning_rate = [0.1, 0.2]
output_network = ["last", "best"]
""")
        done = self.run_command("sweep", "table.toml", "--out", "s", "--json")
        self.assertEqual((done.returncode, json.loads(done.stdout)["best"]), (1, 0))
        self.assertEqual({row["state"] for row in self.rows("s")}, {"diverged"})
        self.assertEqual({row["reason"] for row in self.rows("s")}, {"the validation loss is not a finite number"})

    def test_conditions_that_can_never_hold(self):
        for parameters, said in (
                ('width = { values = [2, 4], when = { solver = "adam" } }\nsolver = ["sgdm", "rmsprop"]',
                 'width: its condition can never be true: it needs solver = "adam", but solver has the values "sgdm", "rmsprop"'),
                ('width = { values = [2, 4], when = { momentum = { low = 2, high = 3 } } }\nmomentum = { low = 0, high = 0.9 }',
                 "it needs momentum from 2.0 to 3.0, but momentum is from 0.0 to 0.9")):
            job = self.write_job(("width = [2, 4, 8]", parameters))
            for command in ("sweep", "train"):
                done = self.run_command(command, job, "--out", "s")
                self.assertEqual(done.returncode, 1)
                self.assertIn(said, done.stderr)

    def test_refusals(self):
        for change, said in ((("trials = 6", "trials = 0"), "[sweep] trials is missing"),
                             (("max_epochs = 4", "max_epochs = 4\nmax_time = 5"), "max_time"),
                             (("width = [2, 4, 8]", "widht = [2, 4]"), "width"),
                             (("width = [2, 4, 8]", "max_epochs = [2, 4]"), "max_epochs cannot be a parameter"),
                             (('"epoch"', "1000"), "no validation until"),
                             (("validation_fraction = 0.2", ""), "needs validation data"),
                             (("[sweep]", "[sweep]\nmetric = \"f1\""), "no metric `f1`")):
            done = self.run_command("sweep", self.write_job(change), "--out", "refused", "--set", "max_epochs=2")
            self.assertEqual(done.returncode, 1, change)
            self.assertIn(said, done.stderr)
            shutil.rmtree(self.folder / "refused", ignore_errors=True)
        (self.folder / "plain.toml").write_text(JOB.split("[sweep]")[0], encoding="utf-8")
        (self.folder / "digits").symlink_to(self.shared / "digits")
        self.assertIn("[sweep] is missing", self.run_command("sweep", "plain.toml", "--out", "s").stderr)
        self.assertIn("JOB is missing", self.run_command("sweep", "--out", "s").stderr)
        self.assertIn("contains no sweep", self.run_command("sweep", "--out", "s", "--resume").stderr)

    def test_the_device_of_the_profile_is_used(self):
        (self.folder / "gpus.toml").write_text('scheduler = "local"\nworkers = 1\ndevice = "cuda"\n')
        arguments = self.arguments("sweep", self.write_job(), "--cluster", "gpus.toml", "--out", "gpus")
        done = subprocess.run(arguments, cwd=self.folder, capture_output=True, text=True, timeout=300,
                              env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("[device] cuda:0 cannot be used: ", done.stderr)
        self.assertNotIn("unbuildable", (self.folder / "gpus" / "sweep.jsonl").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
