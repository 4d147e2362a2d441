#include "lockstep/train/evaluation/validation.h"

#include <utility>

#include "lockstep/train/options/options.h"

namespace lockstep {

std::unique_ptr<Evaluator> make_validation(Network& network, const TrainingImages& images,
                                           const TrainingData& data, const TrainingOptions& options,
                                           ThreadPool& pool, std::vector<MetricPtr> metrics,
                                           EvaluationKeeping keeping) {
  if (!images.validation) return nullptr;
  const Evaluator::Data evaluated{
      .images = images.validation,
      .targets = images.validation_targets,
      .noise = data.noise,
      .seed = static_cast<uint64_t>(options.seed),
      .loss = data.loss,
      .precision = options.precision.dtype(),
      .choice = kernels::Choice{options.deterministic, options.precision.type == Precision::tf32},
      .keeping = std::move(keeping)};
  return std::make_unique<Evaluator>(network, evaluated, pool, Measures{std::move(metrics)});
}

}  // namespace lockstep
