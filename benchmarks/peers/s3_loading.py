#!/usr/bin/env python3
"""Images a second from an S3 store on the same processors, decoding included, beside MosaicML Streaming and WebDataset.

usage: s3_loading.py --python PYTHON [--data FOLDER] [--rounds N] [--prefix COMMAND]

PYTHON has mosaicml-streaming, webdataset and boto3 (PyPI). The store is Ceph's radosgw (tests/apps/radosgw.py). The
images are CIFAR-10's training images (JPEG) in --data or LOCKSTEP_TEST_DATA. Each round reads one epoch by each loader
in turn, with empty caches: shuffled, in mini-batches of 128, with two threads or workers. The clock runs from the
making of the loader to the last mini-batch. --prefix is put before each timed command. TMPDIR=/dev/shm
keeps a slow disk out of the comparison.
"""

import argparse
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests/apps"))
from radosgw import Radosgw  # noqa: E402

BUCKET = "images"
SIGN = """
import boto3, botocore.config, sys
client = boto3.client("s3", config=botocore.config.Config(s3={"addressing_style": "path"}))
for page in client.get_paginator("list_objects_v2").paginate(Bucket=sys.argv[1], Prefix="shards/"):
    for item in page["Contents"]:
        if item["Key"].endswith(".tar"):
            print(client.generate_presigned_url("get_object", {"Bucket": sys.argv[1], "Key": item["Key"]},
                                                ExpiresIn=86400))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"))
    parser.add_argument("--build", default=str(TOP / "build/release"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prefix", default="")
    parser.add_argument("--json")
    a = parser.parse_args()
    images = pathlib.Path(a.data) / "cifar10/train"
    command, loader = f"{a.build}/bin/lockstep", [a.python, str(TOP / "benchmarks/peers/s3_loader.py")]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # so that the store ends
    store = Radosgw()
    try:
        with tempfile.TemporaryDirectory(prefix="s3_loading_") as folder:
            environment = {**os.environ, **store.environment(), "S3_ENDPOINT_URL": store.url, "OMP_NUM_THREADS": "1",
                           "AWS_DEFAULT_REGION": "us-east-1"}

            def run(*arguments, **more):
                done = subprocess.run([str(x) for x in arguments], env={**environment, **more}, text=True,
                                      stdout=subprocess.PIPE, timeout=600)
                if done.returncode != 0:
                    raise RuntimeError(f"{arguments[0]} has failed")
                return done.stdout

            store.make_bucket(BUCKET)
            run(command, "shard", images, f"s3://{BUCKET}/shards", "--megabytes", 8)
            run(*loader, "write", images, f"{folder}/mds")
            run(command, "upload", f"{folder}/mds", f"s3://{BUCKET}/mds")
            urls = pathlib.Path(folder) / "urls"
            urls.write_text(run(a.python, "-c", SIGN, BUCKET))
            results = {"lockstep": [], "streaming": [], "webdataset": []}
            for number in range(a.rounds):
                fresh = f"{folder}/{number}"
                commands = {"lockstep": [f"{a.build}/benchmarks/loading", f"s3://{BUCKET}/shards"],
                            "streaming": [*loader, "streaming", f"s3://{BUCKET}/mds", f"{fresh}-local"],
                            "webdataset": [*loader, "webdataset", urls]}
                for name, arguments in commands.items():
                    text = run(*shlex.split(a.prefix), *arguments, XDG_CACHE_HOME=f"{fresh}-cache")
                    results[name].append(json.loads(text.splitlines()[-1]))
                    r = results[name][-1]
                    print(f"round {number + 1} {name}: {r['images'] / r['seconds']:,.0f} images/s, "
                          f"{r['images'] / r['processor']:,.0f} images a processor second", flush=True)
    finally:
        store.close()
    wall, processor = ({name: statistics.median(r["images"] / r[key] for r in rows) for name, rows in results.items()}
                       for key in ("seconds", "processor"))
    for title, rates in (("images a second", wall), ("images a processor second", processor)):
        print(title + ": " + ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()) +
              f"; Lockstep / the faster of the others: {rates['lockstep'] / max(rates['streaming'], rates['webdataset']):.2f}")
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
