#include "lockstep/runs/batch/batch_files.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fields.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/base/utc_time.h"

namespace lockstep {
namespace {

constexpr const char* batch_format = "2";
constexpr const char* first_batch_format = "1";  // trainings alone
constexpr double client_limit = 90;              // seconds
constexpr int64_t most_releases = 3;             // of a job that Slurm holds

constexpr std::array<std::pair<BatchStatus, const char*>, 5> status_names{
    {{BatchStatus::queued, "queued"},
     {BatchStatus::running, "running"},
     {BatchStatus::finished, "finished"},
     {BatchStatus::failed, "failed"},
     {BatchStatus::cancelled, "cancelled"}}};

constexpr std::array<std::pair<BatchKind, const char*>, 3> kind_names{
    {{BatchKind::training, "training"},
     {BatchKind::sweep, "sweep"},
     {BatchKind::function, "function"}}};

// The text at `key`, or "" if there is none.
std::string text_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

nlohmann::json read_batch_json(const std::string& path) {
  auto read = parse_json_or_discard<nlohmann::json>(read_text(local_files(), path));
  const bool known = read.is_object() && (text_at(read, "lockstep.batch") == batch_format ||
                                          text_at(read, "lockstep.batch") == first_batch_format);
  if (!known) {
    throw DataError("[batch] " + path + " is damaged, or of a later version",
                    "lockstep jobs rm removes it");
  }
  return read;
}

void write_batch_json(const std::string& path, const nlohmann::ordered_json& written) {
  write_atomically(
      local_files(), path,
      written.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

BatchState recorded_state(const std::string& folder) {
  const std::string path = join_path(folder, batch_state_name);
  const nlohmann::json read = read_batch_json(path);
  for (const auto& [status, name] : status_names) {
    if (text_at(read, "state") == name) {
      return {status, text_at(read, "reason"), text_at(read, "time")};
    }
  }
  throw DataError("[batch] " + path + " names no known state");
}

// Lets a job start that Slurm holds because its node failed to launch it. The next node may be
// sound; a job that fails everywhere is given up. Returns what became of it.
std::string release_held_job(const BatchJob& job, const std::string& slurm_job) {
  const std::string path = job.file(batch_releases_name);
  const int64_t before =
      local_files().exists(path) ? batch_number_of(read_text(local_files(), path)) : 0;
  if (before >= most_releases) {
    return " after " + std::to_string(before) +
           " releases: `lockstep jobs cancel` and `lockstep jobs resume` submit it again";
  }
  try {
    write_atomically(local_files(), path, std::to_string(before + 1));
    Slurm(job.profile.login).release(slurm_job);
    return ": it was released";
  } catch (const Error& error) {
    return std::string(": it cannot be released: ") + error.what();
  }
}

// The state of a job of Slurm whose process does not live, or is starting.
BatchState state_in_slurm(SlurmQueue& queue, const BatchJob& job, const std::string& slurm_job,
                          const BatchState& recorded) {
  SlurmState slurm;
  try {
    slurm = queue.state(job.profile.login, slurm_job);
  } catch (const Error& error) {
    return {recorded.status, error.what(), recorded.time};
  }
  if (slurm.is_alive()) {
    std::string reason = "Slurm's job " + slurm_job + " is " + slurm.state;
    if (slurm.reason != "None") reason += " (" + slurm.reason + ")";
    if (slurm.is_held_after_launch()) reason += release_held_job(job, slurm_job);
    return {BatchStatus::queued, reason, recorded.time};
  }
  return {BatchStatus::failed,
          "Slurm's job " + slurm_job +
              (slurm.state.empty() ? " ended before the job did"
                                   : " ended as " + slurm.state + " before the job did"),
          recorded.time};
}

}  // namespace

std::string slurm_job_of(const std::string& folder) {
  const std::string path = join_path(folder, batch_slurm_job_name);
  return local_files().exists(path) ? read_text(local_files(), path) : "";
}

std::string to_string(BatchStatus status) {
  for (const auto& [known, name] : status_names) {
    if (known == status) return name;
  }
  return "";
}

std::string to_string(BatchKind kind) {
  for (const auto& [known, name] : kind_names) {
    if (known == kind) return name;
  }
  return "";
}

bool has_ended(BatchStatus status) {
  return status != BatchStatus::queued && status != BatchStatus::running;
}

int64_t batch_number_of(const std::string& name) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return whole && number > 0 && std::to_string(number) == name ? number : 0;
}

SlurmState SlurmQueue::state(const std::string& login, const std::string& job) {
  const auto [entry, is_new] = logins_.try_emplace(login);
  Known& known = entry->second;
  if (is_new) {
    try {
      known.jobs = Slurm(login).own_jobs();
    } catch (const Error& error) {
      known.error = error.what();
    }
  }
  if (!known.error.empty()) throw Error(known.error);
  const auto found = known.jobs.find(job);
  return found == known.jobs.end() ? SlurmState() : found->second;
}

BatchState batch_state(const BatchJob& job, SlurmQueue& queue, bool is_client) {
  const bool lives = file_is_locked(job.file(batch_lock_name));
  // Read after the lock: a process records its last state before it releases the lock.
  BatchState state = recorded_state(job.folder);
  if (lives || has_ended(state.status)) return state;
  const bool cancelled = local_files().exists(job.file(batch_cancel_name));
  if (cancelled && slurm_job_of(job.folder).empty()) {
    return {BatchStatus::cancelled, "", state.time};
  }
  if (const std::string slurm_job = slurm_job_of(job.folder); !slurm_job.empty()) {
    BatchState there = state_in_slurm(queue, job, slurm_job, state);
    // Slurm was asked after the files were read: the job may have ended in between.
    const BatchState now = recorded_state(job.folder);
    if (has_ended(now.status)) return now;
    if (!cancelled) return there;
    if (has_ended(there.status)) return {BatchStatus::cancelled, "", state.time};
    return {there.status, "it is being cancelled: " + there.reason, state.time};
  }
  // Another process may be submitting or resuming it.
  if (!is_client && file_is_locked(job.file(batch_client_lock_name))) return state;
  if (file_is_locked(job.file(batch_lock_name))) return state;  // it has done so
  if (const BatchState now = recorded_state(job.folder); has_ended(now.status)) return now;
  return {BatchStatus::failed,
          state.status == BatchStatus::queued
              ? "its process was killed while it was queued, or the machine was restarted"
              : "its process was killed, or the machine was restarted",
          state.time};
}

BatchJob read_batch_description(const std::string& folder) {
  const nlohmann::json read = read_batch_json(join_path(folder, batch_description_name));
  BatchJob job;
  job.number = batch_number_of(folder.substr(folder.rfind('/') + 1));
  job.folder = folder;
  try {
    const auto kind = read.value("kind", "training");
    bool known = false;
    for (const auto& [each, name] : kind_names) {
      if (kind != name) continue;
      job.request.kind = each;
      known = true;
    }
    if (!known) throw InvalidArgument("there is no kind " + kind);
    job.name = job.request.name = read.at("name").get<std::string>();
    job.submitted = read.at("submitted").get<std::string>();
    job.host = read.at("host").get<std::string>();
    job.directory = read.value("directory", "");
    job.executable = read.value("executable", "");
    job.digest = read.value("digest", "");
    job.request.initial_model = read.at("initial_model").get<std::string>();
    job.request.workers = read.value("workers", int64_t{0});
    job.request.at_once = read.at("at_once").get<bool>();
    job.request.cluster = read.at("cluster").get<std::string>();
    FieldReader profile(read.at("profile"), "profile");
    job.profile.visit(profile);
    profile.finish();
  } catch (const InvalidArgument& error) {
    throw DataError("[batch] " + join_path(folder, batch_description_name) +
                    " is damaged: " + error.what());
  } catch (const nlohmann::json::exception&) {
    throw DataError("[batch] " + join_path(folder, batch_description_name) + " is damaged");
  }
  return job;
}

BatchJob read_batch_job(const std::string& folder, SlurmQueue& queue, bool is_client) {
  BatchJob job = read_batch_description(folder);
  job.state = batch_state(job, queue, is_client);
  return job;
}

void write_batch_description(const BatchJob& job) {
  ClusterProfile profile = job.profile;
  const std::string cluster = cluster_profile_name_of(job.request.cluster);
  auto fields = nlohmann::ordered_json::object();
  FieldWriter writer(fields);
  profile.visit(writer);
  write_batch_json(job.file(batch_description_name), {{"lockstep.batch", batch_format},
                                                      {"kind", to_string(job.request.kind)},
                                                      {"name", job.name},
                                                      {"submitted", job.submitted},
                                                      {"host", job.host},
                                                      {"directory", job.directory},
                                                      {"executable", job.executable},
                                                      {"digest", job.digest},
                                                      {"initial_model", job.request.initial_model},
                                                      {"workers", job.request.workers},
                                                      {"at_once", job.request.at_once},
                                                      {"cluster", cluster},
                                                      {"profile", fields}});
}

void write_batch_state(const BatchJob& job, BatchStatus status, const std::string& reason) {
  write_batch_json(job.file(batch_state_name), {{"lockstep.batch", batch_format},
                                                {"state", to_string(status)},
                                                {"reason", reason},
                                                {"time", utc_now()}});
}

FileLock lock_batch_job(const std::string& folder) {
  const TimeLimit limit(client_limit);
  do {
    if (std::optional<FileLock> lock = FileLock::take(join_path(folder, batch_client_lock_name))) {
      return std::move(*lock);
    }
  } while (!limit.reached());
  throw Timeout("[batch] another process has been changing the job in " + folder + " for " +
                std::to_string(static_cast<int>(client_limit)) + " seconds");
}

}  // namespace lockstep
