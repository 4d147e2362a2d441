// Helpers for this project's kernels: passes over row-major memory.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/engine/kernels/interface/kernel.h"

namespace lockstep::kernels::cpu {

inline TensorSpec plain_spec(Shape shape, DType dtype = DType::f32) {
  return {std::move(shape), dtype, nullptr};
}

// Calls call() with a null pointer to the element type, f32 or bf16.
template <class Call>
auto with_elements(DType dtype, const Call& call) {
  return dtype == DType::bf16 ? call(static_cast<BFloat16*>(nullptr))
                              : call(static_cast<float*>(nullptr));
}

// Makes a pass from its operands and a function of (reads, writes, scratch, step).
template <class Body>
Pass own_pass_of_all(std::vector<Operand> reads, std::vector<Operand> writes, size_t scratch_bytes,
                     Body given) {
  Pass pass;
  pass.reads = std::move(reads);
  pass.writes = std::move(writes);
  pass.scratch_bytes = scratch_bytes;
  const auto body = std::make_shared<const Body>(std::move(given));
  pass.bind = {[body](const PassMemory& where) {
                 return BoundPass([body, in = std::vector(where.reads.begin(), where.reads.end()),
                                   out = std::vector(where.writes.begin(), where.writes.end()),
                                   scratch = where.scratch](const RandomContext& step) {
                   (*body)(in.data(), out.data(), scratch, step);
                 });
               },
               [body](const PassMemory& where, const RandomContext& step) {
                 (*body)(where.reads.data(), where.writes.data(), where.scratch, step);
               }};
  return pass;
}

// Makes a pass from its operands and a function of (reads, writes, step).
template <class Body>
Pass own_pass(std::vector<Operand> reads, std::vector<Operand> writes, Body body) {
  return own_pass_of_all(
      std::move(reads), std::move(writes), 0,
      [body = std::move(body)](void* const* in, void* const* out, void*,
                               const RandomContext& step) { body(in, out, step); });
}

// Makes a pass with scratch memory from a function of (reads, writes, scratch).
template <class Body>
Pass own_pass_with_scratch(std::vector<Operand> reads, std::vector<Operand> writes,
                           size_t scratch_bytes, Body body) {
  return own_pass_of_all(
      std::move(reads), std::move(writes), scratch_bytes,
      [body = std::move(body)](void* const* in, void* const* out, void* scratch,
                               const RandomContext&) { body(in, out, scratch); });
}

template <class T = float>
const T* in(void* const* operands, int i) {
  return static_cast<const T*>(operands[i]);
}
template <class T = float>
T* out(void* const* operands, int i) {
  return static_cast<T*>(operands[i]);
}

}  // namespace lockstep::kernels::cpu
