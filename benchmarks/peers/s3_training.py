#!/usr/bin/env python3
"""A training from an S3 store beside the same training from local files, after the first epoch.

usage: s3_training.py [--data FOLDER] [--epochs N] [--rounds N] [--objects] [--prefix COMMAND]

S3, depth 1 (examples/jobs/cifar10_s3.toml) on CIFAR-10 in --data or LOCKSTEP_TEST_DATA. The store is Ceph's radosgw
(tests/apps/radosgw.py), on the same processors. The runs alternate: from a local folder and from archives in the
store (with --objects also from objects), with empty caches on disk. Compared are the median duration of an iteration, and the processor
seconds of the whole command. The receipts must be equal.
"""

import argparse
import json
import os
import pathlib
import resource
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/apps"))
from radosgw import Radosgw  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"))
    parser.add_argument("--build", default=str(TOP / "build/release"))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prefix", default="")
    parser.add_argument("--objects", action="store_true", help="also from 50,000 objects, whose first reading takes long")
    a = parser.parse_args()
    images = pathlib.Path(a.data) / "cifar10/train"
    command, job = f"{a.build}/bin/lockstep", TOP / "examples/jobs/cifar10_s3.toml"
    places = {"local": str(images), "archives": "s3://images/archives"}
    if a.objects:
        places["objects"] = "s3://images/objects"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # so that the store ends
    store = Radosgw()
    try:
        with tempfile.TemporaryDirectory(prefix="s3_training_") as folder:
            environment = {**os.environ, **store.environment(), "LOCKSTEP_DATA": a.data}

            def run(*arguments, **more):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([str(x) for x in arguments], env={**environment, **more}, check=True,
                               stdout=subprocess.DEVNULL, timeout=900)
                used = resource.getrusage(resource.RUSAGE_CHILDREN)
                return used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime

            store.make_bucket("images")
            if a.objects:
                run(command, "upload", images, places["objects"])
            run(command, "shard", images, places["archives"])
            iterations, processor, receipts = ({name: [] for name in places} for _ in range(3))
            for number in range(a.rounds):
                for name, place in places.items():
                    out = f"{folder}/{name}-{number}"
                    processor[name].append(run(
                        *shlex.split(a.prefix), command, "train", job, "--quiet", "--not-recorded", "--out", out,
                        "--set", f'data.train="{place}"', "--set", f"max_epochs={a.epochs}", XDG_CACHE_HOME=f"{out}-cache"))
                    rows = [json.loads(line) for line in open(f"{out}/log.jsonl")]
                    later = [r["seconds"] for r in rows if "seconds" in r and r.get("epoch", 0) > 1]
                    iterations[name].append(statistics.median(later))
                    receipts[name].append(pathlib.Path(f"{out}/receipt.jsonl").read_bytes())
                    print(f"round {number + 1} {name}: {1e3 * iterations[name][-1]:.3f} ms an iteration after the first "
                          f"epoch, {processor[name][-1]:.1f} processor seconds in all", flush=True)
    finally:
        store.close()
    assert len({receipt for rows in receipts.values() for receipt in rows}) == 1, "the receipts differ"
    for name in places:
        by_time = statistics.median(iterations[name]) / statistics.median(iterations["local"])
        by_processor = statistics.median(processor[name]) / statistics.median(processor["local"])
        print(f"{name}: {by_time:.3f} of the local time of an iteration, {by_processor:.3f} of the processor seconds")


if __name__ == "__main__":
    main()
