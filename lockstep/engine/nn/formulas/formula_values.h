// Formulas checked, and added to graphs of ops.
#pragma once

#include <string>
#include <vector>

#include "lockstep/engine/graph/value.h"
#include "lockstep/engine/nn/formulas/formula.h"

namespace lockstep {

// The names that a formula may use.
struct FormulaNames {
  std::vector<std::string> values;
  std::string labels = {};  // one of them whose values are labels (i32), or ""
};

// Throws InvalidArgument, with the position, for an unknown name or function (with the most similar
// one as a hint), for wrong arguments, and for labels where numbers belong. Shapes are not known
// yet.
void check_formula(const Formula& formula, const FormulaNames& names);

// How often the formula uses the name.
int uses_of_name(const Formula& formula, const std::string& name);
// Whether a function takes the name as its labels: cross_entropy(output, NAME).
bool takes_as_labels(const Formula& formula, const std::string& name);

// Adds the formula's ops to the graph of `values`, which stand for names.values in order and have
// shapes n x .... Observations are broadcast to each other by NumPy's rules. Returns a value of n x
// .... Throws InvalidArgument, with the position, for shapes that do not fit and if the result is a
// number that no value determines.
Value formula_value(const Formula& formula, const FormulaNames& names,
                    const std::vector<Value>& values);

}  // namespace lockstep
