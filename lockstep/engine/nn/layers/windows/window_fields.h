// Fields of layers that slide a window along one, two or three axes.
#pragma once

#include "lockstep/base/fields.h"
#include "lockstep/engine/kernels/windows/window.h"

namespace lockstep {

inline kernels::Sizes sizes_of(int64_t size) { return {size}; }
template <size_t axes>
kernels::Sizes sizes_of(const std::array<int64_t, axes>& sizes) {
  return sizes;
}

inline void visit_sizes(FieldVisitor& v, const char* name, int64_t& size, const char* help) {
  v.integer(name, size, help, {.min = 1, .max = 1 << 14});
}
template <size_t axes>
void visit_sizes(FieldVisitor& v, const char* name, std::array<int64_t, axes>& sizes,
                 const char* help) {
  v.size(name, sizes, help, {.min = 1, .max = 1 << 14});
}

}  // namespace lockstep
