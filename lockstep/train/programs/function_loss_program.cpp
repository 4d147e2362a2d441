#include "lockstep/train/programs/function_loss_program.h"

#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/parallel/reduce/schedule.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

FunctionLossProgram::FunctionLossProgram(Network& network, const TrainingOptions& options,
                                         const std::vector<DType>& inputs, const TrainingLoss& loss,
                                         IterationProfile* profile)
    : network_(network),
      inputs_(inputs),
      loss_(loss),
      program_(network,
               {.seed = static_cast<uint64_t>(options.seed),
                .precision = options.precision.dtype(),
                .choice = {options.deterministic, options.precision.type == Precision::tf32},
                .loss_scale = options.precision.scale_of_losses(),
                .loss = loss.name,
                .by_step = loss.by_step},
               profile) {
  program_.expect_inputs(inputs);
}

void FunctionLossProgram::set_batch(const MiniBatch& batch) {
  const int64_t n = batch.size();
  const std::vector<NetworkValue> inputs = network_.inputs();
  // These are views, because the mini-batch stays alive until the iteration has begun. Of sequences
  // the lengths are copied.
  std::vector<Tensor> tensors;
  std::map<size_t, RaggedTensor> ragged;
  const auto add = [&](const RowArray& array, const Shape& shape) {
    if (!array.ragged()) {
      tensors.push_back(Tensor::view(const_cast<std::byte*>(array.bytes.data()),
                                     {shape, array.type, nullptr}, nullptr));
      return;
    }
    const RowsOf rows{array.bytes.data(), array.row_bytes(), array.offsets.data()};
    const Tensor lengths(Shape{n}, DType::i32);
    for (int64_t i = 0; i < n; ++i) {
      lengths.data<int32_t>()[i] = static_cast<int32_t>(rows.length(i));
    }
    ragged[tensors.size()] = {rows, shape, array.type};
    tensors.push_back(lengths);
  };
  for (size_t k = 0; k < inputs.size(); ++k) {
    const RowArray* const array = k < batch.arrays.size() ? &batch.arrays[k] : nullptr;
    const bool sequence = inputs[k].sequence;
    const DType type = sequence ? inputs[k].type : inputs_.at(k);
    const Shape shape = sequence ? inputs[k].shape : batch_shape(n, inputs[k].shape);
    const int64_t elements = array == nullptr  ? 0
                             : array->ragged() ? array->shape.elements()
                                               : array->tensor_spec().shape.elements();
    if (array && array->type == type && array->ragged() == sequence &&
        elements == shape.elements()) {
      add(*array, shape);
      continue;
    }
    throw InvalidArgument(
        "[training] the network's input `" + inputs[k].name + "` needs " +
        (sequence ? inputs[k].to_string() : TensorSpec{shape, type, nullptr}.to_string()) +
        ", but the mini-batch has " +
        (!array            ? "nothing"
         : array->ragged() ? "sequences"
                           : array->tensor_spec().to_string()));
  }
  const RowArray* const targets = array_after(batch, inputs.size(), "targets");
  const RowArray* const labels = array_after(batch, inputs.size(), "labels");
  if (targets == nullptr && labels == nullptr) {
    throw InvalidArgument("[training] the mini-batch has neither labels nor targets");
  }
  const RowArray& wanted = targets ? *targets : *labels;
  if (wanted.ragged()) {
    const NetworkValue result = network_.outputs().at(0);
    const bool fits = targets && result.shape.elements() == wanted.shape.elements();
    add(wanted, fits ? result.shape : wanted.shape);
  } else {
    const Shape each = wanted.tensor_spec().shape;
    const Shape output = batch_shape(n, network_.output_shapes().at(0));
    add(wanted, targets && output.elements() == each.elements() ? output : each);
  }
  program_.set_batch(tensors, loss_.function, batch.rows_begin(), std::move(ragged));
}

ShardGradients FunctionLossProgram::compute(const ShardTask& task) {
  const ShardGradients gradients = program_.compute(task);
  if (!program_.has_one_value(task)) return gradients;
  throw InvalidArgument("[training] the loss " + loss_.name +
                            " returns one value for the mini-batch; a training adds a value for "
                            "each of the " +
                            std::to_string(task.rows.count) + " observations",
                        "return one value for each row (no ops::mean or ops::sum)");
}

void FunctionLossProgram::report(std::span<const IndexRange>, const SummaryOf&,
                                 IterationOutcome& outcome) const {
  std::vector<double> losses;
  for (const FunctionSummary& summary : program_.summaries()) {
    losses.push_back(summary.loss);
    outcome.terms += summary.terms;
    outcome.not_finite.add(summary.not_finite, summary.last_not_finite);
  }
  outcome.loss_sum = tree_sum(losses);
}

void FunctionLossProgram::follow_statistics(std::span<const IndexRange>, const SummaryOf&,
                                            const std::function<float*(int k)>& state) {
  program_.follow_statistics(state);
}

}  // namespace lockstep
