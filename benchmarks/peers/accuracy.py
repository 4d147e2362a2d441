#!/usr/bin/python3
"""Accuracy of a job over several seeds.

For each seed: the mean of the validation accuracies of the last ten epochs (they swing by about a
point from one to the next) and the test accuracy after the last; then the means over the seeds.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile

import lockstep_runs


def train_once(arguments, seed, folder):
    """A row's figures; a run that `folder` holds already, finished, is read instead."""
    job = lockstep_runs.job_path(arguments.job)
    name = os.path.splitext(os.path.basename(job))[0]
    parts = [name] + arguments.set + [f"seed={seed}"]
    out = os.path.join(folder, "-".join(parts).replace("/", "_"))
    kept = os.path.join(out, "result.json")
    if not os.path.exists(kept):
        result = lockstep_runs.train(arguments.command, job, out,
                                     arguments.set + [f"training.seed={seed}"], arguments.threads,
                                     arguments.data)
        with open(kept, "w") as file:
            json.dump(result, file)
    with open(kept) as file:
        result = json.load(file)
    validations = [e["validation_accuracy"] for e in lockstep_runs.read_log(out)[1]]
    return {"seed": seed,
            "validation": statistics.mean(validations[-arguments.last:]) if validations else None,
            "validations": validations, "test": result["test_accuracy"],
            "images_per_second": result["images_per_second"], "seconds": result["seconds"],
            "digest": result["digest"]}


def percent(share):
    return "-" if share is None else f"{100 * share:.2f} %"


def mean(values):
    values = list(values)
    return None if None in values else statistics.mean(values)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  accuracy.py cifar10_s3 --set depth=2\n  accuracy.py digits\n"
               "  accuracy.py digits --set data.train=digits")
    parser.add_argument("job", help="a job file, or the name of one in examples/jobs")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="change a field or variable of the job")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--last", type=int, default=10, help="how many epochs count (10)")
    parser.add_argument("--threads", type=int, help="compute threads")
    parser.add_argument("--command", default=lockstep_runs.COMMAND, help="the lockstep command")
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"), metavar="FOLDER",
                        help="holds cifar10/ and digits/ (default: $LOCKSTEP_TEST_DATA)")
    parser.add_argument("--out", metavar="FOLDER",
                        help="keep the runs there; finished ones are not trained again")
    parser.add_argument("--json", metavar="FILE", help="where the figures go as JSON")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or temporary
        runs = [train_once(arguments, seed, folder) for seed in arguments.seeds]
    report = {"machine": lockstep_runs.machine(), "job": arguments.job, "set": arguments.set,
              "runs": runs, "validation": mean(r["validation"] for r in runs),
              "test": mean(r["test"] for r in runs)}
    epochs = min(arguments.last, max(len(r["validations"]) for r in runs))
    print(" ".join([arguments.job] + arguments.set))
    lockstep_runs.print_table(
        ["seed", f"validation, last {epochs} epochs", "test", "seconds"],
        [[str(r["seed"]), percent(r["validation"]), percent(r["test"]), f"{r['seconds']:.0f}"]
         for r in runs] + [["mean", percent(report["validation"]), percent(report["test"]), ""]])
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(report, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
