#!/usr/bin/env python3
"""Checks `lockstep cluster aws-config` by the schema of AWS ParallelCluster itself.

usage: aws_schema_test.py PATH_OF_LOCKSTEP

Needs the package aws-parallelcluster (PyPI). Exits with 77 without it. Makes no request to AWS.
"""

import itertools
import os
import subprocess
import sys

os.environ.setdefault("AWS_DEFAULT_REGION", "eu-central-1")
try:
    import yaml
    from marshmallow import ValidationError
    from pcluster.schemas.cluster_schema import ClusterSchema
except ImportError as error:
    print(f"skipped: {error} (pip install aws-parallelcluster)")
    sys.exit(77)

REQUIRED = ["--region", "eu-central-1", "--subnet", "subnet-0123456789abcdef0", "--ssh-key", "me"]
CHOICES = [
    [[], ["--gpu-instance", "p5.48xlarge"], ["--gpu-instance", "p5.48xlarge", "--efa"],
     ["--cpu-instance", "", "--gpu-instance", "g6.xlarge"]],
    [[], ["--spot"]],
    [[], ["--bucket", "my-data"]],
    [["--storage", "efs"], ["--storage", "fsx"]],
]


def check(text):
    ClusterSchema(cluster_name="lab").load(yaml.safe_load(text))


def main():
    count = 0
    for chosen in itertools.product(*CHOICES):
        options = sum(chosen, [])
        text = subprocess.run([sys.argv[1], "cluster", "aws-config", "lab", *REQUIRED, *options],
                              check=True, capture_output=True, text=True).stdout
        try:
            check(text)
        except ValidationError as error:
            sys.exit(f"{' '.join(options)}: {error}\n{text}")
        count += 1
    # The schema must notice what is wrong.
    for right, wrong in [("MaxCount", "Maximum"), ("SPOT", "CHEAP"), ("FsxLustre", "Nfs")]:
        if right not in text:
            sys.exit(f"{right} is not in the last configuration")
        try:
            check(text.replace(right, wrong))
        except ValidationError:
            continue
        sys.exit(f"the schema takes {wrong} for {right}")
    print(f"{count} configurations follow the schema")


if __name__ == "__main__":
    main()
