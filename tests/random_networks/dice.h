// Random choices of a generator: a function of seed, case and how many came before.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/base/random.h"

namespace lockstep::random_networks {

class Dice {
 public:
  // `purpose` keeps streams of one case apart.
  Dice(uint64_t seed, uint64_t number, uint64_t purpose)
      : stream_({.seed = seed, .use = RandomUse::user, .a = number, .b = purpose}) {}

  int64_t between(int64_t low, int64_t high) { return stream_.between(next_++, low, high); }
  // True `times` of 100 times.
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
