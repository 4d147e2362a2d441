// Where the time of a training's iterations went.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// What time is spent on: a pass of the plan, or a part of the step around the plans.
struct ProfileAccount {
  enum class Phase : uint8_t { forward, backward, step };
  Phase phase = Phase::step;
  std::string name;      // "conv_1", "conv_1: gradient", "solver"
  bool waiting = false;  // for others
  int64_t calls = 0;     // by all threads
  double seconds = 0;    // of all threads together
  // Passes: what as many calls take, by the median, when nothing but the passes runs, one behind
  // the other in the step's own memory, in all threads at once; else NaN.
  double floor = std::nan("");
};

// A stretch of one thread's time. Seconds since the first stretch.
struct ProfileSpan {
  int thread = 0;
  int account = 0;  // number in Profile::accounts
  double begin = 0, seconds = 0;
};

// All time of all threads is on some account: accounts add up to threads x wall.
struct Profile {
  int threads = 0;
  int64_t iterations = 0;  // the first is left out, unless it was the only one
  double wall = 0;         // seconds of these iterations, as their records have them
  std::vector<ProfileAccount> accounts =
      {};  // forward and backward passes in their order, then the rest
  // Processor seconds of other threads, which prepared mini-batches; not in `accounts`.
  double preparation = 0;
  std::vector<ProfileSpan> spans = {};  // of the first of these iterations

  double booked() const;  // seconds on all accounts
  double floor() const;   // seconds of all passes' floors
  // The share of the threads' time that the passes need when nothing but them runs: 1 is a step
  // without overhead. NaN without iterations.
  double efficiency() const { return iterations > 0 ? floor() / (wall * threads) : std::nan(""); }
};

}  // namespace lockstep
