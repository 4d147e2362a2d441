// Runs on a folder of digits.
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/datastores/datastores.h"
#include "lockstep/runs/run.h"
#include "lockstep/runs/sources/data_source.h"
#include "tests/runs/support.h"

namespace lockstep::testing {

// A folder with `per_class` images of each digit in digits/, and a job in job.toml.
class DigitsRun : public WithFolder {
 protected:
  DigitsRun(int64_t per_class, const std::string& job_text) {
    std::vector<int64_t> taken;
    for (int64_t i = 0; i < 10 * per_class; ++i) {
      taken.push_back(i / per_class * 1000 + i % per_class);
    }
    export_as_folder(*subset(builtin_digits(), taken), folder + "/digits");
    job_path = write("job.toml", job_text);
  }
  Job job(const std::vector<std::string>& settings = {}) {
    return read_job(local_files(), job_path, settings);
  }
  RunOptions into(const std::string& name) {
    RunOptions options;
    options.folder = folder + "/" + name;
    return options;
  }
  std::string text(const std::string& name) {
    return read_text(local_files(), folder + "/" + name);
  }

  std::string job_path;
};

// The layers of a small digit classifier, and its training options.
inline const std::string digits_layers_and_training = R"([network]
input = { height = 28, width = 28, channels = 1 }
layers = [
  { type = "convolution2d", filters = 4, kernel = 5, stride = 2 },
  { type = "batch_normalization" },
  { type = "relu" },
  { type = "dropout", probability = 0.1 },
  { type = "fully_connected", units = 10 },
  { type = "softmax" } ]
[training]
mini_batch_size = 50
shard_size = 7
max_epochs = 3
device = "cpu"
threads = 2
checkpoint_frequency = 2
)";

}  // namespace lockstep::testing
