#include "lockstep/engine/kernels/shapes/concatenation.h"

#include <cstring>
#include <optional>

#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/kernels/cpu/normalization/channel_sums.h"
#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {
namespace {

// The layout of `like` for other channels.
std::optional<TensorSpec> layout_like(const TensorSpec& like, const Shape& shape) {
  if (in_lanes(like)) return lanes_spec(shape, like.dtype);
  return of_other_channels(like, shape[1]);
}

// The input whose layout all inputs and the result get: one that more than half of the elements
// have, in lanes or in blocks of channels that all inputs fill. Null if there is none; all are then
// row-major.
const TensorSpec* common_layout(const ConcatenationProblem& p) {
  if (p.axis != 1) return nullptr;
  for (const TensorSpec& like : p.src) {
    if (like.row_major() || like.dtype != p.src.front().dtype) continue;
    int64_t same = 0, all = 0;
    bool possible = true;
    for (const TensorSpec& src : p.src) {
      const auto spec = layout_like(like, src.shape);
      possible = possible && spec;
      all += src.shape.elements();
      if (spec && *spec == src) same += src.shape.elements();
    }
    if (possible && 2 * same > all) return &like;
  }
  return nullptr;
}

}  // namespace

// All operands have the first one's type and one layout. Each input consists of `outer` runs, which
// lie inside longer runs of the output.
Kernel concatenation(const ConcatenationProblem& p) {
  const int axis = p.axis;
  const DType type = p.src.front().dtype;
  std::vector<Operand> reads;
  std::vector<size_t> runs;  // bytes of one run, for each input
  std::vector<int64_t> dims = p.src.front().shape.dims();
  dims[static_cast<size_t>(axis)] = 0;
  const TensorSpec* const like = common_layout(p);
  const auto spec = [&](const Shape& shape) {
    return like ? *layout_like(*like, shape) : plain_spec(shape, type);
  };
  const int first = like && in_lanes(*like) ? 0 : axis;  // of the dimensions of a run
  int64_t outer = 1;
  for (int i = 0; i < first; ++i) outer *= p.src.front().shape[i];
  size_t whole = 0;
  for (size_t i = 0; i < p.src.size(); ++i) {
    const Shape& shape = p.src[i].shape;
    reads.push_back(input(static_cast<int>(i), spec(shape)));
    dims[static_cast<size_t>(axis)] += shape[axis];
    runs.push_back(size_of(type));
    for (int d = first; d < shape.rank(); ++d) runs.back() *= static_cast<size_t>(shape[d]);
    whole += runs.back();
  }
  const TensorSpec dst = spec(Shape(dims));
  Kernel kernel;
  kernel.forward =
      own_pass(reads, {output(0, dst)}, [=](void* const* r, void* const* w, const RandomContext&) {
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
        {diff_output(0, dst)}, {diff_input(static_cast<int>(i), spec(p.src[i].shape))},
        [=, run = runs[i]](void* const* r, void* const* w, const RandomContext&) {
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
