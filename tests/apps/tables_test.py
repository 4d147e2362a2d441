#!/usr/bin/env python3
"""Tables as other programs write them, beside Python's csv module (and pandas, if it is installed), and
columns of tables by name through all commands.

usage: tables_test.py PATH_OF_LOCKSTEP PATH_OF_TABLE_PROGRAM [unittest options]
"""

import csv
import io
import json
import os
import random
import struct
import subprocess
import sys
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(2))

from small_job import table_job
from support import CommandTest

try:
    import pandas
except ImportError:
    pandas = None


def f32(text):
    """The f32 nearest to the f64 of a number, as text; None: it is not finite or not a number."""
    try:
        value = struct.unpack("f", struct.pack("f", float(text)))[0]
    except (ValueError, OverflowError):
        return None
    return value.hex() if value - value == 0 else None


class Tables(CommandTest):
    def read(self, files):
        """What the program reads of (options, name, bytes)."""
        for _, name, content in files:
            (self.folder / name).write_bytes(content)
        done = subprocess.run([PROGRAM], input="".join(f"{options} {name}\n" for options, name, _ in files),
                              cwd=self.folder, capture_output=True, text=True, timeout=120, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def read_one(self, content, options="l"):
        return self.read([(options, "one.csv", content if isinstance(content, bytes) else content.encode())])[0]

    def values(self, table):
        return [[float.fromhex(value) for value in row["values"]] for row in table["rows"]]


NUMBERS = ["1", "-0", "+2.5", "1e-400", "-1e-400", "4e-324", "1e-46", "7e-46", "3.4028235e38", "-3.4028235e38",
           "0.1", "16777217", "1E5", ".5", "5.", "00012", "123456789012345678901234567890", "1e-45", "2e-38",
           "0." + 400 * "0" + "1", "1" + 30 * "0" + "e-30", "9.9999999999999999e-1", "8.5899345e9", "0e999999"]
TEXTS = ["a", "b c", "semi;colon", "com,ma", "tab\there", 'quo"te', "two\nlines", "\u00e9t\u00e9", "\u4e2d\u6587",
         "\U0001f600", "it's", "#1", "x" * 300, "1", "line\n\nempty", " padded "]


def shaken(text, dice):
    """The same table with other ends of lines, encodings, empty lines and no-break spaces."""
    end = dice.choice(["\n", "\r\n", "\r"])
    text = text.replace("\r\n", end)
    encoding = dice.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
    if dice.random() < 0.3 and text.endswith(end):
        text = text[:-len(end)]
    if dice.random() < 0.3:
        text = end + " " + end + text + end + end
    return mark + text.encode(encoding)


class BesidePython(Tables):
    def test_random_tables_are_read_as_by_the_csv_module(self):
        dice = random.Random(7)
        files, expected = [], []
        for number in range(400):
            separator, columns = dice.choice(",;\t"), dice.randint(1, 6)
            labeled = columns > 1 or dice.random() < 0.5
            names = dice.sample([f"c{i}" for i in range(20)] + TEXTS[:8], columns + labeled)
            names = [name.strip() for name in names]
            rows = [[dice.choice(NUMBERS) for _ in range(columns)] + ([dice.choice(TEXTS)] if labeled else [])
                    for _ in range(dice.randint(1, 8))]
            if not labeled and columns == 1:
                separator = ","
            text = io.StringIO(newline="")
            quoting = dice.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
            # Blanks belong to a text in quotes alone.
            writer = csv.writer(text, delimiter=separator, quoting=quoting)
            for row in [names] + rows:
                if any(field != field.strip() for field in row):
                    csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL).writerow(row)
                else:
                    writer.writerow(row)
            text = text.getvalue()
            if dice.random() < 0.2 and quoting == csv.QUOTE_MINIMAL and separator != "\t":
                text = text.replace(separator + "5." + separator, separator + "\u00a05.\u202f " + separator)
            parsed = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
            files.append(("l" if labeled else "-", f"{number}.csv", shaken(text, dice)))
            expected.append((labeled, parsed))
        for (_, name, content), (labeled, parsed), table in zip(files, expected, self.read(files)):
            with self.subTest(name=name, content=content[:200]):
                self.assertNotIn("error", table)
                last = len(parsed[0]) - labeled
                self.assertEqual(table["columns"] + ([table["label"]] if labeled else []),
                                 [name for name in parsed[0]])
                self.assertEqual(len(table["rows"]), len(parsed) - 1)
                for read, row in zip(table["rows"], parsed[1:]):
                    self.assertEqual([float.fromhex(v).hex() for v in read["values"]], [f32(v) for v in row[:last]])
                    # The text of the test's own blanks, which are left out.
                    self.assertEqual(read["label"], row[last].strip("\u00a0\u202f") if labeled else "")
                self.assertEqual([text for text in table["notices"] if "whole number" not in text], [])

    @unittest.skipUnless(pandas, "pandas is not installed")
    def test_files_of_pandas_are_read_as_by_pandas(self):
        dice = random.Random(3)
        files, frames = [], []
        for number in range(100):
            frame = pandas.DataFrame({f"c{i}": [float(dice.choice(NUMBERS)) for _ in range(5)] for i in range(3)})
            frame["kind"] = [dice.choice(TEXTS) for _ in range(5)]
            separator, index = dice.choice(",;\t"), dice.random() < 0.5
            encoding = dice.choice(["utf-8", "utf-8-sig", "utf-16"])
            frame.to_csv(self.folder / "t", sep=separator, index=index, encoding=encoding,
                         lineterminator=dice.choice(["\n", "\r\n"]))
            files.append(("l", f"{number}.csv", (self.folder / "t").read_bytes()))
            frames.append((index, pandas.read_csv(self.folder / "t", sep=separator, encoding=encoding, dtype={"kind": str},
                                                  index_col=0 if index else None, keep_default_na=False)))
        for (_, name, _), (index, frame), table in zip(files, frames, self.read(files)):
            with self.subTest(name=name):
                self.assertEqual(table["columns"], list(frame.columns[:-1]))
                self.assertEqual([row["label"] for row in table["rows"]],
                                 [text.replace("\r\n", "\n").strip() for text in frame["kind"]])
                for c, column in enumerate(table["columns"]):
                    self.assertEqual([row["values"][c] and float.fromhex(row["values"][c]).hex() for row in table["rows"]],
                                     [f32(value) for value in frame[column]])
                self.assertEqual(len([text for text in table["notices"] if "whole number" not in text]), int(index))


class Awkward(Tables):
    def test_what_stands_first_in_a_file(self):
        for content in ("\ufeffx,kind\n1,a\n", "sep=;\r\nx;kind\r\n1;a\r\n", '"sep=,"\nx,kind\n1,a\n', "x\tkind\n1\ta\n",
                        "\n \t\nx,kind\n1,a", "x;kind\r1;a\r"):
            with self.subTest(content):
                table = self.read_one(content)
                self.assertEqual((table["columns"], table["label"], self.values(table)), (["x"], "kind", [[1.0]]))

    def test_the_index_of_a_data_frame_is_left_out_and_named(self):
        for index in ('', '""', '" "'):
            table = self.read_one(f"{index},x,kind\n0,1,a\nrow 2,2,b\n")
            if index == '" "':
                self.assertIn("column 1", table["error"])
                continue
            self.assertEqual((table["columns"], self.values(table)), (["x"], [[1.0], [2.0]]))
            self.assertIn("its first column has no name", table["notices"][0])
        self.assertIn("one.csv line 1, column 2 has no name", self.read_one("x,,kind\n1,2,a\n")["error"])
        self.assertIn("one.csv line 1, column 3 has no name", self.read_one("x,kind,\n1,a,\n")["error"])

    def test_records_begin_at_their_first_line(self):
        table = self.read_one('x,kind\n1,"a\nb"\n\n2,c\n')
        self.assertEqual([row["name"] for row in table["rows"]], ["line 2", "line 5"])
        self.assertIn("one.csv line 5, column 1 (x): `z` is not", self.read_one('x,kind\n1,"a\nb"\n\nz,c\n')["error"])
        self.assertIn("one.csv line 3, column 2: a quote is not closed", self.read_one('x,kind\n1,b\n2,"a\n3,c\n')["error"])

    def test_what_is_not_text_is_named(self):
        for content, what in ((b"x,kind\n1,a\0\n", "line 2 has a byte of zero"),
                              ("x,kind\n1,a\n".encode("utf-16-le"), "line 1 has a byte of zero"),
                              ("x,kind\n".encode("utf-32"), "UTF-32"),
                              (b"\xff\xfex\0,", "is not valid UTF-16 at byte 4"),
                              (b"\xfe\xff\xd8\x00\0a", "is not valid UTF-16 at byte 2"),
                              (b"x\xe9,kind\n1,a\n", "is not UTF-8")):
            with self.subTest(content):
                self.assertIn(what, self.read_one(content)["error"])

    def test_numbers(self):
        for text in ("1e-400", "-1e-400", "1e-99999999999999999999", "0e99999999999999999999", "1e-400000000",
                     "\u00a02\u00a0", "\u2003-3\u3000", "3.4028235e38", "3.4028235677973362e38"):
            table = self.read_one(f"x,kind\n{text},a\n")
            self.assertEqual([float.fromhex(v).hex() for v in table["rows"][0]["values"]], [f32(text)], text)
        for text, what in (("1e400", "out of the range of f32"), ("-1e99999999999999999999", "out of the range of f32"),
                           ("3.4028236e38", "out of the range of f32"), ("3.4028235677973366e38", "out of the range of f32"),
                           ("1" + 400 * "0", "out of the range of f32"),
                           ("inf", "not finite"), ("1\u00a0000", "not a number"), ("1e", "not a number"),
                           ("0x10", "not a number"), ("1_0", "not a number"), ("\u0661", "not a number")):
            self.assertIn(what, self.read_one(f"x,kind\n{text},a\n")["error"], text)
        self.assertEqual(self.values(self.read_one("x;kind\n1,5;a\n")), [[1.5]])
        table = self.read_one('x,kind\n"1,5",a\n')
        self.assertEqual(("decimal point" in table["hint"], "`1,5` is not a number" in table["error"]), (True, True))

    def test_a_file_without_names_is_said_to_be_one(self):
        for content in ("1,2,a\n3,4,b\n5,6,a\n", "1,2,7\n3,4,7\n"):
            table = self.read_one(content)
            self.assertIn("one.csv line 1: ", table["error"])
            self.assertIn("--no-header", table["hint"])
            table = self.read_one(content, "ln")
            self.assertEqual((table["columns"], table["label"], self.values(table)[0]), ([], "", [1.0, 2.0]))
        # Names that are numbers are names.
        self.assertEqual(self.read_one("400,410,kind\n3,4,b\n5,6,a\n")["columns"], ["400", "410"])


ROWS = [(length, width, kind) for kind, at in (("ant", 1), ("bee", 5), ("cat", 9))
        for length, width in ((at + i % 7 / 10, 20 - 2 * at + i % 5 / 10) for i in range(20))]
JOB = table_job("train.csv", 3, mini_batch_size=20, shard_size=7, max_epochs=30, initial_learning_rate=0.1)


def table(columns, rows=ROWS, separator=","):
    """A table of these columns."""
    places = {"length": 0, "width": 1, "kind": 2}
    lines = [columns] + [[str(row[places.get(name, 0)]) for name in columns] for row in rows]
    return "".join(separator.join(line) + "\n" for line in lines)


class Columns(Tables):
    NOTICE = "has its columns in a different order than the training data: they are matched by name"

    def put(self, name, columns, rows=ROWS, separator=","):
        (self.folder / name).write_text(table(columns, rows, separator))

    def setUp(self):
        super().setUp()
        self.put("train.csv", ["length", "width", "kind"])
        self.put("turned.csv", ["kind", "width", "length"])
        self.write(JOB)

    def train(self, *more):
        return self.works("train", "job.toml", "--out", "out", "--quiet", *more)

    def accuracy(self, *words):
        done = self.works("evaluate", *words, "--json")
        return json.loads(done.stdout)["accuracy"], done.stderr

    def test_evaluate_and_predict_match_by_name(self):
        self.train()
        self.assertEqual(self.accuracy("out", "train.csv"), (1.0, ""))
        right, said = self.accuracy("out", "turned.csv")
        self.assertEqual((right, self.NOTICE in said, "turned.csv" in said), (1.0, True, True))
        # The loss too: the same bits.
        loss = [json.loads(self.works("evaluate", "out", name, "--json").stdout)["loss"] for name in ("train.csv", "turned.csv")]
        self.assertEqual(loss[0], loss[1])
        self.put("features.csv", ["width", "length"])
        self.put("ordered.csv", ["length", "width"])
        scores = {}
        for name in ("ordered.csv", "features.csv", "turned.csv", "train.csv"):
            done = self.works("predict", "out", name)
            self.assertEqual(self.NOTICE in done.stderr, name in ("features.csv", "turned.csv"))
            self.assertEqual("`kind` has the labels and is left out" in done.stderr, name in ("turned.csv", "train.csv"))
            scores[name] = [line.split("\t")[1:] for line in done.stdout.splitlines()]
            self.assertEqual(len(scores[name]), len(ROWS))
            self.assertEqual(scores[name], scores["ordered.csv"])
        self.assertEqual([score[0] for score in scores["train.csv"]], [kind for _, _, kind in ROWS])

    def test_other_names_are_refused(self):
        self.train()
        for columns, what, hint in (
                (["lenght", "width", "kind"], "`length` is missing, and `lenght` was not there", "did you mean `length` by `lenght`?"),
                (["length", "width", "weight", "kind"], "`weight` was not there", "leave the column out"),
                (["width", "kind"], "`length` is missing", "the columns of the training are `length`, `width`"),
                (["x", "y", "kind"], "`length`, `width` are missing, and `x`, `y` were not there", "the columns of the training")):
            self.put("other.csv", columns)
            for command in ("evaluate", "predict"):
                done = self.run_command(command, "out", "other.csv")
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn("other.csv has different columns than the training data: " + what, done.stderr)
                self.assertIn(hint, done.stderr)
            self.write(JOB.replace('train = "train.csv"', 'train = "train.csv"\nvalidation = "other.csv"'))
            done = self.run_command("train", "job.toml", "--check")
            self.assertEqual(done.returncode, 1)
            self.assertIn("job.toml: ", done.stderr)
            self.assertIn(what, done.stderr)

    def test_the_parts_of_one_job(self):
        self.train()
        digest = (self.folder / "out" / "receipt.jsonl").read_bytes()
        self.write(JOB.replace('train = "train.csv"', 'train = "train.csv"\nvalidation = "turned.csv"\ntest = "turned.csv"'))
        said = self.works("train", "job.toml", "--check").stderr
        self.assertEqual(said.count(self.NOTICE), 1)
        done = self.works("train", "job.toml", "--out", "two", "--json")
        result = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((result["validation_accuracy"], result["test_accuracy"]), (1.0, 1.0))
        self.assertEqual(done.stderr.count(self.NOTICE), 1)
        self.put("turned.csv", ["length", "width", "kind"])
        self.works("train", "job.toml", "--out", "three", "--quiet")
        self.assertEqual(*((self.folder / name / "receipt.jsonl").read_bytes() for name in ("two", "three")))
        self.assertNotEqual(digest, b"")

    def test_a_run_continues_with_reordered_files(self):
        for workers in ([], ["--workers", "2"]):
            self.put("train.csv", ["length", "width", "kind"])
            out = "resumed" + str(len(workers))
            self.works("train", "job.toml", "--out", out + "-whole", "--quiet", *workers)
            self.works("train", "job.toml", "--out", out, "--quiet", "--set", "max_epochs=10", *workers)
            self.put("train.csv", ["kind", "width", "length"])
            done = self.works("train", "job.toml", "--out", out, "--resume", "--quiet", *workers)
            self.assertIn(self.NOTICE, done.stderr)
            for name in ("receipt.jsonl", "model.safetensors"):
                self.assertEqual((self.folder / out / name).read_bytes(), (self.folder / (out + "-whole") / name).read_bytes())
            self.works("verify", out, "--iteration", "5")
        # Other names are another training.
        self.put("train.csv", ["length", "weight", "kind"])
        self.assertIn("`width` is missing", self.run_command("train", "job.toml", "--out", out, "--resume").stderr)

    def test_an_initial_model_keeps_its_columns(self):
        self.train()
        for model in ("out", "out/checkpoints/" + os.listdir(self.folder / "out" / "checkpoints")[0]):
            self.put("train.csv", ["length", "width", "kind"])
            self.works("train", "job.toml", "--out", "a", "--quiet", "--initial-model", model, "--set", "max_epochs=3")
            self.put("train.csv", ["kind", "width", "length"])
            done = self.works("train", "job.toml", "--out", "b", "--quiet", "--initial-model", model, "--set", "max_epochs=3")
            self.assertIn(self.NOTICE, done.stderr)
            self.assertEqual((self.folder / "a" / "receipt.jsonl").read_bytes(), (self.folder / "b" / "receipt.jsonl").read_bytes())
            self.works("verify", "b", "--initial-model", model, "--iteration", "4")
            for out in ("a", "b"):
                subprocess.run(["rm", "-r", self.folder / out], check=True)

    def test_a_network_from_a_model_matches_columns_by_name(self):
        self.train()
        network = JOB[JOB.index("layers"):JOB.index("[training]")]
        self.write(JOB.replace(network, 'from = "out"\n').replace("max_epochs = 30", "max_epochs = 2").replace(
            'train = "train.csv"\n', 'train = "train.csv"\nlabel_column = "kind"\n'))
        said = self.works("train", "job.toml", "--out", "a", "--quiet").stderr
        self.assertNotIn("by position", said)
        self.put("train.csv", ["kind", "width", "length"])
        for out, workers in (("b", []), ("c", ["--workers", "2"])):
            done = self.works("train", "job.toml", "--out", out, "--quiet", *workers)
            self.assertIn(self.NOTICE, done.stderr)
            self.assertNotIn("by position", done.stderr)
            self.assertEqual(*((self.folder / name / "receipt.jsonl").read_bytes() for name in ("a", out)))
        self.works("verify", "b", "--iteration", "4")
        self.put("train.csv", ["length", "weight", "kind"])
        said = self.works("train", "job.toml", "--check").stderr
        self.assertIn("have different names: `width` in the model alone, `weight` in the job alone: values of columns are "
                      "taken by position", said)

    def test_an_undefined_objective_is_told_once(self):
        rows = [(i % 7, i % 5, "big" if i % 2 else "small") for i in range(32)]
        columns = ["length", "width", "kind"]
        self.put("two.csv", columns, rows)
        self.put("one.csv", columns, [row for row in rows if row[2] == "big"])
        (self.folder / "auc.toml").write_text("""[data]
train = "two.csv"
validation = "one.csv"
[network]
layers = [{ type = "feature_input", features = 2 }, { type = "fully_connected", units = 2 }, { type = "softmax" }]
[training]
max_epochs = 4
mini_batch_size = 8
objective = "auc"
""")
        said = self.works("train", "auc.toml", "--out", "auc").stderr
        self.assertEqual(said.count("the objective auc is not a finite number"), 1, said)
        said = self.works("train", "auc.toml", "--out", "loss", "--set", "objective=loss").stderr
        self.assertNotIn("not a finite number", said)

    def test_other_classes_than_those_of_the_first_model_are_told(self):
        self.train()
        network = JOB[JOB.index("layers"):JOB.index("[training]")]
        self.put("train.csv", ["length", "width", "kind"], [(a, b, "aardvark" if kind == "cat" else kind) for a, b, kind in ROWS])
        expected = ("the classes of ", "and of this job have different names: `cat` in the model alone, `aardvark` in the "
                    "job alone: values of the last layer are taken by position")
        for job, more in ((JOB.replace(network, 'from = "out"\n'), []), (JOB, ["--initial-model", "out"])):
            self.write(job)
            said = self.works("train", "job.toml", "--out", f"next{len(more)}", "--quiet", "--set", "max_epochs=1", *more).stderr
            for text in expected:
                self.assertIn(text, said)
        # A new head takes no values of the model.
        head = '[{ type = "fully_connected", units = 3 }, { type = "softmax" }]'
        self.write(JOB.replace(network, f'from = "wide"\nreplace = {head}\n'))
        wide = JOB.replace('  { type = "fully_connected", units = 3 },\n', '  { type = "fully_connected", units = 4 },\n'
                           '  { type = "tanh" },\n  { type = "fully_connected", units = 3 },\n')
        self.put("turned.csv", ["length", "width", "kind"])
        (self.folder / "wide.toml").write_text(wide.replace("train.csv", "turned.csv"), encoding="utf-8")
        self.works("train", "wide.toml", "--out", "wide", "--quiet", "--set", "max_epochs=1")
        self.assertNotIn("by position", self.works("train", "job.toml", "--out", "new", "--quiet", "--set", "max_epochs=1").stderr)

    def test_models_of_earlier_versions_go_by_position_and_say_so(self):
        self.train()
        path = self.folder / "out" / "model.safetensors"
        content = path.read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8:8 + size])
        self.assertEqual(json.loads(header["__metadata__"]["lockstep.columns"]),
                         {"inputs": [["length", "width"]], "target": [], "label": "kind"})
        del header["__metadata__"]["lockstep.columns"], header["__metadata__"]["lockstep.digest"]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        (self.folder / "old.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size:])
        right, said = self.accuracy("old.safetensors", "train.csv")
        self.assertEqual((right, "the model has no names of columns" in said), (1.0, True))
        right, said = self.accuracy("old.safetensors", "turned.csv", "--label-column", "kind")
        self.assertEqual((right < 1, "the model has no names of columns" in said), (True, True))

    def test_files_without_names_go_by_position_and_say_so(self):
        self.train()
        (self.folder / "bare.csv").write_text(table(["length", "width", "kind"]).split("\n", 1)[1])
        done = self.run_command("evaluate", "out", "bare.csv")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--no-header", done.stderr)
        right, said = self.accuracy("out", "bare.csv", "--no-header")
        self.assertEqual((right, "bare.csv has no names of columns" in said), (1.0, True))
        (self.folder / "bare.tsv").write_text(table(["length", "width"], separator="\t").split("\n", 1)[1])
        done = self.works("predict", "out", "bare.tsv", "--no-header")
        self.assertEqual(len(done.stdout.splitlines()), len(ROWS))
        self.assertIn("bare.tsv has no names of columns: they are taken in the order of the training, `length`, `width`", done.stderr)
        # A training without names: nothing can be matched.
        self.write(JOB.replace('"train.csv"', '"bare.csv"\nheader = false'))
        self.works("train", "job.toml", "--out", "bare", "--quiet")
        right, said = self.accuracy("bare", "train.csv")
        self.assertEqual((right, "the model has no names of columns" in said), (1.0, True))

    def test_the_label_column_of_the_training_is_known(self):
        self.write(JOB.replace('"train.csv"', '"turned.csv"\nlabel_column = "kind"'))
        self.train()
        self.assertEqual(self.accuracy("out", "train.csv")[0], 1.0)
        self.assertEqual(self.accuracy("out", "turned.csv"), (1.0, ""))
        text = table(["length", "width", "kind"]).replace("kind", "species")
        (self.folder / "named.csv").write_text(text)
        right, said = self.accuracy("out", "named.csv")
        self.assertEqual((right, "the labels are those of its last column, `species`" in said), (1.0, True))

    def test_names_in_upper_case(self):
        self.train()
        for name in ("X.CSV", "x.Csv", "X.TSV"):
            self.put(name, ["width", "length", "kind"], separator="\t" if "TSV" in name else ",")
            self.assertEqual(self.accuracy("out", name)[0], 1.0)
            self.assertEqual(len(self.works("predict", "out", name).stdout.splitlines()), len(ROWS))

    def test_labels_are_not_numbers(self):
        self.write(JOB.replace("units = 3", "units = 1").replace('  { type = "softmax" },\n]', ']\nloss = "mean_squared_error"'))
        done = self.run_command("train", "job.toml")
        self.assertEqual(done.returncode, 1)
        self.assertIn("are read as the names of classes, not as numbers", done.stderr)
        self.assertIn("target_columns", done.stderr)
        self.assertNotIn("image", done.stderr)
        self.put("y.csv", ["length", "width"])
        self.write(JOB.replace('"train.csv"', '"train.csv"\ntargets = "y.csv"'))
        self.assertIn("[data] targets is for images and sequences", self.run_command("train", "job.toml").stderr)


if __name__ == "__main__":
    unittest.main()
