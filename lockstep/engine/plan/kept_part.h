// The part of a plan whose results for an observation are the same in every run, because the layers
// before them do not learn. A caller keeps these results and runs the rest alone. Both parts are
// passes of the one plan, on the same memory and in the same layouts, so the results have the bits
// of a whole run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// What does not change between the runs of a plan.
struct Unchanging {
  int64_t rows = 0;              // the number of observations of a run
  std::vector<bool> parameters;  // by slot
  std::vector<bool> states;      // by slot
  std::vector<bool> inputs;      // by number: an observation has the same row in every run
  // Numbers of outputs that are computed from all rows together (statistics).
  std::vector<int> over_rows;
};

struct KeptPart {
  // Results that the rest reads. An observation has `row_bytes` of each, row-major.
  struct Array {
    int buffer = 0;
    size_t step = 0;  // that computes it
    size_t row_bytes = 0;
  };
  // In which part a step of the plan runs. The first part computes the arrays. The rest computes
  // the outputs and the gradients of the parameters that change.
  struct Use {
    bool first = false, rest = false;
  };

  std::vector<Array> arrays = {};
  std::vector<Use> uses = {};           // by step
  std::vector<bool> rest_inputs = {};   // by number: whether the rest reads it
  bool has_parameters = false;          // the first part reads parameters
  std::string changing = {}, why = {};  // name of the first step that changes, and the reason

  // Bytes of an observation in all arrays.
  size_t row_bytes() const {
    size_t bytes = 0;
    for (const Array& array : arrays) bytes += array.row_bytes;
    return bytes;
  }
};

}  // namespace lockstep
