#include "apps/lockstep/archives_progress.h"

#include <fmt/format.h>

#include <cstdio>

#include "apps/lockstep/command.h"
#include "apps/lockstep/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/report/progress.h"

namespace lockstep::command {
namespace {

constexpr double between_lines = 10;  // seconds

std::string megabytes(uint64_t bytes) {
  return format_count(static_cast<int64_t>((bytes + 999'999) / 1'000'000));
}

}  // namespace

ArchivesProgress::ArchivesProgress(bool quiet)
    : quiet_(quiet), watch_([this](uint64_t done, uint64_t total) { show(done, total); }) {}

ArchivesProgress::~ArchivesProgress() {
  if (shown_) std::fprintf(stderr, "\r\x1b[K");
}

void ArchivesProgress::show(uint64_t done, uint64_t total) {
  if (stop_wanted()) {
    throw Cancelled("[shards] stopped while archives without an index were read",
                    "no iteration had begun, so nothing is lost");
  }
  if (quiet_) return;
  const std::string text = fmt::format("Reading archives without an index: {} of {} MB",
                                       megabytes(done), megabytes(total));
  if (error_is_terminal()) {
    shown_ = done < total;
    std::fprintf(stderr, "\r\x1b[K%s", shown_ ? text.c_str() : "");
  } else if (!next_) {
    next_.emplace(between_lines);
  } else if (next_->reached()) {
    next_.emplace(between_lines);
    std::fprintf(stderr, "%s\n", text.c_str());
  }
}

}  // namespace lockstep::command
