// The process that works on a batch job of the command.
#include "apps/lockstep/batch/batch_work.h"

#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/lockstep/command.h"
#include "apps/lockstep/stop_signals.h"
#include "apps/lockstep/train.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/addresses.h"
#include "lockstep/cluster/slurm/slurm.h"
#include "lockstep/runs/batch/batch_job.h"
#include "lockstep/runs/batch/batch_process.h"
#include "lockstep/runs/sweeps/job_sweep.h"

namespace lockstep::command {
namespace {

// The workers of a job. A job of Slurm has workers on all its nodes.
struct JobWorkers {
  int workers = 0;  // here; 0: as the job says
  std::vector<std::string> hosts = {};
  std::string host_launch = {}, host_address = {};
};

// A profile's address is that of the machine that submits. The first node of a job uses it if it
// names a network interface, or if it is an address of this node as well.
std::string address_here(const std::string& address) {
  if (address.find_first_not_of("0123456789abcdefABCDEF.:") != std::string::npos) return address;
  try {
    interface_of(address);
    return address;
  } catch (const Error&) {
    return "";  // by route
  }
}

JobWorkers workers_of_job(const BatchJob& job) {
  const ClusterProfile& profile = job.profile;
  if (job.request.cluster.empty()) return {};
  if (job.is_local() || current_slurm_job().empty() || profile.nodes == 1) {
    return {.workers = profile.workers > 1 ? static_cast<int>(profile.workers) : 0};
  }
  return {.hosts = slurm_training_hosts(profile.workers_per_node()),
          .host_launch = slurm_host_launch(),
          .host_address = address_here(profile.address)};
}

int train_in_batch(const BatchJob& job) {
  TrainArguments training;
  training.job = job.file("job.json");
  training.out = job.run_folder();
  training.resume = true;
  training.initial_model = job.request.initial_model;
  const JobWorkers placed = workers_of_job(job);
  training.workers = placed.workers;
  training.hosts = placed.hosts;
  training.host_launch = placed.host_launch;
  if (!placed.host_address.empty()) {
    training.settings.push_back("training.host_address=" +
                                nlohmann::ordered_json(placed.host_address).dump());
  }
  return train_command(training);
}

// Runs `lockstep sweep`.
int sweep_in_batch(const BatchJob& job) {
  std::vector<std::string> words{"lockstep", "sweep", job.file("job.json"), "--out",
                                 job.run_folder()};
  if (local_files().exists(join_path(job.run_folder(), sweep_job_name))) {
    words.emplace_back("--resume");
  }
  const JobWorkers placed = workers_of_job(job);
  const int64_t workers = job.request.workers > 0 ? job.request.workers : placed.workers;
  if (workers > 0) words.insert(words.end(), {"--workers", std::to_string(workers)});
  if (!placed.hosts.empty()) {
    std::string hosts;
    for (const std::string& host : placed.hosts) hosts += (hosts.empty() ? "" : ",") + host;
    words.insert(words.end(), {"--hosts", hosts, "--host-launch", placed.host_launch});
    if (!placed.host_address.empty()) {
      words.insert(words.end(), {"--host-address", placed.host_address});
    }
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return all_commands()->parse(static_cast<int>(arguments.size()), arguments.data())();
}

}  // namespace

int work_on_batch_job(const std::string& folder, int ready) {
  catch_stop_signals();
  return run_batch_job(folder,
                       {.work =
                            [](const BatchJob& job) {
                              if (job.request.kind == BatchKind::function) {
                                throw InvalidArgument("[batch] job " + std::to_string(job.number) +
                                                          " was submitted by another program",
                                                      "lockstep jobs resume runs it again");
                              }
                              return job.request.kind == BatchKind::sweep ? sweep_in_batch(job)
                                                                          : train_in_batch(job);
                            },
                        .stop_wanted = stop_wanted,
                        .request_stop = [] { ::kill(::getpid(), SIGTERM); },
                        .ready = ready});
}

}  // namespace lockstep::command
