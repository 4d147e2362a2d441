#include "apps/lockstep/archives_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include "apps/lockstep/command.h"
#include "apps/lockstep/image_options.h"
#include "apps/lockstep/stop_signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/report/progress.h"

namespace lockstep::command {
namespace {

constexpr double between_lines = 10;  // seconds
constexpr double between_redraws = 0.1;

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

struct ReadingProgress::State {
  const bool quiet;
  Mutex mutex;
  int64_t done LOCKSTEP_GUARDED_BY(mutex) = 0;
  bool shown LOCKSTEP_GUARDED_BY(mutex) = false;
  TimeLimit next LOCKSTEP_GUARDED_BY(mutex);

  explicit State(bool is_quiet) : quiet(is_quiet), next(error_is_terminal() ? 0 : between_lines) {}

  void count(int64_t total) LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    ++done;
    if (quiet || done >= total || !next.reached()) return;
    const std::string text =
        fmt::format("Reading images: {} of {}", format_count(done), format_count(total));
    const bool redrawn = error_is_terminal();
    next = TimeLimit(redrawn ? between_redraws : between_lines);
    shown = redrawn;
    std::fprintf(stderr, redrawn ? "\r\x1b[K%s" : "%s\n", text.c_str());
  }

  void finish() LOCKSTEP_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    if (shown) std::fprintf(stderr, "\r\x1b[K");
    shown = false;
  }
};

namespace {

class CountedDatastore final : public DatastoreWrapper {
 public:
  CountedDatastore(DatastorePtr data, std::function<void()> count)
      : DatastoreWrapper(std::move(data)), count_(std::move(count)) {}

  lockstep::Example read(int64_t index) const override {
    try {
      lockstep::Example example = DatastoreWrapper::read(index);
      count_();
      return example;
    } catch (const FileError&) {
      throw;
    } catch (const DataError& error) {
      if (!error.hint().empty()) throw;
      throw DataError(error.what(), skip_hint);
    }
  }
  const ImageFacts* facts(int64_t index) const override { return wrapped().facts(index); }

 private:
  const std::function<void()> count_;
};

}  // namespace

ReadingProgress::ReadingProgress(bool quiet) : state_(std::make_shared<State>(quiet)) {}
ReadingProgress::~ReadingProgress() { finish(); }

DatastorePtr ReadingProgress::watch(DatastorePtr data) const {
  const std::vector<ValueSpec> inputs = data->spec().inputs;
  const bool reads_images = std::any_of(inputs.begin(), inputs.end(), [](const ValueSpec& input) {
    return input.kind == ValueKind::image;
  });
  if (!reads_images) return data;
  const int64_t total = data->size();
  return std::make_shared<CountedDatastore>(std::move(data),
                                            [state = state_, total] { state->count(total); });
}

void ReadingProgress::finish() const { state_->finish(); }

}  // namespace lockstep::command
