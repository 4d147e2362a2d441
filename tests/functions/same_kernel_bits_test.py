#!/usr/bin/env python3
"""Kernels have the same bits on every instruction set and processor.

usage: same_kernel_bits_test.py COMPILER SOURCE_FOLDER WORK_FOLDER

Compiles tests/functions/kernel_bits.cpp and the kernels that it runs for x86-64 without and with
fma, with AVX2 and with AVX-512 where the processor has it, and for 64-bit Arm where a cross compiler
and qemu-aarch64 are. Exit code 77: only one of them runs here, or Highway's headers are elsewhere.
"""
import argparse
import pathlib
import subprocess
import sys

from same_bits_test import FLAGS, ways

KERNELS = "lockstep/engine/kernels/cpu/"
SOURCES = [
    "tests/functions/kernel_bits.cpp", "lockstep/base/numeric/shape.cpp",
    "lockstep/base/numeric/dtype.cpp", "lockstep/engine/tensor/spec.cpp",
    *(KERNELS + f"elementwise/{name}.cpp" for name in
      ("expression", "expression_loops", "expression_stream")),
    *(KERNELS + f"reductions/{name}.cpp" for name in
      ("reduce", "reduce_loops", "cumulative_sum", "products_of_others")),
    *(KERNELS + f"shapes/{name}.cpp" for name in ("arange", "take", "scatter_add")),
    *(KERNELS + f"matrices/{name}.cpp" for name in
      ("matrix_product", "blocked_products", "products", "panels")),
    *(KERNELS + f"recurrent/{name}.cpp" for name in
      ("recurrent", "forward", "backward", "cell_loops", "sequences")),
    KERNELS + "vectorized.cpp"]
HEADERS = pathlib.Path("/usr/include")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("compiler")
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    arguments = parser.parse_args()
    include = arguments.work / "include"  # without the headers of this machine's C library
    include.mkdir(parents=True, exist_ok=True)
    for library in ("hwy", "fmt"):
        if not (HEADERS / library).is_dir():
            return 77
        link = include / library
        if not link.is_symlink():
            link.symlink_to(HEADERS / library)
    digests = {}
    # One compiler for each processor: what depends on compilers is in same_bits_test.py.
    chosen = [(name, command, run) for name, command, run in ways(arguments.compiler)
              if "-DLOCKSTEP_WITHOUT_CLONES" in command and command[0] == arguments.compiler and
              "-O3" in command or run]
    for number, (name, command, run) in enumerate(chosen):
        program = arguments.work / f"kernel_bits_{number}"
        subprocess.run([*command, *FLAGS, "-DFMT_HEADER_ONLY", "-DHWY_COMPILE_ONLY_STATIC",
                        "-I", arguments.source, "-isystem", include, "-o", program,
                        *(arguments.source / path for path in SOURCES)], check=True)
        ran = subprocess.run([*run, program], check=True, capture_output=True, text=True)
        print(f"{name}: {' '.join(ran.stdout.split())}", flush=True)
        digests[name] = ran.stdout
    if len(set(digests.values())) > 1:
        print("the bits differ")
        return 1
    return 77 if len(digests) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
