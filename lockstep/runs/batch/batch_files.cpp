#include "lockstep/runs/batch/batch_files.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fields.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/base/utc_time.h"
#include "lockstep/parallel/clusters/slurm.h"

namespace lockstep {
namespace {

constexpr const char* batch_format = "1";

constexpr std::array<std::pair<BatchStatus, const char*>, 5> status_names{
    {{BatchStatus::queued, "queued"},
     {BatchStatus::running, "running"},
     {BatchStatus::finished, "finished"},
     {BatchStatus::failed, "failed"},
     {BatchStatus::cancelled, "cancelled"}}};

// The text at `key`, or "" if there is none.
std::string text_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

nlohmann::json read_batch_json(const std::string& path) {
  auto read = nlohmann::json::parse(read_text(local_files(), path), nullptr, false);
  if (!read.is_object() || text_at(read, "lockstep.batch") != batch_format) {
    throw DataError("[batch] " + path + " is damaged, or of a later version",
                    "lockstep jobs rm removes a job that has ended");
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

// The state of a job of Slurm whose process does not live, or is starting.
BatchState state_in_slurm(const std::string& slurm_job, const BatchState& recorded) {
  SlurmState slurm;
  try {
    slurm = Slurm().state(slurm_job);
  } catch (const Error& error) {
    return {recorded.status, error.what(), recorded.time};
  }
  if (slurm.is_alive()) {
    const std::string reason = slurm.reason == "None" ? "" : " (" + slurm.reason + ")";
    return {BatchStatus::queued, "Slurm's job " + slurm_job + " is " + slurm.state + reason,
            recorded.time};
  }
  return {BatchStatus::failed,
          "Slurm's job " + slurm_job +
              (slurm.state.empty() ? " ended before the training did"
                                   : " ended as " + slurm.state + " before the training did"),
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

bool has_ended(BatchStatus status) {
  return status != BatchStatus::queued && status != BatchStatus::running;
}

BatchState batch_state(const std::string& folder) {
  const bool lives = file_is_locked(join_path(folder, batch_lock_name));
  // Read after the lock: a process records its last state before it releases the lock.
  BatchState state = recorded_state(folder);
  if (lives || has_ended(state.status)) return state;
  if (local_files().exists(join_path(folder, batch_cancel_name))) {
    return {BatchStatus::cancelled, "", state.time};
  }
  if (const std::string slurm_job = slurm_job_of(folder); !slurm_job.empty()) {
    return state_in_slurm(slurm_job, state);
  }
  return {BatchStatus::failed,
          state.status == BatchStatus::queued
              ? "its process was killed while it was queued, or the machine was restarted"
              : "its process was killed, or the machine was restarted",
          state.time};
}

BatchJob read_batch_job(const std::string& folder, int64_t number) {
  const nlohmann::json read = read_batch_json(join_path(folder, batch_description_name));
  BatchJob job;
  job.number = number;
  job.folder = folder;
  try {
    job.name = read.at("name").get<std::string>();
    job.submitted = read.at("submitted").get<std::string>();
    job.host = read.at("host").get<std::string>();
    job.request.initial_model = read.at("initial_model").get<std::string>();
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
  job.state = batch_state(folder);
  return job;
}

void write_batch_description(const BatchJob& job) {
  ClusterProfile profile = job.profile;
  auto fields = nlohmann::ordered_json::object();
  FieldWriter writer(fields);
  profile.visit(writer);
  write_batch_json(job.file(batch_description_name), {{"lockstep.batch", batch_format},
                                                      {"name", job.name},
                                                      {"submitted", job.submitted},
                                                      {"host", job.host},
                                                      {"initial_model", job.request.initial_model},
                                                      {"at_once", job.request.at_once},
                                                      {"cluster", job.request.cluster},
                                                      {"profile", fields}});
}

void write_batch_state(const BatchJob& job, BatchStatus status, const std::string& reason) {
  write_batch_json(job.file(batch_state_name), {{"lockstep.batch", batch_format},
                                                {"state", to_string(status)},
                                                {"reason", reason},
                                                {"time", utc_now()}});
}

}  // namespace lockstep
