#include "lockstep/engine/kernels/shapes/concatenation.h"

#include <cstring>

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {

// All operands are row-major with the first one's type. Each input consists of `outer` runs, which
// lie inside longer runs of the output.
Kernel concatenation(const ConcatenationProblem& p) {
  const int axis = p.axis;
  const DType type = p.src.front().dtype;
  std::vector<Operand> reads;
  std::vector<size_t> runs;  // bytes of one run, for each input
  std::vector<int64_t> dims = p.src.front().shape.dims();
  dims[static_cast<size_t>(axis)] = 0;
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= p.src.front().shape[i];
  for (int i = axis + 1; i < p.src.front().shape.rank(); ++i) inner *= p.src.front().shape[i];
  size_t whole = 0;
  for (size_t i = 0; i < p.src.size(); ++i) {
    reads.push_back(input(static_cast<int>(i), plain_spec(p.src[i].shape, type)));
    const int64_t extent = p.src[i].shape[axis];
    dims[static_cast<size_t>(axis)] += extent;
    runs.push_back(static_cast<size_t>(extent * inner) * size_of(type));
    whole += runs.back();
  }
  const TensorSpec dst = plain_spec(Shape(dims), type);
  Kernel kernel;
  kernel.forward =
      own_pass(reads, {output(0, dst)}, [=](void* const* r, void* const* w, const StepInfo&) {
        auto* to = out<char>(w, 0);
        for (int64_t o = 0; o < outer; ++o) {
          for (size_t i = 0; i < runs.size(); ++i) {
            const auto at = static_cast<size_t>(o) * runs[i];
            std::memcpy(to, in<char>(r, static_cast<int>(i)) + at, runs[i]);
            to += runs[i];
          }
        }
      });
  kernel.rows_apart = axis > 0;
  size_t before = 0;
  for (size_t i = 0; i < p.src.size(); ++i) {
    kernel.backward.push_back(own_pass(
        {diff_output(0, dst)}, {diff_input(static_cast<int>(i), plain_spec(p.src[i].shape, type))},
        [=, run = runs[i]](void* const* r, void* const* w, const StepInfo&) {
          for (int64_t o = 0; o < outer; ++o) {
            const auto row = static_cast<size_t>(o);
            std::memcpy(out<char>(w, 0) + row * run, in<char>(r, 0) + row * whole + before, run);
          }
        }));
    before += runs[i];
  }
  return kernel;
}

}  // namespace lockstep::kernels::cpu
