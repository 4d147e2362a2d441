// What an update by a solver changes, and where it runs.
#pragma once

#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/tensor/tensor.h"

namespace lockstep {

// An array of parameters, row-major and f32, with the factors of its learning rate and of l2.
struct UpdateTarget {
  Tensor value;
  double rate_factor = 1, l2_factor = 1;

  float* elements() const { return static_cast<float*>(value.raw()); }
  size_t count() const { return static_cast<size_t>(value.shape().elements()); }
  const kernels::Table& table() const { return kernels::table_for(value.device()); }
  // The default stream of the value's device, to which updates are added.
  void* stream() const { return default_stream_of(value.device()); }
};

inline float* elements_of(const Tensor& tensor) { return static_cast<float*>(tensor.raw()); }

}  // namespace lockstep
