#!/usr/bin/env python3
"""Texts in jobs, and texts that networks continue.

usage: text_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import hashlib
import json
import math
import struct
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

ROWS = """
[data]
train = "rows.csv"
[network]
layers = [{ type = "feature_input", features = 2 }, { type = "fully_connected", units = 2 }, { type = "softmax" }]
[training]
max_epochs = 1
mini_batch_size = 10
"""

WAVES = """
[data]
train = "waves"
[network]
layers = [
  { type = "sequence_input", channels = 2 },
  { type = "lstm", units = 4, output = "last" },
  { type = "fully_connected", units = 2 },
  { type = "softmax" },
]
[training]
max_epochs = 1
mini_batch_size = 4
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
        for threads in ("1", "2", "3"):
            self.assertEqual(self.generate("--seed", "3", "--threads", threads), one)
        self.assertIn("--threads", self.refuse("generate", "run", "--prompt", "the", "--threads", "0"))
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

    def test_files_of_tokens_give_the_bits_of_their_numbers_as_text(self):
        numbers = [(i * i + i // 7) % 11 for i in range(600)]
        self.put("text.txt", " ".join(map(str, numbers)))
        self.put("a.bin", struct.pack("<600H", *numbers))
        header = "{'descr': '<i8', 'fortran_order': False, 'shape': (600,), }".ljust(117) + "\n"
        self.put("a.npy", b"\x93NUMPY\x01\x00v\x00" + header.encode() + struct.pack("<600q", *numbers))
        digests = set()
        for number, train in enumerate(["text.txt", "a.bin", "a.npy"]):
            job = self.job(train=train, tokens=11, data='tokens = "numbers"\nwindow_length = 16\n'
                           'validation_fraction = 0.2')
            threads = str(number * 2 + 1)
            self.succeed("train", job, "--out", train + ".run", "--threads", threads, "--quiet")
            digests.add(hashlib.sha256((self.folder / (train + ".run/model.safetensors")).read_bytes()).hexdigest())
        self.assertEqual(len(digests), 1)
        losses = {json.loads(self.succeed("evaluate", "a.bin.run", name, "--json"))["loss"]
                  for name in ("text.txt", "a.bin", "a.npy")}
        self.assertEqual(len(losses), 1)
        made = self.succeed("generate", "a.bin.run", "--prompt", "1 2 6", "--length", "5")
        self.assertRegex(made, r"^1 2 6( \d+){5}\n$")
        # A number a line.
        self.put("lines.txt", "".join(f"{number}\n" for number in numbers))
        losses.add(json.loads(self.succeed("evaluate", "a.bin.run", "lines.txt", "--json"))["loss"])
        self.assertEqual(len(losses), 1)
        self.put("begin.txt", "1 2\n6\n")
        begun = self.succeed("generate", "a.bin.run", "--prompt-file", "begin.txt", "--length", "5")
        self.assertEqual(begun.split(), made.split())
        self.put("begin.txt", "1 2\n300\n")
        said = self.refuse("generate", "a.bin.run", "--prompt-file", "begin.txt")
        self.assertIn("begin.txt line 2, column 1: token 2 is 300, but the vocabulary has 11 tokens", said)

    def test_files_of_tokens_that_cannot_be_learned(self):
        self.put("a.bin", struct.pack("<40H", *range(40)))
        job = self.job(train="a.bin", tokens=11, data='tokens = "numbers"\nwindow_length = 16')
        self.assertIn("token 11 is 11, but the vocabulary has 11 tokens", self.refuse("train", job, "--out", "wrong", "--set", "mini_batch_size=2"))
        self.assertIn("max_tokens is not for", self.refuse("train", job, "--check", "--set", "max_tokens=5"))
        self.assertIn('sets tokens = "numbers"', self.refuse("train", job, "--check", "--set", "tokens=bytes"))
        said = self.refuse("train", job, "--check", "--set", "tokens=characters")
        self.assertIn("has numbers of tokens, but the vocabulary has characters", said)
        self.put("odd.bin", "odd")
        self.assertIn("odd.bin is damaged", self.refuse("train", job, "--check", "--set", "data.train=odd.bin"))
        self.trained()
        self.assertIn("a.bin has numbers of tokens, but the vocabulary has characters",
                      self.refuse("evaluate", "run", "a.bin"))

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

    def test_keys_of_lines_are_named_in_the_job(self):
        lines = [json.loads(line) for line in self.put_reviews()]
        other = [json.dumps({"body": line["text"], "kind": line["label"], "text": 7}) for line in lines]
        self.put("other.jsonl", "\n".join(other))
        usual = 'tokens = "words"\nmax_tokens = 10\nvalidation_fraction = 0.25\n'
        self.succeed("train", self.classifier("reviews.jsonl", usual, 10), "--out", "run_usual", "--quiet")
        named = self.classifier("other.jsonl", usual + 'text_column = "body"\nlabel_column = "kind"', 10)
        self.succeed("train", named, "--out", "run_named", "--quiet")
        usual_end, named_end = (json.loads((self.folder / run / "receipt.jsonl").read_text().splitlines()[-1])
                                for run in ("run_usual", "run_named"))
        self.assertEqual(usual_end["loss"], named_end["loss"])
        # The model remembers them.
        result = json.loads(self.succeed("evaluate", "run_named", "other.jsonl", "--json"))
        self.assertEqual((result["observations"], result["accuracy"]), (24, 1.0), result)
        self.put("new.jsonl", '{"body": "it was awful"}\n{"body": "it was fine"}\n')
        rows = self.succeed("predict", "run_named", "new.jsonl").splitlines()
        self.assertEqual([row.split("\t")[1] for row in rows], ["bad", "good"])
        # Data with other keys than those of the training.
        result = json.loads(self.succeed("evaluate", "run_named", "reviews.jsonl", "--text-column", "text",
                                         "--label-column", "label", "--json"))
        self.assertEqual(result["accuracy"], 1.0)
        self.assertEqual(rows[0].split("\t")[1:], self.succeed(
            "predict", "run_usual", "new.jsonl", "--text-column", "body").splitlines()[0].split("\t")[1:])
        said = self.refuse("evaluate", "run_named", "reviews.jsonl")
        self.assertIn("reviews.jsonl line 1 has no key `body`, but `label`, `stars`, `text`", said)
        self.assertIn("text_column in [data], or --text-column", said)
        said = self.refuse("train", named, "--set", "label_column=stars", "--check")
        self.assertIn("other.jsonl line 1 has no key `stars`, but `body`, `kind`, `text`", said)
        self.assertIn("label_column in [data]", said)
        said = self.refuse("train", named, "--set", "text_column=text", "--check")
        self.assertIn("other.jsonl line 1: `text` is not a text", said)
        many = json.dumps({f"key{i:02}": 1 for i in range(40)})
        self.put("many.jsonl", many)
        self.assertIn("`key11` and 28 more", self.refuse("predict", "run_named", "many.jsonl"))
        self.put("none.jsonl", "{}")
        self.assertIn("has no key `body`, but none at all", self.refuse("predict", "run_named", "none.jsonl"))

    def test_keys_of_lines_where_there_are_none_are_refused(self):
        self.put_reviews()
        job = self.classifier("reviews")
        self.assertIn("label_column is not for folders of texts",
                      self.refuse("train", job, "--set", "label_column=kind", "--check"))
        self.assertIn("text_column is not for folders of texts",
                      self.refuse("train", job, "--set", "text_column=body", "--check"))
        self.succeed("train", job, "--set", "text_column=text", "--set", "data.validation=reviews.jsonl", "--check")
        self.put("text.txt", SENTENCE * 40)
        self.assertIn("text_column is not for texts without classes",
                      self.refuse("train", self.job(), "--set", "text_column=body", "--check"))
        self.succeed("train", job, "--out", "run", "--quiet")
        self.assertIn("--text-column is for .jsonl files, but there is none",
                      self.refuse("evaluate", "run", "reviews", "--text-column", "body"))
        self.assertIn("--label-column is for one .csv file",
                      self.refuse("predict", "run", "reviews", "--label-column", "kind"))

    def test_files_that_are_not_read_are_said(self):
        """A .jsonl file in a folder of texts was left out without a word."""
        self.put_reviews()
        for name in ("reviews/more.jsonl", "reviews/good/more.jsonl", "reviews/bad/LICENSE", "reviews/.hidden"):
            self.put(name, '{"text": "a", "label": "b"}')
        self.put("reviews/mixed/a.jsonl", "{}")
        job = self.classifier("reviews", 'tokens = "words"\nmax_tokens = 10', tokens=10)
        expected = (f"3 files of {self.folder}/reviews are left out: .jsonl",
                    f"1 file of {self.folder}/reviews is left out: without an extension",
                    f"the folder mixed of {self.folder}/reviews has no texts")
        done = self.run_command("train", job, "--out", "run")
        for text in expected:
            self.assertEqual((done.stdout + done.stderr).count(text), 1, (text, done.stdout + done.stderr))
        done = self.run_command("evaluate", "run", "reviews")
        for text in expected:
            self.assertEqual(done.stderr.count(text), 1, (text, done.stderr))
        self.assertIn("are left out: .jsonl", self.run_command("predict", "run", "reviews").stderr)
        # A text without classes.
        self.put("texts/a.txt", SENTENCE * 40)
        self.put("texts/b/c.jsonl", "{}")
        plain = self.job(train="texts", tokens=len(set(SENTENCE)))
        for arguments in (("train", plain, "--out", "plain", "--set", "validation_fraction=0.2"),
                          ("evaluate", "plain", "texts")):
            done = self.run_command(*arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((done.stdout + done.stderr).count("texts is left out: .jsonl"), 1,
                             done.stdout + done.stderr)
        self.put("lines/a.jsonl", "{}")
        said = self.refuse("train", job, "--set", "data.train=lines", "--check")
        self.assertIn("lines has no text: 1 .jsonl", said)
        self.assertIn("named itself", said)

    def test_one_digest_of_classified_texts(self):
        """The law, for folders of texts by class: threads and workers change no bit."""
        self.put_reviews()
        body = {"lstm": '{ type = "lstm", units = 8, output = "last" },',
                "attention": '{ type = "transformer_block", heads = 2 },\n{ type = "global_average_pooling1d" },'}
        for name, layers in body.items():
            job = self.classifier("reviews", 'tokens = "words"\nmax_tokens = 10\nvalidation_fraction = 0.25', 10)
            text = (self.folder / job).read_text().replace('{ type = "lstm", units = 8, output = "last" },', layers)
            (self.folder / job).write_text(text.replace("max_epochs = 20", "max_epochs = 3\nshard_size = 1"))

            def ended(*options):
                out = name + "_" + "_".join(options).replace("=", "_").replace("--", "")
                self.succeed("train", job, "--out", out, "--quiet", *options)
                return ((self.folder / out / "model.safetensors").read_bytes(),
                        [json.loads(line)["digest"]
                         for line in (self.folder / out / "receipt.jsonl").read_text().splitlines()[-1:]],
                        json.loads(self.succeed("evaluate", out, "reviews", "--json", "--threads",
                                                str(len(out) % 3 + 1)))["loss"])

            one = ended("--threads", "1")
            self.assertNotEqual(ended("--threads", "1", "--set", "seed=1"), one)
            for options in (("--threads", "2"), ("--threads", "5"), ("--workers", "2"), ("--workers", "3"),
                            ("--workers", "2", "--threads", "3")):
                self.assertEqual(ended(*options), one, (name, options))

    def test_files_of_other_kinds_are_refused(self):
        """They were read as images or CSV files."""
        self.put("rows.csv", "a,b,kind\n" + "1,2,x\n2,1,y\n" * 20)
        self.put("rows.toml", ROWS)
        self.succeed("train", "rows.toml", "--out", "rows", "--quiet")
        for label in "xy":
            for i in range(6):
                self.put(f"waves/{label}/{i}.csv", "".join(f"{t * i},{ord(label)}\n" for t in range(4 + i)))
        self.put("waves.toml", WAVES)
        self.succeed("train", "waves.toml", "--out", "waves_run", "--quiet")
        self.put("notes.txt", "hello, world\n")
        self.assertIn("the model takes rows of a table, received notes.txt",
                      self.refuse("predict", "rows", "notes.txt"))
        self.assertIn("one .csv or .tsv file", self.refuse("predict", "rows", "waves"))
        self.assertIn("received 2 files", self.refuse("predict", "rows", "rows.csv", "rows.csv"))
        said = self.refuse("predict", "waves_run", "notes.txt")
        self.assertIn("notes.txt is not a sequence", said)
        self.assertIn(".csv or .tsv file with a line for each step, or a .npy or .npz file", said)
        self.assertIn("--text-column is for .jsonl files",
                      self.refuse("predict", "rows", "rows.csv", "--text-column", "a"))
        self.assertIn("--text-column is for .jsonl files",
                      self.refuse("evaluate", "waves_run", "waves", "--text-column", "a"))
        self.assertIn("text_column is not for images and tables",
                      self.refuse("train", "rows.toml", "--set", "text_column=a", "--check"))
        self.assertIn("text_column is not for sequences",
                      self.refuse("train", "waves.toml", "--set", "text_column=a", "--check"))

    def test_help_names_sequences_and_texts(self):
        for command in ("predict", "evaluate"):
            said = " ".join(self.succeed(command, "--help").split())
            for text in ("sequences", ".npz", ".jsonl", ".txt"):
                self.assertIn(text, said, command)

    def test_a_model_of_other_data_has_no_text(self):
        self.put("rows.csv", "a,b,kind\n" + "1,2,x\n2,1,y\n" * 20)
        self.put("rows.toml", ROWS)
        self.succeed("train", "rows.toml", "--out", "rows", "--quiet")
        self.assertIn("no vocabulary", self.refuse("generate", "rows", "--prompt", "a"))


if __name__ == "__main__":
    unittest.main()
