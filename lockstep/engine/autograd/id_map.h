// Numbers by the ids of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

// Grows only. An id is not 0; open addressing, because tapes look up every tensor of every op.
class IdMap {
 public:
  bool empty() const { return count_ == 0; }
  bool contains(uint64_t id) const { return !slots_.empty() && slots_[slot_of(id)].id == id; }
  // The number of the id, which becomes `number` if it has none yet, and whether it is new.
  std::pair<int, bool> add(uint64_t id, int number = 0) {
    if (2 * count_ >= slots_.size()) grow();
    Slot& slot = slots_[slot_of(id)];
    const bool is_new = slot.id != id;
    if (is_new) {
      slot = {id, number};
      ++count_;
    }
    return {slot.number, is_new};
  }

 private:
  struct Slot {
    uint64_t id = 0;
    int number = 0;
  };

  // Where the id is, or the free slot for it.
  size_t slot_of(uint64_t id) const {
    const size_t mask = slots_.size() - 1;
    size_t at = static_cast<size_t>(id * 0x9E3779B97F4A7C15 >> 32) & mask;
    while (slots_[at].id != 0 && slots_[at].id != id) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Slot> before(slots_.empty() ? 32 : 2 * slots_.size());
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.id != 0) slots_[slot_of(slot.id)] = slot;
    }
  }

  std::vector<Slot> slots_;  // their number is a power of two
  size_t count_ = 0;
};

}  // namespace lockstep
