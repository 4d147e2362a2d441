// The problem that the client of simulated hosts trains, or would train.
#pragma once

#include "lockstep/train/input/training_data.h"

namespace lockstep::testing {

// A few parameters and a few vectors, so that states and data are short.
TrainingProblem scale_problem();

}  // namespace lockstep::testing
