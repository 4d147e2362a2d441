#include "lockstep/train/evaluation/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/inputs/input_statistics.h"
#include "lockstep/train/evaluation/evaluator.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/state/fingerprint.h"

namespace lockstep {
namespace {

Evaluation evaluate(Network& network, const DatastorePtr& data, const EvaluationOptions& options,
                    Measures measures, Tensor* outputs) {
  refuse_stray_environment();
  const OrdinaryArithmetic arithmetic;
  TrainingOptions resources;
  resources.threads = options.threads;
  ThreadPool pool(static_cast<int>(resources.resolved().threads));
  // Outputs do not depend on labels, targets and the loss, which need not fit the network then.
  const bool compares = outputs == nullptr;
  const auto images = cache_for(network, data, 0, CachedImages::exact, compares);
  const auto targets = target_cache_for(network, compares ? options.targets : nullptr, images, 0);
  const EvaluatedData evaluated{.images = images,
                                .targets = targets,
                                .noise = options.noise,
                                .seed = options.seed,
                                .compares = compares};
  Evaluator evaluator(network, evaluated, pool, std::move(measures));
  require_input_statistics(network);
  return evaluator.run(outputs);
}

void report_notices(const DatastorePtr& data, const EvaluationOptions& options) {
  if (!options.notice) return;
  for (const std::string& notice :
       notices_of({.training = data, .training_targets = options.targets}))
    options.notice(notice);
}

}  // namespace

Evaluation evaluate(Network& network, const DatastorePtr& given,
                    const EvaluationOptions& given_options) {
  const DatastorePtr data = match_columns(network, given);
  EvaluationOptions options = given_options;
  options.targets = match_target_columns(network.columns(), given_options.targets, given, data);
  report_notices(data, options);
  check_fits(network, *data, options.targets);
  const auto problem = metric_problem(network, *data, options.targets);
  if (options.confusion && !learns_labels(*data, options.targets)) {
    throw InvalidArgument(
        "[evaluate] a confusion matrix needs classes, but the targets are images or numbers");
  }
  Evaluation result = evaluate(
      network, data, options,
      {metrics_for(options.metrics, options.custom_metrics, problem), options.confusion}, nullptr);
  result.examples = examples_word(*data);
  const std::string said = loss_not_finite(result);
  if (options.notice && !said.empty()) options.notice(said);
  return result;
}

std::string loss_not_finite(const Evaluation& evaluation) {
  if (evaluation.observations == 0 || std::isfinite(evaluation.loss)) return {};
  return fmt::format(
      "the loss is {}: results or targets of some observations are not finite or too large; look "
      "for numbers in the data that are far from those of the training data",
      evaluation.loss);
}

Tensor predict(Network& network, const DatastorePtr& given, const EvaluationOptions& options) {
  const DatastorePtr data = match_columns(network, given);
  report_notices(data, options);
  Tensor outputs;
  evaluate(network, data, options, {}, &outputs);
  return outputs;
}

std::vector<Image> predict_labels(Network& network, const DatastorePtr& given,
                                  const EvaluationOptions& options) {
  constexpr int64_t kMostClasses = 255, kMostFloats = int64_t{1} << 26;
  const NetworkValue output = network.outputs().at(0);
  if (output.sequence || output.shape.rank() != 3 || output.shape[0] > kMostClasses) {
    throw InvalidArgument(
        "[predict] labels of pixels need an output of 1 to 255 classes x rows x "
        "columns, but the network's is of " +
        output.to_string());
  }
  const DatastorePtr data = match_columns(network, given);
  report_notices(data, options);
  const int64_t classes = output.shape[0], height = output.shape[1], width = output.shape[2];
  const int64_t each = output.shape.elements();
  const int64_t together = std::max<int64_t>(1, kMostFloats / each);
  std::vector<Image> images;
  std::vector<int32_t> predicted(static_cast<size_t>(height * width));
  for (int64_t first = 0; first < data->size(); first += together) {
    std::vector<int64_t> indices(static_cast<size_t>(std::min(together, data->size() - first)));
    std::iota(indices.begin(), indices.end(), first);
    Tensor scores;
    evaluate(network, subset(data, indices), options, {}, &scores);
    for (size_t i = 0; i < indices.size(); ++i) {
      predicted_classes(scores.data<float>() + static_cast<int64_t>(i) * each, classes, predicted);
      images.push_back({height, width, 1, {predicted.begin(), predicted.end()}});
    }
  }
  return images;
}

}  // namespace lockstep
