#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/runs/data_source.h"
#include "lockstep/train/trainer.h"

namespace lockstep::command {
namespace {

struct PredictArguments {
  std::string model;
  std::vector<std::string> files;
  int top = 1;
  int threads = 0;
  bool json = false;
};

int predict_command(const PredictArguments& a) {
  Model model = open_model(a.model);
  const DatastorePtr images = image_files(a.files);
  const Tensor scores = predict(model.network, images, a.threads);
  const std::vector<float> values = scores.to_vector();
  const auto count = static_cast<size_t>(images->size());
  const size_t outputs = count == 0 ? 0 : values.size() / count;
  if (!model.classes.empty() && model.classes.size() != outputs) {
    throw DataError("[model] " + a.model + " names other classes than its network has outputs");
  }
  nlohmann::ordered_json predictions = nlohmann::ordered_json::array();
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const float* row = values.data() + i * outputs;
    std::vector<size_t> order(outputs);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t x, size_t y) { return row[x] > row[y]; });
    order.resize(std::min(outputs, static_cast<size_t>(a.top)));
    const std::string file = images->name(static_cast<int64_t>(i));
    text += file;
    nlohmann::ordered_json best = nlohmann::ordered_json::array();
    for (const size_t k : order) {
      const std::string name = model.classes.empty() ? std::to_string(k) : model.classes[k];
      text += fmt::format("\t{}\t{:.4f}", name, row[k]);
      best.push_back({{"class", name}, {"score", row[k]}});
    }
    text += "\n";
    predictions.push_back({{"file", file}, {"top", std::move(best)}});
  }
  if (a.json) {
    print_json({{"predictions", std::move(predictions)}});
  } else {
    print(text);
  }
  return 0;
}

}  // namespace

void add_predict(CLI::App& app, Action& action) {
  auto a = std::make_shared<PredictArguments>();
  CLI::App* sub =
      app.add_subcommand("predict", "Classes of images, one line each: file, class, score");
  sub->add_option("model", a->model, "Model file, or the folder of a run")
      ->required()
      ->type_name("MODEL");
  sub->add_option("files", a->files, "Images, or folders of images")
      ->required()
      ->type_name("FILES");
  sub->add_option("--top", a->top, "How many classes to name, the best first")
      ->type_name("K")
      ->check(CLI::Range(1, 1 << 20));
  sub->add_option("--threads", a->threads, "Compute threads (default: one for each processor)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024));
  sub->add_flag("--json", a->json, "Print one JSON object");
  sub->callback([a, &action] { action = [a] { return predict_command(*a); }; });
}

}  // namespace lockstep::command
