// How a sharded step keeps its ledger: accounts opened once, bookings that cost nothing without
// one. A Bookkeeper is for one thread; StepBooks change only while no thread books.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/step_ledger.h"

namespace lockstep {

// Accounts of a step's parts around the passes.
struct StepAccounts {
  explicit StepAccounts(StepLedger& ledger) {
    const auto open = [&](const char* name) {
      return ledger.account(StepLedger::Phase::step, name);
    };
    waiting = ledger.waiting();
    plans = open("plans of shards");
    inputs = open("inputs of shards");
    losses = open("losses of shards");
    sums = open("sums over shards");
    threshold = open("gradient threshold");
    layouts = open("layouts of gradients");
    solver = open("solver");
    packing = open("layouts of learnables");
    digests = open("digests of learnables");
    statistics = open("moving statistics");
    meanwhile = open("next mini-batch");
  }
  int waiting, plans, inputs, losses, sums, threshold, layouts, solver, packing, digests,
      statistics, meanwhile;
};

// Where a training is followed: its ledger, its accounts, and those of each plan's passes.
struct StepBooks {
  explicit StepBooks(StepLedger& l) : ledger(l), accounts(l) {}
  StepLedger& ledger;
  StepAccounts accounts;
  // By the shard's size: accounts of its plan's passes, and how many there were.
  std::map<int64_t, std::vector<int>> passes;
  std::map<int64_t, int64_t> shards;
};

// Books the time of a thread, or does nothing.
class Bookkeeper final : public PassWatch {
 public:
  Bookkeeper(const StepBooks* books, int thread) : books_(books), thread_(thread) {}
  Bookkeeper(const StepBooks* books, int thread, int64_t size) : Bookkeeper(books, thread) {
    if (books) passes_ = books->passes.at(size).data();
  }
  void operator()(int StepAccounts::*account) const {
    if (books_) books_->ledger.book(thread_, books_->accounts.*account);
  }
  void passed(size_t pass) override { books_->ledger.book(thread_, passes_[pass]); }
  // What runs of a plan are given.
  PassWatch* watch() { return books_ ? this : nullptr; }

 private:
  const StepBooks* books_;
  int thread_;
  const int* passes_ = nullptr;
};

}  // namespace lockstep
