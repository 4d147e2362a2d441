// Summaries of shards with user-defined losses: sent to other members of the group, checked, and
// applied to the network's states.
#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/parallel/messages/serialize.h"
#include "lockstep/train/programs/function_program.h"
#include "lockstep/train/programs/shard_state.h"

namespace lockstep {

using shards::refuse;

Digest FunctionProgram::summary_digest(const ShardTask& task) const {
  const Bytes bytes = encode(summary_of(task));
  return digest_of(bytes.data(), bytes.size());
}

Bytes FunctionProgram::encode_summaries(const IndexRange& shards) const {
  const auto first = summaries().begin() + shards.first;
  return encode(std::vector<FunctionSummary>(first, first + shards.count));
}

void FunctionProgram::decode_summaries(const IndexRange& shards, const Bytes& bytes) {
  auto theirs = decode<std::vector<FunctionSummary>>(bytes);
  if (static_cast<int64_t>(theirs.size()) != shards.count) {
    throw InternalError("[sharded_value_and_gradient] a member of the group has " +
                        std::to_string(theirs.size()) + " shards instead of " +
                        std::to_string(shards.count));
  }
  std::move(theirs.begin(), theirs.end(), iterations_[finished_].summaries.begin() + shards.first);
}

bool FunctionProgram::is_finite() const {
  return std::all_of(summaries().begin(), summaries().end(),
                     [](const FunctionSummary& s) { return s.not_finite < 0; });
}

void FunctionProgram::check_finite(int64_t iteration) const {
  for (const FunctionSummary& s : summaries()) {
    if (s.not_finite < 0) continue;
    // Batch normalization spreads one non-finite value over all observations of its shard.
    const std::string first = std::to_string(s.not_finite);
    const std::string rows =
        s.not_finite == s.last_not_finite
            ? "observation " + first
            : "observations " + first + " to " + std::to_string(s.last_not_finite);
    throw Error("[sharded_value_and_gradient] the loss of " +
                    (s.has_one_value ? "the mini-batch" : rows + " of the mini-batch") + " is " +
                    std::to_string(s.found) + " in iteration " + std::to_string(iteration),
                "a lower learning rate often helps");
  }
}

FunctionProgram::FinishedRun FunctionProgram::finished_run(size_t r) const {
  FinishedRun run;
  int64_t first = 0;
  for (const FunctionSummary& summary : summaries()) {
    run.rows.push_back({first, summary.runs[r].key.n});
    first = run.rows.back().end();
    run.statistics.push_back(summary.runs[r].values.data());
  }
  return run;
}

void FunctionProgram::check_statistics() {
  const std::vector<ForwardStatistics>& first = summaries()[0].runs;
  for (size_t j = 1; j < summaries().size(); ++j) {
    bool same = summaries()[j].runs.size() == first.size();
    for (size_t r = 0; same && r < first.size(); ++r) {
      ForwardStatistics::Key key = summaries()[j].runs[r].key;
      key.n = first[r].key.n;
      key.steps = first[r].key.steps;  // there is room for the longest sequence of each shard
      same = key == first[r].key && summaries()[j].runs[r].values.size() == first[r].values.size();
    }
    if (!same) {
      refuse("shard " + std::to_string(j) +
                 " ran the network differently from shard 0, so what they leave in its states "
                 "cannot be combined",
             "run it equally often, with the same options; all members of a group call "
             "make_row_states(), or none");
    }
  }
  for (size_t r = 0; r < first.size(); ++r) {
    const FinishedRun run = finished_run(r);
    lockstep::check_statistics(plan(first[r].key).statistics, run.rows, run.statistics);
  }
}

void FunctionProgram::follow_statistics(const std::function<float*(int k)>& state) {
  check_statistics();
  const std::vector<ForwardStatistics>& first = summaries()[0].runs;
  if (fresh_) network_.reset_row_states();
  for (size_t r = 0; r < first.size(); ++r) {
    const FinishedRun finished = finished_run(r);
    const ShardPlan& made = plan(first[r].key);
    lockstep::follow_statistics(made.statistics, finished.rows, finished.statistics, state);
    if (made.carries.empty()) continue;
    const CarriedRows carried(network_, made.carries, fresh_);
    int64_t at = 0;
    for (const FunctionSummary& summary : summaries()) {
      const ForwardStatistics& run = summary.runs[r];
      if (static_cast<int64_t>(run.carried.size()) != carried.elements(run.key.n)) {
        throw InternalError("[training] a shard has left other states by row than its rows have");
      }
      carried.take({at, run.key.n}, run.carried.data());
      at += run.key.n;
    }
  }
}

}  // namespace lockstep
