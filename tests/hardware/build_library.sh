#!/usr/bin/env bash
# Compiles liblockstep_cuda.so with nvcc alone: build_library.sh SOURCES TO CAPABILITY (such as 90)
set -euo pipefail
sources=$1 to=$2 capability=$3
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
mkdir -p "$to"
cd "$sources"
# As cmake/Cuda.cmake, which names what the library needs of the rest.
mapfile -t files < <(find lockstep/engine/kernels/cuda -name '*.cu' -o -name '*.cpp' | sort)
files+=($(sed -n 's/^foreach(source IN ITEMS \(base.*\))$/\1/p' cmake/Cuda.cmake | tr ' ' '\n' |
  sed 's,.*,lockstep/&.cpp,'))
leave=no_nccl
[[ -f $toolkit/include/nccl.h ]] || leave=nccl
version=$(sed -n 's/^  VERSION \([0-9.]*\)$/\1/p' CMakeLists.txt)
options=(-std=c++20 -O3 -I "$sources" -arch "sm_$capability" --fmad=false --compiler-options
  -fPIC,-fvisibility=hidden,-fvisibility-inlines-hidden,-ffp-contract=off
  "-DLOCKSTEP_VERSION=\"$version\"" "-DLOCKSTEP_CUDA_ARCHITECTURES=\"$capability-real\"")
compile() { # FILE
  "$nvcc" "${options[@]}" -c "$1" -o "$to/$(tr / _ <<<"$1").o" || return 255
}
export -f compile
export nvcc to
export options_text="$(declare -p options)"
printf '%s\n' "${files[@]}" | grep -v "/$leave\\.cpp$" |
  xargs -P "$(nproc)" -I{} bash -c 'eval "$options_text"; compile {}'
# -L: where the libraries are that pip installs, beside the toolkit's.
"${CXX:-c++}" -shared -o "$to/liblockstep_cuda.so" "$to"/*.o -L"$toolkit/lib64" -lcudart_static \
  -l:libcudnn.so.9 -l:libcublasLt.so.13 -lpthread -ldl -lrt -Wl,--exclude-libs,ALL \
  -Wl,--no-undefined -Wl,--build-id=sha1
