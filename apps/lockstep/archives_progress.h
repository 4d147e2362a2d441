// Progress on standard error while data is read: archives without an index, and images that are
// evaluated.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/base/time_limit.h"
#include "lockstep/data/datastores/datastore.h"
#include "lockstep/data/datastores/images/image_shards.h"

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

// Counts the observations that an evaluation reads, and shows their number as training does: a line
// that is redrawn on a terminal, else a line every ten seconds.
class ReadingProgress {
 public:
  explicit ReadingProgress(bool quiet);
  ~ReadingProgress();
  ReadingProgress(const ReadingProgress&) = delete;
  ReadingProgress& operator=(const ReadingProgress&) = delete;

  // The same data, counted when it is read.
  DatastorePtr watch(DatastorePtr data) const;
  void finish() const;  // removes the line

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace lockstep::command
