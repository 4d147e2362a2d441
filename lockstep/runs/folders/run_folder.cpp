#include "lockstep/runs/folders/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/runs/jobs/job_difference.h"

namespace lockstep {
namespace {

constexpr const char* job_name = "job.json";

void refuse(const std::string& path, const RunState& state) {
  if (state.status == RunStatus::none) return;
  const bool finished = state.status == RunStatus::finished;
  const char* hint = "continue with --resume, or choose another folder with --out";
  if (finished) {
    hint = "train it further with --resume --set max_epochs=N, or choose another folder with --out";
  } else if (state.status == RunStatus::running) {
    hint = "choose another folder with --out";
  }
  throw InvalidArgument("[run] " + path + " contains a " +
                            (finished ? "finished run" : "run that " + describe(state)),
                        hint);
}

// A process that only checks the lock (run_state()) holds it for a moment, so locking is retried.
constexpr int lock_attempts = 20;
constexpr std::chrono::milliseconds lock_pause{10};

bool take_lock(int lock) {
  for (int attempt = 1;; ++attempt) {
    int result;
    do result = ::flock(lock, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    if (result == 0) return true;
    if (errno != EWOULDBLOCK || attempt == lock_attempts) return false;
    std::this_thread::sleep_for(lock_pause);
  }
}

}  // namespace

void refuse_other_run(FileSystem& files, const std::string& path) {
  if (files.exists(path) && !files.is_folder(path)) {
    throw InvalidArgument("[run] " + path + " is a file, not a folder for a run");
  }
  refuse(path, run_state(files, path));
}

RunFolder::RunFolder(FileSystem& files, std::string path, const Job& job,
                     const nlohmann::ordered_json& extra, bool resume)
    : files_(files), path_(std::move(path)) {
  nlohmann::ordered_json description = job.resolved();
  description.update(extra);
  if (path_.empty()) throw InvalidArgument("[run] the run's folder has no name");
  if (!resume) refuse_other_run(files_, path_);
  make_folders(files_, path_);
  inside_ = files_anchored_in(path_);
  lock();
  try {
    before_ = run_state(*inside_, path_, /*own_lock=*/true);
    adopt(description, resume);
    note(RunStatus::running);
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

// Closing the descriptor releases the lock, also if the process dies.
RunFolder::~RunFolder() { ::close(lock_); }

void RunFolder::lock() {
  const std::string path = file(run_lock_name);
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) {
    throw FileError("[run] cannot open " + path + ": " + std::system_category().message(errno));
  }
  if (take_lock(lock_)) return;
  const int error = errno;
  ::close(lock_);
  if (error == EWOULDBLOCK) {
    throw InvalidArgument("[run] another process uses " + path_,
                          "wait for it, or choose another folder with --out");
  }
  throw FileError("[run] cannot lock " + path + ": " + std::system_category().message(error));
}

void RunFolder::note_end() const {
  if (!new_description_.empty()) write_atomically(*inside_, file(job_name), new_description_);
}

void RunFolder::note(RunStatus status, const std::string& reason, int64_t iteration) const {
  write_run_state(*inside_, path_, {status, reason, {}, iteration});
}

void RunFolder::note_as_before() const { write_run_state(*inside_, path_, before_); }

std::string make_numbered_folder(const std::string& prefix) {
  constexpr int most_attempts = 100;
  int attempts = 0;
  make_folders(local_files(), folder_of(prefix));
  for (int64_t number = 1;; ++number) {
    std::string folder = prefix + "-" + std::to_string(number);
    if (::mkdir(folder.c_str(), 0777) == 0) {
      local_files().sync_folder(folder_of(prefix));
      return folder;
    }
    if (errno == EEXIST) continue;
    if (errno == ENOENT && ++attempts < most_attempts) {  // another run has just removed it
      make_folders(local_files(), folder_of(prefix));
      --number;
      continue;
    }
    throw FileError("[run] cannot make the folder " + folder + ": " +
                    std::system_category().message(errno));
  }
}

void RunFolder::adopt(const nlohmann::ordered_json& description, bool resume) {
  const auto refuse_any = [&] { refuse(path_, before_); };
  if (!resume) refuse_any();  // another process may have started a run since the first check
  const std::string path = file(job_name);
  if (!resume || !inside_->exists(path)) {
    if (resume && before_.status != RunStatus::none) {
      throw InvalidArgument("[run] " + path_ + " contains parts of a run, but no " + job_name,
                            "put the file back, or choose another folder with --out");
    }
    write_atomically(*inside_, path, description.dump(2) + "\n");
    return;
  }
  const auto there = nlohmann::ordered_json::parse(read_text(*inside_, path), nullptr, false);
  if (there.is_discarded()) throw DataError("[run] " + path + " is damaged: not JSON");
  const JobDifference difference = job_difference(description, there);
  if (!difference.what.empty()) {
    throw InvalidArgument("[run] " + path_ + " contains a run of another job: " + difference.what,
                          difference.hint.empty()
                              ? "continue with the same job, or choose another folder with --out"
                              : difference.hint);
  }
  resumed_ = true;
  const auto extended = with_end_of(description, there);
  if (extended != there) new_description_ = extended.dump(2) + "\n";
}

}  // namespace lockstep
