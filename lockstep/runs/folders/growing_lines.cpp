#include "lockstep/runs/folders/growing_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "lockstep/base/os/descriptor.h"

namespace lockstep {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;

}  // namespace

void GrowingLines::follow(const std::string& path,
                          const std::function<void(std::string_view line)>& line, int64_t most) {
  restarted_ = false;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (status.st_size < read_) {
    *this = {};
    restarted_ = true;
  }
  std::string text;
  for (int64_t left = std::min(most, status.st_size - read_); left > 0 && !overlong_;) {
    text = std::move(rest_);
    rest_.clear();
    const size_t before = text.size();
    const auto size = static_cast<size_t>(std::min(left, kPiece));
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
    text.erase(0, begin);
    rest_ = std::move(text);
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
