// A confusion matrix and the time profile of a training as text.
#pragma once

#include <string>

#include "lockstep/engine/nn/metrics/confusion_matrix.h"
#include "lockstep/train/profile/profile.h"

namespace lockstep {

// An aligned table for a terminal of `width` columns. Each true class has a row with its counts by
// predicted class and its recall. The last row has the precision of each predicted class. Both are
// in percent, "-" if undefined. Zeros are shown as dots. Long class names are cut, and columns then
// have numbers instead of names. If the table does not fit, the result is a list: each class with
// its number of observations, recall, precision and the class it is most often mistaken for. Ends
// with a newline. Thread-safe.
std::string confusion_table(const ConfusionMatrix& matrix, int width);

// A table for a terminal of `width` columns. Each account has its milliseconds in an iteration
// (mean of the threads), its share of the wall time, its floor, and the ratio of the floor to its
// time. Accounts below `least` (a share) are combined into one row. Sums of each phase and of all
// accounts follow, then the time that the passes alone would take. Lines end in newlines.
// Thread-safe.
std::string profile_table(const Profile& profile, int width, double least = 0.002);

// The profile as JSON text, without the spans. Thread-safe.
std::string profile_json(const Profile& profile);

// The spans in the Trace Event Format (complete events, one row for each thread, microseconds),
// which Perfetto and chrome://tracing read. Thread-safe.
std::string chrome_trace(const Profile& profile);

}  // namespace lockstep
