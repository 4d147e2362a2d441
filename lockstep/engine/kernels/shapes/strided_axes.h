// The loops of a strided copy, for all back ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/shapes/strided_copy.h"

namespace lockstep::kernels {

// A loop: `size` elements that lie `from` elements apart in src and `to` elements apart in dst.
struct StridedAxis {
  int64_t size, from, to;
};

struct StridedLoops {
  int64_t count = 1;         // elements that are copied
  int64_t from = 0, to = 0;  // indices of the first one
  bool clears = false;       // zeros come first, because some element of dst is not copied to
  bool rows_apart = false;   // as Kernel::rows_apart
  bool copies = false;       // as Pass::copies
  // Outermost first. The last one has the smallest steps in dst. Loops of one element are left out,
  // and loops that lie together in src and in dst are one.
  std::vector<StridedAxis> axes;
};

// Throws InvalidArgument if an index lies outside its tensor, Unsupported for other types.
inline StridedLoops strided_loops(const StridedCopyProblem& p) {
  const DType type = p.src.dtype;
  if (is_narrow(type)) {
    throw Unsupported("[strided_copy] does not support elements of " + std::string(name_of(type)));
  }
  const Shape &walked = p.scatter ? p.src.shape : p.dst, &strided = p.scatter ? p.dst : p.src.shape;
  if (p.strides.size() != static_cast<size_t>(walked.rank())) {
    throw InvalidArgument("[strided_copy] expected " + std::to_string(walked.rank()) +
                          " strides, received " + std::to_string(p.strides.size()));
  }
  StridedLoops loops;
  loops.count = walked.elements();
  (p.scatter ? loops.to : loops.from) = p.offset;
  loops.clears = p.scatter && loops.count < strided.elements();
  if (loops.count == 0) return loops;
  int64_t first = p.offset, last = p.offset, plain = loops.count;
  std::vector<StridedAxis> all;
  for (int k = 0; k < walked.rank(); ++k) {
    const int64_t size = walked[k], stride = p.strides[static_cast<size_t>(k)];
    plain /= size;
    (stride < 0 ? first : last) += (size - 1) * stride;
    if (size > 1) all.push_back({size, p.scatter ? plain : stride, p.scatter ? stride : plain});
  }
  if (first < 0 || last >= strided.elements()) {
    throw InvalidArgument("[strided_copy] elements " + std::to_string(first) + " to " +
                          std::to_string(last) + " are not all among the " +
                          std::to_string(strided.elements()) + " elements of " +
                          strided.to_string());
  }
  // Rows of src and dst correspond, if all other loops stay in a row.
  if (walked.rank() > 0 && strided.rank() > 0 && walked[0] == strided[0]) {
    const int64_t row = strided.elements() / strided[0], stride = p.strides[0];
    loops.rows_apart = stride == row && first >= 0 && last - (walked[0] - 1) * stride < row;
  }
  std::stable_sort(all.begin(), all.end(), [](const StridedAxis& a, const StridedAxis& b) {
    return std::abs(a.to) > std::abs(b.to);
  });
  for (const StridedAxis& axis : all) {
    if (!loops.axes.empty()) {
      StridedAxis& outer = loops.axes.back();
      if (outer.from == axis.size * axis.from && outer.to == axis.size * axis.to) {
        outer = {outer.size * axis.size, axis.from, axis.to};
        continue;
      }
    }
    loops.axes.push_back(axis);
  }
  loops.copies = walked.elements() == strided.elements() && p.offset == 0 &&
                 (loops.axes.empty() ||
                  (loops.axes.size() == 1 && loops.axes[0].from == 1 && loops.axes[0].to == 1));
  return loops;
}

}  // namespace lockstep::kernels
