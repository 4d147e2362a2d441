// Detects processes that the system killed because their control group ran out of memory.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "lockstep/base/time_limit.h"

namespace lockstep {

// Reads the kernel's counter for the control group: `oom_kill` of memory.events (version 2), or of
// memory.oom_control (version 1). The kill itself is an ordinary SIGKILL. One thread at a time.
class OomKills {
 public:
  // Reads the given file; "": the file of this process's control group, if there is one.
  explicit OomKills(const std::string& file = {});

  // Reads the counter. Call it regularly, so that old kills are recognized as old.
  void look();
  // Claims one kill of the last ten seconds. False if none is left.
  bool take();

  // For tests: the default file of objects created later.
  static void set_file(const std::string& file);

 private:
  std::optional<int64_t> read() const;

  std::string file_;
  std::optional<int64_t> seen_;
  std::deque<TimeLimit> fresh_;
};

}  // namespace lockstep
