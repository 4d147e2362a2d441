// The law over worker processes: for any number, any load and any deaths of workers. A second build
// adds sums in order of arrival; there each of these tests must fail.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/parallel/process/function.h"
#include "tests/parallel/network.h"
#include "tests/train/hosts.h"
#include "tests/train/known_files.h"
#include "tests/train/law_problem.h"
#include "tests/train/same_history.h"

namespace lockstep {
namespace {

using testing::expect_same_history;

TrainingResult run_on_workers(const TrainingOptions& options, const TrainingControl& control = {}) {
  const auto call = make_call<&testing::law_problem>();
  TrainingProblem problem = call();
  return train(call, problem.network, problem.data, options, control);
}

// Workers with a load have computed shards, and workers without have not.
void expect_shares(const TrainingResult& result, const TrainingOptions& options) {
  std::string counts;
  ASSERT_EQ(result.workers.size(), static_cast<size_t>(options.workers.count));
  for (size_t w = 0; w < result.workers.size(); ++w) {
    const int64_t shards = result.workers[w].shards;
    counts += " " + std::to_string(shards);
    const bool loaded = options.workers.load.empty() || options.workers.load[w] > 0;
    EXPECT_EQ(shards > 0, loaded) << "worker " << w + 1;
  }
  std::printf("%d workers of %d threads: shards by worker%s, digest %s\n",
              static_cast<int>(options.workers.count), static_cast<int>(options.threads),
              counts.c_str(), result.digest.to_string().c_str());
}

const TrainingResult& one_process() {
  static const TrainingResult result = [] {
    TrainingOptions options = testing::law_options(1);
    options.validation.metrics = {"f1", "auc"};
    return run_on_workers(options);
  }();
  return result;
}

TrainingOptions options_of(int64_t workers, int64_t threads, std::vector<double> load = {}) {
  TrainingOptions options = testing::law_options(threads);
  options.validation.metrics = {"f1", "auc"};
  options.workers.count = workers;
  options.workers.load = std::move(load);
  return options;
}

TEST(LawOfWorkers, OneDigestForAnyNumberOfProcesses) {
  for (const int64_t workers : {1, 2, 3, 4, 5, 8}) {
    for (const int64_t threads : {1, 2}) {
      const TrainingOptions options = options_of(workers, threads);
      const TrainingResult many = run_on_workers(options);
      expect_shares(many, options);
      expect_same_history(one_process(), many);
    }
  }
}

TEST(LawOfWorkers, OneDigestForAnyLoad) {
  for (const auto& load : {std::vector<double>{3, 1}, std::vector<double>{1, 1, 1, 0, 1}}) {
    for (const int64_t threads : {1, 2}) {
      const TrainingOptions options = options_of(static_cast<int64_t>(load.size()), threads, load);
      const TrainingResult many = run_on_workers(options);
      expect_shares(many, options);
      expect_same_history(one_process(), many);
    }
  }
}

TrainingProblem problem_of_known_files() {
  TrainingProblem problem = testing::law_problem();
  problem.data.training = std::make_shared<testing::KnownFiles>(problem.data.training);
  return problem;
}

TEST(LawOfWorkers, OneDigestForImagesThatAnEarlierTrainingRead) {
  const testing::KeptReadings kept;
  const auto call = make_call<&problem_of_known_files>();
  for (const int64_t workers : {2, 2, 3}) {
    TrainingProblem problem = call();
    const bool known = kept.size() > 0;
    testing::ReadAtFirst first(*problem.data.training);
    TrainingControl control;
    control.observers = {&first};
    const TrainingOptions options = options_of(workers, 2);
    const TrainingResult many = train(call, problem.network, problem.data, options, control);
    EXPECT_EQ(first.reads, known ? 0 : problem.data.training->size());
    EXPECT_EQ(kept.size(), 1);
    expect_shares(many, options);
    expect_same_history(one_process(), many);
  }
}

TEST(LawOfWorkers, OneDigestForAnyHosts) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  using Hosts = std::vector<std::string>;
  const Hosts all[] = {{"127.0.0.2:1", "127.0.0.3:1"},
                       {"localhost:2", "127.0.0.2:3"},
                       {"127.0.0.2:4"},
                       {"127.0.0.2:1", "localhost:1", "127.0.0.3:1", "127.0.0.4:2"}};
  for (const Hosts& hosts : all) {
    TrainingOptions options = options_of(0, 1);
    testing::place_on_hosts(options, hosts);
    // Different loads, one of them 0.
    if (options.workers.count == 5) options.workers.load = {1, 3, 0, 1, 2};
    const TrainingResult many = run_on_workers(options);
    expect_shares(many, options);
    expect_same_history(one_process(), many);
  }
}

}  // namespace
}  // namespace lockstep
