#include <cstring>

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {

Pass reorder(const TensorSpec& from, const TensorSpec& to) {
  SingleThread one;
  const dnnl::reorder::primitive_desc pd(engine(), desc_of(from), engine(), desc_of(to),
                                         attributes());
  return primitive_pass(dnnl::reorder(pd), scratch_of(pd), {{DNNL_ARG_FROM, input(0, from)}},
                        {{DNNL_ARG_TO, output(0, to)}});
}

Pass accumulate(const TensorSpec& spec) {
  const size_t count = spec.bytes() / size_of(spec.dtype);
  return with_elements(spec.dtype, [&]<class T>(T*) {
    return own_pass({input(0, spec), input(1, spec)}, {output(0, spec)},
                    [count](void* const* r, void* const* w, const StepInfo&) {
                      add(in<T>(r, 0), in<T>(r, 1), out<T>(w, 0), count);
                    });
  });
}

Pass zero(const TensorSpec& spec) {
  Pass pass;
  pass.writes = {output(0, spec)};
  pass.bind = [bytes = spec.bytes()](const PassMemory& where) {
    void* const data = where.writes[0];
    return BoundPass([=](const StepInfo&) { std::memset(data, 0, bytes); });
  };
  return pass;
}

}  // namespace lockstep::kernels::cpu
