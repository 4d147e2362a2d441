// Checks of functions of a table that are not an op's kernel.
#pragma once

#include <string>

#include "tests/engine/ops/harness.h"

namespace lockstep::optest {

// Counts a kernel as supported, for the table that tables_test.cpp prints, if nothing has failed.
void note_support(Device device, std::string kernel);

// Updates of one parameter beside their formulas, whole and in parts; updates of all at once.
void check_updates(Device device);
void check_updates_of_all(Device device);

}  // namespace lockstep::optest
