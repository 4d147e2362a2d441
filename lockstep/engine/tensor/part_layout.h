// Layouts whose parts can be converted one by one, while their elements are in the cache.
#pragma once

#include <cstdint>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/tensor/spec.h"

namespace lockstep {

// Immutable. In host memory.
class PartLayout : public OpaqueLayout {
 public:
  // Number of consecutive row-major elements in a part, at least 1. The last part may be shorter.
  virtual int64_t part() const = 0;
  // from_row_major() for some elements: whole parts. Both addresses are those of the whole tensor.
  // Thread-safe for different parts.
  virtual void part_from_row_major(const void* source, void* destination,
                                   const IndexRange& elements) const = 0;
};

// Null if the layout has no parts.
inline const PartLayout* parts_of(const TensorSpec& spec) {
  return dynamic_cast<const PartLayout*>(spec.layout.get());
}

}  // namespace lockstep
