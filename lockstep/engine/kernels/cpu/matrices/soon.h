// Prefetching, a little at a time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/base/numeric/alignment.h"
#include "lockstep/base/numeric/clones.h"

namespace lockstep::kernels::cpu {

// Cache lines that are read soon, in rows. They are fetched a few at a time.
class Soon {
 public:
  static constexpr auto kLine = static_cast<int64_t>(cache_line);

  Soon() = default;
  // `count` numbers of each of `rows` rows, `stride` numbers apart, in `portions` portions.
  template <class T>
  Soon(const T* first, int64_t rows, int64_t stride, int64_t count, int64_t portions)
      : row_(reinterpret_cast<const char*>(first)),
        stride_(stride * static_cast<int64_t>(sizeof(T))),
        lines_((count * static_cast<int64_t>(sizeof(T)) + kLine - 1) / kLine),
        left_(rows * lines_),
        portion_((left_ + portions - 1) / std::max<int64_t>(portions, 1)) {}

  LOCKSTEP_INLINE void fetch_portion() {
    for (int64_t i = std::min(portion_, left_); i > 0; --i, --left_) {
      __builtin_prefetch(row_ + line_ * kLine, 0, 2);
      if (++line_ < lines_) continue;
      line_ = 0;
      row_ += stride_;
    }
  }

 private:
  const char* row_ = nullptr;
  int64_t stride_ = 0, lines_ = 0, left_ = 0, portion_ = 0, line_ = 0;
};

}  // namespace lockstep::kernels::cpu
