#!/usr/bin/env python3
"""Texts in jobs, and texts that networks continue.

usage: text_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import math
import subprocess
import unittest

from support import COMMAND, CommandTest

JOB = """
[data]
train = "{train}"
{data}
[network]
layers = [
  {{ type = "token_input", vocabulary = {tokens} }},
  {{ type = "embedding", vocabulary = {tokens}, units = 16 }},
  {{ type = "position_embedding", positions = 16 }},
  {{ type = "transformer_block", heads = 2, causal = true }},
  {{ type = "layer_normalization" }},
  {{ type = "fully_connected", units = {tokens} }},
  {{ type = "softmax" }},
]
[training]
solver = "adam"
initial_learning_rate = 0.01
mini_batch_size = 8
max_epochs = {epochs}
{more}"""

CLASSES = """
[data]
train = "{train}"
{data}
[network]
layers = [
  {{ type = "token_input", vocabulary = {tokens} }},
  {{ type = "embedding", vocabulary = {tokens}, units = 8 }},
  {{ type = "lstm", units = 8, output = "last" }},
  {{ type = "fully_connected", units = 2 }},
  {{ type = "softmax" }},
]
[training]
solver = "adam"
initial_learning_rate = 0.03
mini_batch_size = 6
max_epochs = 20
"""

SENTENCE = "the cat sat on the mat, and the dog saw it.\n"


class Texts(CommandTest):
    def job(self, train="text.txt", tokens=None, epochs=2, data="window_length = 16", more="", name="job.toml"):
        if tokens is None:
            tokens = len(set((self.folder / train).read_text(encoding="utf-8")))
        (self.folder / name).write_text(
            JOB.format(train=train, tokens=tokens, epochs=epochs, data=data, more=more), encoding="utf-8")
        return name

    def trained(self, epochs=2, **job):
        self.put("text.txt", SENTENCE * 40)
        self.succeed("train", self.job(epochs=epochs, **job), "--out", "run", "--quiet")

    def put(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def succeed(self, *arguments):
        done = subprocess.run([COMMAND, *arguments], cwd=self.folder, capture_output=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode()

    def run_command(self, *arguments):
        return subprocess.run([COMMAND, *arguments], cwd=self.folder, capture_output=True, timeout=300, check=False,
                              text=True)

    def refuse(self, *arguments):
        done = subprocess.run([COMMAND, *arguments], cwd=self.folder, capture_output=True, timeout=300, check=False)
        self.assertIn(done.returncode, (1, 2), done.stdout.decode())
        return done.stderr.decode()

    def generate(self, *arguments):
        return self.succeed("generate", "run", "--prompt", "the ", "--length", "40", *arguments)

    def test_a_text_is_learned_and_continued(self):
        self.trained(epochs=8, data="window_length = 16\nwindow_stride = 3\nvalidation_fraction = 0.2",
                     more='metrics = "perplexity"')
        made = self.generate("--temperature", "0")
        self.assertTrue(made.startswith("the "), made)
        self.assertIn(made[:40], SENTENCE * 2)
        result = json.loads(self.succeed("evaluate", "run", "text.txt", "--metrics", "perplexity", "--json"))
        self.assertGreater(result["accuracy"], 0.8)
        self.assertAlmostEqual(result["metrics"]["perplexity"], math.exp(result["loss"]), delta=1e-4)

    def test_a_check_counts_no_classes_of_steps(self):
        self.put("text.txt", SENTENCE * 40)
        said = self.succeed("train", self.job(), "--check")
        classes = next(line for line in said.splitlines() if line.startswith("classes"))
        self.assertIn(f"{len(set(SENTENCE))}: ", classes)
        self.assertNotIn("(", classes)
        self.assertNotIn("images", classes)

    def test_a_list_of_texts_is_refused(self):
        self.put("text.txt", SENTENCE * 40)
        self.put("more.txt", SENTENCE * 40)
        said = self.refuse("train", self.job(), "--set", 'data.train=["text.txt", "more.txt"]', "--check")
        self.assertIn("a text is one .txt file or one folder", said)

    def test_a_seed_gives_one_text(self):
        self.trained()
        one = self.generate("--seed", "3")
        self.assertEqual(self.generate("--seed", "3"), one)
        self.assertNotEqual(self.generate("--seed", "4"), one)
        # Shorter texts are the begins of longer ones.
        longer = self.succeed("generate", "run", "--prompt", "the ", "--length", "60", "--seed", "3")
        self.assertEqual(longer[:44], one[:44])
        likeliest = self.generate("--temperature", "0")
        for more in (["--top-k", "1"], ["--top-p", "0"], ["--temperature", "0", "--seed", "9"]):
            self.assertEqual(self.generate(*more), likeliest)
        self.assertEqual(self.generate("--top-k", "0", "--top-p", "1", "--seed", "3"), one)
        self.assertEqual(self.generate("--top-k", "1000000", "--seed", "3"), one)
        found = json.loads(self.generate("--seed", "3", "--json"))
        self.assertEqual(found["prompt"] + found["text"] + "\n", one)
        self.assertEqual(len(found["tokens"]), 40)

    def test_prompts(self):
        self.trained()
        long = SENTENCE * 3
        self.put("begin.txt", long)
        made = self.succeed("generate", "run", "--prompt-file", "begin.txt", "--length", "5", "--seed", "1")
        # What lies before the context has no influence.
        other = self.succeed("generate", "run", "--prompt", long[-16:], "--length", "5", "--seed", "1")
        self.assertEqual(made[len(long):], other[16:])
        self.assertEqual(self.succeed("generate", "run", "--prompt", "the", "--length", "0"), "the\n")
        self.assertIn("the prompt line 1, column 3: `Q` is not among", self.refuse("generate", "run", "--prompt", "thQ"))
        self.assertIn("the prompt has no tokens", self.refuse("generate", "run", "--prompt", ""))
        self.assertIn("the prompt has no tokens", self.refuse("generate", "run"))
        self.assertIn("missing.txt", self.refuse("generate", "run", "--prompt-file", "missing.txt"))
        self.assertIn("16 positions", self.refuse("generate", "run", "--prompt", "a", "--context", "17"))

    def test_options_outside_their_ranges(self):
        self.trained(epochs=1)
        for option, value in (("--temperature", "-1"), ("--temperature", "nan"), ("--top-k", "-1"), ("--top-p", "1.5"),
                              ("--length", "-3"), ("--top-p", "nan")):
            self.refuse("generate", "run", "--prompt", "the", option, value)

    def test_a_reader_that_goes_away_ends_it(self):
        self.trained(epochs=1)
        done = subprocess.run(f"timeout 60 {COMMAND} generate run --prompt the --length 100000000 | head -c 10",
                              shell=True, cwd=self.folder, capture_output=True, timeout=120, check=True)
        self.assertEqual(len(done.stdout), 10)
        self.assertNotIn(b"bug", done.stderr)

    def test_units(self):
        self.put("text.txt", SENTENCE * 40)
        for units, tokens in (("bytes", 256), ("words", 12)):
            name = self.job(tokens=tokens, data=f'window_length = 16\ntokens = "{units}"', name=units + ".toml")
            self.succeed("train", name, "--out", units, "--quiet")
            made = self.succeed("generate", units, "--prompt", "the cat", "--length", "3", "--temperature", "0")
            self.assertTrue(made.startswith("the cat"), made)

    def test_a_folder_is_one_text(self):
        self.put("text.txt", SENTENCE * 40)
        for i in range(4):
            self.put(f"book/{i}.txt", SENTENCE * 10)
        self.put("book/notes.md", "unrelated")
        self.succeed("train", self.job(), "--out", "whole", "--quiet")
        self.succeed("train", self.job(train="book", tokens=len(set(SENTENCE)), name="folder.toml"), "--out", "parts",
                     "--quiet")
        self.assertEqual(self.generate_of("whole"), self.generate_of("parts"))

    def generate_of(self, run):
        return self.succeed("generate", run, "--prompt", "the ", "--length", "30", "--seed", "5")

    def test_bits_do_not_depend_on_threads_and_workers(self):
        self.put("text.txt", SENTENCE * 40)
        job = self.job(data="window_length = 16\nvalidation_fraction = 0.1")
        models = []
        for name, more in (("one", ["--threads", "1"]), ("three", ["--threads", "3"]), ("workers", ["--workers", "2"])):
            self.succeed("train", job, "--out", name, "--quiet", *more)
            models.append((self.folder / name / "model.safetensors").read_bytes())
        self.assertEqual(models[0], models[1])
        self.assertEqual(models[0], models[2])

    def test_a_resumed_run_and_a_model_keep_their_vocabulary(self):
        self.trained(epochs=1)
        self.put("other.txt", "cat sat mat\n" * 40)  # fewer characters, others are more frequent
        tokens = len(set(SENTENCE))
        job = self.job(train="other.txt", tokens=tokens, name="other.toml")
        self.succeed("train", job, "--initial-model", "run", "--out", "tuned", "--quiet")
        self.assertTrue(self.generate_of("tuned"))
        self.put("text.txt", "the zebra\n" + SENTENCE * 39)
        message = self.refuse("train", "job.toml", "--out", "run", "--resume", "--set", "max_epochs=3")
        self.assertIn("`z` is not among", message)

    def test_texts_that_cannot_be_learned(self):
        self.put("text.txt", SENTENCE)
        job = self.job()
        for content, message in ((b"", "is empty"), (b"a", "needed"), (b"ab\nc\xffd", "line 2, column 2: the text is not UTF-8")):
            self.put("text.txt", content)
            self.assertIn(message, self.refuse("train", job, "--out", "bad"))
        self.put("text.txt", SENTENCE)
        few = self.job(tokens=5, name="few.toml")
        self.assertIn("vocabulary = ", self.refuse("train", few, "--check"))
        many = self.job(tokens=50, name="many.toml")
        self.assertIn("units = ", self.refuse("train", many, "--check"))
        self.assertIn("not a .txt file", self.refuse("train", job, "--set", "data.train=job.toml", "--check"))
        self.assertIn("resize is not for texts", self.refuse("train", job, "--set", "resize=true", "--check"))
        (self.folder / "empty").mkdir()
        self.assertIn("has no text", self.refuse("train", job, "--set", "data.train=empty", "--check"))
        self.assertIn("does not exist", self.refuse("train", job, "--set", "data.train=missing.txt", "--check"))
        self.assertIn("each part needs two", self.refuse("train", job, "--set", "validation_fraction=0.01", "--check"))

    def classifier(self, train="reviews", data="", tokens=40, name="classes.toml"):
        (self.folder / name).write_text(CLASSES.format(train=train, data=data, tokens=tokens), encoding="utf-8")
        return name

    def put_reviews(self, folder="reviews"):
        """24 texts of two classes, as a folder and as lines of JSON."""
        lines = []
        for i in range(12):
            for label, word in (("bad", "awful"), ("good", "fine")):
                text = "it was " * (1 + i % 3) + word + " indeed\n"
                (self.folder / folder / label).mkdir(parents=True, exist_ok=True)
                (self.folder / folder / label / f"{i:02}.txt").write_text(text, encoding="utf-8")
                lines.append(json.dumps({"label": label, "text": text, "stars": i}))
        self.put(folder + ".jsonl", "\n".join(lines) + "\n\n")
        return lines

    def test_texts_with_classes_are_learned(self):
        self.put_reviews()
        for train in ("reviews", "reviews.jsonl"):
            job = self.classifier(train, 'tokens = "words"\nmax_tokens = 10\nvalidation_fraction = 0.25', tokens=10)
            out = "run_" + train
            self.succeed("train", job, "--out", out, "--quiet")
            for data in ("reviews", "reviews.jsonl"):
                result = json.loads(self.succeed("evaluate", out, data, "--json"))
                self.assertEqual((result["observations"], result["accuracy"]), (24, 1.0), result)
        self.put("new/deep/a.txt", b"it was fine")
        self.put("new.jsonl", '{"text": "it was awful"}\n\n{"text": "zebras was fine"}\n')
        said = self.run_command("predict", "run_reviews", "new", "new.jsonl")
        self.assertEqual(said.returncode, 0, said.stderr)
        rows = said.stdout.splitlines()
        for name, label in (("a.txt", "good"), ("new.jsonl line 1", "bad"), ("new.jsonl line 3", "good")):
            row = [row for row in rows if name in row]
            self.assertEqual(len(row), 1, said.stdout)
            self.assertIn(label, row[0])
        self.assertIn("not in the vocabulary (words)", said.stderr)
        self.assertIn("1 of the", said.stderr)
        # A text decides alone: the neighbors change no score.
        alone, both = (json.loads(self.succeed("predict", "run_reviews", *names, "--json"))["predictions"]
                       for names in (["new"], ["new", "new.jsonl"]))
        self.assertEqual((len(alone), len(both)), (1, 3))
        self.assertEqual(alone[0], both[0])
        self.assertIn("does not give a probability for each of its tokens by step",
                      self.refuse("generate", "run_reviews", "--prompt", "it"))

    def test_what_is_cut_and_padded_is_said_and_changes_nothing(self):
        self.put_reviews()
        job = self.classifier("reviews", 'tokens = "bytes"\nwindow_length = 18', tokens=256)
        said = self.run_command("train", job, "--out", "short")
        self.assertEqual(said.returncode, 0, said.stderr)
        # "it was it was awful indeed\n" has 27 bytes, the shortest text 19 ("it was fine indeed\n").
        self.assertIn("24 texts of", said.stdout + said.stderr)
        self.assertIn("cut to the first 18 tokens (window_length)", said.stdout + said.stderr)
        self.put("a.jsonl", json.dumps({"text": "it was fine indeed"}))
        self.put("b.jsonl", json.dumps({"text": "it was fine indeed, and far longer than that"}))
        scores = [self.succeed("predict", "short", name) for name in ("a.jsonl", "b.jsonl")]
        self.assertEqual(scores[0].replace("a.jsonl", ""), scores[1].replace("b.jsonl", ""))

    def test_texts_with_classes_that_are_wrong_are_refused(self):
        lines = self.put_reviews()
        job = self.classifier("reviews.jsonl")

        def refused(text):
            self.put("bad.jsonl", "\n".join(lines[:2]) + "\n" + text)
            return self.refuse("train", job, "--set", "data.train=bad.jsonl", "--check")

        for text, message in (
                ('{"text": "a"}', "bad.jsonl line 3 has no key `label`"),
                ('{"txt": "a", "label": "b"}', "bad.jsonl line 3 has no key `text`"),
                ('{"text": 7, "label": "b"}', "bad.jsonl line 3: `text` is not a text"),
                ('{"text": "a", "label": [1]}', "bad.jsonl line 3: `label` is not a text or an integer"),
                ('{"text": "a", "label": ""}', "bad.jsonl line 3: `label` is empty"),
                ('{"text": "", "label": "b"}', "bad.jsonl line 3: empty"),
                ('{"text": "a", "text": "c", "label": "b"}', "bad.jsonl line 3: "),
                ('["a"]', "bad.jsonl line 3 is not a JSON object"),
                ('{"text": "a"', "bad.jsonl line 3: ")):
            self.assertIn(message, refused(text))
        self.put("other.jsonl", '{"text": "a", "label": "goo"}')
        unknown = self.refuse("train", job, "--set", "data.validation=other.jsonl", "--check")
        self.assertIn("other.jsonl line 1 has the class `goo`, which is not among the 2 classes", unknown)
        self.assertIn("good", unknown)
        self.put("reviews/bad/x.txt", "")
        self.assertIn("x.txt: empty", self.refuse("train", job, "--set", "data.train=reviews", "--check"))
        (self.folder / "reviews/bad/x.txt").write_text(" \n \n", encoding="utf-8")
        self.put("reviews/loose.txt", "a")
        self.assertIn("loose.txt is not in a folder of a class",
                      self.refuse("train", job, "--set", "data.train=reviews", "--check"))
        self.assertIn("loose.txt has no classes",
                      self.refuse("train", job, "--set", "data.train=reviews/loose.txt", "--check"))
        self.assertIn("window_stride is for", self.refuse("train", job, "--set", "window_stride=2", "--check"))

    def test_a_model_of_other_data_has_no_text(self):
        self.put("rows.csv", "a,b,kind\n" + "1,2,x\n2,1,y\n" * 20)
        self.put("rows.toml", """
[data]
train = "rows.csv"
[network]
layers = [{ type = "feature_input", features = 2 }, { type = "fully_connected", units = 2 }, { type = "softmax" }]
[training]
max_epochs = 1
mini_batch_size = 10
""")
        self.succeed("train", "rows.toml", "--out", "rows", "--quiet")
        self.assertIn("no vocabulary", self.refuse("generate", "rows", "--prompt", "a"))


if __name__ == "__main__":
    unittest.main()
