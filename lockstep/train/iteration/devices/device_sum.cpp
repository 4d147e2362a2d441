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
void DeviceSum::add_own(size_t leaves, const IndexRange& own, void* stream) {
  for (const IndexRange& root : complete_subtrees(static_cast<int64_t>(leaves), own)) {
    if (root.count == 1) continue;
    functions_.sum_leaves(addresses_.as<const float*>() + root.first, root.count,
                          static_cast<float*>(leaf(static_cast<size_t>(root.first))),
                          bytes_ / sizeof(float), stream);
  }
}

// The fixed tree over leaves [first, first + count) for a slice of the elements. The sums within
// each member's index range exist already.
void DeviceSum::add_over_members(size_t first, size_t count, std::span<const IndexRange> partition,
                                 const IndexRange& slice) {
  const auto begin = static_cast<int64_t>(first), end = begin + static_cast<int64_t>(count);
  const bool there = std::any_of(partition.begin(), partition.end(), [&](const IndexRange& run) {
    return run.first <= begin && end <= run.first + run.count;
  });
  if (there) return;
  const auto left = static_cast<size_t>(tree_split(static_cast<int64_t>(count)));
  add_over_members(first, left, partition, slice);
  add_over_members(first + left, count - left, partition, slice);
  add_pair(first, first + left, slice);
}

void DeviceSum::add_pair(size_t left, size_t right, const IndexRange& slice) {
  auto* const sum = static_cast<float*>(leaf(left)) + slice.first;
  functions_.add(sum, static_cast<const float*>(leaf(right)) + slice.first, sum,
                 static_cast<size_t>(slice.count), memory_.default_stream());
}

void DeviceSum::exchange(Group& group, size_t leaves, std::span<const IndexRange> partition,
                         const TimeLimit& limit) {
  std::vector<std::vector<IndexRange>> roots;
  std::vector<size_t> sizes;
  for (const IndexRange& run : partition) {
    roots.push_back(complete_subtrees(static_cast<int64_t>(leaves), run));
    sizes.push_back(roots.back().size() * bytes_);
  }
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
  for (size_t i = 0; i < roots[rank].size(); ++i) {
    const auto from = static_cast<size_t>(roots[rank][i].first);
    memory_.copy_to_host(mine + i * bytes_, leaf(from), bytes_, stream);
  }
  memory_.synchronize(stream);
  group.all_gather({mine, sizes[rank]}, sizes, {partials_->data(), all}, limit);
  const std::byte* from = partials_->data();
  for (size_t r = 0; r < roots.size(); ++r) {
    for (const IndexRange& root : roots[r]) {
      if (r != rank) {
        memory_.copy_from_host(leaf(static_cast<size_t>(root.first)), from, bytes_, stream);
      }
      from += bytes_;
    }
  }
  add_over_members(0, leaves, partition, whole());
}

DeviceTransfer DeviceSum::transfer(int64_t leaf, int rank, const IndexRange& slice) {
  return {rank, static_cast<float*>(this->leaf(static_cast<size_t>(leaf))) + slice.first,
          static_cast<size_t>(slice.count) * sizeof(float)};
}

void DeviceSum::exchange(DeviceLinks& links, size_t leaves, std::span<const IndexRange> partition,
                         const TimeLimit& limit) {
  const int own = links.rank();
  const auto slice = [&](int rank) { return slice_of(bytes_ / sizeof(float), rank, links.size()); };
  const auto roots = [&](int rank) {
    return complete_subtrees(static_cast<int64_t>(leaves), partition[static_cast<size_t>(rank)]);
  };
  std::vector<DeviceTransfer> partials_out, partials_in, sums_out, sums_in;
  const auto note = [](std::vector<DeviceTransfer>& all, const DeviceTransfer& t) {
    if (t.bytes > 0) all.push_back(t);
  };
  for (int r = 0; r < links.size(); ++r) {
    if (r == own) continue;
    for (const IndexRange& root : roots(own)) note(partials_out, transfer(root.first, r, slice(r)));
    for (const IndexRange& root : roots(r)) note(partials_in, transfer(root.first, r, slice(own)));
    note(sums_out, transfer(0, r, slice(own)));
    note(sums_in, transfer(0, r, slice(r)));
  }
  links.exchange(partials_out, partials_in, limit);
  add_over_members(0, leaves, partition, slice(own));
  links.exchange(sums_out, sums_in, limit);
  links.finish(limit);
}

}  // namespace lockstep
