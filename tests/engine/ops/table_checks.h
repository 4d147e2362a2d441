// Checks of functions of a table that are not an op's kernel.
#pragma once

#include <string>

#include "tests/engine/ops/harness.h"

namespace lockstep::optest {

// Counts a kernel as supported, for the table that tables_test.cpp prints, if nothing has failed.
void note_support(Device device, std::string kernel);

// Compares updates of one parameter, whole and in parts, and sums of squares with their formulas.
void check_updates(Device device);
// Compares updates of all parameters at once with single ones.
void check_updates_of_all(Device device);

}  // namespace lockstep::optest
