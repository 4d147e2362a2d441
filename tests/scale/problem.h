// The problem of the training that simulated hosts join.
#pragma once

#include "lockstep/train/input/training_data.h"

namespace lockstep::testing {

// A few parameters and a few vectors, so that states and data are short.
TrainingProblem scale_problem();

}  // namespace lockstep::testing
