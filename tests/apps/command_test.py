#!/usr/bin/env python3
"""Tests of the command from the user's view: exit codes and output.

usage: command_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import os
import re
import shutil
import subprocess
import unittest

from support import ANEW, COMMAND, JOB, CommandTest

KEYS = {"test_accuracy", "validation_accuracy", "iterations", "images_per_second", "seconds", "digest"}


class Command(CommandTest):
    # ---- commands without training ----

    def test_help_lists_every_command(self):
        done = self.works("--help")
        self.assertEqual(done.stderr, "")
        commands = ["train", "sweep", "cross-validate", "submit", "jobs", "cluster", "worker", "evaluate", "predict",
                    "generate", "summary", "report", "dashboard", "verify", "verify-device", "diff", "architecture",
                    "info", "export-digits", "preview", "runs", "upload", "shard", "reference", "completion", "man"]
        self.assertEqual(re.findall(r"^  ([a-z-]+)  ", done.stdout.split("Subcommands:")[1], re.M),
                         commands)
        for name in commands:
            self.assertIn("--help", self.works(name, "--help").stdout)
        for option in ["--set", "--out", "--threads", "--workers", "--worker-load", "--hosts",
                       "--host-launch", "--resume", "--save-initial",
                       "--json", "--quiet"]:
            self.assertIn(option, self.works("train", "--help").stdout)

    def test_architecture_prints_a_job_that_trains(self):
        names = [line.split()[0] for line in self.works("architecture").stdout.splitlines()]
        self.assertEqual(names, ["cnn", "convnext_tiny", "efficientnet_b0", "lenet5", "mlp", "mobilenetv2", "resnet18",
                                 "resnet20", "resnet34", "resnet50", "resnet56", "unet", "vit_tiny"])
        self.write(self.works("architecture", "mlp", "--units", "8,4").stdout)
        self.assertIn("units = 8", (self.folder / "job.toml").read_text())
        self.assertEqual(self.result("--set", "train=digits", "--set", "max_epochs=1")["iterations"], 1)
        self.write(self.works("architecture", "resnet20", "--height", "28", "--width", "28",
                              "--channels", "1").stdout)
        self.assertEqual(self.result("--set", "train=digits", "--set", "max_epochs=1",
                                     "--set", "mini_batch_size=30")["iterations"], 5)
        self.fails(1, "error: [architecture] unknown architecture `resnet2`\n"
                   "hint: did you mean `resnet20`?\n", "architecture", "resnet2")
        self.fails(1, "error: [lenet5] unknown field 'depth'\nhint: known names: height, width, channels, classes\n",
                   "architecture", "lenet5", "--depth", "3")

    def test_version(self):
        self.assertRegex(self.works("--version").stdout, r"^lockstep \d+\.\d+\.\d+\n$")

    def test_info_as_json(self):
        done = self.works("info", "--json")
        info = json.loads(done.stdout)
        self.assertEqual(list(info), ["version", "processor", "instruction_sets", "cores", "memory_mib",
                                      "memory_available_mib", "kernels", "gpus", "libraries", "fingerprint"])
        self.assertEqual(info["cores"], len(os.sched_getaffinity(0)))
        self.assertGreater(info["memory_mib"], 100)
        self.assertIn("oneDNN", info["fingerprint"])
        limited = json.loads(self.works("info", "--json", LOCKSTEP_MAX_CPU_ISA="AVX2").stdout)
        self.assertNotIn("AVX-512", limited["fingerprint"]["instruction set"])
        self.assertEqual(limited["kernels"]["bf16"], "not offered")
        self.assertNotIn("AVX3", limited["kernels"]["convolutions"])
        self.assertIn(info["version"], self.works("info").stdout)

    def test_info_lists_gpus_or_says_why_there_is_none(self):
        gpus = json.loads(self.works("info", "--json").stdout)["gpus"]
        text = self.works("info").stdout
        if any(gpu["usable"] for gpu in gpus["devices"]):
            self.assertEqual(gpus["reason"], "")
            self.assertIn(gpus["devices"][0]["name"], text)
        else:
            self.assertIn(gpus["reason"], text)
            self.assertGreater(len(gpus["reason"]), 10)

    def test_info_names_a_gpu_library_that_cannot_be_loaded(self):
        missing = "/nowhere/liblockstep_cuda.so"
        gpus = json.loads(self.works("info", "--json", LOCKSTEP_CUDA_LIBRARY=missing).stdout)["gpus"]
        self.assertEqual(gpus["devices"], [])
        self.assertEqual(gpus["library"], "")
        self.assertIn(missing + " cannot be loaded", gpus["reason"])
        self.assertIn("LOCKSTEP_CUDA_LIBRARY", gpus["reason"])

    def test_a_device_that_is_not_there_is_not_tested(self):
        file = self.folder / "verdict.json"
        done = self.run_command("verify-device", "cuda:63", "--json", str(file))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stdout, r"self-test +not tested")
        self.assertIn("cuda:63 cannot be used", done.stdout)
        verdict = json.loads(file.read_text())
        self.assertEqual((verdict["state"], verdict["kernels"]), ("not tested", []))
        self.assertEqual(self.run_command("verify-device", "gpu").returncode, 1)

    def test_wrong_usage_exits_with_2(self):
        self.fails(2, "error: unknown command `trian`\nhint: did you mean `train`?\n", "trian")
        self.fails(2, "error: unexpected argument `--thread`\nhint: did you mean `--threads`?\n",
                   "train", "job.toml", "--thread", "2")
        self.fails(2, "error: A subcommand is required\nhint: try: lockstep --help\n")
        self.fails(2, "error: a job file is missing\nhint: lockstep train JOB, or lockstep train --out DIR --resume "
                      "to continue a run\n", "train")
        self.assertEqual(self.run_command("train", "job.toml", "--threads", "0").returncode, 2)
        self.assertEqual(self.run_command("train", "job.toml", "--resume").returncode, 2)

    def test_unknown_layer_is_refused_with_a_hint(self):
        self.write(JOB.replace('"relu"', '"rleu"'))
        self.fails(1, "error: job.toml: [line 18, network, layer 3] unknown layer type `rleu`\n"
                      "hint: did you mean `relu`?\n", "train", "job.toml")
        self.assertFalse((self.folder / "runs").exists())

    def test_wrong_fields_are_refused_with_a_hint(self):
        self.write(JOB.replace("max_epochs", "max_epoch"))
        self.fails(1, "error: job.toml: [training] unknown field 'max_epoch'\n"
                      "hint: did you mean `max_epochs`?\n", "train", "job.toml")
        # Words of other systems.
        self.write(JOB.replace("max_epochs", "epochs"))
        self.fails(1, "error: job.toml: [training] unknown field 'epochs'\n"
                      "hint: did you mean `max_epochs`?\n", "train", "job.toml")
        self.write(JOB.replace('"relu"', '"Linear"'))
        self.fails(1, "error: job.toml: [line 18, network, layer 3] unknown layer type `Linear`\n"
                      "hint: did you mean `fully_connected`?\n", "train", "job.toml")
        self.write(JOB + "=\n")
        done = self.run_command("train", "job.toml")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^error: \[job file\] job.toml, line 29, column 1: ")

    def test_missing_files_are_named(self):
        self.fails(1, "error: [file] cannot read none.toml: No such file or directory\n",
                   "train", "none.toml")
        (self.folder / "digits").unlink()
        done = self.run_command("train", "job.toml")
        self.assertEqual(done.returncode, 1)
        self.assertIn(str(self.folder / "digits") + " does not exist", done.stderr)

    def test_summary_shows_the_network(self):
        table = self.works("summary", "job.toml", "--set", "width=6").stdout
        self.assertRegex(table, r"(?m)^convolution2d_1 +convolution2d +input +6x12x12 +156 +-$")
        self.assertIn("7 layers, 8818 parameters, 14 values of state", table)

    # ---- training ----

    def test_train_evaluate_predict(self):
        done = self.works("train", "job.toml")
        self.assertRegex(done.stdout, r"\Avalidation accuracy  \d+\.\d\d % of 40 images\n"
                                      r"test accuracy        \d+\.\d\d % of 20 images\n"
                                      r"iterations           6 in 0:00:\d\d\n"
                                      r"images per second    [\d,]+\n"
                                      r"digest               [0-9a-f]{32}\n"
                                      r"model                runs/job-1/model\.safetensors\n\Z")
        lines = done.stderr.splitlines()
        self.assertRegex(lines[0], r"^10 classes: 0 \(14\), 1 \(14\), .*, 9 \(14\)$")
        self.assertRegex(lines[1], r"^140 training images, 40 for validation; 6 iterations in 3 epochs; ")
        self.assertEqual([re.match(r"epoch \d/3  iteration (\d)/6 ", line).group(1)
                          for line in lines if line.startswith("epoch")], ["1", "2", "4", "6"])
        self.assertNotIn("\x1b", done.stderr)
        self.assertNotIn("\r", done.stderr)
        folder = self.folder / "runs" / "job-1"
        self.assertEqual(sorted(p.name for p in folder.iterdir()),
                         ["checkpoints", "confusion.json", "job.json", "lock", "log.jsonl",
                          "model.safetensors", "observations", "predictions.json", "receipt.jsonl", "report.html",
                          "run.json", "state.json"])
        log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        self.assertEqual([entry["iteration"] for entry in log if "loss" in entry], [1, 2, 3, 4, 5, 6])
        self.assertEqual(json.loads((folder / "job.json").read_text())["training"]["max_epochs"], 3)

        evaluated = json.loads(self.works("evaluate", "runs/job-1", "digits", "--json").stdout)
        self.assertEqual(evaluated["observations"], 200)
        self.assertIn("%", self.works("evaluate", "runs/job-1/model.safetensors", "digits").stdout)
        one = self.works("predict", "runs/job-1", "digits/3/00.png", "digits/4").stdout.splitlines()
        self.assertEqual(len(one), 21)
        for line in one:
            self.assertRegex(line, r"^digits/[34]/\d\d\.png\t\d\t[01]\.\d{4}$")
        top = json.loads(self.works("predict", "runs/job-1", "digits/3/00.png", "--json", "--top", "10").stdout)
        best = top["predictions"][0]["top"]
        self.assertEqual({entry["class"] for entry in best}, set("0123456789"))
        self.assertAlmostEqual(sum(entry["score"] for entry in best), 1, places=5)
        self.assertEqual(best, sorted(best, key=lambda entry: -entry["score"]))
        # A score does not depend on other observations.
        self.assertEqual(one[0], self.works("predict", "runs/job-1", "digits/3/00.png").stdout.rstrip("\n"))
        self.assertIn("7 layers", self.works("summary", "runs/job-1").stdout)

        self.assertIn("runs/job-2/model", self.works("train", "job.toml", "--quiet").stdout)

    def test_metrics_and_confusion(self):
        metrics = ("--set", 'metrics=["top-3", "f1", "auc"]')
        done = self.works("train", "job.toml", *metrics, "--confusion", "--out", "out")
        self.assertRegex(done.stdout, r"validation top-3     \d+\.\d\d %\n"
                                      r"validation f1        0\.\d{4}\n"
                                      r"validation auc       [01]\.\d+\n"
                                      r"test accuracy        \d+\.\d\d % of 20 images\n")
        self.assertRegex(done.stderr, r"validation loss \d\.\d{4}  top-3 \d+\.\d\d%  f1 0\.\d+  auc 0\.\d+  best \d+\.\d\d%\n")
        self.assertRegex(done.stdout, r"\nvalidation\nrows: true classes.*\n *0 +1 +2 [ \d]* 9  recall\n"
                                      r"0 [ \d.]+\n1 [ \d.]+\n")
        self.assertIn("\ntest\nrows: ", done.stdout)
        confusion = json.loads((self.folder / "out" / "confusion.json").read_text())
        self.assertEqual([sum(map(sum, confusion[part]["counts"])) for part in ("validation", "test")],
                         [40, 20])
        # A second evaluation gives the same values.
        result = self.result(*metrics, "--confusion", "--out", "again")
        self.assertEqual(result["confusion"], confusion)
        self.assertEqual(set(result["validation_metrics"]), {"top-3", "f1", "auc"})
        evaluate = ("evaluate", "out", "digits", "--metrics", "top-3,recall", "--confusion")
        evaluated = json.loads(self.works(*evaluate, "--json").stdout)
        self.assertEqual(list(evaluated["metrics"]), ["top-3", "recall"])
        counts = evaluated["confusion"]["counts"]
        self.assertEqual(sum(map(sum, counts)), 200)
        self.assertAlmostEqual(sum(counts[c][c] for c in range(10)) / 200, evaluated["accuracy"])
        self.assertAlmostEqual(evaluated["metrics"]["recall"], sum(evaluated["confusion"]["recall"]) / 10)
        text = self.works(*evaluate).stdout
        self.assertRegex(text, r"(?m)^top-3 +\d+\.\d\d %$")
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

        self.fails(1, "error: [metrics] unknown metric `recal`\nhint: did you mean `recall`?\n",
                   "evaluate", "out", "digits", "--metrics", "f1,recal")
        self.fails(1, "error: job.toml: [metrics] rmse is a regression metric, but the network is a classifier\n"
                      "hint: accuracy, top-K, precision, recall, f1, iou, dice, auc and perplexity are classification metrics\n",
                   "train", "job.toml", "--check", "--set", "metrics=rmse")

    def test_population_statistics(self):
        moving = self.result("--out", "moving")
        arguments = ("--set", "batch_normalization_statistics=population")
        result = self.result("--out", "out", *arguments)
        self.assertEqual(result["digest"], moving["digest"])
        self.assertNotEqual(result["network_digest"], moving["network_digest"])
        last = json.loads((self.folder / "out" / "receipt.jsonl").read_text().splitlines()[-1])
        self.assertEqual((last["phase"], last["digest"]),
                         ("population statistics", result["network_digest"]))
        done = self.works("train", "job.toml", "--out", "out", "--resume", "--threads", "3", *arguments)
        self.assertIn("population statistics of 1 layer in ", done.stderr)
        self.assertIn(f"network digest       {result['network_digest']}\n", done.stdout)

    def test_profile(self):
        done = self.works("train", "job.toml", "--out", "out", "--profile", "--quiet")
        self.assertIn(self.result()["digest"], done.stdout)
        table = done.stdout.split("\n\n", 1)[1]
        self.assertRegex(table, r"\Aphase +what +ms +share +floor +ratio\nforward ")
        self.assertRegex(table, r"\n +total +[\d.]+ +(99|100)\.\d%\n")
        self.assertRegex(table, r"\n5 iterations of [\d.]+ ms by \d+ threads?\. With the passes alone: ")
        self.assertLessEqual(max(map(len, table.splitlines())), 100)
        profile = json.loads((self.folder / "out/profile.json").read_text())
        self.assertAlmostEqual(profile["booked"] / (profile["threads"] * profile["wall"]), 1, delta=0.02)
        logged = [json.loads(line) for line in (self.folder / "out/log.jsonl").read_text().splitlines()]
        seconds = [line["seconds"] for line in logged if "seconds" in line]
        self.assertAlmostEqual(profile["wall"], sum(seconds[1:]), places=5)
        refused = self.run_command("train", "job.toml", "--check", "--profile")
        self.assertEqual(refused.returncode, 2)
        self.assertRegex(refused.stderr, "--(check|profile) excludes --(check|profile)")
        trace = json.loads((self.folder / "out/trace.json").read_text())["traceEvents"]
        self.assertEqual({event["ph"] for event in trace}, {"M", "X"})
        self.assertEqual({event["tid"] for event in trace}, set(range(profile["threads"])))

    def test_json_is_the_last_line(self):
        result = self.result("--out", "out")
        self.assertLessEqual(KEYS, set(result))
        self.assertEqual(result["iterations"], 6)
        self.assertRegex(result["digest"], "^[0-9a-f]{32}$")
        self.assertGreater(result["images_per_second"], 0)
        self.assertFalse(result["stopped"])
        last = (self.folder / "out" / "receipt.jsonl").read_text().splitlines()[-1]
        self.assertEqual(json.loads(last)["digest"], result["digest"])
        bare = self.result("--out", "bare", "--set", "test_fraction=0", "--set", "validation_fraction=0")
        self.assertIsNone(bare["test_accuracy"])
        self.assertIsNone(bare["validation_accuracy"])
        self.assertNotEqual(bare["digest"], result["digest"])

    def test_check_trains_nothing_and_finds_what_does_not_fit(self):
        done = self.run_command("train", "job.toml", "--check")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("passed", done.stdout)
        self.assertRegex(done.stdout, r"iterations +6 in 3 epochs")
        self.assertFalse((self.folder / "runs").exists())
        for setting, words in (("training.freeze=\"relu_9\"", "relu_9"),
                               ("training.class_weights=[1, 2]", "class_weights"),
                               ("training.mini_batch_size=5000", "mini_batch_size"),
                               ("data.train=\"nowhere\"", "nowhere")):
            done = self.run_command("train", "job.toml", "--check", "--set", setting)
            self.assertEqual(done.returncode, 1, setting)
            self.assertIn(words, done.stderr)

    def test_dry_run_tells_time_and_memory_and_leaves_nothing(self):
        done = self.run_command("train", "job.toml", "--dry-run")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in (r"iterations +3 of 6 done", r"the whole training +about", r"memory +\d+ MiB"):
            self.assertRegex(done.stdout, words)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["digits", "job.toml"])

    def test_threads_do_not_change_the_digest(self):
        results = {threads: self.result("--threads", str(threads), "--out", f"out{threads}")
                   for threads in (1, 2, 3)}
        self.assertEqual(len({r["digest"] for r in results.values()}), 1)
        for threads, r in results.items():
            self.assertEqual(len(r["shards_by_thread"]), threads)
            self.assertTrue(all(n > 0 for n in r["shards_by_thread"]), r)

    def test_closed_descriptors_change_no_file(self):
        """Nothing that is printed goes into a file that has taken the place of standard output."""
        self.works("train", "job.toml", "--out", "usual")
        files = {path.name for path in (self.folder / "usual").iterdir()}
        expected = (self.folder / "usual" / "receipt.jsonl").read_bytes()
        for number, (closed, options) in enumerate([("<&- >&- 2>&-", []), ("<&- >&- 2>&-", ["--workers", "2"]),
                                                    (">&-", []), ("2>&-", []), ("<&- 2>&-", ["--quiet"])]):
            with self.subTest(closed=closed, options=options):
                out = self.folder / str(number)
                done = subprocess.run(["sh", "-c", 'exec "$@" ' + closed, "sh", COMMAND, "train", "job.toml",
                                       "--out", out, *options], cwd=self.folder, capture_output=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual((out / "receipt.jsonl").read_bytes(), expected)
                self.assertEqual({path.name for path in out.iterdir()}, files)
                for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines():
                    json.loads(line)
                self.works("evaluate", out / "model.safetensors", "digits")

    def test_trainings_that_start_at_once_get_folders_of_their_own(self):
        command = [COMMAND, "train", "job.toml", "--json", "--quiet", "--threads", "1"]
        running = [subprocess.Popen(command, cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE) for _ in range(4)]
        results = []
        for process in running:
            output, errors = process.communicate(timeout=300)
            self.assertEqual((process.returncode, errors), (0, ""))
            results.append(json.loads(output))
        self.assertEqual(sorted(r["folder"] for r in results), [f"runs/job-{n}" for n in range(1, 5)])
        self.assertEqual(len({r["digest"] for r in results}), 1)
        # A refused command leaves nothing.
        self.assertEqual(self.run_command("train", "job.toml", "--set", "train=nowhere").returncode, 1)
        self.assertEqual(len(list((self.folder / "runs").iterdir())), 4)

    def test_paths_of_settings_are_relative_to_where_the_command_runs(self):
        """Another, older folder beside the job file has the same name."""
        jobs = self.folder / "jobs"
        jobs.mkdir()
        (self.folder / "job.toml").rename(jobs / "job.toml")
        shutil.copytree(self.shared / "digits", jobs / "digits")
        other = jobs / "digits/3/00.png"
        other.write_bytes((jobs / "digits/4/00.png").read_bytes())
        here, there = str((self.folder / "digits").absolute()), str(jobs.absolute() / "digits")

        def trained(out, *settings):
            more = [word for setting in settings for word in ("--set", setting)]
            done = self.works("train", "jobs/job.toml", "--quiet", "--json", "--out", out, *more)
            data = json.loads((self.folder / out / "job.json").read_text())["data"]
            return json.loads(done.stdout)["digest"], data

        beside, data = trained("beside")
        self.assertEqual(data["train"], there)
        changed, data = trained("here", "data.train=digits")
        self.assertEqual(data["train"], here)
        self.assertNotEqual(changed, beside)
        for setting in ("train=digits", 'data.train="./digits"', f"data.train={here}"):
            out = "out" + str(len(setting))
            self.assertEqual(trained(out, setting), (changed, data))
        both, data = trained("parts", "data.validation_fraction=0", "data.test_fraction=0",
                             "data.validation=digits", "data.test=jobs/digits")
        self.assertEqual((data["train"], data["validation"], data["test"]), (there, here, there))
        # job.json means the same data from any folder, and so does resuming.
        again = self.works("train", "here/job.json", "--quiet", "--json", "--out", "again").stdout
        self.assertEqual(json.loads(again)["digest"], changed)
        self.works("train", "jobs/job.toml", "--set", "data.train=digits", "--out", "here", "--resume", "--quiet")
        self.works("train", "jobs/job.toml", "--set", "data.train=digits", "--check")
        done = self.run_command("train", "jobs/job.toml", "--out", "here", "--resume", "--quiet")
        self.assertIn("contains a run of another job: data.train", done.stderr)
        done = self.run_command("train", "jobs/job.toml", "--check", "--set", "data.train=jobs/nothing")
        self.assertIn(f"{jobs.absolute()}/nothing does not exist", done.stderr)

    def test_info_tells_what_became_of_a_run(self):
        self.result("--out", "whole")
        self.run_command("train", "job.toml", "--out", "part", "--quiet", "--set", "max_time=0.000001")
        whole, part = (json.loads(self.works("info", run, "--json").stdout) for run in ("whole", "part"))
        self.assertEqual((whole["state"], whole["reason"], whole["iterations"], whole["model"]),
                         ("finished", "", 6, "whole/model.safetensors"))
        self.assertEqual((part["state"], part["iterations"], part["model"]),
                         ("stopped", 1, "part/model.safetensors"))
        self.assertIn("max_time", part["reason"])
        self.assertRegex(part["since"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertRegex(self.works("info", "part").stdout, r"(?m)^state +stopped$")
        for command in (("evaluate", "part", "digits"), ("predict", "part", "digits/3/00.png"),
                        ("verify", "part", "--iteration", "1"), ("diff", "part", "whole")):
            done = self.works(*command)
            self.assertRegex(done.stderr, r"^note: part was stopped after iteration 1: max_time = 1e-06 s has passed")
        self.assertEqual(self.works("evaluate", "whole", "digits").stderr, "")
        self.fails(1, "error: [info] digits is not a run folder\n"
                      "hint: use the folder that lockstep train wrote\n", "info", "digits")

    def test_a_training_starts_from_a_run_or_a_checkpoint(self):
        self.result("--out", "a")
        digests = {self.result("--out", f"b{i}", "--initial-model", model, said=ANEW)["digest"]
                   for i, model in enumerate(("a", "a/model.safetensors",
                                              "a/checkpoints/checkpoint-00000006.safetensors"))}
        self.assertEqual(len(digests), 1)
        done = self.run_command("train", "job.toml", "--set", "width=5", "--check", "--initial-model", "a")
        self.assertIn("do not fit the job's network: it has ", done.stderr)
        done = self.run_command("evaluate", "a/checkpoints/checkpoint-00000006.safetensors", "digits")
        self.assertIn("is a checkpoint of a training, not a model", done.stderr)

    def test_second_run_into_the_same_folder_is_refused(self):
        self.result("--out", "out")
        before = (self.folder / "out" / "receipt.jsonl").read_bytes()
        self.fails(1, "error: [run] out contains a finished run\n"
                      "hint: train it further with --resume --set max_epochs=N, or choose another folder "
                      "with --out\n",
                   "train", "job.toml", "--out", "out")
        self.fails(1, "error: [run] out contains a run of another job: training.momentum: 0.9 there, 0.5 here\n"
                      "hint: continue with the same job, or choose another folder with --out\n",
                   "train", "job.toml", "--out", "out", "--resume", "--set", "momentum=0.5")
        self.assertEqual((self.folder / "out" / "receipt.jsonl").read_bytes(), before)

    def test_initial_model_gives_the_same_training(self):
        first = self.result("--out", "a", "--save-initial")
        again = self.result("--out", "b", "--initial-model", "a/initial.safetensors", said=ANEW)
        self.assertEqual(again["digest"], first["digest"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
