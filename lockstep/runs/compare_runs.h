// Verification of runs: computes an iteration again, and finds where two runs diverge. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/state/receipt.h"

namespace lockstep {

struct ReplayOptions {
  int threads = 0;            // 0: one for each processor
  std::string initial_model;  // that the run started from; "": as its folder says
  // Called from time to time with the number of iterations computed so far and in total.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

// The result of computing an iteration again.
struct Verification {
  int64_t iteration = 0;
  int64_t from = 0;     // computed from the checkpoint after this iteration; 0: from the start
  int64_t differs = 0;  // the first iteration with another result; 0: none
  std::string what;     // its difference: "the loss is 0.3 in the receipt, but 0.4 now"
  ReceiptLine line;     // the receipt's line of `iteration`
  std::string note;     // what follows the last line of the receipt (receipt_rest_note()), or ""
};

// Computes an iteration of the run in a folder again, in this process, from the newest checkpoint
// before it. Compares all computed iterations with the receipt. Writes nothing. Throws
// InvalidArgument for an iteration that is not in the receipt, and what opening, resuming and
// training throw.
Verification verify_run(const std::string& folder, int64_t iteration,
                        const ReplayOptions& options = {});

// A tensor in which two runs differ.
struct TensorDifference {
  std::string name;  // "<layer>.<parameter>", "<layer>.<parameter>.velocity"
  int64_t elements = 0, different = 0;
  double largest = 0;  // largest absolute difference; NaN if names or shapes differ
};

// The point where two runs diverge.
struct RunDifference {
  std::string job;        // the first field in which the jobs differ, or ""
  int64_t common = 0;     // iterations in both receipts
  int64_t iteration = 0;  // the first that differs; 0: none of the common ones
  int64_t epoch = 0;
  int64_t more_a = 0, more_b = 0;  // iterations that only one of the receipts has
  // "observations", "loss", "digest" or, if all iterations are equal, "population statistics": the
  // first that differs.
  std::string what;
  std::string why;  // the probable cause
  // The tensors that differ after that iteration, computed again for both runs, in the order of the
  // network: parameters, the solver's arrays for them, and network state.
  std::vector<TensorDifference> tensors;
  std::vector<std::string> notes;  // what follows the last lines of the receipts
};

// Compares the runs in two folders by their receipts. If they diverge, computes the first different
// iteration of both runs again. `a` and `b` are the options of the two replays. Throws like
// verify_run().
RunDifference compare_runs(const std::string& folder_a, const std::string& folder_b,
                           const ReplayOptions& a = {}, const ReplayOptions& b = {});

}  // namespace lockstep
