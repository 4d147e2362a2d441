// The log of a run (log.jsonl), read chunk by chunk while it grows, as columns for charts.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lockstep {

// Lines of a log. Lines that are not valid, such as one that a crash cut off, are left out. Not
// thread-safe.
class RunLog {
 public:
  RunLog();
  ~RunLog();
  RunLog(RunLog&&) noexcept;
  RunLog& operator=(RunLog&&) noexcept;

  // Adds lines. The last one may be incomplete and continue in the next call.
  void add(std::string_view text);
  // Adds what was appended to the file since the last call, at most `most` bytes. A file that was
  // rewritten (as by a continued run; see GrowingLines) is read from the beginning. Does nothing
  // if the file cannot be opened.
  void follow(const std::string& path, int64_t most);
  // Continues a log whose first `position` bytes others have read. `mark` is of their columns(), or
  // "".
  void skip_to(int64_t position, std::string mark = {});

  int64_t position() const;        // bytes of the file that were read
  bool restarted() const;          // the last follow() began at the beginning again
  int64_t added() const;           // lines since clear()
  int64_t last_iteration() const;  // 0: none

  // {"x": [iterations] or the first of them if they are consecutive, "loss": [...],
  //  "accuracy": [...], "rate": [[iteration, rate], ...] where it changes, "epochs": [[iteration,
  //  epoch], ...] where the epoch changes, "times": [[iteration, elapsed seconds], ...] of some
  //  iterations, the last among them, "validations": [...], "events": [...], "workers":
  //  [{"worker", "shards", "shard_ms", "iteration_ms"}] if workers have reported, "elapsed",
  //  "seconds" (mean of an iteration), "images" (of these iterations), "position",
  //  "mark" (of the bytes before the position: GrowingLines::mark())}.
  // Values have five digits. Values that are not finite are null. Of more than `most` iterations,
  // those with the smallest and the largest loss of each of most / 2 equal parts remain.
  nlohmann::ordered_json columns(size_t most = 100'000) const;
  // Forgets the lines, so that columns() has only those that are added afterwards.
  void clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
