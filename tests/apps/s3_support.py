"""What the tests with data in an S3 store have in common."""

import random
import shutil

import support
from fake_s3 import Store
from support import CommandTest

JOB = support.JOB.replace("max_epochs = 3", "max_epochs = 1").replace("mini_batch_size = 50", "mini_batch_size = 20")
STRANGE = ["a b", "c=d", "e+f", "g%20h", "i..j", "käse", "l&m?n", "o#p", "~q'r"]
FAULTS = ["slow down", "error", "cut", "truncate", "short", "damage"]


class S3Test(CommandTest):
    PER_CLASS = 6
    refusals = 0

    def setUp(self):
        super().setUp()
        self.store = Store()
        self.addCleanup(self.store.close)
        # Names that are easily encoded wrongly.
        self.images = self.folder / "images"
        shutil.copytree(self.shared / "digits", self.images)
        for name, file in zip(STRANGE, sorted(self.images.rglob("*.png"))[::7]):
            file.rename(file.with_name(name + ".png"))
        self.store.put_folder("data-1", "all of it/", self.images)
        self.write(JOB.replace('"digits"', '"s3://data-1/all of it"'))
        self.local = JOB.replace('"digits"', '"images"')

    def s3(self, *arguments, store=None, **environment):
        others = {"HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "cache"), **environment}
        return self.run_command(*arguments, **(store or self.store).environment(**others))

    def trained(self, run, **environment):
        """The receipt of a training from the store."""
        done = self.s3("train", "job.toml", "--quiet", "--out", f"runs/{run}", **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return (self.folder / "runs" / run / "receipt.jsonl").read_bytes()

    def trained_locally(self):
        (self.folder / "local.toml").write_text(self.local)
        done = self.run_command("train", "local.toml", "--quiet", "--out", "runs/local")
        self.assertEqual(done.returncode, 0, done.stderr)
        return (self.folder / "runs/local/receipt.jsonl").read_bytes()

    def reads(self):
        return [path for method, path in self.store.log
                if method == "GET" and ".png" in path and "list-type" not in path]

    def refused(self, pattern, *arguments, **environment):
        self.refusals += 1
        train = "train", "job.toml", "--quiet", "--out", f"runs/refused-{self.refusals}"
        done = self.s3(*(arguments or train), **environment)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, pattern)
        return done.stderr

    def disturb(self, seed):
        """From now on the store fails at random, in one of FAULTS; returns the list of what it did."""
        chance, caused = random.Random(seed), []

        def fault(method, path):
            if chance.random() > 0.45:
                return None
            caused.append(chance.choice(FAULTS))
            return caused[-1]

        self.store.fault = fault
        return caused
