// Progress on standard error while archives without an index are read.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/base/time_limit.h"
#include "lockstep/data/datastores/image_shards.h"

namespace lockstep::command {

// For the thread that opens the data: a line that is redrawn on a terminal, else a line every ten
// seconds. A stop signal ends the reading with Cancelled. Not nested.
class ArchivesProgress {
 public:
  // `quiet`: only the stop signal has an effect.
  explicit ArchivesProgress(bool quiet);
  ~ArchivesProgress();
  ArchivesProgress(const ArchivesProgress&) = delete;
  ArchivesProgress& operator=(const ArchivesProgress&) = delete;

 private:
  void show(uint64_t done, uint64_t total);
  const bool quiet_;
  bool shown_ = false;
  std::optional<TimeLimit> next_;  // line, unless it is redrawn
  const WatchArchives watch_;
};

}  // namespace lockstep::command
