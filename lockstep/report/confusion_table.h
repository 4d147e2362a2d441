// A confusion matrix as text.
#pragma once

#include <string>

#include "lockstep/engine/nn/metrics/confusion_matrix.h"

namespace lockstep {

// An aligned table for a terminal of `width` columns. Each true class has a row with its counts by
// predicted class and its recall. The last row has the precision of each predicted class. Both are
// in percent, "-" if undefined. Zeros are shown as dots. Long class names are cut, and columns then
// have numbers instead of names. If the table does not fit, the result is a list: each class with
// its number of observations, recall, precision and the class it is most often mistaken for. Ends
// with a newline. Thread-safe.
std::string confusion_table(const ConfusionMatrix& matrix, int width);

}  // namespace lockstep
