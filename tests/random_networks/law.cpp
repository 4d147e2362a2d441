#include "tests/random_networks/law.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/device/poison.h"
#include "lockstep/parallel/process/child_process.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/records/observer.h"
#include "lockstep/train/records/training_start.h"
#include "lockstep/train/trainer.h"
#include "tests/data/support.h"
#include "tests/random_networks/case_data.h"
#include "tests/random_networks/compute.h"
#include "tests/random_networks/dice.h"
#include "tests/random_networks/generator.h"

namespace lockstep::random_networks {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kEpochs = 2;
constexpr double kKilledWithin = 120;  // seconds
constexpr const char *kOverNan = "memory that holds NaN", *kOverHuge = "memory that holds 3e38";

std::vector<float> draw(Dice& dice, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(0.5 + dice.normal());
  return values;
}

// Two full mini-batches and a partial one.
TrainingData data_of(const Network& network, const Json& description) {
  Dice dice(description["seed"], description["case"], 4);
  const auto rows = description["rows"].get<int64_t>();
  // The last mini-batch is not full, and has no shard of one observation.
  const int64_t shard_size = options_of(description).shards.size, half = rows / 2;
  const int64_t shards = (half + shard_size - 1) / shard_size;
  const int64_t count = 2 * rows + (half >= 2 * shards ? half : 0);
  const Shape input = network.input_shapes()[0], output = network.output_shapes()[0];
  ImageLabels labels;
  TrainingData data;
  if (network.loss() == "cross_entropy") {
    for (int64_t c = 0; c < output.elements(); ++c) labels.classes.push_back(std::to_string(c));
    for (int64_t i = 0; i < count; ++i) {
      labels.labels.push_back(dice.between(0, output.elements() - 1));
    }
  } else {
    data.training_targets =
        array_datastore(ArrayBlock{count, output, draw(dice, count * output.elements())});
  }
  data.training =
      array_datastore(ArrayBlock{count, input, draw(dice, count * input.elements())}, labels);
  return data;
}

TrainingProblem problem_of(const std::string& text) {
  const Json description = Json::parse(text);
  Network network = network_of(description);
  fill_network(network, description);
  TrainingData data = data_of(network, description);
  return {std::move(network), std::move(data)};
}

// The first process that computes a shard of iteration 2 is killed.
std::string& mark_of_death() {
  static std::string path;
  return path;
}

void die_once(const char* point, int64_t iteration, int64_t) {
  if (std::string_view(point) == "backward" && iteration == 2 &&
      std::filesystem::create_directory(mark_of_death())) {
    ::kill(::getpid(), SIGKILL);
  }
}

// Of workers alone: the client must live.
TrainingProblem deadly_problem_of(const std::string& text, const std::string& mark) {
  mark_of_death() = mark;
  set_fail_point_hook(die_once);
  return problem_of(text);
}

// The digests of all iterations, and the exception at the end.
struct Outcome {
  std::vector<std::string> digests;
  std::string error;

  std::string difference(const Outcome& other) const {
    if (error != other.error) {
      return "`" + (other.error.empty() ? "no error" : other.error) + "` instead of `" +
             (error.empty() ? "no error" : error) + "`";
    }
    for (size_t i = 0; i < std::max(digests.size(), other.digests.size()); ++i) {
      if (i >= digests.size() || i >= other.digests.size()) return "another number of iterations";
      if (digests[i] != other.digests[i]) return "differs from iteration " + std::to_string(i + 1);
    }
    return {};
  }
};

std::string digests_of(const IterationRecord& r) {
  return r.digest.to_string() + " " + r.chain.to_string();
}

// Records iterations also of trainings that end with an exception.
class Follower final : public TrainingObserver {
 public:
  explicit Follower(Outcome& outcome) : outcome_(outcome) {}
  void start(const TrainingStart& s) override { first_ = s.first_iteration; }
  void iteration(const IterationRecord& r) override { outcome_.digests.push_back(digests_of(r)); }

  int64_t first() const { return first_; }

 private:
  Outcome& outcome_;
  int64_t first_ = 1;
};

// Kills this process, which is a client, at a point of an iteration.
struct Death {
  std::string point;
  int64_t iteration = 0;

  void come(std::string_view here, int64_t number) const {
    if (here == point && number == iteration) ::kill(::getpid(), SIGKILL);
  }
};

Death& death_of_this_client() {
  static Death death;
  return death;
}

void die_as_client(const char* point, int64_t iteration, int64_t) {
  death_of_this_client().come(point, iteration);
}

// Writes the digests of iterations to a file, and dies.
class MortalClient final : public TrainingObserver {
 public:
  MortalClient(const std::string& file, Death death) : digests_(file), death_(std::move(death)) {}
  void iteration(const IterationRecord& r) override {
    digests_ << digests_of(r) << std::endl;
    death_.come("iteration", r.iteration);
  }
  void saving(int64_t iteration) override { death_.come("saving", iteration); }
  void checkpoint(const std::string&, int64_t iteration) override {
    death_.come("checkpoint", iteration);
  }

 private:
  std::ofstream digests_;
  const Death death_;
};

struct Way {
  std::string name = {};
  int64_t threads = 1, workers = 0;
  std::vector<double> load = {};
  bool stops = false, loses = false;  // the training; a worker
  Poison pattern = Poison::none;
};

void train_on(TrainingObserver& observer, const std::string& text, const TrainingOptions& options,
              TrainingControl control, const std::string& mark = {}) {
  const auto call =
      mark.empty() ? make_call<&problem_of>(text) : make_call<&deadly_problem_of>(text, mark);
  TrainingProblem problem = problem_of(text);
  control.observers = {&observer};
  train(call, problem.network, problem.data, options, control);
}

TrainingOptions options_on(const Json& description, const Way& way) {
  TrainingOptions options = options_of(description);
  options.threads = way.threads;
  options.workers.count = way.workers;
  options.workers.load = way.load;
  options.max_epochs = kEpochs;
  options.data.last_mini_batch = LastMiniBatch::keep;
  options.shards.check_frequency = 3;
  options.validation.frequency = 0;
  return options;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Where the client of a case is killed, and what computes there; something else continues.
struct KilledClient {
  Death death = {};
  int64_t workers = 0;
};

KilledClient killed_client_of(const Json& description, int64_t iterations) {
  Dice dice(description["seed"], description["case"], 5);
  KilledClient client{.workers = dice.chance(50) ? 2 : 0};
  std::vector<std::string> points{"iteration", "saving", "checkpoint"};
  // Without workers the client computes.
  if (client.workers == 0) points.insert(points.end(), {"backward", "update"});
  client.death = {dice.pick(points), dice.between(1, iterations)};
  return client;
}

// A client in another process is killed, and this process resumes its training. The digests up to
// the last checkpoint are the killed client's, the others are those of the resumed training.
Outcome outcome_after_a_kill(const Json& description, int64_t iterations) {
  const KilledClient client = killed_client_of(description, iterations);
  const testing::TemporaryFolder folder;
  const std::string file = folder.path + "/case.json";
  std::ofstream(file) << description.dump();
  Outcome outcome;
  ChildProcess process(
      {.arguments = {"killed-client", "--case", file, "--folder", folder.path, "--point",
                     client.death.point, "--iteration", std::to_string(client.death.iteration),
                     "--workers", std::to_string(client.workers)}});
  if (!process.wait(TimeLimit(kKilledWithin)) || !process.killed()) {
    outcome.error = "the client that was to be killed " + process.how();
    return outcome;
  }
  const std::vector<std::string> before = lines_of(folder.path + "/digests");
  Follower follower(outcome);
  try {
    TrainingControl control;
    control.checkpoint_folder = folder.path + "/checkpoints";
    control.resume = true;
    TrainingOptions options =
        options_on(description, {.threads = 3, .workers = client.workers == 0 ? 2 : 0});
    options.checkpoints.frequency = 1;
    train_on(follower, description.dump(), options, control);
  } catch (const Error& e) {
    outcome.error = e.what();
  }
  const auto kept = static_cast<size_t>(follower.first() - 1);
  if (before.size() < kept) {
    outcome.error = "the checkpoint is ahead of the client that was killed";
    return outcome;
  }
  outcome.digests.insert(outcome.digests.begin(), before.begin(),
                         before.begin() + static_cast<std::ptrdiff_t>(kept));
  for (size_t i = kept; i < std::min(before.size(), outcome.digests.size()); ++i) {
    if (before[i] == outcome.digests[i]) continue;
    outcome.error = "the client that was killed differs from iteration " + std::to_string(i + 1);
    break;
  }
  return outcome;
}

Outcome outcome_of(const Json& description, const Way& way) {
  const std::string text = description.dump();
  TrainingOptions options = options_on(description, way);
  Outcome outcome;
  const Poisoned poisoned(way.pattern);
  const testing::TemporaryFolder folder;
  TrainingControl control;
  Follower follower(outcome);
  try {
    if (!way.stops) {
      const std::string mark = way.loses ? folder.path + "/died" : "";
      train_on(follower, text, options, control, mark);
      if (way.loses && outcome.digests.size() > 1 && !std::filesystem::exists(mark)) {
        outcome.error = "no worker has died";
      }
      return outcome;
    }
    control.checkpoint_folder = folder.path + "/checkpoints";
    control.stop_after = 2;
    train_on(follower, text, options, control);
    control.stop_after = 0;
    control.resume = true;
    options.threads = 3;
    train_on(follower, text, options, control);
  } catch (const Error& e) {
    outcome.error = e.what();
  }
  return outcome;
}

std::string bytes_of(const Json& description, Poison pattern) {
  const Poisoned poisoned(pattern);
  ThreadPool pool(1);
  std::string bytes;
  try {
    compute_case(description, pool, [&](Frame& frame) {
      bytes.append(reinterpret_cast<const char*>(frame.bytes().data()), frame.bytes().size());
    });
  } catch (const Error& e) {
    return e.what();
  }
  return bytes;
}

std::vector<std::string> broken_by_memory(const Json& description) {
  std::vector<std::string> broken;
  const std::string wanted = bytes_of(description, Poison::none);
  if (bytes_of(description, Poison::not_a_number) != wanted) broken.push_back(kOverNan);
  if (bytes_of(description, Poison::huge) != wanted) broken.push_back(kOverHuge);
  return broken;
}

}  // namespace

std::vector<std::string> broken_laws(const Json& description, bool workers) {
  if (description["form"] == "tape") return broken_by_memory(description);
  const Outcome wanted = outcome_of(description, {"one thread"});
  std::vector<Way> ways{{.name = "2 threads", .threads = 2},
                        {.name = "5 threads", .threads = 5},
                        {.name = kOverNan, .pattern = Poison::not_a_number},
                        {.name = kOverHuge, .pattern = Poison::huge},
                        {.name = "stop and resume", .stops = true}};
  if (workers) {
    ways.push_back({.name = "2 workers", .workers = 2});
    ways.push_back({.name = "3 workers, loads 2, 0, 1", .workers = 3, .load = {2, 0, 1}});
    ways.push_back({.name = "2 workers, one of which is lost", .workers = 2, .loses = true});
  }
  std::vector<std::string> broken;
  for (const Way& way : ways) {
    const std::string difference = wanted.difference(outcome_of(description, way));
    if (!difference.empty()) broken.push_back(way.name + ": " + difference);
  }
  // More checkpoints find values that overflow sooner, which would be another error.
  if (workers && wanted.error.empty() && !wanted.digests.empty()) {
    const auto iterations = static_cast<int64_t>(wanted.digests.size());
    const std::string difference = wanted.difference(outcome_after_a_kill(description, iterations));
    if (!difference.empty()) broken.push_back("a client that is killed, and resume: " + difference);
  }
  return broken;
}

void train_until_killed(const Json& description, const ClientToKill& client) {
  death_of_this_client() = {client.point, client.iteration};
  set_fail_point_hook(die_as_client);
  TrainingOptions options = options_on(description, {.threads = 2, .workers = client.workers});
  options.checkpoints.frequency = 1;
  MortalClient mortal(client.folder + "/digests", death_of_this_client());
  TrainingControl control;
  control.checkpoint_folder = client.folder + "/checkpoints";
  train_on(mortal, description.dump(), options, control);
}

}  // namespace lockstep::random_networks
