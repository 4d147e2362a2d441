// From text to formulas.
#pragma once

#include <string>

#include "lockstep/engine/nn/formulas/formula.h"

namespace lockstep {

// The grammar is a part of Python's: numbers, names, + - * / **, signs, < <= > >= == (not chained),
// parentheses, and calls with arguments by position and then by name, among them lists [1, 2].
// Names and functions are not looked up: see check_formula(). `where`: what errors begin with,
// "[network] loss". Throws InvalidArgument with the position for any other text, also for more than
// 2,000 characters and more than 100 nested parentheses, signs or powers. Thread-safe.
Formula parse_formula(const std::string& text, const std::string& where);

}  // namespace lockstep
