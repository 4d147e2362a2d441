// A confusion matrix as an image.
#pragma once

#include "lockstep/data/images/image.h"
#include "lockstep/engine/nn/metrics/confusion_matrix.h"

namespace lockstep {

// A row of cells for each true class, a column for each predicted one. Cells on the diagonal are
// blue, others orange. A cell is the darker, the larger its share of the row. Cells contain their
// counts, and the left and upper margin the classes' numbers from 0, where there is room. At most
// some 1,250 pixels wide and high: of more than 1,200 classes, it shows those with the most errors.
// Pure.
inline constexpr size_t most_confusion_classes = 1200;
Image confusion_image(const ConfusionMatrix& matrix);

}  // namespace lockstep
