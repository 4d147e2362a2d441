#include <string>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/shapes/strided_axes.h"
#include "lockstep/engine/kernels/shapes/strided_copy.h"

namespace lockstep::kernels::cuda {
namespace {

// As many as fit into the arguments of a launch without cost.
constexpr int kMostLoops = 12;

template <class T>
struct Copy {
  int axes;
  StridedAxis axis[kMostLoops];
  const T* from;
  T* to;
  // Adjacent threads write adjacent elements, where the last loop's steps are short.
  __device__ void operator()(int64_t i) const {
    int64_t source = 0, target = 0;
    for (int k = axes - 1; k > 0; --k) {
      const Division at = divide(i, axis[k].size);
      source += at.remainder * axis[k].from;
      target += at.remainder * axis[k].to;
      i = at.quotient;
    }
    to[target + i * axis[0].to] = from[source + i * axis[0].from];
  }
};

template <class T>
struct Clear {
  T* to;
  __device__ void operator()(int64_t i) const { to[i] = 0; }
};

template <class T>
Pass copying(const StridedCopyProblem& p, const StridedLoops& loops) {
  const TensorSpec dst = plain_spec(p.dst, p.src.dtype);
  Copy<T> copy{};
  copy.axes = static_cast<int>(loops.axes.size());
  std::copy(loops.axes.begin(), loops.axes.end(), copy.axis);
  return own_pass({input(0, p.src.plain())}, {output(0, dst)},
                  [=, all = dst.shape.elements(), clears = loops.clears, count = loops.count,
                   from = loops.from, to = loops.to](const Bound& b) {
                    if (clears) launch_each("strided copy", all, b.stream, Clear<T>{b.out<T>(0)});
                    if (count == 0) return;
                    Copy<T> bound = copy;
                    bound.from = b.in<T>(0) + from;
                    bound.to = b.out<T>(0) + to;
                    launch_each("strided copy", count, b.stream, bound);
                  });
}

}  // namespace

Kernel strided_copy(const StridedCopyProblem& p) {
  const StridedLoops loops = strided_loops(p);
  if (loops.axes.size() > kMostLoops) {
    throw Unsupported("[strided_copy] the GPU supports " + std::to_string(kMostLoops) +
                      " axes, received " + std::to_string(loops.axes.size()));
  }
  Kernel kernel;
  kernel.forward = p.src.dtype == DType::u8    ? copying<uint8_t>(p, loops)
                   : p.src.dtype == DType::i64 ? copying<uint64_t>(p, loops)
                                               : copying<uint32_t>(p, loops);
  kernel.forward.copies = loops.copies;
  kernel.rows_apart = loops.rows_apart;
  return kernel;
}

}  // namespace lockstep::kernels::cuda
