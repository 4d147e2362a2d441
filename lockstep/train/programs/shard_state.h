// What a Shard refers to while its loss is computed, for function_program.cpp and shard.cpp.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/nn/runner/recorded_run.h"
#include "lockstep/train/programs/function_program.h"

namespace lockstep {

struct Shard::State {
  Network& network;
  // Null if a loss is evaluated without recording; the following members are then unused.
  FunctionProgram* program = nullptr;
  FunctionProgram::Worker* worker = nullptr;
  ThreadTimer* charge = nullptr;
  FunctionSummary* summary = nullptr;
  DeviceTransfers* transfers = nullptr;  // on a device
  IndexRange range;
  RandomContext step;
  std::vector<Tensor> rows;  // of the tensors; then the lengths of those that are sequences
  // Represents all parameters on the tape. Its gradient has the layout of the plans' gradients.
  Tensor parameters;
  std::map<const FunctionProgram::ShardPlan*, size_t> used;  // runs of this shard so far
  // The gradient of `parameters` so far: the memory of the run that the backward pass has reached
  // first, to which other runs add theirs. Null: none.
  std::byte* gradients = nullptr;
  std::vector<bool> reached = {};  // parameters whose gradients are there
  // Runs whose gradients of parameters the sweep has computed, and their plans.
  std::vector<std::pair<ForwardStatistics::Key, const FunctionProgram::ShardPlan*>> swept = {};
  // In a bundle: gradients of parameters are left to sums over shards, which have the operands of
  // these branches.
  bool in_bundle = false;
  std::vector<ForwardStatistics::Key> kept = {};
  size_t in_turn = 0;        // runs of FunctionProgram::Worker::turns so far
  bool is_trial = false;     // its results do not count: see refuse_coupled()
  bool has_carried = false;  // a run has read states by row
  // The tensors that are sequences, whose lengths are the last of `rows` in this order.
  std::vector<size_t> lengths = {};
  bool by_step = false;  // the loss is; see TrainingLoss

  size_t tensors() const { return rows.size() - lengths.size(); }
  // Where the lengths of tensor `i` are in `rows`.
  std::optional<size_t> lengths_at(size_t i) const {
    const auto found = std::find(lengths.begin(), lengths.end(), i);
    if (found == lengths.end()) return std::nullopt;
    return tensors() + static_cast<size_t>(found - lengths.begin());
  }
  // A tensor on the network's device, whose values `fill` writes to memory of the host.
  Tensor filled(const TensorSpec& spec, const std::function<void(void* to)>& fill) const;
  // The values on the CPU. Waits for the device unless they are rows that came from the CPU.
  Tensor on_host(const Tensor& tensor) const;
  std::vector<Tensor> lengths_of(const std::vector<Tensor>& inputs,
                                 const ShardForwardOptions& options) const;
  // The tensor whose steps a loss by step has: the last one (the targets), else the first one that
  // is a sequence. Needs a sequence.
  size_t counted() const {
    return lengths.back() + 1 == tensors() ? lengths.back() : lengths.front();
  }

  // The next run of a plan. `lasting`: not of a plan for a trial alone.
  PlanRun& next_run(const FunctionProgram::ShardPlan& plan, bool lasting);
  // Calls a loss. Returns its values by row; of one by step the sums over the valid steps. An index
  // of the mini-batch's that is outside of an axis gets its observation.
  Tensor losses_of(const ShardLoss& loss, Shard& shard) const;
  Tensor sums_over_steps(const Tensor& losses) const;
  // Rows, or the valid steps of a loss by step.
  int64_t terms() const;

  // What a run on `n` observations reads of the states by row that it carries.
  std::vector<RecordedRun::RowsRead> read_rows(const std::vector<Carry>& carries, int64_t n);
};

namespace shards {

[[noreturn]] inline void refuse(const std::string& what, const std::string& hint = {}) {
  throw InvalidArgument("[sharded_value_and_gradient] " + what, hint);
}

// Throws InvalidArgument unless a loss function returned one value, or one for each row. Returns
// whether it is one value for all rows.
bool check_losses(const Tensor& losses, const IndexRange& range, size_t shards);

inline Tensor row_major(const Tensor& tensor) { return convert(tensor, tensor.spec().plain()); }

}  // namespace shards
}  // namespace lockstep
