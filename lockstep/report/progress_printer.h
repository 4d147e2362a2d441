// Progress of a training on a stream, for programs: nothing else of the library prints.
#pragma once

#include <cstdio>

#include "lockstep/report/progress.h"

namespace lockstep {

// Shows what Progress writes on a stream: rows, and below them a bar where it is a terminal.
//
//   ProgressPrinter progress(stdout);
//   train(network, data, options, {.observers = {&progress}});
//
// One training at a time. The stream must outlive it; what cannot be written is left out.
class ProgressPrinter : public Progress {
 public:
  // `verbose_frequency`: iterations between rows, at least 1.
  explicit ProgressPrinter(std::FILE* stream, int64_t verbose_frequency = 50);
  // Writes what is left and removes the bar, also when an error ended the training.
  ~ProgressPrinter() override;
};

}  // namespace lockstep
