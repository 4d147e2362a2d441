// What an update by a solver changes, and where it runs.
#pragma once

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/tables.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// An array of parameters, row-major and f32, with the factors of its learning rate and of l2.
struct UpdateTarget {
  Tensor value;
  double rate_factor = 1, l2_factor = 1;

  IndexRange all() const { return {0, value.shape().elements()}; }
  const kernels::Functions& functions() const { return kernels::functions_for(value.device()); }
  // The default stream of the value's device, to which updates are added.
  void* stream() const { return default_stream_of(value.device()); }
};

inline float* elements_of(const Tensor& tensor) { return static_cast<float*>(tensor.raw()); }
// Address of the first of some elements.
inline float* elements_of(const Tensor& tensor, const IndexRange& range) {
  return elements_of(tensor) + range.first;
}

}  // namespace lockstep
