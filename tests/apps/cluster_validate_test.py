#!/usr/bin/env python3
"""`lockstep cluster validate` on a real Slurm of three nodes, without and with faults.

usage: cluster_validate_test.py PATH_OF_LOCKSTEP [unittest options]

Exit code 77 if Slurm is not installed.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from slurm_cluster import SlurmCluster, missing_tools
from support import COMMAND

STEPS = ["reach the scheduler", "nodes", "submit", "get nodes", "shared folder", "start on each node",
         "same build and numerics", "workers join", "connect each pair", "exchange",
         "bandwidth, latency", "clean up"]
SECRET = "secret-9f4c1d7a"


class Validate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.slurm_folder = tempfile.mkdtemp(prefix="lockstep_slurm_")
        cls.slurm = SlurmCluster(cls.slurm_folder, nodes=3, cpus=4)

    @classmethod
    def tearDownClass(cls):
        cls.slurm.stop()
        shutil.rmtree(cls.slurm_folder, ignore_errors=True)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.jobs = self.folder / "home" / "jobs"

    def environment(self, **more):
        return {**self.slurm.environment, "LOCKSTEP_HOME": str(self.folder / "home"),
                "AWS_SECRET_ACCESS_KEY": SECRET, **more}

    def add(self, *arguments):
        done = subprocess.run([COMMAND, "cluster", "add", "lab", "--workers", "3", "--nodes", "3",
                               "--address", "127.0.0.1", *arguments], env=self.environment(),
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def validate(self, *arguments, **more):
        """Exit code, names of the steps, the object, and standard error."""
        done = subprocess.run([COMMAND, "cluster", "validate", "lab", "--json", *arguments],
                              env=self.environment(**more), capture_output=True, text=True, timeout=120)
        about = json.loads(done.stdout)
        self.assertEqual(about["ok"], done.returncode == 0)
        return done.returncode, [step["step"] for step in about["steps"]], about, done.stderr

    def fails_in(self, step, *said, arguments=(), **more):
        code, steps, about, error = self.validate(*arguments, **more)
        self.assertEqual((code, steps), (1, STEPS[:STEPS.index(step) + 1]), error)
        self.assertEqual([one["ok"] for one in about["steps"]], [True] * (len(steps) - 1) + [False])
        for text in said:
            self.assertIn(text, error)
        self.nothing_is_left()

    def nothing_is_left(self):
        for _ in range(100):
            left = self.slurm.run("squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%i %T")
            if not left:
                break
            time.sleep(0.1)
        self.assertEqual(left, "")
        self.assertEqual(list(self.jobs.iterdir()) if self.jobs.exists() else [], [])

    def on_node(self, node, then, name="lockstep"):
        """A program in place of another that does something else on one node."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        real = COMMAND if name == "lockstep" else shutil.which(name)
        path.write_text(f'#!/bin/sh\nif [ "$SLURMD_NODENAME" = {node} ]; then\n{then}\nfi\n'
                        f'exec {real} "$@"\n')
        path.chmod(0o755)
        return str(path)

    def test_a_cluster_without_faults(self):
        self.add("--ports", "20000-32000", "--environment", "NCCL_SOCKET_IFNAME=lo",
                 "--executable", self.on_node("n2", "test -z \"$AWS_SECRET_ACCESS_KEY\" || exit 3"))
        code, steps, about, error = self.validate()
        self.assertEqual((code, steps, error), (0, STEPS, ""))
        self.assertEqual([node["node"] for node in about["nodes"]], ["n1", "n2", "n3"])
        self.assertEqual(sorted(pair["nodes"] for pair in about["pairs"]),
                         [["n1", "n2"], ["n1", "n3"], ["n2", "n3"]])
        for pair in about["pairs"]:
            self.assertGreater(pair["bytes_per_second"], 1e6)
            self.assertTrue(0 < pair["latency_seconds"] < 1)
        self.nothing_is_left()
        for file in pathlib.Path(self.slurm_folder).rglob("*"):
            if file.is_file() and SECRET.encode() in file.read_bytes():
                self.fail(f"{file} holds a secret of the environment")

    def test_one_node_and_a_shipped_executable(self):
        done = subprocess.run([COMMAND, "cluster", "add", "lab", "--address", "127.0.0.1",
                               "--executable", "shipped"], env=self.environment(), timeout=60)
        self.assertEqual(done.returncode, 0)
        done = subprocess.run([COMMAND, "cluster", "validate", "lab"], env=self.environment(),
                              capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("1 nodes", done.stdout)
        self.assertRegex(done.stdout, r"start on each node +\d+\.\d s  .*/validate-\w+/lockstep\n")
        self.nothing_is_left()

    def test_a_partition_that_does_not_exist(self):
        self.add("--partition", "fast")
        self.fails_in("nodes", "the partition fast has no nodes", "the partitions of this cluster: debug")

    def test_no_slurm_at_all(self):
        self.add()
        (self.folder / "env").symlink_to(shutil.which("env"))
        self.fails_in("reach the scheduler", "install Slurm's commands here, or give the profile a "
                      "login node", PATH=str(self.folder))

    def test_what_slurm_refuses(self):
        self.add("--option=--qos=none-such", "--option=--mem=9000G")
        self.fails_in("submit", "sbatch", "correct the profile's partition, time_limit or options")

    def test_a_node_that_is_down_and_nodes_that_are_taken(self):
        self.add()
        self.slurm.run("scontrol", "update", "nodename=n2", "state=down", "reason=burned")
        try:
            self.fails_in("nodes", "2 of 3 nodes of the default partition can work, the profile asks "
                          "for 3: n2 is down (burned)")
        finally:
            self.slurm.run("scontrol", "update", "nodename=n2", "state=resume", check=False)
        self.slurm.wait_until_idle()
        taken = self.slurm.run("sbatch", "--parsable", "-w", "n3", "-c", "4", "-o", "/dev/null",
                               "--wrap", "sleep 60").strip()
        try:
            code, steps, _, error = self.validate("--patience", "1")
            self.assertEqual((code, steps), (1, STEPS[:4]))
            self.assertRegex(error, r"Slurm's job \d+ is still PENDING after 1 seconds \(.+\)")
        finally:
            self.slurm.run("scancel", taken)
        self.nothing_is_left()

    def test_a_folder_that_a_node_does_not_share(self):
        self.add()
        path = os.path.dirname(self.on_node("n3", "echo 'no such file' >&2; exit 1", name="cat"))
        self.fails_in("shared folder", "1 of 3 nodes do not see", "n3: no such file", "--folder DIR",
                      PATH=path + ":" + self.slurm.environment["PATH"])

    def test_an_executable_that_a_node_does_not_have(self):
        self.add("--executable", self.on_node("n2", "exec /nowhere/lockstep"))
        self.fails_in("start on each node", "1 of 3 nodes cannot run", "n2: ", "not found",
                      "--executable shipped")
        path = self.on_node("n2", "echo 'libdnnl.so.2: cannot open shared object file'; exit 127")
        self.assertTrue(path)
        self.fails_in("start on each node", "n2: libdnnl.so.2: cannot open")

    def test_nodes_of_other_kinds(self):
        planted = 'if [ "$1" = info ]; then %s "$@" | sed \'%s\'; exit; fi'
        model = "s/\"processor\":\"[^\"]*\"/\"processor\":\"Abacus 7\"/"
        self.add("--executable", self.on_node("n2", planted % (COMMAND, model)))
        self.fails_in("same build and numerics", "the nodes have 2 models of processors: ",
                      "n1, n3: ", "n2: Abacus 7", "choose nodes of one model")
        build = "s/\"build\":\"[^\"]*\"/\"build\":\"0123\"/"
        self.on_node("n3", planted % (COMMAND, build))
        self.fails_in("same build and numerics", "the executable on n3 is another build than this one")

    def test_long_answers_of_nodes_are_told_apart(self):
        long = f's/"processor":"/&{"x" * 5000}/'
        path = self.folder / "lockstep"
        path.write_text(f'#!/bin/sh\nif [ "$1" = info ]; then {COMMAND} "$@" | sed \'{long}\'; exit; fi\n'
                        f'exec {COMMAND} "$@"\n')
        path.chmod(0o755)
        self.add("--executable", str(path))
        code, steps, _, error = self.validate()
        self.assertEqual((code, steps, error), (0, STEPS, ""))

    def test_a_node_that_cannot_join(self):
        self.add("--executable",
                 self.on_node("n3", 'if [ "$1" != info ]; then echo "no key file here"; exit 1; fi'))
        self.fails_in("workers join", "n3: ", "no key file here")

    def test_ctrl_c(self):
        self.add("--executable", self.on_node("n2", "sleep 30"))
        process = subprocess.Popen([COMMAND, "cluster", "validate", "lab"], env=self.environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in process.stdout:
            if line.startswith("shared folder"):
                break
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        out, error = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(process.returncode, 130)
        self.assertRegex(out, r"start on each node +\d+\.\d s  failed")
        self.assertIn("error: [cluster] stopped by a signal", error)
        self.nothing_is_left()


if __name__ == "__main__":
    if missing_tools():
        print("left out: Slurm is not installed:", ", ".join(missing_tools()), flush=True)
        sys.exit(77)
    unittest.main()
