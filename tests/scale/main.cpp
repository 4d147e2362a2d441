// Joining and recovery with thousands of members: the client of a training is real, its hosts are
// simulated (simulated_hosts.h), on one machine.
//
//   membership_scale [--members N] [--failures N] [--together N] [--seed N] [--limit SECONDS]
//
// Prints one line of JSON with the times. Fails if the training does not survive, and at the limit,
// with what it has come to.
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/cluster/remote/join.h"
#include "lockstep/cluster/runtime.h"
#include "lockstep/train/optimizer/solver.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/workers/worker_iterations.h"
#include "tests/scale/problem.h"
#include "tests/scale/simulated_hosts.h"

namespace lockstep::testing {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double processor_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

int free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  const bool found = bind(probe, reinterpret_cast<sockaddr*>(&address), bytes) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&address), &bytes) == 0;
  ::close(probe);
  if (!found) throw Error("[scale] no free port");
  return ntohs(address.sin_port);
}

double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

int64_t memory_mib() {
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) / 1024;
  }
  return 0;
}

int64_t entries_of(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

int64_t lines_of(const char* file) {
  std::ifstream text(file);
  return std::count(std::istreambuf_iterator<char>(text), std::istreambuf_iterator<char>(), '\n');
}

struct Settings {
  int members = 64;
  int64_t failures = 20;
  int together = 1;
  uint64_t seed = 1;
  double limit = 1800;  // seconds
};

// What the client has come to, for the message at the limit.
struct Progress {
  std::atomic<const char*> phase{"begins to listen"};
  std::atomic<int64_t> joins{0}, losses{0}, iterations{0};
};

// Ends the process at the limit. The client may wait where nothing asks for the time.
class Watch {
 public:
  Watch(const Settings& settings, const Progress& progress)
      : thread_([this, settings, &progress] {
          const MutexLock lock(mutex_);
          for (const TimeLimit limit(settings.limit); !over_; came_.wait_until(mutex_, limit)) {
            if (limit.reached()) tell(settings, progress);
          }
        }) {}
  ~Watch() {
    {
      const MutexLock lock(mutex_);
      over_ = true;
      came_.notify_all();
    }
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  [[noreturn]] static void tell(const Settings& settings, const Progress& progress) {
    std::fprintf(stderr,
                 "membership_scale: not done within %g seconds: the client %s; %lld workers have "
                 "joined groups of %d members, %lld of %lld failures were noticed, %lld iterations "
                 "are finished\n",
                 settings.limit, progress.phase.load(), static_cast<long long>(progress.joins),
                 settings.members, static_cast<long long>(progress.losses),
                 static_cast<long long>(settings.failures),
                 static_cast<long long>(progress.iterations));
    _exit(1);  // the simulated hosts end with this process
  }

  Mutex mutex_;
  ConditionVariable came_;
  bool over_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// The processes of the simulated hosts. They end with this one.
class Hosts {
 public:
  Hosts(const Settings& settings, const std::string& address, const std::string& key) {
    child_ = fork();
    if (child_ < 0) throw Error("[scale] no process for the hosts");
    if (child_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/proc/self/exe", "membership_scale", "--serve", address.c_str(), "--key", key.c_str(),
          "--members", std::to_string(settings.members).c_str(), "--failures",
          std::to_string(settings.failures).c_str(), "--together",
          std::to_string(settings.together).c_str(), "--seed",
          std::to_string(settings.seed).c_str(), static_cast<char*>(nullptr));
    _exit(1);
  }
  ~Hosts() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;
  void check() const {
    if (waitpid(child_, nullptr, WNOHANG) != 0) throw Error("[scale] the simulated hosts ended");
  }

 private:
  pid_t child_ = -1;
};

// Removed at the end of its life.
class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "scale_XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw Error("[scale] no folder");
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void measure(const Settings& settings) {
  Progress progress;
  const Watch watch(settings, progress);
  const Folder folder;
  const std::string key = folder.path() + "/key";
  write_key_file(key, JobKey::fresh());
  const int port = free_port();
  setenv("LOCKSTEP_PORTS", std::to_string(port).c_str(), 1);
  const Hosts hosts(settings, "127.0.0.1:" + std::to_string(port), key);

  TrainingProblem problem = scale_problem();
  TrainingOptions options{.max_epochs = 1000000, .mini_batch_size = 64, .device = "cpu"};
  options.threads = 1;
  options.shards.size = 16;
  options.workers.count = settings.members;
  for (int i = 0; i < settings.members; ++i) {
    options.workers.hosts.push_back("m" + std::to_string(i) + ":1");
  }
  options.workers.host_launch = "join " + key;
  options.workers.host_address = "127.0.0.1";
  options.validation.frequency = 0;
  options = options.resolved();

  std::vector<double> recoveries, iterations;
  // Losses whose group has formed, but has not finished an iteration: seconds so far, and when.
  std::vector<std::pair<double, Clock::time_point>> formed;
  IterationsSetup setup{.options = options, .data = problem.data};
  setup.learning_rate = [](int64_t) { return 0.1; };
  setup.on_change = [&](const WorkerChange& change) {
    if (change.joined) {
      ++progress.joins;
    } else {
      ++progress.losses;
      formed.emplace_back(change.seconds, Clock::now());
    }
  };
  setup.notice = [](const std::string&) {};
  setup.stop = [&] {
    hosts.check();
    return false;
  };
  const auto began = Clock::now();
  double joined = 0, cpu_joined = 0, whole = 0;
  {
    progress.phase = "waits for the hosts to join";
    WorkerIterations training(setup, make_call<&scale_problem>(), {.devices = {Device{}}});
    ThreadPool pool(1);
    const TrainingImages images = open_images(problem.network, problem.data, options);
    training.share(images);
    read_images(images, pool, [](int64_t, int64_t) {});
    const auto solver = make_solver(problem.network, options);
    training.begin({.network = problem.network, .solver = *solver, .pool = pool, .images = images});
    joined = since(began);
    cpu_joined = processor_seconds();
    const auto running = Clock::now();
    progress.phase = "trains";
    for (int64_t i = 1, after = 0; after < 20; ++i) {
      const auto before = Clock::now();
      const int64_t losses_before = progress.losses;
      const IterationOutcome outcome = training.next(i, i + 100);
      if (outcome.iteration != i) throw Error("[scale] a wrong iteration");
      if (progress.losses == losses_before) iterations.push_back(since(before));
      for (const auto& [seconds, when] : formed) recoveries.push_back(seconds + since(when));
      formed.clear();
      progress.iterations = i;
      if (progress.losses >= settings.failures) ++after;
      hosts.check();
    }
    progress.phase = "ends the training";
    whole = since(running);
    const double cpu = processor_seconds() - cpu_joined;
    std::printf(
        "{\"members\": %d, \"failures\": %ld, \"joins\": %ld, \"join_seconds\": %.3f, "
        "\"join_processor_seconds\": %.3f, \"seconds\": %.3f, \"processor_seconds\": %.3f, "
        "\"recovery_median\": %.4f, \"recovery_p95\": %.4f, \"recovery_most\": %.4f, "
        "\"iteration_median\": %.5f, \"memory_mib\": %ld, \"descriptors\": %ld, "
        "\"mappings\": %ld}\n",
        settings.members, static_cast<long>(progress.losses), static_cast<long>(progress.joins),
        joined, cpu_joined, whole, cpu, quantile(recoveries, 0.5), quantile(recoveries, 0.95),
        quantile(recoveries, 1), quantile(iterations, 0.5), static_cast<long>(memory_mib()),
        static_cast<long>(entries_of("/proc/self/fd")),
        static_cast<long>(lines_of("/proc/self/maps")));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  using namespace lockstep;
  const Runtime runtime(argc, argv);
  testing::Settings settings;
  std::string serve, key;
  CLI::App app("Joining and recovery with simulated hosts");
  app.add_option("--members", settings.members)->check(CLI::Range(2, 100000));
  app.add_option("--failures", settings.failures);
  app.add_option("--together", settings.together, "Failures at a time");
  app.add_option("--seed", settings.seed);
  app.add_option("--limit", settings.limit, "Seconds until it fails")->check(CLI::PositiveNumber);
  app.add_option("--serve", serve);
  app.add_option("--key", key);
  CLI11_PARSE(app, argc, argv);
  try {
    if (!serve.empty()) {
      testing::run_simulated_hosts(
          {serve, key, settings.members, settings.failures, settings.together, settings.seed});
    }
    testing::measure(settings);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "membership_scale: %s\n", e.what());
    return 1;
  }
  return 0;
}
