#include <memory>
#include <nlohmann/json.hpp>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run.h"

namespace lockstep::command {
namespace {

struct SummaryArguments {
  std::string path;
  std::vector<std::string> settings;
};

int summary_command(const SummaryArguments& a) {
  if (a.path.ends_with(".toml") || a.path.ends_with(".json")) {
    print(build_network(read_job(local_files(), a.path, a.settings)).summary());
    return 0;
  }
  if (!a.settings.empty()) {
    throw InvalidArgument("[summary] --set changes jobs, but " + a.path + " is a model",
                          "job files end in .toml or .json");
  }
  print(open_model(a.path).network.summary());
  return 0;
}

}  // namespace

void add_summary(Commands& commands) {
  auto a = std::make_shared<SummaryArguments>();
  Subcommand sub =
      commands.add("summary", "The layers of a job's or model's network",
                   "Names, types, sizes of outputs, parameters and state, and their totals.",
                   {{"lockstep summary job.toml --set depth=4", "a job, with a variable changed"},
                    {"lockstep summary runs/digits-1", "the model of a run"}},
                   [a] { return summary_command(*a); });
  sub.add_option("path", a->path, "Job file, model file, or the folder of a run")
      .required()
      .type_name("JOB|MODEL");
  sub.add_option("--set", a->settings, "Change a field or variable of the job (repeatable)")
      .one_value_each()
      .type_name("KEY=VALUE");
}

}  // namespace lockstep::command
