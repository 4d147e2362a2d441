#include "lockstep/train/programs/function_loss_program.h"

#include "lockstep/base/error.h"
#include "lockstep/parallel/reduce/tree.h"
#include "lockstep/train/input/targets.h"

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
                .choice = {options.deterministic, options.precision.type == "tf32"},
                .loss_scale = options.precision.scale_of_losses(),
                .loss = loss.name},
               profile) {
  program_.expect_inputs(inputs);
}

void FunctionLossProgram::set_batch(const MiniBatch& batch) {
  const int64_t n = batch.size();
  const std::vector<Shape> shapes = network_.input_shapes();
  if (batch.inputs.size() != shapes.size()) {
    throw InvalidArgument("[training] the network has " + std::to_string(shapes.size()) +
                          " inputs, but the mini-batch has " + std::to_string(batch.inputs.size()));
  }
  // These are views, because the mini-batch stays alive until the iteration has begun.
  std::vector<Tensor> tensors;
  for (size_t k = 0; k < shapes.size(); ++k) {
    const TensorSpec spec{batch_shape(n, shapes[k]), inputs_.at(k), nullptr};
    const std::span<const std::byte> bytes = batch.inputs[k].bytes();
    if (bytes.size() != spec.bytes()) {
      throw InvalidArgument("[training] the network needs " + std::to_string(spec.bytes()) +
                            " bytes for " + std::to_string(n) +
                            " observations, but the mini-batch has " +
                            std::to_string(bytes.size()));
    }
    tensors.push_back(Tensor::view(const_cast<std::byte*>(bytes.data()), spec, nullptr));
  }
  if (batch.targets.elements() > 0) {
    targets_.resize(batch.targets.elements());
    copy_targets(batch, 0, targets_.size(), targets_.data());
    const Shape each{n, static_cast<int64_t>(targets_.size()) / n};
    const Shape output = batch_shape(n, network_.output_shapes().at(0));
    tensors.push_back(Tensor::view(
        targets_.data(),
        {output.elements() == each.elements() ? output : each, DType::f32, nullptr}, nullptr));
  } else {
    tensors.push_back(Tensor::view(const_cast<int32_t*>(batch.labels.data()),
                                   {Shape{n}, DType::i32, nullptr}, nullptr));
  }
  program_.set_batch(tensors, loss_.function);
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

void FunctionLossProgram::report(std::span<const IndexRange>, const SummaryOf&,
                                 IterationOutcome& outcome) const {
  std::vector<double> losses;
  for (const FunctionSummary& summary : program_.summaries()) {
    losses.push_back(summary.loss);
    outcome.not_finite.add(summary.not_finite, summary.last_not_finite);
  }
  outcome.loss_sum = tree_sum(losses);
}

void FunctionLossProgram::follow_statistics(std::span<const IndexRange>, const SummaryOf&,
                                            const std::function<float*(int k)>& state) {
  program_.follow_statistics(state);
}

}  // namespace lockstep
