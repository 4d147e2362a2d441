// Books a team's time, thread by thread, on accounts: see profile.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/train/profile.h"

namespace lockstep {

// Every thread books its time since its last booking, so nothing is left out or counted twice. One
// reading of the clock each. begin_iteration() and end_iteration() are for the thread that leads
// the team, while no other books.
class StepLedger {
 public:
  using Phase = ProfileAccount::Phase;

  explicit StepLedger(int threads);

  // The account of that name, opened where there is none. While no thread books.
  int account(Phase phase, const std::string& name, bool waiting = false);
  int waiting() const { return waiting_; }  // for other threads

  // All threads' time begins now; what went before is on no account.
  void begin_iteration();
  // Threads have waited since their last booking. Returns the seconds since begin_iteration().
  double end_iteration();
  // The time of `thread` since its last booking.
  void book(int thread, int account);
  // Instead of end_iteration(): as if it had not begun. While it lasts: as if none had been before.
  void drop_iteration();
  void drop_earlier();
  // Drops what is booked; accounts and floors stay.
  void forget();

  // What a call of a pass takes when nothing but passes runs: see ProfileAccount::floor.
  void set_floor(int account, double seconds_each);
  // `preparation_each`: processor seconds for a mini-batch, by other threads.
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
  // Own cache lines: threads book all the time.
  struct alignas(128) Thread {
    Clock::time_point last;
    std::vector<Entry> entries;  // by account
    std::vector<Span> spans;
    // As they were when the iteration began.
    std::vector<Entry> entries_before;
    size_t spans_before = 0;
  };
  void book(Thread& thread, int account, Clock::time_point now) const;

  std::vector<ProfileAccount> accounts_;
  std::vector<Thread> threads_;
  Clock::time_point begun_;
  int waiting_ = 0;
  int64_t iterations_ = 0;
  double wall_ = 0;
  bool keep_spans_ = true;
};

}  // namespace lockstep
