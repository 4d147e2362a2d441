// Random choices of a generator: a function of seed, case and position.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/numeric/random.h"

namespace lockstep::random_networks {

class Dice {
 public:
  // `purpose` separates streams of one case.
  Dice(uint64_t seed, uint64_t number, uint64_t purpose)
      : stream_({.seed = seed, .use = RandomUse::user, .a = number, .b = purpose}) {}

  int64_t between(int64_t low, int64_t high) { return stream_.between(next_++, low, high); }
  // True in `times` of 100 calls.
  bool chance(int64_t times) { return between(1, 100) <= times; }
  double uniform(double low, double high) { return low + (high - low) * stream_.uniform(next_++); }
  double normal() { return stream_.normal(next_++); }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(between(0, static_cast<int64_t>(from.size()) - 1))];
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

}  // namespace lockstep::random_networks
