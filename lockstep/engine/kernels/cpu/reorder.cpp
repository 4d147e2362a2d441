#include <cstring>

#include "lockstep/engine/kernels/cpu/cpu.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
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
  Pass pass;
  pass.reads = {input(0, spec), input(1, spec)};
  pass.writes = {output(0, spec)};
  const size_t count = spec.bytes() / sizeof(float);
  pass.bind = [count](const PassMemory& where) {
    const auto* a = static_cast<const float*>(where.reads[0]);
    const auto* b = static_cast<const float*>(where.reads[1]);
    auto* sum = static_cast<float*>(where.writes[0]);
    return BoundPass([=](const StepInfo&) { add(a, b, sum, count); });
  };
  return pass;
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
