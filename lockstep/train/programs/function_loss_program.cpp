#include "lockstep/train/programs/function_loss_program.h"

#include "lockstep/base/error.h"
#include "lockstep/parallel/reduce/tree.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

FunctionLossProgram::FunctionLossProgram(Network& network, const TrainingOptions& options,
                                         const std::vector<DType>& inputs, const TrainingLoss& loss,
                                         StepProfile* profile)
    : network_(network),
      inputs_(inputs),
      loss_(loss),
      program_(network,
               {.seed = static_cast<uint64_t>(options.seed),
                .precision = options.precision.dtype(),
                .choice = {options.deterministic, options.precision.type == Precision::tf32},
                .loss_scale = options.precision.scale_of_losses(),
                .loss = loss.name},
               profile) {
  program_.expect_inputs(inputs);
}

void FunctionLossProgram::set_batch(const MiniBatch& batch) {
  const int64_t n = batch.size();
  const std::vector<Shape> shapes = network_.input_shapes();
  const std::vector<std::string> names = network_.input_names();
  // These are views, because the mini-batch stays alive until the iteration has begun.
  std::vector<Tensor> tensors;
  const auto add = [&](const RowArray& array, const Shape& shape) {
    tensors.push_back(Tensor::view(const_cast<std::byte*>(array.bytes.data()),
                                   {shape, array.type, nullptr}, nullptr));
  };
  for (size_t k = 0; k < shapes.size(); ++k) {
    const Shape shape = batch_shape(n, shapes[k]);
    const RowArray* const array = k < batch.arrays.size() ? &batch.arrays[k] : nullptr;
    if (array && array->type == inputs_.at(k) &&
        array->tensor_spec().shape.elements() == shape.elements()) {
      add(*array, shape);
      continue;
    }
    throw InvalidArgument("[training] the network's input `" + names[k] + "` needs " +
                          TensorSpec{shape, inputs_.at(k), nullptr}.to_string() +
                          ", but the mini-batch has " +
                          (array ? array->tensor_spec().to_string() : "nothing"));
  }
  const RowArray* const targets = array_after(batch, shapes.size(), "targets");
  const RowArray* const labels = array_after(batch, shapes.size(), "labels");
  if (targets == nullptr && labels == nullptr) {
    throw InvalidArgument("[training] the mini-batch has neither labels nor targets");
  }
  const RowArray& wanted = targets ? *targets : *labels;
  const Shape each = wanted.tensor_spec().shape;
  const Shape output = batch_shape(n, network_.output_shapes().at(0));
  add(wanted, targets && output.elements() == each.elements() ? output : each);
  program_.set_batch(tensors, loss_.function, batch.rows_begin());
}

ShardGradients FunctionLossProgram::compute(const ShardTask& task) {
  const ShardGradients gradients = program_.compute(task);
  if (!program_.is_whole(task)) return gradients;
  throw InvalidArgument("[training] the loss " + loss_.name +
                            " returns one value for the mini-batch; a training adds a value for "
                            "each of the " +
                            std::to_string(task.rows.count) + " observations",
                        "return one value for each row (no ops::mean or ops::sum)");
}

void FunctionLossProgram::report(std::span<const IndexRange> shards, const SummaryOf&,
                                 IterationOutcome& outcome) const {
  std::vector<double> losses;
  for (const FunctionSummary& summary : program_.summaries()) {
    losses.push_back(summary.loss);
    outcome.not_finite.add(summary.not_finite, summary.last_not_finite);
  }
  outcome.loss_sum = tree_sum(losses);
  outcome.terms = shards.back().end();
}

void FunctionLossProgram::follow_statistics(std::span<const IndexRange>, const SummaryOf&,
                                            const std::function<float*(int k)>& state) {
  program_.follow_statistics(state);
}

}  // namespace lockstep
