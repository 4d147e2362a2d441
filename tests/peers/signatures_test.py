#!/usr/bin/env python3
"""Random requests are signed as botocore signs them if it is installed, and as a second description of the
signature does (fake_s3.py).

usage: signatures_test.py PATH_OF_SIGN_REQUESTS [--count N] [--botocore]   (--botocore: it must be installed)
"""

import argparse
import datetime
import json
import pathlib
import random
import subprocess
import sys
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "apps"))
from fake_s3 import sha256, signature  # noqa: E402

try:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
except ImportError:
    S3SigV4Auth = None

LETTERS = "abcXYZ019-._~ /=+%&?#:@!$'()*,;[]|^`{}<>\"\\äß€漢😀\t"


def text(chance, least, most):
    return "".join(chance.choice(LETTERS) for _ in range(chance.randint(least, most)))


def random_request(chance):
    path = "/" + text(chance, 0, 40)
    if chance.random() < 0.2:
        path += "/../" + text(chance, 1, 5) + "//x"
    names = {text(chance, 1, 8): text(chance, 0, 20) for _ in range(chance.randint(0, 5))}
    headers = {"x-amz-meta-" + chance.choice("abcdef"): chance.choice(["a", "two  words", " c ", ""])
               for _ in range(chance.randint(0, 3))}
    if chance.random() < 0.5:
        headers["range"] = "bytes=0-9"
    return {"method": chance.choice(["GET", "PUT", "HEAD", "DELETE", "POST"]),
            "host": chance.choice(["bucket.s3.eu-west-1.amazonaws.com", "127.0.0.1:9000", "[::1]:80"]),
            "path": path, "query": list(names.items()), "headers": list(headers.items()),
            "payload": sha256(text(chance, 0, 30).encode()), "access": "AKID" + str(chance.randrange(10**6)),
            "secret": text(chance, 1, 40), "token": chance.choice(["", "token/" + str(chance.randrange(10**6))]),
            "region": chance.choice(["us-east-1", "eu-west-1"]), "time": chance.randrange(4 * 10**9)}


def stamp_of(request):
    return datetime.datetime.fromtimestamp(request["time"], datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")


def by_description(request, names):
    headers = {**dict(request["headers"]), "host": request["host"], "x-amz-date": stamp_of(request),
               "x-amz-content-sha256": request["payload"], "x-amz-security-token": request["token"]}
    return signature(request["secret"], request["method"], request["path"], request["query"], headers, names,
                     request["payload"], request["region"], stamp_of(request))


def by_botocore(request):
    signer = S3SigV4Auth(Credentials(request["access"], request["secret"], request["token"] or None), "s3",
                         request["region"])
    url = "https://" + request["host"] + urllib.parse.quote(request["path"], safe="/-._~")
    made = AWSRequest(request["method"], url, params=dict(request["query"]), headers=dict(request["headers"]))
    made.headers["host"] = request["host"]
    made.headers["X-Amz-Date"] = stamp_of(request)
    made.headers["X-Amz-Content-SHA256"] = request["payload"]
    if request["token"]:
        made.headers["X-Amz-Security-Token"] = request["token"]
    made.context["timestamp"] = stamp_of(request)
    return signer.signature(signer.string_to_sign(made, signer.canonical_request(made)), made)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--botocore", action="store_true")
    arguments = parser.parse_args()
    if arguments.botocore and S3SigV4Auth is None:
        sys.exit("botocore is not installed")
    chance = random.Random(11)
    requests = [random_request(chance) for _ in range(arguments.count)]
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([arguments.command], input=lines, capture_output=True, text=True, timeout=300, check=True)
    signed = done.stdout.splitlines()
    assert len(signed) == len(requests), len(signed)
    for request, line in zip(requests, signed):
        names, made = line.split("SignedHeaders=")[1].split(", Signature=")
        assert made == by_description(request, names.split(";")), request
        if S3SigV4Auth is not None:
            assert made == by_botocore(request), request
        # The comparison can fail.
        assert made != by_description({**request, "path": request["path"] + "x"}, names.split(";"))
    print(f"{len(requests)} requests signed alike" + (", by botocore too" if S3SigV4Auth else ""))


main()
