// What the built-in metrics share.
#pragma once

#include <string>

#include "lockstep/engine/nn/metrics/metric.h"

namespace lockstep {

// NaN for a count of 0.
double quotient(double sum, int64_t count);

// The score for comparisons: NaN counts as the lowest.
float comparable(float score);

// The class that was predicted for an observation, with its scores or without.
int64_t predicted_of(const ScoredObservation& observation);

// Throw InvalidArgument, with the metrics that fit in the hint, unless the network is a classifier
// (makes images).
void require_classes(const std::string& metric, const MetricProblem& problem);
void require_images(const std::string& metric, const MetricProblem& problem);

}  // namespace lockstep
