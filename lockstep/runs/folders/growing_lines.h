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
  // at most `most` bytes, or all. A file that was rewritten is read from the beginning: one that
  // is shorter than before, another file of this name, or one with other bytes before position().
  // Does nothing if the file cannot be opened or is not a regular file.
  void follow(const std::string& path, const std::function<void(std::string_view line)>& line,
              int64_t most = INT64_MAX);
  // Continues after the first `position` bytes, which others have read. With their mark(), the next
  // follow() finds out whether the file was rewritten since then.
  void skip_to(int64_t position, std::string mark = {});

  // The end of the last whole line.
  int64_t position() const { return whole_; }
  // Tells the bytes before position() and their file from others; "" if nothing was read.
  std::string mark() const;
  int64_t bytes_read() const { return read_; }
  // The last follow() began at the beginning again.
  bool restarted() const { return restarted_; }
  // The last follow() found something that it could not read, or not a regular file. A file that is
  // missing is not unreadable.
  bool unreadable() const { return unreadable_; }
  // A line is too long. Nothing more is read until the file is rewritten.
  bool overlong() const { return overlong_; }

 private:
  bool is_another(int file, uint64_t device, uint64_t inode, int64_t size);

  int64_t read_ = 0, whole_ = 0;
  std::string rest_;      // an incomplete line
  std::string before_;    // the last bytes before position()
  std::string expected_;  // the mark of bytes that others have read
  uint64_t device_ = 0, inode_ = 0;
  bool restarted_ = false, unreadable_ = false, overlong_ = false;
};

// What is said of a file with such a line: "log.jsonl has a line of more than 16 MiB: ...".
std::string overlong_note(std::string_view name);

}  // namespace lockstep
