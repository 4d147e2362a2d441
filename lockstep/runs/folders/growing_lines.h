// The lines of a file that another process appends to, such as a run's log.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

// Not thread-safe.
class GrowingLines {
 public:
  // Of a line. A file with a longer one is damaged: it may be sparse and claim any size.
  static constexpr size_t longest = size_t{16} << 20;

  // Calls `line` for each whole line that was appended since the last call, without its end. Reads
  // at most `most` bytes, or all. A file that is shorter than before was written anew: it is read
  // from the beginning. Does nothing if the file cannot be opened or is not a regular file.
  void follow(const std::string& path, const std::function<void(std::string_view line)>& line,
              int64_t most = INT64_MAX);
  // Continues after the first `position` bytes, which others have read.
  void skip_to(int64_t position) { read_ = position; }

  int64_t position() const { return read_ - static_cast<int64_t>(rest_.size()); }
  int64_t bytes_read() const { return read_; }
  // The last follow() began at the beginning again.
  bool restarted() const { return restarted_; }
  // A line is too long. Nothing more is read until the file is written anew.
  bool overlong() const { return overlong_; }

 private:
  int64_t read_ = 0;
  std::string rest_;  // an incomplete line
  bool restarted_ = false, overlong_ = false;
};

// What is said of a file with such a line: "log.jsonl has a line of more than 16 MiB: ...".
std::string overlong_note(std::string_view name);

}  // namespace lockstep
