#include "lockstep/train/tree.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/table.h"
#include "lockstep/engine/tensor/allocator.h"

namespace lockstep {

int64_t tree_split(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n - 1)));
}

double tree_sum(std::span<const double> values) {
  const auto n = static_cast<int64_t>(values.size());
  if (n == 0) return 0;
  if (n == 1) return values[0];
  const auto left = static_cast<size_t>(tree_split(n));
  return tree_sum(values.first(left)) + tree_sum(values.subspan(left));
}

namespace {

// On purpose: tests of the law are run with this to show that they notice.
#ifdef LOCKSTEP_SUMS_IN_ORDER_OF_ARRIVAL
constexpr bool kBreakTheLaw = true;
#else
constexpr bool kBreakTheLaw = false;
#endif

// An inner node: the sibling that came first waits in `waiting`.
struct Node {
  int parent = -1;
  bool is_left = false;  // of its parent
  std::atomic<float*> waiting{nullptr};
};

}  // namespace

struct TreeReduction::State {
  State(size_t n, Order o) : count(n), order(o), result(allocate_zeros(n * sizeof(float))) {}

  size_t count;
  Order order;
  Memory result;
  int64_t leaves = 0;
  std::deque<Node> nodes;        // inner nodes, the root first
  std::vector<int> leaf_parent;  // by leaf
  std::vector<bool> leaf_left;
  std::mutex mutex;
  std::vector<Memory> memory;
  std::vector<float*> free;
  int64_t arrived = 0;

  void build(int64_t first, int64_t n, int parent, bool is_left) {
    if (n == 1) {
      leaf_parent[static_cast<size_t>(first)] = parent;
      leaf_left[static_cast<size_t>(first)] = is_left;
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

  float* take() {
    std::lock_guard lock(mutex);
    if (free.empty()) {
      memory.push_back(allocate(count * sizeof(float)));
      return memory.back().as<float>();
    }
    float* buffer = free.back();
    free.pop_back();
    return buffer;
  }

  bool add_as_it_comes(const float* values) {
    const std::lock_guard lock(mutex);
    float* const sum = result.as<float>();
    if (arrived == 0) {
      std::memcpy(sum, values, count * sizeof(float));
    } else {
      kernels::table_for({}).add(sum, values, sum, count, nullptr);
    }
    return ++arrived == leaves;
  }

  void give(float* buffer) {
    if (!buffer) return;
    std::lock_guard lock(mutex);
    free.push_back(buffer);
  }
};

TreeReduction::TreeReduction(size_t count, Order order)
    : state_(std::make_unique<State>(count, kBreakTheLaw ? Order::of_arrival : order)) {}
TreeReduction::~TreeReduction() = default;

void TreeReduction::begin(int64_t leaves) {
  if (leaves < 1) throw InvalidArgument("[tree] at least one leaf wanted");
  State& s = *state_;
  // After a step that failed some nodes may still hold arrays.
  for (auto& node : s.nodes) s.give(node.waiting.exchange(nullptr));
  if (leaves != s.leaves) {
    s.leaves = leaves;
    s.nodes.clear();
    s.leaf_parent.assign(static_cast<size_t>(leaves), -1);
    s.leaf_left.assign(static_cast<size_t>(leaves), false);
    s.build(0, leaves, -1, false);
  }
  s.arrived = 0;
}

float* TreeReduction::result() const { return state_->result.as<float>(); }

bool TreeReduction::add(int64_t leaf, const float* values) {
  State& s = *state_;
  if (s.order == Order::of_arrival) return s.add_as_it_comes(values);
  const auto sum_into = kernels::table_for({}).add;
  int at = s.leaf_parent[static_cast<size_t>(leaf)];
  bool is_left = s.leaf_left[static_cast<size_t>(leaf)];
  const float* mine = values;
  float* owned = nullptr;  // the array behind `mine` once it is not the caller's
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
        return false;  // the sibling goes on
      }
    }
    node.waiting.store(nullptr, std::memory_order_relaxed);
    float* to = node.parent < 0 ? s.result.as<float>() : other;
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
  std::memcpy(s.result.data(), values, s.count * sizeof(float));  // the only leaf
  return true;
}

}  // namespace lockstep
