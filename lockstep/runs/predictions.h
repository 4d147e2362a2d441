// Some of a trained network's predictions, with pictures, for the reports of a run: the
// worst-classified images, pairs of target and output of a regression, or images with their target
// and output.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "lockstep/data/datastores/datastore.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// Selects predictions while an evaluation runs, so that no further pass over the data is needed.
// The selection depends on the data alone. For one evaluation. Not thread-safe.
class PredictionSelector {
 public:
  // `output`: of one observation.
  explicit PredictionSelector(Shape output);
  ~PredictionSelector();
  PredictionSelector(const PredictionSelector&) = delete;
  PredictionSelector& operator=(const PredictionSelector&) = delete;

  // To be added to the metrics of the evaluation. Its value is the number of observations.
  MetricPtr metric() const;
  static const char* metric_name();

  // After the evaluation: {"kind": "classes" | "values" | "images", ...}; see
  // docs/internals/reports.md.  Pictures are PNG
  // files in base64, at most 128 pixels wide and high. Throws what reading the images throws.
  nlohmann::ordered_json to_json(const Datastore& data) const;

 private:
  struct Selected;
  struct Collector;
  std::shared_ptr<Selected> selected_;
};

}  // namespace lockstep
