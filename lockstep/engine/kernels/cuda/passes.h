// Helpers to make passes from launches.
#pragma once

#include <utility>
#include <vector>

#include "lockstep/engine/kernels/cuda/shapes/layout.h"
#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels::cuda {

// The memory of a bound pass. All addresses are in the device's memory.
struct Bound {
  std::vector<void*> reads, writes;
  void* scratch = nullptr;
  void* stream = nullptr;
  const RandomContext* step = nullptr;

  template <class T = float>
  const T* in(int i) const {
    return static_cast<const T*>(reads[static_cast<size_t>(i)]);
  }
  template <class T = float>
  T* out(int i) const {
    return static_cast<T*>(writes[static_cast<size_t>(i)]);
  }
};

// Makes a pass from its operands and a function that adds its launches.
template <class Body>
Pass own_pass(std::vector<Operand> reads, std::vector<Operand> writes, Body body,
              size_t scratch_bytes = 0) {
  Pass pass;
  pass.reads = std::move(reads);
  pass.writes = std::move(writes);
  pass.scratch_bytes = scratch_bytes;
  pass.bind = [body = std::move(body)](const PassMemory& where) {
    Bound bound{{where.reads.begin(), where.reads.end()},
                {where.writes.begin(), where.writes.end()},
                where.scratch,
                where.stream,
                where.device_step};
    return BoundPass([body, bound = std::move(bound)](const RandomContext&) { body(bound); });
  };
  return pass;
}

inline TensorSpec plain_spec(Shape shape, DType dtype = DType::f32) {
  return {std::move(shape), dtype, nullptr};
}

}  // namespace lockstep::kernels::cuda
