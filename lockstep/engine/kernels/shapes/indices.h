// Indices in memory, of either type.
#pragma once

#include <cstdint>

#include "lockstep/engine/kernels/interface/host_device.h"

namespace lockstep::kernels {

struct Indices {
  const void* data = nullptr;
  bool wide = false;  // i64, otherwise i32

  LOCKSTEP_HOST_DEVICE int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(data)[i] : static_cast<const int32_t*>(data)[i];
  }
};

}  // namespace lockstep::kernels
