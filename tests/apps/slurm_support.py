"""The base of tests on a real Slurm: a cluster for each class, and a user's folder for each test."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

from slurm_cluster import SlurmCluster
from support import COMMAND, CommandTest

SECRET = "secret-9f4c1d7a"
# A training that does not end before the test is done with it.
LONG = ("--set", "max_epochs=100000", "--set", "checkpoint_frequency=50", "--set", "verbose_frequency=1000")


class SlurmTest(CommandTest):
    NODES = 2

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.slurm_folder = tempfile.mkdtemp(prefix="lockstep_slurm_")
        cls.slurm = SlurmCluster(cls.slurm_folder, nodes=cls.NODES, cpus=4)

    @classmethod
    def tearDownClass(cls):
        cls.slurm.stop()
        shutil.rmtree(cls.slurm_folder, ignore_errors=True)
        super().tearDownClass()

    def setUp(self):
        super().setUp()
        self.killed_workers = 0
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_home_"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.addCleanup(self.end_jobs)
        self.works("cluster", "add", "lab", "--workers", "4", "--nodes", "2", "--address",
                   "127.0.0.1")

    def end_jobs(self):
        self.slurm.run("scancel", "--full", "--state=RUNNING", check=False)
        self.slurm.run("scancel", "--state=PENDING", check=False)
        self.slurm.wait_until_idle()

    def environment(self):
        return {**self.slurm.environment, "LOCKSTEP_HOME": str(self.home),
                "AWS_SECRET_ACCESS_KEY": SECRET}

    def run_command(self, *arguments, **more):
        return super().run_command(*arguments, **{**self.environment(), **more})

    def begin(self, *arguments):
        process = subprocess.Popen([COMMAND, *map(str, arguments)], cwd=self.folder, text=True,
                                   env=self.environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def receipt(self, folder):
        return (self.folder / folder / "receipt.jsonl").read_bytes()

    def until(self, holds, what, seconds=60):
        for _ in range(seconds * 20):
            result = holds()
            if result:
                return result
            time.sleep(0.05)
        self.fail(f"{what}:\n" + self.slurm.run("squeue", "--array", "--long", check=False))

    def files_with(self, *secrets):
        """The files of the user and of Slurm that contain one of these."""
        found = []
        for place in (self.home, self.folder, pathlib.Path(self.slurm_folder)):
            for file in place.rglob("*"):
                try:
                    content = file.read_bytes() if file.is_file() else b""
                except OSError:
                    continue
                if any(secret in content for secret in secrets):
                    found.append(file)
        return found


    # ---- disturbances of the cluster ----

    def kill_a_step(self, dice):
        steps = self.slurm.run("squeue", "-h", "--steps", "-o", "%i", check=False).split()
        steps = [step for step in steps if step.split(".")[-1].isdigit()]
        if steps:
            self.slurm.run("scancel", "--signal=KILL", dice.choice(steps), check=False)

    def kill_a_worker(self, dice):
        for _ in range(100):
            workers = self.workers_on_nodes()
            if workers:
                break
            time.sleep(0.1)
        try:
            if workers:
                os.kill(dice.choice(workers), signal.SIGKILL)
                self.killed_workers += 1
        except ProcessLookupError:
            pass

    def workers_on_nodes(self):
        """Worker processes that this test's Slurm has started."""
        ours = f"SLURM_CONF={self.slurm.environment['SLURM_CONF']}".encode()
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if (b"--lockstep-worker" in (process / "cmdline").read_bytes()
                        and ours in (process / "environ").read_bytes().split(b"\0")):
                    found.append(int(process.name))
            except OSError:  # it has ended
                pass
        return sorted(found)

    def restart_the_controller(self, _):
        self.slurm.kill("slurmctld")
        time.sleep(1)
        self.slurm.start_controller()

    def kill_a_node(self, dice):
        node = dice.choice(self.slurm.names())
        self.slurm.kill(node)
        time.sleep(1)
        self.slurm.start_node(node)
