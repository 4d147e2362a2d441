#include "tests/train/recovery.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/base/fail_point.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/parallel/process/worker_context.h"

namespace lockstep::testing {
namespace {

int killed_so_far(const std::string& file) {
  std::error_code none;
  const auto size = std::filesystem::file_size(file, none);
  return none ? 0 : static_cast<int>(size);
}

// As the system would count it.
void count_oom_kill(const std::string& file) {
  std::ifstream before(file);
  std::string name, text;
  for (int64_t n = 0; before >> name >> n;) {
    text += name + " " + std::to_string(name == "oom_kill" ? n + 1 : n) + "\n";
  }
  std::ofstream(file + ".new") << text;
  std::filesystem::rename(file + ".new", file);
}

void fail_as_told(const char* point, int64_t iteration, int64_t shard) {
  const Failure& failure = testing::failure();
  if (failure.point != point) return;
  const char* const host = getenv("LOCKSTEP_TEST_HOST");
  if (!failure.host.empty() && failure.host != (host ? host : "")) return;
  if (failure.worker != 0 && worker_context().worker() != failure.worker) return;
  if (failure.iteration >= 0 && iteration != 0 && iteration != failure.iteration) return;
  if (failure.shard >= 0 && shard != failure.shard) return;
  if (failure.how == "kill") kill(getpid(), SIGKILL);
  // The first process that comes here.
  if (failure.how == "kill once" && std::filesystem::create_directory(failure.file)) {
    kill(getpid(), SIGKILL);
  }
  if (failure.how == "fault") raise(SIGSEGV);
  if (failure.how == "abort") std::abort();
  if (failure.how == "exit") _exit(3);
  if (failure.how == "be killed" && killed_so_far(failure.file) < kKillsOfAShard) {
    std::ofstream(failure.file, std::ios::app) << 'x';
    kill(getpid(), SIGKILL);
  }
  if (failure.how == "no memory") {
    count_oom_kill(failure.file);
    kill(getpid(), SIGKILL);
  }
  if (failure.how == "stop") kill(getpid(), SIGSTOP);
  if (failure.how == "throw") throw DataError("[test] thrown on purpose", "do not");
  if (failure.how == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(60));
  if (failure.how == "hang") std::this_thread::sleep_for(std::chrono::seconds(120));
}

}  // namespace

void fail_here(Failure f) {
  failure() = std::move(f);
  set_fail_point_hook(fail_as_told);
}

TrainingProblem failing_problem(Failure f) {
  fail_here(std::move(f));
  fail_as_told("problem", 0, -1);
  return law_problem();
}

TrainingResult run_with_failure(const TrainingOptions& options, Follower& follower,
                                const Failure& f, TrainingControl control) {
  const auto call = make_call<&failing_problem>(f);
  TrainingProblem problem = law_problem();
  control.observers.push_back(&follower);
  return train(call, problem.network, problem.data, options, control);
}

}  // namespace lockstep::testing
