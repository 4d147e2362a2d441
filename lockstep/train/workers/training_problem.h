// What is trained, as worker processes come by it: every one calls the same function.
#pragma once

#include "lockstep/engine/nn/network.h"
#include "lockstep/train/input/training_data.h"

namespace lockstep {

// A network (initialized or not) and its data. A function that returns one must give the same to
// everybody who calls it with the same arguments: names and labels of the data are compared.
struct TrainingProblem {
  Network network;
  TrainingData data;
};

}  // namespace lockstep
