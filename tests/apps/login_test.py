#!/usr/bin/env python3
"""A cluster from machines that are not login nodes: a job is submitted from one and fetched from another.

usage: login_test.py PATH_OF_LOCKSTEP [unittest options]

A real Slurm of two nodes, and an ssh server on the loopback as its login node. Exit code 77 if one
of them is not installed.
"""

import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest

import ssh_server
from slurm_cluster import SlurmCluster
from slurm_cluster import missing_tools as missing_slurm
from support import COMMAND, CommandTest

SECRET = "secret-9f4c1d7a"
LONG = ("--set", "max_epochs=100000", "--set", "checkpoint_frequency=50")


class Login(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.slurm_folder = tempfile.mkdtemp(prefix="lockstep_slurm_")
        cls.ssh_folder = tempfile.mkdtemp(prefix="lockstep_ssh_")
        cls.slurm = SlurmCluster(cls.slurm_folder, nodes=2, cpus=4)
        cls.ssh = ssh_server.SshServer(cls.ssh_folder, {
            "SLURM_CONF": cls.slurm.environment["SLURM_CONF"], "PATH": cls.slurm.environment["PATH"]})

    @classmethod
    def tearDownClass(cls):
        cls.ssh.stop()
        cls.slurm.stop()
        shutil.rmtree(cls.slurm_folder, ignore_errors=True)
        shutil.rmtree(cls.ssh_folder, ignore_errors=True)
        super().tearDownClass()

    def setUp(self):
        super().setUp()
        self.cluster = self.folder / "cluster"  # the folder of jobs there
        self.at("laptop")
        self.addCleanup(self.end_jobs)

    def end_jobs(self):
        self.slurm.run("scancel", "--full", "--state=RUNNING", check=False)
        self.slurm.run("scancel", "--state=PENDING", check=False)

    def at(self, machine):
        """From now on commands run as on another machine, which has no files of the user."""
        self.machine = self.folder / machine
        self.machine.mkdir(exist_ok=True)

    def run_command(self, *arguments, **more):
        # No Slurm here: neither its configuration nor the key of munge.
        environment = {"PATH": self.ssh.client_path() + ":/usr/bin:/bin", "HOME": str(self.machine),
                       "LOCKSTEP_HOME": str(self.machine / "lockstep"), "AWS_SECRET_ACCESS_KEY": SECRET,
                       "TMPDIR": str(self.machine), "SLURM_CONF": "/nowhere", **more}
        return subprocess.run([COMMAND, *map(str, arguments)], cwd=self.folder, env=environment,
                              capture_output=True, text=True, timeout=300)

    def add(self, *more, folder=None):
        self.works("cluster", "add", "lab", "--login", "127.0.0.1", "--workers", "4", "--nodes", "2",
                   "--address", "127.0.0.1", "--folder", str(folder or self.cluster), *more)

    def jobs(self, action, *arguments, **more):
        return self.works("jobs", action, "--cluster", "lab", *arguments, **more).stdout

    def advances(self, number):
        for _ in range(600):
            progress = json.loads(self.jobs("progress", number, "--json"))
            if progress["iteration"] or progress["state"] not in ("queued", "running"):
                return progress
            time.sleep(0.1)
        self.fail("the job does not begin: " + self.jobs("show", number))

    def receipt(self, folder):
        return (self.folder / folder / "receipt.jsonl").read_bytes()

    def incoming(self):
        return [path.name for path in self.cluster.iterdir() if path.name.startswith("incoming")]

    def test_submit_leave_come_back_from_another_machine(self):
        self.works("train", "job.toml", "--out", "usual", "--quiet", "--not-recorded", "--set",
                   "max_epochs=15")
        self.add()
        # The data are on the first machine alone.
        shutil.copytree(self.folder / "digits", self.machine / "images" / "digits")
        number = self.works("submit", "job.toml", "--cluster", "lab", "--set", "max_epochs=15", "--set",
                            f"data.train={self.machine}/images/digits", "--attach",
                            self.machine / "images").stdout
        self.assertEqual(number, "1\n")
        number = number.strip()
        self.works("cluster", "export", "lab", "lab.toml")
        # The first machine is switched off and lost.
        shutil.rmtree(self.machine / "images")
        left = sorted(str(path.relative_to(self.machine)) for path in self.machine.rglob("*") if path.is_file())
        self.assertEqual(left, ["lockstep/clusters/lab.toml"])
        shutil.rmtree(self.machine)

        self.at("another")
        self.works("cluster", "import", "lab.toml")
        listed = json.loads(self.jobs("list", "--json"))
        self.assertEqual([(job["number"], job["cluster"]) for job in listed], [(1, "lab")])
        progress = self.advances(number)
        self.assertEqual(progress["max_epochs"], 15)
        followed = self.jobs("progress", number, "--follow")
        self.assertIn("15", followed.splitlines()[-1])
        done = self.run_command("jobs", "wait", number, "--cluster", "lab", "--timeout", "120")
        self.assertEqual((done.returncode, done.stdout), (0, "finished\n"), done.stderr)
        self.assertIn("epoch 15/15", self.jobs("diary", number))
        self.assertIn("4 workers on 2 hosts", self.jobs("diary", number))
        self.assertEqual(self.jobs("fetch", number, "--out", "fetched/run"), "")
        self.assertEqual(self.receipt("fetched/run"), self.receipt("usual"))
        self.works("evaluate", "fetched/run", "digits")
        done = self.run_command("jobs", "fetch", number, "--cluster", "lab", "--out", "fetched/run")
        self.assertIn("fetched/run exists and is not an empty folder", done.stderr)
        self.assertEqual([path.name for path in (self.folder / "fetched").iterdir()], ["run"])
        self.jobs("rm", number)
        self.assertEqual(json.loads(self.jobs("list", "--json")), [])
        self.assertEqual(self.incoming(), [])
        self.assertEqual(stat.S_IMODE((self.cluster / "jobs").stat().st_mode), 0o700)
        for place in (self.cluster, pathlib.Path(self.slurm_folder)):
            for file in place.rglob("*"):
                if file.is_file() and SECRET.encode() in file.read_bytes():
                    self.fail(f"{file} holds a secret of the environment")

    def test_the_executable_is_shipped_once(self):
        self.add("--executable", "shipped")
        number = self.works("submit", "job.toml", "--cluster", "lab", *LONG).stdout.strip()
        shipped = list((self.cluster / "shipped").iterdir())
        self.assertEqual(len(shipped), 1)
        # And the library of CUDA kernels, where this build has one.
        self.assertEqual({path.name for path in shipped[0].iterdir()} - {"liblockstep_cuda.so"},
                         {"lockstep"})
        before = (shipped[0] / "lockstep").stat()
        self.advances(number)
        self.jobs("cancel", number)
        done = self.run_command("jobs", "wait", number, "--cluster", "lab", "--timeout", "60")
        self.assertEqual((done.returncode, done.stdout), (130, "cancelled\n"), done.stderr)
        self.works("submit", "job.toml", "--cluster", "lab", "--set", "max_epochs=1")
        after = (shipped[0] / "lockstep").stat()
        self.assertEqual((after.st_ino, after.st_mtime_ns), (before.st_ino, before.st_mtime_ns))

    def test_validation_from_another_machine(self):
        self.add("--executable", "shipped")
        done = self.run_command("cluster", "validate", "lab")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        steps = [line[:24].strip() for line in done.stdout.splitlines()]
        self.assertEqual(steps[:3], ["reach the login node", "executable there", "reach the scheduler"])
        self.assertEqual(steps[-1], "clean up")
        self.assertEqual(self.incoming(), [])
        done = self.run_command("cluster", "validate", "lab", "--json")
        self.assertEqual(json.loads(done.stdout)["ok"], True, done.stderr)

    def test_what_goes_wrong_there_is_told(self):
        self.add()
        done = self.run_command("jobs", "show", "7", "--cluster", "lab")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(f"error: [batch] there is no job 7 in {self.cluster}/jobs\n", done.stderr)
        done = self.run_command("jobs", "fetch", "7", "--cluster", "lab", "--out", "a")
        self.assertEqual((done.returncode, (self.folder / "a").exists()), (1, False))
        self.assertIn("there is no job 7", done.stderr)
        done = self.run_command("submit", "job.toml", "--cluster", "lab", "--set", "data.train=missing")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("missing", done.stderr)
        self.assertEqual(self.incoming(), [])
        self.works("cluster", "remove", "lab")
        self.add("--partition", "none")
        done = self.run_command("submit", "job.toml", "--cluster", "lab")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("sbatch", done.stderr)
        self.assertEqual(json.loads(self.jobs("list", "--json")), [])
        done = self.run_command("cluster", "validate", "lab")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the partition none has no nodes", done.stderr)

    def test_files_that_cannot_be_attached(self):
        self.add()
        for name in ("a", "b"):
            (self.folder / name).mkdir()
            (self.folder / name / "same").write_text("x")
        self.refused("nowhere: No such file or directory", "submit", "job.toml", "--cluster", "lab",
                     "--attach", "nowhere")
        self.refused("two files have the name same", "submit", "job.toml", "--cluster", "lab",
                     "--attach", "a/same", "--attach", "b/same")
        self.assertFalse(self.cluster.exists())

    def refused(self, said, *arguments):
        done = self.run_command(*arguments)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn(said, done.stderr)
        return done.stderr

    def test_nodes_that_cannot_be_used(self):
        for login, said in (("nobody@127.0.0.1", "Permission denied"),
                            ("no.such.host.invalid", "no.such.host.invalid"),
                            ("127.0.0.9", "Connection refused")):
            self.works("cluster", "add", "lab", "--login", login)
            for arguments in (("jobs", "list", "--cluster", "lab"), ("submit", "job.toml", "--cluster", "lab")):
                error = self.refused(f"error: [cluster] {login} cannot be reached", *arguments)
                self.assertIn(said, error)
            done = self.run_command("cluster", "validate", "lab")
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stdout, r"\Areach the login node +\d+\.\d s  failed\n\Z")
            self.assertIn(said, done.stderr)
            self.works("cluster", "remove", "lab")
        self.add("--executable", "/nowhere/lockstep")
        self.refused("127.0.0.1 cannot run /nowhere/lockstep\nhint: install it there, or have it copied",
                     "submit", "job.toml", "--cluster", "lab")
        self.works("cluster", "remove", "lab")
        (self.folder / "file").write_text("")
        self.add(folder=self.folder / "file")
        self.refused(f"the folder {self.folder}/file on 127.0.0.1 cannot be used", "submit", "job.toml",
                     "--cluster", "lab")
        self.works("cluster", "remove", "lab")
        self.add(folder="/dev/shm/../../proc/lockstep")
        self.refused("cannot be used", "submit", "job.toml", "--cluster", "lab")

    def test_a_disk_that_is_full(self):
        """A program in place of tar reports a full disk."""
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "tar").write_text('#!/bin/sh\necho "tar: job.json: Cannot write: No space left on device" >&2\n'
                                      'cat > /dev/null\nexit 2\n')
        (programs / "tar").chmod(0o755)
        folder = self.folder / "ssh"
        server = ssh_server.SshServer(folder, {"PATH": f"{programs}:/usr/bin:/bin"})
        self.addCleanup(server.stop)
        self.add()
        done = self.run_command("submit", "job.toml", "--cluster", "lab",
                                PATH=server.client_path() + ":/usr/bin:/bin")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("No space left on device", done.stderr)
        self.assertIn("error: [cluster] the job could not be copied to 127.0.0.1\nhint: check free space",
                      done.stderr)
        self.assertEqual(self.incoming(), [])

    def test_the_connection_is_lost(self):
        self.add()
        number = self.works("submit", "job.toml", "--cluster", "lab", *LONG).stdout.strip()
        self.advances(number)
        waiting = subprocess.Popen([COMMAND, "jobs", "wait", number, "--cluster", "lab"], cwd=self.folder,
                                   env={"PATH": self.ssh.client_path() + ":/usr/bin:/bin",
                                        "HOME": str(self.machine),
                                        "LOCKSTEP_HOME": str(self.machine / "lockstep")},
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(100):
            serving = subprocess.run(["pgrep", "-P", str(self.ssh.process.pid)], text=True,
                                     capture_output=True).stdout.split()
            # A session that serves the command has a process of its own.
            if serving and all(subprocess.run(["pgrep", "-P", pid], capture_output=True).returncode == 0
                               for pid in serving):
                break
            time.sleep(0.05)
        for pid in serving:
            os.kill(int(pid), 9)
        out, error = waiting.communicate(timeout=60)
        self.assertEqual((waiting.returncode, out), (1, ""))
        self.assertIn("the connection was lost", error)
        self.assertIn("jobs that were submitted continue", error)
        self.assertEqual(json.loads(self.jobs("show", number, "--json"))["state"], "running")


if __name__ == "__main__":
    missing = missing_slurm() + ssh_server.missing_tools()
    if missing:
        print("left out: not installed:", ", ".join(missing), flush=True)
        sys.exit(77)
    unittest.main()
