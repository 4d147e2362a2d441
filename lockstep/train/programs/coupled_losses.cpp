// Finds losses whose observations depend on each other, which have no sum over shards.
#include <cstdint>
#include <cstring>
#include <typeindex>

#include "lockstep/engine/nn/lowering.h"
#include "lockstep/train/programs/function_program.h"
#include "lockstep/train/programs/shard_state.h"

namespace lockstep {
namespace {

// The rows with the first one replaced by another one, or nothing if all are the same.
std::vector<Tensor> with_another_row(const std::vector<Tensor>& rows) {
  std::vector<Tensor> changed;
  for (const Tensor& t : rows) changed.push_back(t.to({}).clone());
  const auto row_of = [](const Tensor& t, int64_t row) {
    const size_t bytes = t.bytes() / static_cast<size_t>(t.shape()[0]);
    return std::pair(static_cast<std::byte*>(t.raw()) + static_cast<size_t>(row) * bytes, bytes);
  };
  for (int64_t row = 1; row < changed[0].shape()[0]; ++row) {
    bool same = true;
    for (const Tensor& t : changed) {
      const auto [other, bytes] = row_of(t, row);
      same = same && std::memcmp(row_of(t, 0).first, other, bytes) == 0;
    }
    if (same) continue;
    for (size_t i = 0; i < changed.size(); ++i) {
      const auto [other, bytes] = row_of(changed[i], row);
      std::memcpy(row_of(changed[i], 0).first, other, bytes);
      changed[i] = changed[i].to(rows[i].device());
    }
    return changed;
  }
  return {};
}

}  // namespace

bool FunctionProgram::is_new(const ShardLoss& loss) {
  const MutexLock lock(mutex_);
  return tried_.insert(type_of(loss)).second;
}

void FunctionProgram::forget_trial(Worker& worker) {
  const MutexLock lock(mutex_);
  Plans& made_for_it = plans_[Use::trial];
  for (const auto& [key, made] : made_for_it) worker.runs.erase(&made);
  made_for_it.clear();
}

// Equal rows have equal bits, because the sizes are the same. The network predicts if its layers
// normalize over the shard.
void FunctionProgram::refuse_coupled(const Shard::State& of) {
  const bool repeatable = network_.device().is_cpu() || options_.choice.deterministic;
  if (of.range.count < 2 || !repeatable || !is_new(*loss_)) return;
  const std::vector<Tensor> changed = with_another_row(of.rows);
  if (changed.empty()) return;
  ThreadTimer untimed(nullptr, 0);
  // Other networks may normalize over the shard, too.
  const LimitedForward limit(ForwardLimit::predictions);
  const auto losses = [&](const std::vector<Tensor>& rows) {
    FunctionSummary summary;
    Shard::State state = of;
    state.is_trial = true;
    state.in_bundle = false;
    state.charge = &untimed;
    state.summary = &summary;
    state.rows = rows;
    Shard shard(state);
    return state.losses_of(*loss_, shard).to_vector();
  };
  const auto others_differ = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::memcmp(a.data() + 1, b.data() + 1, (a.size() - 1) * sizeof(float)) != 0;
  };
  std::vector<float> before, after;
  bool differ = false;
  try {
    before = losses(of.rows);
    after = losses(changed);
    const auto count = static_cast<size_t>(of.range.count);
    // Losses that differ from call to call depend on something else.
    differ = before.size() == count && after.size() == count && others_differ(before, after) &&
             !others_differ(before, losses(of.rows));
  } catch (const std::exception&) {
    differ = false;  // the loss is about to throw it
  }
  forget_trial(*of.worker);
  if (!differ) return;
  const std::string name = options_.loss.empty() ? "the loss" : "the loss " + options_.loss;
  shards::refuse(name +
                     " of an observation depends on other observations of its shard; losses across "
                     "observations are accepted only if the mini-batch is one shard, but it has " +
                     std::to_string(present().summaries.size()),
                 "make a pair or a group one observation, or set shard_size to the size of the "
                 "mini-batch");
}

}  // namespace lockstep
