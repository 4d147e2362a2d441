#include "lockstep/engine/kernels/cpu/recurrent/sequences.h"

#include <algorithm>
#include <cstring>

namespace lockstep::kernels::cpu {
namespace {

void copy_floats(const float* from, int64_t count, float* to) {
  if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace

Sequences::Sequences(const int32_t* lengths, int64_t n, int64_t steps, bool reverse, void* memory)
    : lengths_(lengths),
      n_(n),
      steps_(steps),
      reverse_(reverse),
      order_(static_cast<int64_t*>(memory)),
      first_(order_ + n),
      rows_at_(first_ + n) {
  for (int64_t i = 0; i < n; ++i) {
    first_[i] = valid_;
    valid_ += length(i);
    longest_ = std::max(longest_, length(i));
  }
  std::fill_n(rows_at_, longest_ + 1, int64_t{0});
  for (int64_t i = 0; i < n; ++i) {
    if (length(i) > 0) ++rows_at_[length(i) - 1];
  }
  for (int64_t t = longest_ - 1; t >= 0; --t) rows_at_[t] += rows_at_[t + 1];
  // Where, in the order, the next row of each length goes.
  int64_t* const next = rows_at_ + steps + 1;
  std::copy_n(rows_at_, longest_ + 1, next);
  for (int64_t i = 0; i < n; ++i) order_[next[length(i)]++] = i;
}

void Sequences::gather(const float* from, int64_t width, float* to) const {
  for (int64_t i = 0; i < n_; ++i) {
    copy_floats(from + i * steps_ * width, length(i) * width, to + first_[i] * width);
  }
}

void Sequences::spread(const float* from, int64_t width, float* to) const {
  for (int64_t i = 0; i < n_; ++i) {
    copy_floats(from + first_[i] * width, length(i) * width, to + i * steps_ * width);
  }
  clear_rest(to, width);
}

void Sequences::clear_rest(float* of, int64_t width) const {
  for (int64_t i = 0; i < n_; ++i) {
    std::fill(of + (i * steps_ + length(i)) * width, of + (i + 1) * steps_ * width, 0.0f);
  }
}

void Sequences::gather_states(const float* y, const float* h0, int64_t width, float* to) const {
  for (int64_t i = 0; i < n_; ++i) {
    const int64_t count = length(i);
    if (count == 0) continue;
    const float* const of = y + i * steps_ * width;
    float* const there = to + first_[i] * width;
    copy_floats(h0 + i * width, width, there + time(i, 0) * width);
    copy_floats(reverse_ ? of + width : of, (count - 1) * width, reverse_ ? there : there + width);
  }
}

}  // namespace lockstep::kernels::cpu
