// A time profile of training iterations.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// Time is charged to accounts: one for each pass of a plan and each other part of a training step.
struct ProfileAccount {
  enum class Phase : uint8_t { forward, backward, iteration };
  Phase phase = Phase::iteration;
  std::string name;      // "conv_1", "conv_1: gradient", "solver"
  bool waiting = false;  // for other threads
  int64_t calls = 0;     // by all threads
  double seconds = 0;    // sum over all threads
  // Passes only, else NaN: seconds for the same number of calls (by the median) when only the
  // passes run, one after the other, on the iteration's own memory and in all threads at once.
  double floor = std::nan("");
};

// An interval of one thread's time. Times are in seconds since the first interval.
struct ProfileSpan {
  int thread = 0;
  int account = 0;  // index in Profile::accounts
  double begin = 0, seconds = 0;
};

// All time of all threads is on some account, so the accounts add up to threads x wall.
struct Profile {
  int threads = 0;
  int64_t iterations = 0;  // without the first iteration, unless it is the only one
  double wall = 0;         // seconds of these iterations, as in their records
  std::vector<ProfileAccount> accounts =
      {};  // forward and backward passes in their order, then the rest
  // Processor seconds of other threads that prepared mini-batches; not part of `accounts`.
  double preparation = 0;
  std::vector<ProfileSpan> spans = {};  // of the first of these iterations

  double charged() const;  // seconds on all accounts
  double floor() const;    // seconds of the floors of all passes
  // The share of the threads' time that the passes need when no other work runs. 1 is a step
  // without overhead. NaN without iterations.
  double efficiency() const { return iterations > 0 ? floor() / (wall * threads) : std::nan(""); }
};

}  // namespace lockstep
