#include <limits>

#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/interface/element_types.h"
#include "lockstep/engine/kernels/shapes/indexed_axis.h"
#include "lockstep/engine/kernels/shapes/take.h"

namespace lockstep::kernels::cuda {
namespace {

template <class T>
constexpr T kNothing = T{0};
template <>
constexpr float kNothing<float> = std::numeric_limits<float>::quiet_NaN();

// One element of the result.
template <class T>
struct Take {
  const T* src;
  Indices indices;
  T* dst;
  SplitAxis x;
  int64_t count;
  bool per_element;
  T nothing;

  __device__ void operator()(int64_t n) const {
    const Division column = divide(n, x.inner);
    const Division at = divide(column.quotient, count);
    const int64_t index = indices[per_element ? n : at.remainder];
    dst[n] = index >= 0 && index < x.size
                 ? src[(at.quotient * x.size + index) * x.inner + column.remainder]
                 : nothing;
  }
};

}  // namespace

Kernel take(const TakeProblem& p) {
  const char* const op = p.per_element ? "gather" : "take";
  const IndexedAxis axis = indexed_axis(op, p.src.shape, p.indices, p.axis, p.per_element);
  Kernel kernel;
  kernel.forward = with_type(op, p.src.dtype, [&](auto type) {
    using T = decltype(type);
    return own_pass({input(0, p.src.plain()), input(1, p.indices.plain())},
                    {output(0, plain_spec(axis.taken, p.src.dtype))},
                    [axis, nothing = p.zero_outside ? T{0} : kNothing<T>](const Bound& b) {
                      launch_each("take", axis.taken.elements(), b.stream,
                                  Take<T>{b.in<T>(0), axis.indices(b.reads[1]), b.out<T>(0), axis.x,
                                          axis.count, axis.per_element, nothing});
                    });
  });
  return kernel;
}

}  // namespace lockstep::kernels::cuda
