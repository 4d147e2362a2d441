#include "lockstep/engine/kernels/elementwise/cast.h"

#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/interface/element_types.h"

namespace lockstep::kernels::cpu {
namespace {

template <class From, class To>
LOCKSTEP_INLINE void cast_all(const From* from, To* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = cast_to<To>(from[i]);
}

}  // namespace

Kernel cast(const CastProblem& p) {
  const TensorSpec src = p.src.plain(), dst = plain_spec(src.shape, p.to);
  Kernel kernel;
  kernel.forward = with_type("cast", src.dtype, [&]<class From>(From) {
    return with_type("cast", p.to, [&]<class To>(To) {
      return own_pass(
          {input(0, src)}, {output(0, dst)},
          [count = src.shape.elements()](void* const* r, void* const* w, const RandomContext&) {
            cast_all(in<From>(r, 0), out<To>(w, 0), count);
          });
    });
  });
  kernel.rows_apart = src.shape.rank() > 0;
  return kernel;
}

}  // namespace lockstep::kernels::cpu
