// One training for watching.py: alone, or with receipt, log, run store and report.
//
//   watching JOB FOLDER alone|all [KEY=VALUE...]
//
// Prints one JSON object: wall and processor seconds from the start of the first iteration to the
// end of the last one, with validations and checkpoints; and those of the report.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/os/file.h"
#include "lockstep/cluster/runtime.h"
#include "lockstep/report/pages/run_page.h"
#include "lockstep/runs/run.h"
#include "lockstep/train/records/training_start.h"

namespace {

using namespace lockstep;

struct Moment {
  double wall = 0, processor = 0;  // seconds
};

Moment now() {
  struct rusage use = {};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
      seconds(use.ru_utime) + seconds(use.ru_stime)};
}

Moment operator-(const Moment& a, const Moment& b) {
  return {a.wall - b.wall, a.processor - b.processor};
}

// The last one of the observers, so that it sees what the others cost.
struct Watch : TrainingObserver {
  void start(const TrainingStart& s) override {
    iterations = s.iterations;
    begun = now();
  }
  void iteration(const IterationRecord& r) override {
    if (r.iteration == iterations) ended = now();
  }
  int64_t iterations = 0;
  Moment begun, ended;
};

}  // namespace

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);
  if (argc < 4) {
    std::fprintf(stderr, "usage: watching JOB FOLDER alone|all [KEY=VALUE...]\n");
    return 2;
  }
  try {
    const std::string folder = argv[2];
    const bool all = std::string(argv[3]) == "all";
    const Job job =
        read_job(local_files(), argv[1], std::vector<std::string>(argv + 4, argv + argc));
    Watch watch;
    Moment report;
    if (all) {
      RunOptions options;
      options.folder = join_path(folder, "run");
      options.store = join_path(folder, "store");
      options.observers = {&watch};
      run_job(job, options);
      const Moment before = now();
      write_report(options.folder);
      report = now() - before;
    } else {
      JobPlan plan = plan_job(job);
      TrainingControl control;
      control.observers = {&watch};
      control.checkpoint_folder = join_path(folder, "checkpoints");
      train(plan.network, plan.training, plan.job.training, control);
    }
    const Moment took = watch.ended - watch.begun;
    std::printf("%s\n", nlohmann::ordered_json{{"iterations", watch.iterations},
                                               {"seconds", took.wall},
                                               {"processor_seconds", took.processor},
                                               {"report_seconds", report.wall},
                                               {"report_processor_seconds", report.processor}}
                            .dump()
                            .c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
