#include "lockstep/runs/jobs/job_file.h"

#include <nlohmann/json.hpp>

#include "lockstep/runs/jobs/job_difference.h"
#include "lockstep/runs/run.h"
#include "tests/fuzz/target.h"
#include "tests/train/power_cut.h"

namespace lockstep::fuzz {
namespace {

Job read(std::span<const std::byte> bytes, const std::string& name) {
  testing::PowerCutFiles files;  // in memory
  files.make_folder("jobs");
  write_atomically(files, "jobs/" + name, bytes);
  return read_job(files, "jobs/" + name);
}

constexpr const char* kJob = R"toml([data]
train = "builtin:digits"
validation_fraction = 0.1
[augmentation]
reflect_x = true
translate_x = [-4, 4]
[noise]
salt_and_pepper = 0.1
[variables]
depth = 2
width = "round(16 / sqrt(depth))"
[network]
input = { height = 28, width = 28, channels = 1 }
layers = [
  { repeat = "depth", layers = [
    { type = "convolution2d", filters = "2 * width", kernel = 3, padding = "same" },
    { type = "batch_normalization" }, { type = "relu", name = "r" } ] },
  { type = "convolution2d", filters = 8, kernel = [3, 3], padding = "same", name = "c" },
  { type = "addition", inputs = ["c", "c"] },
  { type = "fully_connected", units = 10 },
  { type = "softmax" },
]
loss = "cross_entropy"
[training]
solver = "adam"
learning_rate_schedule = ["warmup", "cosine"]
schedule_epochs = [1]
freeze = ["c"]
class_weights = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
seed = 7
)toml";

}  // namespace

// TOML, or JSON if it begins with a brace.
void parse(std::span<const std::byte> bytes) {
  const bool json = !bytes.empty() && bytes.front() == std::byte{'{'};
  const Job job = read(bytes, json ? "job.json" : "job.toml");
  build_network(job).check();
  // A job that was read can be written and read again.
  const Job again = read(bytes_of(job.resolved().dump()), "again.json");
  const std::string difference = job_difference(job.resolved(), again.resolved()).what;
  if (!difference.empty()) throw InternalError("[fuzz] read back otherwise: " + difference);
}

std::vector<Bytes> seeds() {
  return {bytes_of(kJob), bytes_of(read(bytes_of(kJob), "job.toml").resolved().dump())};
}

}  // namespace lockstep::fuzz
