// An index that is outside of its axis.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::ops {

class OutsideIndex : public InvalidArgument {
 public:
  // `row`: where it is along the first axis of the indices, which has `rows`; 0 of 0 for a scalar.
  OutsideIndex(const std::string& message, std::string hint, int64_t row, int64_t rows)
      : InvalidArgument(message, std::move(hint)), row_(row), rows_(rows) {}
  int64_t row() const { return row_; }
  int64_t rows() const { return rows_; }

 private:
  int64_t row_, rows_;
};

}  // namespace lockstep::ops
