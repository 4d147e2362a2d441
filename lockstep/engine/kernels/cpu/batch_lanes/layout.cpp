#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"

#include <hwy/targets.h>

#include <atomic>

#include "lockstep/engine/kernels/cpu/onednn.h"

namespace lockstep::kernels::cpu {
namespace {

std::atomic<bool> lanes_anywhere{false};

}  // namespace

TensorSpec lanes_spec(const Shape& shape, DType dtype) {
  return spec_of({dims_of(shape), data_type(dtype), dnnl::memory::format_tag::bcda});
}

int64_t least_images(DType dtype) {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  const bool wider = (targets & (HWY_AVX2 - 1)) != 0, eight = (targets & HWY_AVX2) != 0 && !wider;
  return eight && dtype == DType::f32 ? kLanes / 2 : kLanes;
}

bool in_lanes(const TensorSpec& spec) {
  return !spec.row_major() && (spec.dtype == DType::f32 || spec.dtype == DType::bf16) &&
         spec.shape.rank() == 4 && spec.shape[0] % least_images(spec.dtype) == 0 &&
         spec == lanes_spec(spec.shape, spec.dtype);
}

bool lanes_are_chosen() {
  // Highway asks for more features than oneDNN does.
  const bool target = (hwy::SupportedTargets() & HWY_TARGETS & (2 * HWY_AVX2 - 1)) != 0;
  return (uses(dnnl_cpu_isa_avx2) && target) || lanes_anywhere;
}

void choose_lanes_anywhere(bool anywhere) { lanes_anywhere = anywhere; }

}  // namespace lockstep::kernels::cpu
