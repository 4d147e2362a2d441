#include "lockstep/train/device_sum.h"

#include <algorithm>
#include <numeric>

namespace lockstep {

DeviceSum::DeviceSum(Device device, size_t bytes, size_t most_leaves)
    : device_(device),
      memory_(memory_of(device)),
      table_(kernels::table_for(device)),
      bytes_(bytes),
      leaves_(most_leaves) {}

void* DeviceSum::leaf(size_t j) {
  if (leaves_[j].data() == nullptr) leaves_[j] = allocate(bytes_, device_);
  return leaves_[j].data();
}

void DeviceSum::forget_leaves() {
  for (size_t j = 1; j < leaves_.size(); ++j) leaves_[j] = {};
}

void DeviceSum::add_own(size_t leaves, const LeafRun& own) {
  for (const LeafRun& root : complete_subtrees(static_cast<int64_t>(leaves), own)) {
    add(static_cast<size_t>(root.first), static_cast<size_t>(root.count));
  }
}

// The fixed tree over leaves [first, first + count): the sum replaces the first one.
void DeviceSum::add(size_t first, size_t count) {
  if (count == 1) return;
  const auto left = static_cast<size_t>(tree_split(static_cast<int64_t>(count)));
  add(first, left);
  add(first + left, count - left);
  add_pair(first, first + left, whole());
}

// The same, for some elements, where sums within one member's run are there already.
void DeviceSum::add_over_members(size_t first, size_t count, std::span<const LeafRun> dealt,
                                 const Slice& slice) {
  const auto begin = static_cast<int64_t>(first), end = begin + static_cast<int64_t>(count);
  const bool there = std::any_of(dealt.begin(), dealt.end(), [&](const LeafRun& run) {
    return run.first <= begin && end <= run.first + run.count;
  });
  if (there) return;
  const auto left = static_cast<size_t>(tree_split(static_cast<int64_t>(count)));
  add_over_members(first, left, dealt, slice);
  add_over_members(first + left, count - left, dealt, slice);
  add_pair(first, first + left, slice);
}

void DeviceSum::add_pair(size_t left, size_t right, const Slice& slice) {
  auto* const sum = static_cast<float*>(leaf(left)) + slice.first;
  table_.add(sum, static_cast<const float*>(leaf(right)) + slice.first, sum, slice.count,
             memory_.default_queue());
}

void DeviceSum::exchange(Group& group, size_t leaves, std::span<const LeafRun> dealt,
                         const TimeLimit& limit) {
  std::vector<std::vector<LeafRun>> roots;
  std::vector<size_t> sizes;
  for (const LeafRun& run : dealt) {
    roots.push_back(complete_subtrees(static_cast<int64_t>(leaves), run));
    sizes.push_back(roots.back().size() * bytes_);
  }
  const auto rank = static_cast<size_t>(group.rank());
  const size_t all = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
  void* const queue = memory_.default_queue();
  memory_.synchronize(queue);  // until the copies of the last exchange's sums are made
  // What this member sends lies behind what all have sent.
  if (room_ < all + sizes[rank]) {
    room_ = all + sizes[rank];
    partials_ = std::make_unique<Pinned>(memory_, room_);
  }
  std::byte* const mine = partials_->data() + all;
  for (size_t i = 0; i < roots[rank].size(); ++i) {
    const auto from = static_cast<size_t>(roots[rank][i].first);
    memory_.copy_to_host(mine + i * bytes_, leaf(from), bytes_, queue);
  }
  memory_.synchronize(queue);
  group.all_gather({mine, sizes[rank]}, sizes, {partials_->data(), all}, limit);
  const std::byte* from = partials_->data();
  for (size_t r = 0; r < roots.size(); ++r) {
    for (const LeafRun& root : roots[r]) {
      if (r != rank) {
        memory_.copy_from_host(leaf(static_cast<size_t>(root.first)), from, bytes_, queue);
      }
      from += bytes_;
    }
  }
  add_over_members(0, leaves, dealt, whole());
}

DeviceTransfer DeviceSum::transfer(int64_t leaf, int rank, const Slice& slice) {
  return {rank, static_cast<float*>(this->leaf(static_cast<size_t>(leaf))) + slice.first,
          slice.count * sizeof(float)};
}

void DeviceSum::exchange(DeviceLinks& links, size_t leaves, std::span<const LeafRun> dealt,
                         const TimeLimit& limit) {
  const int own = links.rank();
  const auto slice = [&](int rank) { return slice_of(whole().count, rank, links.size()); };
  const auto roots = [&](int rank) {
    return complete_subtrees(static_cast<int64_t>(leaves), dealt[static_cast<size_t>(rank)]);
  };
  std::vector<DeviceTransfer> partials_out, partials_in, sums_out, sums_in;
  const auto note = [](std::vector<DeviceTransfer>& all, const DeviceTransfer& t) {
    if (t.bytes > 0) all.push_back(t);
  };
  for (int r = 0; r < links.size(); ++r) {
    if (r == own) continue;
    for (const LeafRun& root : roots(own)) note(partials_out, transfer(root.first, r, slice(r)));
    for (const LeafRun& root : roots(r)) note(partials_in, transfer(root.first, r, slice(own)));
    note(sums_out, transfer(0, r, slice(own)));
    note(sums_in, transfer(0, r, slice(r)));
  }
  links.exchange(partials_out, partials_in, limit);
  add_over_members(0, leaves, dealt, slice(own));
  links.exchange(sums_out, sums_in, limit);
  links.finish(limit);
}

}  // namespace lockstep
