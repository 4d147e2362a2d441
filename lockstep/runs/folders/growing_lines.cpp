#include "lockstep/runs/folders/growing_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lockstep/base/digest.h"
#include "lockstep/base/os/descriptor.h"

namespace lockstep {
namespace {

constexpr int64_t kChunk = int64_t{1} << 20;
// Bytes that are compared: lines of a log differ in their times, also where two runs have the same
// bits.
constexpr int64_t kCompared = 512;

// Up to `size` bytes at an offset.
std::string bytes_at(int file, int64_t offset, int64_t size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  const ssize_t got = ::pread(file, bytes.data(), bytes.size(), offset);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

}  // namespace

void GrowingLines::skip_to(int64_t position, std::string mark) {
  *this = {};
  read_ = whole_ = std::max<int64_t>(position, 0);
  expected_ = std::move(mark);
}

std::string GrowingLines::mark() const {
  if (before_.empty()) return {};
  Digester digester;
  digester.add(device_);
  digester.add(inode_);
  digester.bytes(before_.data(), before_.size());
  return digester.finish().to_string().substr(0, 16);
}

// Whether the file is not the one that was read before. A log that was rewritten may be longer
// than before, and a file system gives the number of a removed file to the next one.
bool GrowingLines::is_another(int file, uint64_t device, uint64_t inode, int64_t size) {
  const bool known = inode_ != 0, same = device == device_ && inode == inode_;
  device_ = device;
  inode_ = inode;
  if (read_ == 0) return false;
  if (size < read_ || (known && !same)) return true;
  const int64_t count = std::min(whole_, kCompared);
  std::string now = bytes_at(file, whole_ - count, count);
  if (static_cast<int64_t>(now.size()) < count) return false;  // it shrinks now, or cannot be read
  if (known) return now != before_;
  before_ = std::move(now);  // of what others have read
  const std::string expected = std::exchange(expected_, {});
  return !expected.empty() && expected != mark();
}

void GrowingLines::follow(const std::string& path,
                          const std::function<void(std::string_view line)>& line, int64_t most) {
  restarted_ = unreadable_ = false;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!file) {
    unreadable_ = errno != ENOENT && errno != ENOTDIR;
    return;
  }
  unreadable_ = ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode);
  if (unreadable_) return;
  if (is_another(file.get(), status.st_dev, status.st_ino, status.st_size)) {
    *this = {};
    device_ = status.st_dev;
    inode_ = status.st_ino;
    restarted_ = true;
  }
  std::string text;
  for (int64_t left = std::min(most, status.st_size - read_); left > 0 && !overlong_;) {
    text = std::move(rest_);
    rest_.clear();
    const size_t before = text.size();
    const auto size = static_cast<size_t>(std::min(left, kChunk));
    text.resize(before + size);
    const ssize_t got = ::pread(file.get(), text.data() + before, size, read_);
    text.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    size_t begin = 0;
    if (got > 0) {
      read_ += got;
      left -= got;
      for (size_t end = text.find('\n', before); end != std::string::npos;
           end = text.find('\n', begin)) {
        line(std::string_view(text).substr(begin, end - begin));
        begin = end + 1;
      }
    }
    if (begin > 0) {
      constexpr auto compared = static_cast<size_t>(kCompared);
      const size_t last = std::min(begin, compared);
      before_.append(text, begin - last, last);
      before_.erase(0, before_.size() - std::min(before_.size(), compared));
      whole_ += static_cast<int64_t>(begin);
    }
    text.erase(0, begin);
    rest_ = std::move(text);
    unreadable_ = got < 0;
    if (got <= 0) return;
    if (rest_.size() > longest) {
      overlong_ = true;
      rest_ = {};
    }
  }
}

std::string overlong_note(std::string_view name) {
  return std::string(name) + " has a line of more than " +
         std::to_string(GrowingLines::longest >> 20) +
         " MiB: it is damaged, and what follows is not read";
}

}  // namespace lockstep
