#include "lockstep/engine/kernels/fast_sizes.h"

#include <dnnl.hpp>

#include "lockstep/engine/kernels/cpu/lanes_layout.h"

namespace lockstep::kernels {

int64_t fast_batch_multiple() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wide = static_cast<unsigned>(dnnl_cpu_isa_avx512_core);
  return (isa & wide) == wide ? cpu::kLanes : 1;
}

}  // namespace lockstep::kernels
