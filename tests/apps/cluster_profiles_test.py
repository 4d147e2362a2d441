#!/usr/bin/env python3
"""Cluster profiles: `lockstep cluster` without a cluster.

usage: cluster_profiles_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from support import COMMAND

LAB = 'scheduler = "slurm"\npartition = "debug"\nworkers = 4\n'


class Profiles(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.home = self.folder / "home"

    def run_command(self, *arguments, **environment):
        return subprocess.run([COMMAND, "cluster", *arguments], cwd=self.folder, text=True,
                              capture_output=True, timeout=120,
                              env={**os.environ, "LOCKSTEP_HOME": str(self.home), **environment})

    def works(self, *arguments, **environment):
        done = self.run_command(*arguments, **environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def fails(self, said, *arguments, code=1):
        done = self.run_command(*arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(said, done.stderr)
        return done.stderr

    def add_lab(self):
        self.works("add", "lab", "--scheduler", "slurm", "--workers", "4", "--partition", "debug")

    def names(self):
        return [entry["name"] for entry in json.loads(self.works("list", "--json"))]

    def test_a_first_profile(self):
        self.assertEqual(self.names(), ["local"])
        self.add_lab()
        self.assertEqual(self.works("show", "lab"), LAB)
        self.assertEqual(json.loads(self.works("show", "lab", "--json"))["executable"], "shared")
        lines = self.works("list").splitlines()
        self.assertRegex(lines[1], r"^lab +slurm +1 +4 +1 +debug$")
        self.assertRegex(lines[2], r"^local +yes +local ")
        self.fails('the profile "lab" already exists', "add", "lab")
        self.works("remove", "lab")
        self.assertEqual(self.names(), ["local"])

    def test_an_option_for_every_field(self):
        """Each field of the reference is set by an option of its name and read back."""
        given = {"scheduler": "local", "login": "me@login.lab", "partition": "debug", "workers": 6,
                 "nodes": 2, "threads": 3, "device": "cuda", "time_limit": "1-12:00:00",
                 "options": ["--mem=4G", "-C=epyc"], "environment": ["NCCL_SOCKET_IFNAME=ib0", "A="],
                 "attach": [str(self.folder / "a.txt"), "/b"], "executable": "/opt/lockstep",
                 "folder": "/shared/jobs", "address": "10.0.0.7", "ports": "20000-20100"}
        written = {**given, "attach": ["a.txt", "/b"]}  # a path from the folder of the command
        page = subprocess.run([COMMAND, "reference", "clusters"], capture_output=True, text=True,
                              timeout=60).stdout
        self.assertEqual(re.findall(r"^\| `(\w+)` ", page, re.M), list(given))
        arguments = []
        for field, value in written.items():
            option = {"options": "--option"}.get(field, "--" + field.replace("_", "-"))
            for one in value if isinstance(value, list) else [value]:
                arguments.append(f"{option}={one}")
        self.works("add", "all", *arguments)
        self.assertEqual(json.loads(self.works("show", "all", "--json")), given)

    def test_the_default(self):
        self.assertEqual(self.works("default"), "local\n")
        self.add_lab()
        self.works("default", "lab")
        self.assertEqual(self.works("default"), "lab\n")
        self.assertRegex(self.works("list"), r"(?m)^lab +yes ")
        self.fails('there is no profile "lap"', "default", "lap")
        self.assertEqual(self.works("default"), "lab\n")
        self.assertEqual(self.works("show", "default"), LAB)
        self.fails('"default" stands for the profile that is the default', "add", "default")
        self.works("remove", "lab")
        self.assertEqual(self.works("default"), "local\n")
        self.assertEqual(self.works("show", "default"), self.works("show", "local"))
        for text in ("default\n", "gone\n"):
            (self.home / "default_cluster").write_text(text)
            self.fails("[cluster]", "show", "default")

    def test_this_machine(self):
        before = self.works("show", "local")
        self.assertRegex(before, r'\Ascheduler = "local"\nworkers = \d+\n\Z')
        self.works("add", "local", "--scheduler", "local", "--workers", "77")
        self.assertIn("workers = 77\n", self.works("show", "local"))
        self.assertEqual(self.names(), ["local"])
        self.works("remove", "local")
        self.assertEqual(self.works("show", "local"), before)
        self.fails("this machine and cannot be removed", "remove", "local")
        steps = json.loads(self.works("validate", "--json"))
        self.assertEqual((steps["profile"], steps["ok"]), ("local", True))
        self.assertEqual([step["step"] for step in steps["steps"]],
                         ["processors", "start workers", "exchange", "bandwidth", "clean up"])
        self.assertGreater(steps["bytes_per_second"], 1e6)
        self.works("add", "two", "--scheduler", "local", "--workers", "2")
        self.assertIn("8 MiB to each worker, compared", self.works("validate", "two"))

    def test_export_and_import(self):
        self.add_lab()
        self.works("export", "lab")
        self.works("export", "lab", "other.toml")
        self.assertEqual((self.folder / "lab.toml").read_text(), LAB)
        (self.folder / "lab.toml").write_text("mine")
        self.fails("lab.toml exists", "export", "lab")
        self.assertEqual((self.folder / "lab.toml").read_text(), "mine")
        self.fails("lab.toml", "import", "lab.toml", "b")
        hint = self.fails('the profile "lab" already exists', "import", "other.toml", "lab")
        self.assertIn("give another name: lockstep cluster import other.toml NAME", hint)
        said = self.works("import", "other.toml")
        self.assertRegex(said, r"(?m)^attach +nothing$")
        self.assertRegex(said, r"(?m)^login +none: ")
        self.assertRegex(said, r"(?m)^executable +shared: ")
        self.works("import", "other.toml", "third")
        self.assertEqual(self.names(), ["lab", "local", "other", "third"])
        self.assertEqual(self.works("show", "third"), LAB)
        self.fails("nowhere.toml", "import", "nowhere.toml")
        self.fails('there is no profile "x"', "export", "x")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["home", "lab.toml", "other.toml"])
        # The file serves without an import.
        self.assertEqual(self.works("show", "other.toml"), LAB)

    def test_import_shows_what_a_file_makes_this_machine_send_and_run(self):
        (self.folder / "foreign.toml").write_text(
            'login = "me@elsewhere"\nexecutable = "/tmp/theirs"\nattach = ["/etc/shadow", "/b"]\n')
        said = self.works("import", "foreign.toml")
        self.assertRegex(said, r"(?m)^profile +foreign$")
        self.assertRegex(said, r"(?m)^login +me@elsewhere: ssh runs")
        self.assertRegex(said, r"(?m)^executable +/tmp/theirs: this file runs on the nodes$")
        self.assertRegex(said, r"(?m)^attach +/etc/shadow, /b: copied for every batch job and pool$")

    def test_fields_are_checked(self):
        for arguments, said in (
                (("--nodes", "0"), "nodes"),
                (("--workers", "3", "--nodes", "2"), "3 workers cannot be divided among 2"),
                (("--scheduler", "pbs"), "scheduler"),
                (("--device", "tpu"), "device"),
                (("--partition", "a b"), 'partition: "a b" is not a single word'),
                (("--login=-oProxyCommand=x",), "login: "),
                (("--time-limit", "soon"), 'time_limit: "soon" is not a time'),
                (("--ports", "20000-100"), 'ports: "20000-100" is not a range of ports'),
                (("--ports", "70000"), "ports: "),
                (("--folder", "jobs"), 'folder: "jobs" is not an absolute path'),
                (("--executable", "bin/lockstep"), "neither shared nor shipped nor an absolute path"),
                (("--option", "mem"), '"mem" is not an option of sbatch'),
                (("--option=--partition=x",), "use the field partition"),
                (("--option=-N4",), "use the field nodes"),
                (("--option=--export=ALL",), "use the field environment"),
                # sbatch divides the lines of the script into words.
                (("--option=--mem=4G --export=ALL",), "is more than one word"),
                (("--option=--mem=4G\t--export=ALL",), "is more than one word"),
                (("--option=--comment='a",), "is more than one word"),
                (("--option=--comment=a\\b",), "is more than one word"),
                (("--option=--comment=a#b",), "is more than one word"),
                (("--option=--mem 4G",), "such as --mem=4G"),
                # It takes the beginning of a name for the whole, and letters without values together.
                (("--option=--expor=ALL",), '"--expor=ALL", for sbatch --export, is set by lockstep'),
                (("--option=--export-f=x",), "use the field environment"),
                (("--option=--wra=ls",), "the job is the script"),
                (("--option=--part=x",), "use the field partition"),
                (("--option=--p=x",), "use the field partition"),
                (("--option=-spdebug",), "use the field partition"),
                (("--option=-HN4",), "use the field nodes"),
                (("--option=--",), '"--" is not an option of sbatch'),
                # What the script itself gives, and what sbatch answers without taking a job.
                (("--option=--output=/tmp/x",), "jobs diary"),
                (("--option=-e/tmp/x",), "jobs diary"),
                (("--option=--job-name=x",), "set by lockstep itself"),
                (("--option=-Jx",), "set by lockstep itself"),
                (("--option=--no-req",), "set by lockstep itself"),
                (("--option=--signal=B:TERM@1",), "set by lockstep itself"),
                (("--option=--test-only",), "instead of taking the job"),
                (("--option=-h",), "instead of taking the job"),
                (("--option=-Mother",), "the field login"),
                (("--environment", "NCCL"), "is not NAME=VALUE"),
                (("--environment", "1A=b"), "is not NAME=VALUE"),
                (("--environment", "A=b\nc"), "is not NAME=VALUE")):
            self.fails(said, "add", "b", *arguments)
        for number, option in enumerate(("--time-min=5", "--nodelist=n1", "--nodefile=x", "-wn1", "-C=epyc&gpu",
                                         "--wait-all-nodes=1", "--ntasks-per-core=1", "-HQ", "--gres=gpu:a100:2")):
            self.works("add", f"good{number}", "--option=" + option)
            self.works("remove", f"good{number}")
        for name in ("", "a/b", "..", "a b", "x" * 65):
            self.fails("", "add", name, code=1 if name else 2)
        self.assertEqual(self.names(), ["local"])

    def test_credentials_are_refused_and_not_repeated(self):
        for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "HF_TOKEN",
                     "PGPASSWORD", "my_secret", "TOKEN", "GITHUB_PAT", "gh_pat", "DB_PASS", "KUBE_CREDS"):
            said = self.fails(f"{name} looks like a credential", "add", "b",
                              f"--environment={name}=x9y8z7")
            self.assertNotIn("x9y8z7", said)
        for value in ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "http://me:x9y8z7pw@proxy:3128",
                      "https://store/blob?sv=1&sig=x9y8z7"):
            said = self.fails("SETTING looks like a credential", "add", "b", f"--environment=SETTING={value}")
            self.assertNotIn(value[-6:], said)
        self.works("add", "b", "--environment=TOKENIZERS_PARALLELISM=false",
                   "--environment=NCCL_SOCKET_IFNAME=ib0", "--environment=COMPAT_PATH=/a:/b",
                   "--environment=HTTP_PROXY=http://proxy:3128")
        # Where a secret lies is not a secret: the hint asks for such a file.
        hint = self.fails("AWS_SHARED_CREDENTIALS_FILE", "add", "c", "--environment=HF_TOKEN=x")
        self.assertIn("keep credentials in files", hint)
        self.works("add", "c", "--environment=AWS_SHARED_CREDENTIALS_FILE=/shared/me/keys",
                   "--environment=AWS_WEB_IDENTITY_TOKEN_FILE=/run/token",
                   "--environment=GOOGLE_APPLICATION_CREDENTIALS=/shared/me/key.json")
        (self.folder / "b.toml").write_text('environment = ["DB_PASSWORD=x9y8z7"]\n')
        self.assertNotIn("x9y8z7", self.fails("looks like a credential", "import", "b.toml", "d"))

    def test_files_of_other_versions_and_damaged_ones(self):
        self.add_lab()
        for text, said in (("gpus_per_node = 2\n", "gpus_per_node is not a field of a profile in this version"),
                           ("worker = 2\n", "did you mean `workers`?"),
                           ('nodes = "two"\n', "nodes"),
                           ("nodes = \n", "wrong.toml"),
                           ("[table]\nworkers = 2\n", "table is not a field")):
            (self.home / "clusters" / "wrong.toml").write_text(text)
            self.fails(said, "show", "wrong")
            self.assertRegex(self.works("list"), r"(?m)^wrong +\[")
            self.assertIn("error", json.loads(self.works("list", "--json"))[-1])
        (self.home / "clusters" / "wrong.toml").write_bytes(b"\xff\xfe\x00")
        self.fails("wrong.toml", "show", "wrong")
        self.works("remove", "wrong")
        (self.home / "default_cluster").write_text("../../etc/passwd\n")
        self.fails("cannot name a cluster", "default")

    def test_wrong_arguments(self):
        for arguments, said in ((("nothing",), 'action: "nothing" is not an action'),
                                (("list", "a"), "takes nothing"),
                                (("show",), "takes the name of a profile"),
                                (("remove", "a", "b"), "takes the name of a profile"),
                                (("import",), "takes a file"),
                                (("validate", "lab", "--patience", "-1"), "--patience")):
            self.fails(said, *arguments, code=2)
        self.add_lab()
        self.assertIn("did you mean `lab`?", self.fails('there is no profile "lap"', "show", "lap"))

    def test_several_at_once(self):
        processes = [subprocess.Popen([COMMAND, "cluster", "add", "one", "--workers", str(i + 1)],
                                      env={**os.environ, "LOCKSTEP_HOME": str(self.home)},
                                      stderr=subprocess.DEVNULL) for i in range(8)]
        codes = sorted(process.wait(timeout=60) for process in processes)
        self.assertEqual(codes, [0] + 7 * [1])
        self.assertEqual(os.listdir(self.home / "clusters"), ["one.toml"])


if __name__ == "__main__":
    unittest.main()
