// The list of metrics for metric_registry(). A new metric is a function that returns its
// MetricInfo, in a file of this folder, and a line here.
#pragma once

#include "lockstep/engine/nn/metrics/metric.h"

// The names of the functions, in the order of documentation.
#define LOCKSTEP_METRICS(METRIC) \
  METRIC(accuracy)               \
  METRIC(top_k)                  \
  METRIC(precision)              \
  METRIC(recall)                 \
  METRIC(f1)                     \
  METRIC(iou)                    \
  METRIC(dice)                   \
  METRIC(auc)                    \
  METRIC(perplexity)             \
  METRIC(rmse)                   \
  METRIC(mae)

namespace lockstep::metrics {

#define LOCKSTEP_DECLARE_METRIC(name) MetricInfo name();
LOCKSTEP_METRICS(LOCKSTEP_DECLARE_METRIC)
#undef LOCKSTEP_DECLARE_METRIC

}  // namespace lockstep::metrics
