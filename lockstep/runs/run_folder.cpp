#include "lockstep/runs/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr const char* job_name = "job.json";
constexpr const char* lock_name = "lock";

}  // namespace

void refuse_other_run(FileSystem& files, const std::string& path) {
  if (files.exists(path) && !files.is_folder(path)) {
    throw InvalidArgument("[run] " + path + " is a file, not a folder for a run");
  }
  for (const char* name :
       {job_name, "model.safetensors", "receipt.jsonl", "log.jsonl", "checkpoints"}) {
    if (!files.exists(join_path(path, name))) continue;
    const bool finished = files.exists(join_path(path, "model.safetensors"));
    throw InvalidArgument(
        "[run] " + path + " holds " + (finished ? "a finished run" : "a run that has not finished"),
        finished ? "choose another folder with --out"
                 : "go on with --resume, or choose another folder with --out");
  }
}

RunFolder::RunFolder(FileSystem& files, std::string path, const Job& job,
                     const nlohmann::ordered_json& extra, bool resume)
    : files_(files), path_(std::move(path)) {
  nlohmann::ordered_json description = job.resolved();
  description.update(extra);
  if (!resume) refuse_other_run(files_, path_);
  make_folders(files_, path_);
  lock();
  try {
    adopt(description, resume);
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

// Closing the descriptor gives the lock back, also when the process dies.
RunFolder::~RunFolder() { ::close(lock_); }

void RunFolder::lock() {
  const std::string path = file(lock_name);
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) {
    throw FileError("[run] cannot open " + path + ": " + std::system_category().message(errno));
  }
  int result;
  do result = ::flock(lock_, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR);
  if (result == 0) return;
  const int error = errno;
  ::close(lock_);
  if (error == EWOULDBLOCK) {
    throw InvalidArgument("[run] another process is working in " + path_,
                          "wait for it, or choose another folder with --out");
  }
  throw FileError("[run] cannot lock " + path + ": " + std::system_category().message(error));
}

void RunFolder::adopt(const nlohmann::ordered_json& description, bool resume) {
  if (!resume) refuse_other_run(files_, path_);  // nobody was faster
  const std::string path = file(job_name);
  if (!resume || !files_.exists(path)) {
    if (resume) refuse_other_run(files_, path_);  // parts of a run whose job nobody knows
    write_atomically(files_, path, description.dump(2) + "\n");
    return;
  }
  const auto there = nlohmann::ordered_json::parse(read_text(files_, path), nullptr, false);
  if (there.is_discarded()) throw DataError("[run] " + path + " is damaged: no JSON");
  const std::string difference = job_difference(description, there);
  if (!difference.empty()) {
    throw InvalidArgument("[run] " + path_ + " holds a run of another job: " + difference,
                          "go on with the same job, or choose another folder with --out");
  }
  resumed_ = true;
}

}  // namespace lockstep
