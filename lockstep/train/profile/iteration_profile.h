// The accounts of an iteration. Without a profile, charging costs nothing.
#pragma once

#include <map>
#include <vector>

#include "lockstep/engine/plan/plan.h"
#include "lockstep/train/profile/iteration_profiler.h"

namespace lockstep {

// Accounts of the parts of an iteration outside the passes.
struct IterationAccounts {
  explicit IterationAccounts(IterationProfiler& profiler) {
    const auto open = [&](const char* name) {
      return profiler.account(IterationProfiler::Phase::iteration, name);
    };
    waiting = profiler.waiting();
    plans = open("plans of shards");
    inputs = open("inputs of shards");
    losses = open("losses of shards");
    results = open("results of shards");
    kept = open("results of frozen layers");
    sums = open("sums over shards");
    threshold = open("gradient threshold");
    layouts = open("layouts of gradients");
    gradients = open("mean gradients");
    solver = open("solver");
    packing = open("layouts of parameters");
    digests = open("digests of parameters");
    statistics = open("moving statistics");
    meanwhile = open("next mini-batch");
    between = open("between calls");
  }
  int waiting, plans, inputs, losses, results, kept, sums, threshold, layouts, gradients, solver,
      packing, digests, statistics, meanwhile, between;
};

// Must not change while a thread charges.
struct IterationProfile {
  explicit IterationProfile(IterationProfiler& p) : profiler(p), accounts(p) {}
  // Opens the accounts of a plan's passes.
  void open(const Plan& plan) {
    if (passes.count(&plan) > 0) return;
    using Phase = IterationProfiler::Phase;
    std::vector<int>& all = passes[&plan];
    for (const PlanPass& pass : plan.passes()) {
      all.push_back(profiler.account(pass.backward ? Phase::backward : Phase::forward, pass.name));
    }
  }

  IterationProfiler& profiler;
  IterationAccounts accounts;
  std::map<const Plan*, std::vector<int>> passes;  // accounts of each plan's passes
};

// Charges a thread's time since its last charge to an account. Does nothing without a profile.
class ThreadTimer final : public PassWatch {
 public:
  ThreadTimer(const IterationProfile* profile, int thread) : profile_(profile), thread_(thread) {}
  void operator()(int IterationAccounts::*account) const {
    if (profile_) profile_->profiler.charge(thread_, profile_->accounts.*account);
  }
  // The watch for runs of the plan; null if the plan's accounts are not open.
  PassWatch* watch(const Plan& plan) {
    if (!profile_) return nullptr;
    const auto found = profile_->passes.find(&plan);
    if (found == profile_->passes.end()) return nullptr;
    passes_ = found->second.data();
    return this;
  }
  void passed(size_t pass) override { profile_->profiler.charge(thread_, passes_[pass]); }

 private:
  const IterationProfile* profile_;
  int thread_;
  const int* passes_ = nullptr;
};

}  // namespace lockstep
