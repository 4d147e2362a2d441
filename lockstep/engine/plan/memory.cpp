#include <algorithm>
#include <numeric>

#include "lockstep/engine/plan/compile.h"

namespace lockstep {

size_t place_buffers(std::vector<PlanBuffer>& buffers) {
  constexpr size_t kAlignment = 64;
  // A line between buffers, so that rows of two of them do not always meet in one cache set.
  const auto size_of_buffer = [](const PlanBuffer& b) {
    return (b.spec.bytes() + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  };
  std::vector<size_t> order;
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].place == PlanBuffer::Place::arena && buffers[i].first <= buffers[i].last) {
      order.push_back(i);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return size_of_buffer(buffers[a]) > size_of_buffer(buffers[b]);
  });
  std::vector<size_t> placed;  // by offset
  size_t total = 0;
  for (size_t i : order) {
    PlanBuffer& buffer = buffers[i];
    const size_t size = size_of_buffer(buffer);
    size_t offset = 0;
    for (size_t j : placed) {
      const PlanBuffer& other = buffers[j];
      if (other.last < buffer.first || buffer.last < other.first) continue;
      if (offset + size <= other.offset) break;
      offset = std::max(offset, other.offset + size_of_buffer(other));
    }
    buffer.offset = offset;
    total = std::max(total, offset + size);
    check_allocatable(total);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                   [&](size_t at, size_t j) { return at < buffers[j].offset; }),
                  i);
  }
  return total;
}

}  // namespace lockstep
