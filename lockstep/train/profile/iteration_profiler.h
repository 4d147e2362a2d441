// Charges the time of a team of threads to accounts: see profile.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/profile/profile.h"

namespace lockstep {

// Each charge covers the thread's time since its last charge, so no time is left out or counted
// twice. A charge reads the clock once. Only the thread that leads the team calls begin_iteration()
// and end_iteration(), while no other thread charges.
class IterationProfiler {
 public:
  using Phase = ProfileAccount::Phase;

  explicit IterationProfiler(int threads);

  // Returns the account with this name, and opens it if there is none. Call it while no thread
  // charges.
  int account(Phase phase, const std::string& name, bool waiting = false);
  int waiting() const { return waiting_; }  // for other threads

  // Starts the time of all threads. Earlier time is on no account.
  void begin_iteration();
  // Charges the time since each thread's last charge as waiting. Returns the seconds since
  // begin_iteration().
  double end_iteration();
  // Charges the time of `thread` since its last charge.
  void charge(int thread, int account);
  // Charges the first `seconds` of that time, at most, and nothing if they are 0.
  void charge_first(int thread, int account, double seconds);
  // drop_iteration() is called instead of end_iteration() and discards the current iteration.
  // drop_earlier() discards all iterations before the current one.
  void drop_iteration();
  void drop_earlier();
  // Discards all charges. Accounts and floors stay.
  void forget();

  // Sets the seconds of one call of a pass when only passes run: see ProfileAccount::floor.
  void set_floor(int account, double seconds_each);
  // `preparation_each`: processor seconds of other threads for one mini-batch.
  Profile finish(double preparation_each) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    int64_t calls = 0;
    Clock::duration time = {};
  };
  struct Span {
    int account = 0;
    Clock::time_point begin, end;
  };
  // Aligned to separate cache lines, because all threads charge all the time.
  struct alignas(128) Thread {
    Clock::time_point last;
    std::vector<Entry> entries;  // by account
    std::vector<Span> spans;
    // Values at the beginning of the iteration.
    std::vector<Entry> entries_before;
    size_t spans_before = 0;
  };
  void charge(Thread& thread, int account, Clock::time_point now) const;

  std::vector<ProfileAccount> accounts_;
  std::vector<Thread> threads_;
  Clock::time_point begun_;
  int waiting_ = 0;
  int64_t iterations_ = 0;
  double wall_ = 0;
  bool keep_spans_ = true;
};

}  // namespace lockstep
