#!/usr/bin/env python3
"""`lockstep report` and the report at the end of a training: usage: report_test.py COMMAND"""

import json
import re
import subprocess
import time

from support import COMMAND, CommandTest, unittest


def data_of(page):
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1)
    return json.loads(text)


class Report(CommandTest):
    def train(self, out, *arguments):
        done = self.run_command("train", "job.toml", "--quiet", "--out", out, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.folder / out

    def test_the_report_of_a_training(self):
        run = self.train("<script>", "--profile", "--set", "training.seed=3")
        page = (run / "report.html").read_text(encoding="utf-8")
        self.assertLess(len(page), 5 << 20)
        data = data_of(page)
        self.assertEqual(data["log"]["iterations"], 6)
        self.assertEqual(len(data["log"]["loss"]), 6)
        self.assertEqual([epoch for _, epoch in data["log"]["epochs"]], [1, 2, 3])
        self.assertEqual(data["state"]["status"], "finished")
        self.assertEqual(data["start"]["iterations"], 6)
        self.assertEqual([layer["size"] for layer in data["network"]["layers"]],
                         ["1x28x28", "4x12x12", "4x12x12", "4x12x12", "4x12x12", "10", "10"])
        self.assertEqual([layer["parameters"] for layer in data["network"]["layers"]],
                         ["-", "104", "8", "-", "-", "5770", "-"])
        self.assertEqual(data["network"]["layers"][1]["inputs"], ["input"])
        self.assertEqual(sorted(data["confusion"]), ["test", "validation"])
        self.assertGreater(len(data["profile"]["accounts"]), 5)
        differing = {f"{table['name']}.{field['name']}": field["value"]
                     for table in data["options"] for field in table["fields"] if field["set"]}
        self.assertEqual(differing["training.seed"], "3")
        self.assertEqual(differing["variables.width"], "4")
        self.assertEqual(differing["training.max_epochs"], "3")
        self.assertEqual(data["network"]["layers"][1]["options"], "filters 4, kernel 5, stride 2")
        self.assertEqual(data["log"]["times"][-1][0], 6)
        self.assertIn("test.accuracy", data["scores"])
        self.assertEqual(differing["training.mini_batch_size"], "50")
        self.assertEqual(differing["augmentation.translate_x"], "[-1,1]")
        for default in ("training.momentum", "training.solver", "augmentation.rotation", "data.test",
                        "training.initial_learning_rate"):
            self.assertNotIn(default, differing)

        worst = data["predictions"]["test"]["worst"]
        confusion = data["confusion"]["test"]["counts"]
        wrong = sum(map(sum, confusion)) - sum(row[i] for i, row in enumerate(confusion))
        self.assertEqual(data["predictions"]["test"]["wrong"], wrong)
        self.assertEqual(len(worst), min(48, wrong))
        self.assertEqual(sorted(w["true_score"] for w in worst), [w["true_score"] for w in worst])

        # Again, from the folder alone.
        (run / "report.html").unlink()
        done = self.run_command("report", "<script>")
        self.assertEqual((done.returncode, done.stdout), (0, "<script>/report.html\n"))
        self.assertEqual((run / "report.html").read_text(encoding="utf-8"), page)

    def test_images_to_images(self):
        self.write("""
[data]
train = "digits"
validation_fraction = 0.1
targets = "inputs"
[network]
input = { height = 28, width = 28, channels = 1 }
layers = [{ type = "convolution2d", filters = 1, kernel = 3, padding = 1 }, { type = "sigmoid" }]
loss = "mean_squared_error"
[training]
max_epochs = 1
""")
        data = data_of((self.train("out") / "report.html").read_text(encoding="utf-8"))
        triples = data["predictions"]["validation"]["triples"]
        self.assertEqual(len(triples), 8)
        self.assertEqual(triples[0]["input"], triples[0]["target"])
        self.assertNotEqual(triples[0]["input"], triples[0]["output"])

    def test_damaged_files_and_folders_without_a_run(self):
        run = self.train("out")
        (run / "confusion.json").write_text("{")
        (run / "predictions.json").unlink()
        with open(run / "log.jsonl", "a", encoding="utf-8") as log:
            log.write('{"iteration": 7, "lo')
        done = self.run_command("report", "out")
        self.assertEqual(done.returncode, 0, done.stderr)
        data = data_of((run / "report.html").read_text(encoding="utf-8"))
        self.assertEqual(data["notes"], ["confusion.json is damaged and left out"])
        self.assertEqual(data["log"]["iterations"], 6)
        done = self.run_command("report", "digits")
        self.assertEqual(done.returncode, 1)
        self.assertIn("digits is not the folder of a run", done.stderr)

    def test_a_request_to_stop(self):
        """A file in the run's folder ends it after an iteration, and the log says so."""
        stop = self.folder / "out" / "stop"
        process = subprocess.Popen([COMMAND, "train", "job.toml", "--quiet", "--out", "out",
                                    "--set", "max_epochs=100000"], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        try:
            limit = time.monotonic() + 60
            receipt = self.folder / "out" / "receipt.jsonl"
            while not (receipt.exists() and receipt.stat().st_size > 0) and time.monotonic() < limit:
                time.sleep(0.02)
            stop.touch()
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        self.assertEqual(process.returncode, 130, error)
        self.assertFalse(stop.exists())
        self.assertTrue((self.folder / "out" / "model.safetensors").exists())
        self.assertIn("a stop was requested", (self.folder / "out" / "log.jsonl").read_text())
        self.assertEqual(json.loads((self.folder / "out" / "state.json").read_text())["state"], "stopped")
        self.assertEqual(data_of((self.folder / "out" / "report.html").read_text())["state"]["status"], "stopped")


if __name__ == "__main__":
    unittest.main(verbosity=2)
