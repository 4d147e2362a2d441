#include "lockstep/train/shard_group_books.h"

namespace lockstep::detail {

ShardGroupBooks::ShardGroupBooks(int threads) : ledger(threads) {
  const auto open = [&](const char* name) { return ledger.account(StepLedger::Phase::step, name); };
  waiting = ledger.waiting();
  plans = open("plans and layouts");
  inputs = open("inputs of shards");
  losses = open("losses of shards");
  results = open("results of shards");
  sums = open("sums over shards");
  gradients = open("mean gradients");
  statistics = open("moving statistics");
  meanwhile = open("meanwhile");
  between = open("between calls");
}

void ShardGroupBooks::begin_call() {
  end_iteration();
  ledger.begin_iteration();
  under_way_ = true;
  complete_ = false;
}

void ShardGroupBooks::complete_call() {
  complete_ = true;
  if (++completed_ == 2) ledger.drop_earlier();
}

void ShardGroupBooks::end_iteration() {
  if (!under_way_) return;
  under_way_ = false;
  if (!complete_) return ledger.drop_iteration();
  ledger.book(0, between);
  ledger.end_iteration();
}

void ShardGroupBooks::open(const Plan& plan) {
  if (passes.count(&plan) > 0) return;
  using Phase = StepLedger::Phase;
  std::vector<int>& accounts = passes[&plan];
  for (const PlanPass& pass : plan.passes()) {
    accounts.push_back(ledger.account(pass.backward ? Phase::backward : Phase::forward, pass.name));
  }
}

}  // namespace lockstep::detail
