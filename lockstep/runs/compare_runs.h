// Proof: computing an iteration of a run again, and finding where two runs part. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/receipt.h"

namespace lockstep {

struct ReplayOptions {
  int threads = 0;            // 0: one for each processor
  std::string initial_model;  // the file the run started from, where it did
  // Called now and then with the iterations computed so far and to be computed in all.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

// What came out of an iteration computed again.
struct Verification {
  int64_t iteration = 0;
  int64_t from = 0;     // computed from the checkpoint after this one; 0: from the beginning
  int64_t differs = 0;  // the first that came out differently; 0: none
  std::string what;     // "the loss is 0.3 in the receipt, 0.4 now", of that one
  ReceiptLine line;     // of the receipt, of `iteration`
};

// Computes an iteration of the run in a folder again, in this process, from the newest checkpoint
// before it, and compares it and those on the way with the receipt. Writes nothing. Throws
// InvalidArgument for an iteration that the receipt has not, and what opening, resuming and
// training throw.
Verification verify_run(const std::string& folder, int64_t iteration,
                        const ReplayOptions& options = {});

// A value that two runs have differently.
struct TensorDifference {
  std::string name;  // "<layer>.<parameter>", "<layer>.<parameter>.velocity"
  int64_t elements = 0, different = 0;
  double largest = 0;  // absolute
};

// Where two runs part.
struct RunDifference {
  std::string job;        // the first field in which the jobs differ, "" if none
  int64_t common = 0;     // iterations in both receipts
  int64_t iteration = 0;  // the first that differs; 0: none of those in both
  int64_t epoch = 0;
  std::string what;  // "observations", "loss" or "digest": the first that differs
  std::string why;   // as far as it can be told
  // Learnables, the solver's arrays for them and network state after that iteration, computed again
  // for both, in the order of the network; those that differ.
  std::vector<TensorDifference> tensors;
};

// Compares the runs in two folders by their receipts and, where they part, computes that iteration
// of both again. `a` and `b` say what replaying each needs. Throws as verify_run().
RunDifference compare_runs(const std::string& folder_a, const std::string& folder_b,
                           const ReplayOptions& a = {}, const ReplayOptions& b = {});

}  // namespace lockstep
