#!/usr/bin/env python3
"""Elementary functions have the same bits on every instruction set, compiler and processor.

usage: same_bits_test.py COMPILER SOURCE_FOLDER WORK_FOLDER [--every N]

Compiles tests/functions/all_floats.cpp for x86-64 without and with fma, with AVX2 and with AVX-512
where the processor has it, with clang++ where it is installed, and for 64-bit Arm where a cross
compiler and qemu-aarch64 are. Exit code 77: only one of them runs here.
"""
import argparse
import pathlib
import platform
import shutil
import subprocess
import sys

# As the library is compiled.
FLAGS = ["-std=c++20", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-pthread"]


def ways(compiler):
    """(name, command of the compiler, prefix of the command that runs the program)"""
    if platform.machine() == "x86_64":
        flags = pathlib.Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split()
        levels = {"x86-64": True, "x86-64-v3": "fma" in flags and "avx2" in flags,
                  "x86-64-v4": "avx512dq" in flags and "avx512vl" in flags}
    else:
        levels = {None: True}
    found = []
    compilers = [compiler] + [c for c in ("clang++", "g++") if shutil.which(c) and c != compiler]
    for command in compilers:
        for level, runs in levels.items():
            if runs:
                march = [f"-march={level}"] if level else []
                # Without clones, so that the level is what runs.
                found.append((f"{command} {level or ''}".strip(),
                              [command, "-O3", "-DLOCKSTEP_WITHOUT_CLONES", *march], []))
        found.append((f"{command}, clones", [command, "-O3"], []))
        found.append((f"{command} -O0", [command, "-O0", "-DLOCKSTEP_WITHOUT_CLONES"], []))
    cross, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if cross and emulator and platform.machine() != "aarch64":
        found.append(("64-bit Arm", [cross, "-O3", "-static"], [emulator]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("compiler")
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--every", type=int, default=49999)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    digests = {}
    for number, (name, command, run) in enumerate(ways(arguments.compiler)):
        program = arguments.work / f"all_floats_{number}"
        subprocess.run([*command, *FLAGS, "-I", arguments.source, "-o", program,
                        arguments.source / "tests/functions/all_floats.cpp"], check=True)
        ran = subprocess.run([*run, program, "--digest", "--every", str(arguments.every)],
                             check=True, capture_output=True, text=True)
        digests[name] = dict(line.split() for line in ran.stdout.splitlines())
        print(f"{name}: {len(digests[name])} functions", flush=True)
    first, *others = digests
    if not others:
        return 77
    different = [f"{function}: {name} differs from {first}" for name in others
                 for function, digest in digests[first].items() if digests[name][function] != digest]
    print("\n".join(different) or f"the same bits {len(digests)} times")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
