#include "lockstep/train/iteration/devices/device_sum.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/engine/kernels/backends/functions.h"

namespace lockstep {

DeviceSum::DeviceSum(Device device, size_t bytes, size_t most_leaves)
    : device_(device),
      memory_(memory_of(device)),
      functions_(kernels::functions_for(device)),
      bytes_(bytes),
      leaves_(most_leaves) {}

void* DeviceSum::leaf(size_t j) {
  if (leaves_[j].data() == nullptr) {
    leaves_[j] = allocate(bytes_, device_);
    listed_ = false;
  }
  return leaves_[j].data();
}

void DeviceSum::forget_leaves() {
  for (size_t j = 1; j < leaves_.size(); ++j) leaves_[j] = {};
  listed_ = false;
}

void DeviceSum::prepare(const IndexRange& own) {
  for (int64_t j = own.first; j < own.end(); ++j) leaf(static_cast<size_t>(j));
  if (listed_) return;
  std::vector<const void*> addresses;
  for (const Memory& leaf : leaves_) addresses.push_back(leaf.data());
  const size_t bytes = addresses.size() * sizeof addresses[0];
  if (addresses_.bytes() < bytes) addresses_ = allocate(bytes, device_);
  memory_.copy_from_host(addresses_.data(), addresses.data(), bytes, memory_.default_stream());
  listed_ = true;
}

// A sum replaces its first leaf.
void DeviceSum::add_own(std::span<const IndexRange> subtrees, void* stream) {
  for (const IndexRange& subtree : subtrees) {
    if (subtree.count == 1) continue;
    functions_.sum_leaves(addresses_.as<const float*>() + subtree.first, subtree.count,
                          static_cast<float*>(leaf(static_cast<size_t>(subtree.first))),
                          bytes_ / sizeof(float), stream);
  }
}

// The additions over members for a slice of the elements.
void DeviceSum::add_over_members(const SumSchedule& schedule, const IndexRange& slice) {
  std::vector<size_t> stack;  // first leaves
  for (const SumSchedule::Term& term : schedule.terms) {
    stack.push_back(
        static_cast<size_t>(schedule.subtrees[static_cast<size_t>(term.rank)][term.number].first));
    for (int k = 0; k < term.additions; ++k) {
      const size_t right = stack.back();
      stack.pop_back();
      add_pair(stack.back(), right, slice);
    }
  }
}

void DeviceSum::add_pair(size_t left, size_t right, const IndexRange& slice) {
  auto* const sum = static_cast<float*>(leaf(left)) + slice.first;
  functions_.add(sum, static_cast<const float*>(leaf(right)) + slice.first, sum,
                 static_cast<size_t>(slice.count), memory_.default_stream());
}

void DeviceSum::exchange(Group& group, const SumSchedule& schedule, const TimeLimit& limit) {
  const std::vector<std::vector<IndexRange>>& subtrees = schedule.subtrees;
  std::vector<size_t> sizes;
  for (const auto& own : subtrees) sizes.push_back(own.size() * bytes_);
  const auto rank = static_cast<size_t>(group.rank());
  const size_t all = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
  void* const stream = memory_.default_stream();
  memory_.synchronize(stream);  // until the sums of the last exchange are copied
  // The part that this member sends lies after the parts that all members have sent.
  if (room_ < all + sizes[rank]) {
    room_ = all + sizes[rank];
    partials_ = std::make_unique<Pinned>(memory_, room_);
  }
  std::byte* const mine = partials_->data() + all;
  for (size_t i = 0; i < subtrees[rank].size(); ++i) {
    const auto from = static_cast<size_t>(subtrees[rank][i].first);
    memory_.copy_to_host(mine + i * bytes_, leaf(from), bytes_, stream);
  }
  memory_.synchronize(stream);
  group.all_gather({mine, sizes[rank]}, sizes, {partials_->data(), all}, limit);
  const std::byte* from = partials_->data();
  for (size_t r = 0; r < subtrees.size(); ++r) {
    for (const IndexRange& subtree : subtrees[r]) {
      if (r != rank) {
        memory_.copy_from_host(leaf(static_cast<size_t>(subtree.first)), from, bytes_, stream);
      }
      from += bytes_;
    }
  }
  add_over_members(schedule, all_elements());
}

DeviceTransfer DeviceSum::transfer(int64_t leaf, int rank, const IndexRange& slice) {
  return {rank, static_cast<float*>(this->leaf(static_cast<size_t>(leaf))) + slice.first,
          static_cast<size_t>(slice.count) * sizeof(float)};
}

void DeviceSum::exchange(DeviceLinks& links, const SumSchedule& schedule, const TimeLimit& limit) {
  const int own = links.rank();
  const auto slice = [&](int rank) { return slice_of(bytes_ / sizeof(float), rank, links.size()); };
  const auto subtrees = [&](int rank) -> const std::vector<IndexRange>& {
    return schedule.subtrees[static_cast<size_t>(rank)];
  };
  std::vector<DeviceTransfer> partials_out, partials_in, sums_out, sums_in;
  const auto note = [](std::vector<DeviceTransfer>& all, const DeviceTransfer& t) {
    if (t.bytes > 0) all.push_back(t);
  };
  for (int r = 0; r < links.size(); ++r) {
    if (r == own) continue;
    for (const IndexRange& sum : subtrees(own))
      note(partials_out, transfer(sum.first, r, slice(r)));
    for (const IndexRange& sum : subtrees(r)) note(partials_in, transfer(sum.first, r, slice(own)));
    note(sums_out, transfer(0, r, slice(own)));
    note(sums_in, transfer(0, r, slice(r)));
  }
  links.exchange(partials_out, partials_in, limit);
  add_over_members(schedule, slice(own));
  links.exchange(sums_out, sums_in, limit);
  links.finish(limit);
}

}  // namespace lockstep
