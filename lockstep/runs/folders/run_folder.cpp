#include "lockstep/runs/folders/run_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/runs/jobs/job_difference.h"
#include "lockstep/runs/jobs/job_file.h"

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
  lock_ = FileLock::take(file(run_lock_name));
  if (!lock_) {
    throw InvalidArgument("[run] another process uses " + path_,
                          "wait for it, or choose another folder with --out");
  }
  before_ = run_state(*inside_, path_, /*own_lock=*/true);
  adopt(description, resume);
  note(RunStatus::running);
}

void RunFolder::note_end() const {
  if (!new_description_.empty()) write_atomically(*inside_, file(job_name), new_description_);
}

void RunFolder::note(RunStatus status, const std::string& reason, int64_t iteration) const {
  write_run_state(*inside_, path_, {status, reason, {}, iteration});
}

void RunFolder::note_as_before() const { write_run_state(*inside_, path_, before_); }

namespace {

// A key of a folder's job.json; null if it is not there.
nlohmann::json noted_in(FileSystem& files, const std::string& folder, const char* key) {
  const std::string path = join_path(folder, job_name);
  if (!files.exists(path)) return {};
  const auto job = parse_json_or_discard<nlohmann::json>(read_text(files, path));
  return job.is_object() && job.contains(key) ? job[key] : nlohmann::json();
}

}  // namespace

TableColumns run_columns(FileSystem& files, const std::string& folder) {
  const nlohmann::json columns = noted_in(files, folder, "columns");
  if (columns.is_null()) return {};
  try {
    return TableColumns::from_json(columns);
  } catch (const InvalidArgument& error) {
    throw DataError("[run] " + join_path(folder, job_name) + ": " + error.what());
  }
}

std::string run_initial_model(FileSystem& files, const std::string& folder) {
  const nlohmann::json file = noted_in(files, folder, "initial_model_file");
  return file.is_string() ? file.get<std::string>() : "";
}

std::string run_initial_model_digest(FileSystem& files, const std::string& folder) {
  const nlohmann::json digest = noted_in(files, folder, "initial_model");
  return digest.is_string() ? digest.get<std::string>() : "";
}

void keep_validation_frequency(FileSystem& files, const std::string& folder, Job& job) {
  if (job.validation_frequency_given) return;
  const nlohmann::json training = noted_in(files, folder, "training");
  if (!training.is_object() || !training.contains("validation_frequency")) return;
  const nlohmann::json& frequency = training["validation_frequency"];
  if (frequency == "epoch") job.training.validation.frequency = 0;
  if (frequency.is_number_integer()) {
    job.training.validation.frequency = frequency.get<int64_t>();
  }
  const nlohmann::json unit = training.value("validation_frequency_unit", nlohmann::json());
  if (unit == "iteration") job.training.validation.frequency_unit = FrequencyUnit::iteration;
  if (unit == "epoch") job.training.validation.frequency_unit = FrequencyUnit::epoch;
  job.validation_frequency_given = true;
}

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
  const auto there = parse_json_or_discard<nlohmann::ordered_json>(read_text(*inside_, path));
  if (there.is_discarded()) throw DataError("[run] " + path + " is damaged: not JSON");
  const JobDifference difference = job_difference(description, there);
  if (!difference.what.empty()) {
    throw InvalidArgument("[run] " + path_ + " contains a run of another job: " + difference.what,
                          difference.hint.empty()
                              ? "continue with the same job, or choose another folder with --out"
                              : difference.hint);
  }
  resumed_ = true;
  auto extended = with_end_of(description, there);
  if (description.contains("initial_model_file")) {  // it may have been moved
    extended["initial_model_file"] = description["initial_model_file"];
  }
  if (extended != there) new_description_ = extended.dump(2) + "\n";
}

}  // namespace lockstep
