#include "lockstep/parallel/reduce/tree.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/kernels/backends/functions.h"

namespace lockstep {

namespace {

// A deliberate error, to verify that the reproducibility tests detect it.
#ifdef LOCKSTEP_SUMS_IN_ORDER_OF_ARRIVAL
constexpr bool kBreakTheLaw = true;
#else
constexpr bool kBreakTheLaw = false;
#endif

// An addition. The operand that arrives first waits.
struct Node {
  SumNodes::Parent parent;
  float* to = nullptr;  // without a parent: where the sum is written
  std::atomic<float*> waiting{nullptr};
};

}  // namespace

struct TreeReduction::State {
  State(size_t n, Order o) : count(n), order(o) {}

  size_t count;
  Order order;
  Memory result;  // made when it is needed
  // The expected leaves: those of subtrees, one after another.
  std::vector<IndexRange> subtrees;
  int64_t first = 0, leaves = 0;
  std::vector<float*> targets;  // by subtree
  std::deque<Node> nodes;       // by addition
  std::vector<SumNodes::Parent> leaf_parents;
  std::vector<float*> leaf_to;  // of subtrees of one leaf
  Mutex mutex;
  std::vector<Memory> memory LOCKSTEP_GUARDED_BY(mutex);
  std::vector<float*> free LOCKSTEP_GUARDED_BY(mutex);
  int64_t arrived LOCKSTEP_GUARDED_BY(mutex) = 0;  // where leaves are added in order of arrival

  void build() {
    first = subtrees.front().first;
    leaves = subtrees.back().end() - first;
    nodes.clear();
    leaf_parents.clear();
    for (const IndexRange& subtree : subtrees) {
      const SumNodes own(sum_terms(subtree));
      const int before = static_cast<int>(nodes.size());
      const auto numbered = [&](SumNodes::Parent parent) {
        if (parent.addition >= 0) parent.addition += before;
        return parent;
      };
      for (const auto& parent : own.of_terms) leaf_parents.push_back(numbered(parent));
      for (const auto& parent : own.of_additions) nodes.emplace_back().parent = numbered(parent);
    }
    leaf_to.assign(static_cast<size_t>(leaves), nullptr);
  }

  void begin(std::span<const IndexRange> wanted, std::span<float* const> partials) {
    // After a failed step some nodes may still hold arrays.
    for (auto& node : nodes) give(node.waiting.exchange(nullptr));
    forget_arrived();
    if (!std::ranges::equal(wanted, subtrees)) {
      subtrees.assign(wanted.begin(), wanted.end());
      build();
    }
    if (partials.size() != subtrees.size()) {
      throw InvalidArgument("[tree] " + std::to_string(subtrees.size()) +
                            " partial sums, memory for " + std::to_string(partials.size()));
    }
    targets.assign(partials.begin(), partials.end());
    // The last addition of a subtree completes it.
    size_t node = 0;
    for (size_t i = 0; i < subtrees.size(); ++i) {
      node += static_cast<size_t>(subtrees[i].count) - 1;
      if (subtrees[i].count > 1) {
        nodes[node - 1].to = partials[i];
      } else {
        leaf_to[static_cast<size_t>(subtrees[i].first - first)] = partials[i];
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
    return ++arrived == leaves;
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
  const IndexRange all{0, leaves};
  float* const sum = result();
  state_->begin({&all, 1}, {&sum, 1});
}

void TreeReduction::begin(std::span<const IndexRange> subtrees, std::span<float* const> partials) {
  if (subtrees.empty()) throw InvalidArgument("[tree] at least one leaf is required");
  state_->begin(subtrees, partials);
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
  const auto index = static_cast<size_t>(leaf - s.first);
  SumNodes::Parent at = s.leaf_parents[index];
  const float* mine = values;
  float* owned = nullptr;  // the array of `mine`, unless that is the caller's
  while (at.addition >= 0) {
    Node& node = s.nodes[static_cast<size_t>(at.addition)];
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
    float* const to = node.parent.addition < 0 ? node.to : other;
    sum_into(at.left ? mine : other, at.left ? other : mine, to, s.count, nullptr);
    s.give(owned);
    owned = other;
    mine = other;
    at = node.parent;
    if (at.addition < 0) {
      s.give(owned);
      return true;
    }
  }
  std::memcpy(s.leaf_to[index], values, s.count * sizeof(float));  // a subtree of one leaf
  return true;
}

}  // namespace lockstep
