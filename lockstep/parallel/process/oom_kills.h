// Processes that the system has ended because their control group had no memory left.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "lockstep/base/time_limit.h"

namespace lockstep {

// Counts by the control group's own number: `oom_kill` of memory.events (version 2), or of
// memory.oom_control (version 1). Such an end is a SIGKILL like any other. One thread at a time.
class OomKills {
 public:
  // Of a file; "": of this process's control group, if there is one.
  explicit OomKills(const std::string& file = {});

  // Looks for new ones: to be called now and then, so that old ones are known as such.
  void look();
  // Whether one of the last ten seconds has not been taken yet, which is the caller's then.
  bool take();

  // Of tests: the file for those made later that are given none.
  static void set_file(const std::string& file);

 private:
  std::optional<int64_t> read() const;

  std::string file_;
  std::optional<int64_t> seen_;
  std::deque<TimeLimit> fresh_;
};

}  // namespace lockstep
