#!/usr/bin/env python3
"""The printed configurations of clusters in the cloud: their structure, and wrong options of users.

usage: cloud_test.py PATH_OF_LOCKSTEP [unittest options]

No cloud is used. The JobSet is checked by its structure alone; the commands of its pods for the key
run here. aws_schema_test.py checks the AWS configuration by the schema of its own tool.
"""

import os
import pathlib
import re
import shlex
import stat
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    print("skipped: Python has no module yaml (python3-yaml)")
    sys.exit(77)

from support import COMMAND

AWS = ["aws-config", "--region", "eu-central-1", "--subnet", "subnet-0123456789abcdef0", "--ssh-key",
       "me"]
JOB_SET = ["jobset", "digits", "--image", "registry.local/lockstep:1", "--claim", "shared", "--pods",
           "3", "--pod-workers", "2"]


class Cloud(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="lockstep_")
        self.addCleanup(self.folder.cleanup)
        self.here = pathlib.Path(self.folder.name)

    def run_command(self, *arguments):
        environment = {**os.environ, "LOCKSTEP_HOME": str(self.here / "home")}
        return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=60,
                              cwd=self.here, env=environment)

    def printed(self, *arguments):
        done = self.run_command("cluster", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout

    def refused(self, said, *arguments):
        done = self.run_command("cluster", *arguments)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(said, done.stderr)
        self.assertEqual(done.stdout, "")

    # ---- AWS ----

    def test_an_aws_cluster_has_the_queues_that_were_asked_for(self):
        config = yaml.safe_load(self.printed(*AWS))
        self.assertEqual(config["Region"], "eu-central-1")
        self.assertEqual(config["HeadNode"]["Networking"]["SubnetId"], "subnet-0123456789abcdef0")
        queues = config["Scheduling"]["SlurmQueues"]
        self.assertEqual([queue["Name"] for queue in queues], ["cpu"])
        self.assertEqual(queues[0]["CapacityType"], "ONDEMAND")
        self.assertNotIn("Iam", config["HeadNode"])
        self.assertEqual(config["SharedStorage"][0]["StorageType"], "Efs")
        text = self.printed(*AWS, "--gpu-instance", "p5.48xlarge", "--efa", "--spot", "--bucket",
                            "my-data", "--storage", "fsx", "--gpu-nodes", "2")
        config = yaml.safe_load(text)
        cpu, gpu = config["Scheduling"]["SlurmQueues"]
        self.assertEqual((gpu["Name"], gpu["CapacityType"]), ("gpu", "SPOT"))
        self.assertEqual(gpu["ComputeResources"][0]["Efa"], {"Enabled": True})
        self.assertNotIn("Efa", cpu["ComputeResources"][0])
        # One instance type for a queue: other processors would change the bits.
        for queue in (cpu, gpu):
            self.assertEqual(len(queue["ComputeResources"]), 1)
            self.assertEqual(queue["Iam"]["S3Access"],
                             [{"BucketName": "my-data", "EnableWriteAccess": True}])
        self.assertEqual(config["SharedStorage"][0]["StorageType"], "FsxLustre")
        config = yaml.safe_load(self.printed(*AWS, "--cpu-instance", "", "--gpu-instance", "g6.xlarge"))
        self.assertEqual([q["Name"] for q in config["Scheduling"]["SlurmQueues"]], ["gpu"])

    def test_its_comments_make_the_matching_profiles(self):
        text = self.printed(*AWS, "--gpu-instance", "p5.48xlarge", "--gpu-nodes", "2")
        config = yaml.safe_load(text)
        commands = re.findall(r"^#   lockstep (cluster add .*)$", text, re.M)
        self.assertEqual(len(commands), 2)
        for line, queue in zip(commands, config["Scheduling"]["SlurmQueues"]):
            done = self.run_command(*shlex.split(line))
            self.assertEqual(done.returncode, 0, done.stderr)
            shown = self.printed("show", shlex.split(line)[2])
            self.assertIn(f'partition = "{queue["Name"]}"', shown)
            self.assertIn(f'nodes = {queue["ComputeResources"][0]["MaxCount"]}', shown)
            mount = config["SharedStorage"][0]["MountDir"]
            self.assertIn(f'folder = "{mount}/lockstep"', shown)
        self.assertIn("workers = 16", shown)  # 2 nodes with 8 GPUs
        self.assertIn('options = "--gpus-per-node=8"', shown)

    def test_wrong_options_are_refused_by_name(self):
        self.refused("--region is needed", "aws-config")
        self.refused("--subnet is needed", "aws-config", "--region", "eu-west-1")
        for value in ("a: b", "x\ny", '"', "a#b", "*"):
            self.refused("--bucket", *AWS, "--bucket", value)
            self.refused("--ssh-key", *AWS[:-1], value)
            self.refused("--image", "jobset", "--image", value, "--claim", "c")
        self.refused("--efa", *AWS, "--efa")
        self.refused("--storage", *AWS, "--storage", "nfs")
        self.refused("--cpu-nodes", *AWS, "--cpu-nodes", "0")
        self.refused("--image is needed", "jobset", "--claim", "c")
        self.refused("--claim is needed", "jobset", "--image", "c")
        self.refused("lower-case", "jobset", "Digits", "--image", "c", "--claim", "c")
        self.refused("--pods", *JOB_SET[:-4], "--pods", "0")

    # ---- Kubernetes ----

    def job_set(self, *more):
        return yaml.safe_load(self.printed(*JOB_SET, *more))

    def test_a_job_set_has_a_client_and_pods_that_join_it(self):
        manifest = self.job_set()
        self.assertEqual(manifest["apiVersion"], "jobset.x-k8s.io/v1alpha2")
        self.assertEqual(manifest["kind"], "JobSet")
        self.assertEqual(manifest["spec"]["successPolicy"]["targetReplicatedJobs"], ["client"])
        jobs = {job["name"]: job["template"]["spec"] for job in manifest["spec"]["replicatedJobs"]}
        self.assertEqual(jobs["workers"]["completions"], 3)
        self.assertEqual(jobs["workers"]["parallelism"], 3)
        for job in jobs.values():
            self.assertEqual(job["completionMode"], "Indexed")  # sets JOB_COMPLETION_INDEX
            self.assertEqual(job["template"]["spec"]["restartPolicy"], "Never")
        train = jobs["client"]["template"]["spec"]["containers"][0]["command"]
        self.assertEqual(train[train.index("--hosts") + 1], "pod0:2,pod1:2,pod2:2")
        self.assertEqual(train[train.index("--host-launch") + 1], "join /key/key")
        container = jobs["workers"]["template"]["spec"]["containers"][0]
        join = container["command"]
        ports = {entry["name"]: entry["value"] for entry in container["env"]}["LOCKSTEP_PORTS"]
        self.assertEqual(join[:4],
                         ["lockstep", "worker", "--join",
                          f"digits-client-0-0.digits:{ports.split('-')[0]}"])
        self.assertNotIn("limits", container["resources"])
        gpus = self.job_set("--pod-gpus", "2", "--node-type", "g6.12xlarge")
        spec = gpus["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
        self.assertEqual(spec["containers"][0]["resources"]["limits"], {"nvidia.com/gpu": 2})
        self.assertEqual(spec["nodeSelector"], {"node.kubernetes.io/instance-type": "g6.12xlarge"})

    def test_no_key_is_printed_and_each_side_gets_its_own(self):
        text = self.printed(*JOB_SET)
        self.assertNotIn("lockstep-key", text)
        manifest = yaml.safe_load(text)
        items = [job["template"]["spec"]["template"]["spec"]["volumes"][0]["secret"]["items"][0]["key"]
                 for job in manifest["spec"]["replicatedJobs"]]
        self.assertEqual(items, ["client", "member"])

    def test_the_key_as_kubernetes_mounts_it_is_copied_so_that_lockstep_takes_it(self):
        manifest = self.job_set()
        spec = manifest["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]
        self.assertEqual(self.run_command("worker", "--new-key", "job.key").returncode, 0)
        # As in the comments of the manifest.
        subprocess.run("grep -v server-secret job.key > member.key", shell=True, check=True,
                       cwd=self.here)
        # A volume of a Secret with fsGroup: the group may read, and the file is a link to another.
        (self.here / "secret/..data").mkdir(parents=True)
        (self.here / "secret/..data/key").write_bytes((self.here / "member.key").read_bytes())
        (self.here / "secret/..data/key").chmod(0o440)
        (self.here / "secret/key").symlink_to("..data/key")
        (self.here / "key").mkdir()
        worker = ["worker", "--join", "127.0.0.1:1", "--patience", "0.5", "--key-file"]
        refused = self.run_command(*worker, "secret/key")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("other users can read it", refused.stderr)
        copy = spec["initContainers"][0]["command"]
        self.assertEqual(copy[-2:], ["/secret/key", "/key/key"])
        subprocess.run(copy[:-2] + [word.lstrip("/") for word in copy[-2:]], check=True,
                       cwd=self.here)
        self.assertEqual(stat.S_IMODE((self.here / "key/key").stat().st_mode), 0o400)
        asked = self.run_command(*worker, "key/key")
        self.assertEqual(asked.returncode, 1)
        self.assertIn("nothing answers", asked.stderr)  # the key was taken
        self.assertNotIn("server-secret", (self.here / "key/key").read_text())


if __name__ == "__main__":
    unittest.main()
