#include "lockstep/parallel/reduce/tree.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/backends/functions.h"

namespace lockstep {

int64_t tree_split(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n - 1)));
}

namespace {

void add_subtrees(const IndexRange& node, const IndexRange& range, std::vector<IndexRange>& found) {
  const int64_t end = node.first + node.count, range_end = range.first + range.count;
  if (node.first >= range_end || end <= range.first) return;
  if (node.first >= range.first && end <= range_end) {
    found.push_back(node);
    return;
  }
  const int64_t left = tree_split(node.count);
  add_subtrees({node.first, left}, range, found);
  add_subtrees({node.first + left, node.count - left}, range, found);
}

}  // namespace

std::vector<IndexRange> complete_subtrees(int64_t leaves, const IndexRange& range) {
  std::vector<IndexRange> found;
  if (leaves > 0 && range.count > 0) add_subtrees({0, leaves}, range, found);
  return found;
}

double tree_sum(std::span<const double> values) {
  const auto n = static_cast<int64_t>(values.size());
  if (n == 0) return 0;
  if (n == 1) return values[0];
  const auto left = static_cast<size_t>(tree_split(n));
  return tree_sum(values.first(left)) + tree_sum(values.subspan(left));
}

namespace {

// A deliberate error, to verify that the reproducibility tests detect it.
#ifdef LOCKSTEP_SUMS_IN_ORDER_OF_ARRIVAL
constexpr bool kBreakTheLaw = true;
#else
constexpr bool kBreakTheLaw = false;
#endif

// An inner node. The sibling that arrives first waits in `waiting`.
struct Node {
  int parent = -1;  // -1: a root, whose sum is written to `to`
  float* to = nullptr;
  bool is_left = false;  // whether it is its parent's left child
  std::atomic<float*> waiting{nullptr};
};

}  // namespace

struct TreeReduction::State {
  State(size_t n, Order o) : count(n), order(o) {}

  size_t count;
  Order order;
  Memory result;  // made when it is needed
  // The expected leaves: those of a range, as one tree for each root.
  int64_t leaves = 0;
  IndexRange range;
  std::vector<IndexRange> roots;
  std::vector<float*> targets;   // by root
  std::deque<Node> nodes;        // inner nodes
  std::vector<int> root_nodes;   // by root; -1: a single leaf
  std::vector<int> leaf_parent;  // by leaf of the range
  std::vector<bool> leaf_left;
  std::vector<float*> leaf_to;  // for single leaves
  Mutex mutex;
  std::vector<Memory> memory LOCKSTEP_GUARDED_BY(mutex);
  std::vector<float*> free LOCKSTEP_GUARDED_BY(mutex);
  int64_t arrived LOCKSTEP_GUARDED_BY(mutex) = 0;  // where leaves are added in order of arrival

  void build(int64_t first, int64_t n, int parent, bool is_left) {
    if (n == 1) {
      leaf_parent[static_cast<size_t>(first - range.first)] = parent;
      leaf_left[static_cast<size_t>(first - range.first)] = is_left;
      return;
    }
    const int me = static_cast<int>(nodes.size());
    nodes.emplace_back();
    nodes.back().parent = parent;
    nodes.back().is_left = is_left;
    const int64_t left = tree_split(n);
    build(first, left, me, true);
    build(first + left, n - left, me, false);
  }

  void begin(int64_t all, const IndexRange& own, std::span<float* const> partials) {
    // After a failed step some nodes may still hold arrays.
    for (auto& node : nodes) give(node.waiting.exchange(nullptr));
    forget_arrived();
    if (all != leaves || own != range) {
      leaves = all;
      range = own;
      roots = order == Order::tree ? complete_subtrees(all, own) : std::vector<IndexRange>{own};
      nodes.clear();
      leaf_parent.assign(static_cast<size_t>(own.count), -1);
      leaf_left.assign(static_cast<size_t>(own.count), false);
      leaf_to.assign(static_cast<size_t>(own.count), nullptr);
      root_nodes.clear();
      for (const IndexRange& root : roots) {
        root_nodes.push_back(root.count > 1 ? static_cast<int>(nodes.size()) : -1);
        build(root.first, root.count, -1, false);
      }
    }
    if (partials.size() != roots.size()) {
      throw InvalidArgument("[tree] " + std::to_string(roots.size()) +
                            " partial sums, memory for " + std::to_string(partials.size()));
    }
    targets.assign(partials.begin(), partials.end());
    for (size_t r = 0; r < roots.size(); ++r) {
      if (root_nodes[r] >= 0) {
        nodes[static_cast<size_t>(root_nodes[r])].to = partials[r];
      } else {
        leaf_to[static_cast<size_t>(roots[r].first - range.first)] = partials[r];
      }
    }
  }

  void forget_arrived() LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    arrived = 0;
  }

  float* take() LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    if (free.empty()) {
      memory.push_back(allocate(count * sizeof(float)));
      return memory.back().as<float>();
    }
    float* buffer = free.back();
    free.pop_back();
    return buffer;
  }

  bool add_as_it_comes(const float* values) LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    float* const sum = targets[0];
    if (arrived == 0) {
      std::memcpy(sum, values, count * sizeof(float));
    } else {
      kernels::functions_for({}).add(sum, values, sum, count, nullptr);
    }
    return ++arrived == range.count;
  }

  void give(float* buffer) LOCKSTEP_EXCLUDES(mutex) {
    if (!buffer) return;
    const MutexLock lock(mutex);
    free.push_back(buffer);
  }
};

TreeReduction::TreeReduction(size_t count, Order order)
    : state_(std::make_unique<State>(count, kBreakTheLaw ? Order::of_arrival : order)) {}
TreeReduction::~TreeReduction() = default;

void TreeReduction::begin(int64_t leaves) {
  if (leaves < 1) throw InvalidArgument("[tree] at least one leaf is required");
  float* const whole[] = {result()};
  state_->begin(leaves, {0, leaves}, whole);
}

void TreeReduction::begin(int64_t leaves, const IndexRange& range,
                          std::span<float* const> partials) {
  if (range.first < 0 || range.count < 1 || range.first + range.count > leaves) {
    throw InvalidArgument("[tree] the index range is not within " + std::to_string(leaves) +
                          " leaves");
  }
  state_->begin(leaves, range, partials);
}

std::vector<IndexRange> TreeReduction::roots(int64_t leaves, const IndexRange& range) const {
  if (order() == Order::tree) return complete_subtrees(leaves, range);
  return range.count > 0 ? std::vector<IndexRange>{range} : std::vector<IndexRange>{};
}

TreeReduction::Order TreeReduction::order() const { return state_->order; }

float* TreeReduction::result() const {
  State& s = *state_;
  if (s.result.bytes() < s.count * sizeof(float)) {
    s.result = allocate_zeros(s.count * sizeof(float));
  }
  return s.result.as<float>();
}

bool TreeReduction::add(int64_t leaf, const float* values) {
  State& s = *state_;
  if (s.order == Order::of_arrival) return s.add_as_it_comes(values);
  const auto sum_into = kernels::functions_for({}).add;
  const auto index = static_cast<size_t>(leaf - s.range.first);
  int at = s.leaf_parent[index];
  bool is_left = s.leaf_left[index];
  const float* mine = values;
  float* owned = nullptr;  // the array of `mine`, unless that is the caller's
  while (at >= 0) {
    Node& node = s.nodes[static_cast<size_t>(at)];
    float* other = node.waiting.load(std::memory_order_acquire);
    if (!other) {
      if (!owned) {
        owned = s.take();
        std::memcpy(owned, mine, s.count * sizeof(float));
        mine = owned;
      }
      if (node.waiting.compare_exchange_strong(other, owned, std::memory_order_acq_rel)) {
        return false;  // the sibling's thread continues
      }
    }
    node.waiting.store(nullptr, std::memory_order_relaxed);
    float* const to = node.parent < 0 ? node.to : other;
    sum_into(is_left ? mine : other, is_left ? other : mine, to, s.count, nullptr);
    s.give(owned);
    owned = other;
    mine = other;
    is_left = node.is_left;
    at = node.parent;
    if (at < 0) {
      s.give(owned);
      return true;
    }
  }
  std::memcpy(s.leaf_to[index], values, s.count * sizeof(float));  // a single leaf that is a root
  return true;
}

}  // namespace lockstep
