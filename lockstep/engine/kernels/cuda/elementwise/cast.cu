#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/elementwise/cast.h"
#include "lockstep/engine/kernels/interface/element_types.h"

namespace lockstep::kernels::cuda {
namespace {

template <class From, class To>
struct Cast {
  const From* from;
  To* to;
  __device__ void operator()(int64_t i) const { to[i] = cast_to<To>(from[i]); }
};

}  // namespace

Kernel cast(const CastProblem& p) {
  const TensorSpec src = p.src.plain(), dst = plain_spec(src.shape, p.to);
  Kernel kernel;
  kernel.forward = with_type("cast", src.dtype, [&](auto from) {
    return with_type("cast", p.to, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      return own_pass(
          {input(0, src)}, {output(0, dst)}, [count = src.shape.elements()](const Bound& b) {
            launch_each("cast", count, b.stream, Cast<From, To>{b.in<From>(0), b.out<To>(0)});
          });
    });
  });
  return kernel;
}

}  // namespace lockstep::kernels::cuda
