#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/lockstep/command.h"
#include "lockstep/report/progress.h"
#include "lockstep/runs/data_source.h"
#include "lockstep/train/trainer.h"

namespace lockstep::command {
namespace {

struct EvaluateArguments {
  std::string model, data;
  int threads = 0;
  bool json = false;
};

int evaluate_command(const EvaluateArguments& a) {
  const auto begin = std::chrono::steady_clock::now();
  Model model = open_model(a.model);
  DatastorePtr data = open_data(resolve_data_path(a.data, "."));
  if (!model.classes.empty()) data = with_classes(data, model.classes);
  const Evaluation e = evaluate(model.network, data, a.threads);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (a.json) {
    print_json({{"accuracy", e.accuracy},
                {"loss", e.loss},
                {"observations", e.observations},
                {"seconds", seconds}});
  } else {
    print_table({{"accuracy", percent(e.accuracy)},
                 {"loss", fmt::format("{:.5g}", e.loss)},
                 {"images", format_count(e.observations)}});
  }
  return 0;
}

}  // namespace

void add_evaluate(CLI::App& app, Action& action) {
  auto a = std::make_shared<EvaluateArguments>();
  CLI::App* sub = app.add_subcommand("evaluate", "Accuracy and loss of a model on labelled images");
  sub->add_option("model", a->model, "Model file, or the folder of a run")
      ->required()
      ->type_name("MODEL");
  sub->add_option("data", a->data, "Folder with one folder of images a class, or builtin:digits")
      ->required()
      ->type_name("DATA");
  sub->add_option("--threads", a->threads, "Compute threads (default: one for each processor)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  sub->add_flag("--json", a->json, "Print one JSON object");
  sub->callback([a, &action] { action = [a] { return evaluate_command(*a); }; });
}

}  // namespace lockstep::command
