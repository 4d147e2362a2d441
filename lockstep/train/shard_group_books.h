// How a ShardGroup keeps its ledger: see ShardGroup::profile().
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/step_ledger.h"

namespace lockstep::detail {

// An iteration lasts from one call of sharded_value_and_gradient() to the next, unless it is ended.
// Accounts are opened between calls only, so what is compiled within one is booked from the next
// call on.
class ShardGroupBooks {
 public:
  explicit ShardGroupBooks(int threads);

  // A call begins, and with it an iteration; the last one ends.
  void begin_call();
  // It did not fail. The first that does not is left out, unless it is the only one: memory is
  // filled and plans are compiled in it.
  void complete_call();
  // The last iteration ends, if there is one under way. One whose call failed is none.
  void end_iteration();
  // The accounts of a plan's passes, for open().
  void open(const Plan& plan);

  StepLedger ledger;
  int waiting, plans, inputs, losses, results, sums, gradients, statistics, meanwhile, between;
  std::map<const Plan*, std::vector<int>> passes;

 private:
  bool under_way_ = false, complete_ = false;
  int64_t completed_ = 0;
};

// Books the time of a thread, or does nothing.
class ShardBookkeeper final : public PassWatch {
 public:
  ShardBookkeeper(ShardGroupBooks* books, int thread) : books_(books), thread_(thread) {}
  void operator()(int ShardGroupBooks::*account) const {
    if (books_) books_->ledger.book(thread_, books_->*account);
  }
  // What a run of that plan is given.
  PassWatch* watch(const Plan* plan) {
    if (!books_) return nullptr;
    const auto found = books_->passes.find(plan);
    if (found == books_->passes.end()) return nullptr;
    passes_ = found->second.data();
    return this;
  }
  void passed(size_t pass) override { books_->ledger.book(thread_, passes_[pass]); }

 private:
  ShardGroupBooks* books_;
  int thread_;
  const int* passes_ = nullptr;
};

}  // namespace lockstep::detail
