// Prints training progress on a stream. No other part of the library prints.
#pragma once

#include <cstdio>

#include "lockstep/report/progress.h"

namespace lockstep {

// Writes the output of Progress to a stream: rows, and a bar below them on a terminal.
//
//   ProgressPrinter progress(stdout);
//   train(network, data, options, {.observers = {&progress}});
//
// For one training at a time. The stream must outlive it. Write errors are ignored.
class ProgressPrinter : public Progress {
 public:
  // `verbose_frequency`: iterations between rows, at least 1.
  explicit ProgressPrinter(std::FILE* stream, int64_t verbose_frequency = 50);
  // Writes the pending row and removes the bar, also after an error.
  ~ProgressPrinter() override;
};

}  // namespace lockstep
