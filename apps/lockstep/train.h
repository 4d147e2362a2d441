// The subcommand train, for other subcommands that train.
#pragma once

#include <string>
#include <vector>

namespace lockstep::command {

struct TrainArguments {
  std::string job;
  std::vector<std::string> settings;
  std::string out;
  std::string device;
  int threads = 0, workers = 0;
  std::vector<double> worker_load;
  std::vector<std::string> hosts;
  std::string host_launch, cluster;
  bool resume = false, rebuild_receipt = false, save_initial = false, json = false, quiet = false;
  bool check = false, dry_run = false, confusion = false, profile = false;
  bool tensorboard = false, histograms = false;
  bool not_recorded = false;
  std::string initial_model;
};

// Adds the setting for the device of a cluster's profile. The profile's default, "cpu", leaves the
// job's own device.
void add_device_setting(const std::string& device, std::vector<std::string>& settings);

// Trains as the arguments say. Returns the exit code. Throws what run_job() throws.
int train_command(const TrainArguments& arguments);

}  // namespace lockstep::command
