// A confusion matrix as text.
#pragma once

#include <string>

#include "lockstep/engine/nn/confusion_matrix.h"

namespace lockstep {

// An aligned table for a terminal of `width` columns: a row for each true class with its counts by
// predicted class and its recall, and a last row with each predicted class's precision, both in
// percent ("-" where there is none). Zeros are dots. Long names of classes are cut, and stand for
// columns as numbers. Where the table does not fit, a list instead: each class with its
// observations, recall, precision and what it is most often taken for. Ends with a newline.
// Thread-safe.
std::string confusion_table(const ConfusionMatrix& matrix, int width);

}  // namespace lockstep
