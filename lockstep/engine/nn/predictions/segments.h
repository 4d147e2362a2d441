// Sequences that a network predicts segment by segment (Network::predict_and_update()), and what
// callers that make many predictions know.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/engine/nn/network.h"

namespace lockstep {

// Steps of all sequences that a layer has seen in earlier segments.
struct KeptSteps {
  std::string name;  // "<layer>.<name>"
  Shape step;
  Tensor values;  // rows x capacity x step, f32 on the CPU, of which the earlier steps are valid
};

// What predict_and_update() keeps between its calls. Copies share the memory of kept steps. Not
// thread-safe.
struct SegmentStates {
  int64_t rows = 0;       // sequences that have begun; 0: none
  bool sequence = false;  // whether the result is one
  std::vector<RowState> states;
  std::vector<int64_t> steps;  // that each sequence has had
  std::vector<KeptSteps> kept;
  int64_t capacity = 0;  // steps for which `kept` has room
  // The most steps of a sequence, and the layer for which this holds.
  int64_t most_steps = std::numeric_limits<int64_t>::max();
  std::string limited_by;

  // Makes room for as many steps. Other copies keep their memory.
  void make_room(int64_t longest);
  SegmentStates clone() const;
};

// During its lifetime nothing may change the network's parameters: predictions do not look for
// changes, which takes as long as reading all parameters. Not thread-safe.
class FixedParameters {
 public:
  explicit FixedParameters(Network& network);
  ~FixedParameters();
  FixedParameters(const FixedParameters&) = delete;
  FixedParameters& operator=(const FixedParameters&) = delete;

 private:
  Network& network_;
  const bool before_;
};

// Puts the sequences of Network::predict_and_update() aside during its lifetime: the next call
// begins new ones, and the destructor brings the earlier ones back. Not thread-safe.
class OwnSegments {
 public:
  explicit OwnSegments(Network& network);
  ~OwnSegments();
  OwnSegments(const OwnSegments&) = delete;
  OwnSegments& operator=(const OwnSegments&) = delete;

 private:
  Network& network_;
  const std::unique_ptr<SegmentStates> before_;
};

}  // namespace lockstep
