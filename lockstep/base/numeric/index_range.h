// A range of consecutive indices: shards of a mini-batch, observations of a shard, leaves of a
// tree.
#pragma once

#include <cstdint>

namespace lockstep {

// Indices in [first, first + count).
struct IndexRange {
  int64_t first = 0, count = 0;
  int64_t end() const { return first + count; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

}  // namespace lockstep
