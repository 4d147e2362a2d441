#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/lockstep/archives_progress.h"
#include "apps/lockstep/command.h"
#include "apps/lockstep/image_options.h"
#include "apps/lockstep/models/named_outputs.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/engine/nn/metrics/metric.h"
#include "lockstep/report/charts.h"
#include "lockstep/report/progress.h"
#include "lockstep/runs/sources/data_source.h"
#include "lockstep/runs/sources/sequence_source.h"
#include "lockstep/runs/sources/target_table.h"
#include "lockstep/runs/sources/text_source.h"
#include "lockstep/train/input/pixel_targets.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/trainer.h"

namespace lockstep::command {
namespace {

struct EvaluateArguments {
  std::string model, label_column, text_column, targets, labels, orientation, bad_images = "stop";
  std::vector<std::string> data;  // one for each input of the network
  InputNoise noise;
  int64_t seed = 0;
  Fitting fit = no_fitting;
  bool no_header = false;
  int threads = 0;
  std::vector<std::string> metrics;
  bool confusion = false, json = false;
};

// Leaves out what cannot be read, if that is wanted.
class Readable {
 public:
  Readable(int threads, bool skip) : threads_(threads), skip_(skip) {}

  ReadableImages of(DatastorePtr store, const std::string& name) {
    if (!skip_) return {std::move(store), {}, {}};
    TrainingOptions resources;
    resources.threads = threads_;
    ThreadPool pool(static_cast<int>(resources.resolved().threads));
    ReadableImages found = readable_images(std::move(store), pool);
    for (const UnreadableImage& image : found.unreadable) {
      skipped_.push_back({join_path(name, image.name), image.reason});
    }
    return found;
  }
  const std::vector<UnreadableImage>& skipped() const { return skipped_; }

 private:
  const int threads_;
  const bool skip_;
  std::vector<UnreadableImage> skipped_;
};

// The targets of a network whose inputs are sequences of numbers: those that are given, or that it
// was trained with.
class SequencesOfModel {
 public:
  SequencesOfModel(const Model& model, const EvaluateArguments& a) : model_(model) {
    if (takes_text(model.network) || !takes_only_sequences(model.network)) return;
    targets_ = targets_of_model(model, {.label_column = a.label_column, .targets = a.targets});
    if (targets_.any() || takes_labels(model.network.loss())) return;
    throw InvalidArgument(
        "[evaluate] the network learned numbers from a folder of targets, whose name the model "
        "does not keep",
        "set --targets to a folder with a file of the same name for each sequence");
  }
  bool have_targets() const { return targets_.any(); }
  StepTargets by_step() const {
    if (!targets_.any()) return {};
    StepTargets targets = step_targets(targets_, model_.network);
    if (!targets.label_column.empty()) targets.classes = model_.classes;
    return targets;
  }
  DatastorePtr with_other(DatastorePtr sequences, bool header) const {
    const std::string& name = targets_.targets;
    const bool folder = name != image_targets_inputs && name != targets_next_step;
    return with_other_targets(std::move(sequences), folder ? resolve_data_path(name, ".") : name,
                              header, model_.network);
  }

 private:
  const Model& model_;
  SequenceTargets targets_;
};

// The columns of a table with the numbers that its network learned.
std::vector<std::string> target_columns_of(const Model& model, const EvaluateArguments& a) {
  const bool given = !a.targets.empty() || !a.label_column.empty();
  if (given || model.preparation.targets != "columns") return {};
  return model.network.columns().target;
}

// The metrics that are wanted, after one of each output of a network with several.
std::vector<std::string> metrics_of(const Model& model, const EvaluateArguments& a) {
  std::vector<std::string> metrics = NamedOutputs(model, 1).metrics();
  for (const std::string& name : a.metrics) {
    if (std::ranges::find(metrics, name) == metrics.end()) metrics.push_back(name);
  }
  return metrics;
}

int evaluate_command(const EvaluateArguments& a) {
  const ArchivesProgress archives(a.json);
  const auto begin = std::chrono::steady_clock::now();
  Model model = open_model(a.model);
  require_finite(model.network, a.model);
  std::vector<std::string> names;
  for (const std::string& name : a.data) names.push_back(resolve_data_path(name, "."));
  const bool skip = a.bad_images == "skip";
  const Preparation& before = model.preparation;
  const Fitting fit = fitting_of(model, a.fit);
  const SequencesOfModel sequences(model, a);
  const ImageFolderOptions folder{
      .labels = folder_labels(a.labels.empty() ? before.labels : a.labels),
      .labeled = a.targets.empty() && !sequences.have_targets(),
      .allow_empty_folders = true,
      .list_unreadable = skip,
      .upright = upright(model, a.orientation),
      .least = least_of(model, fit)};
  const TableColumns& columns = model.network.columns();
  if (!a.text_column.empty() && !takes_text(model.network)) refuse_text_column("evaluate");
  std::vector<DatastorePtr> inputs =
      takes_text(model.network)
          ? std::vector{open_texts(names, true, model,
                                   {.text = a.text_column, .label = a.label_column})}
          : open_inputs(names, folder,
                        {.label_column = a.label_column,
                         .header = before.header && !a.no_header,
                         .columns = columns,
                         .find_header = !a.no_header,
                         .sequences = sequence_inputs(model.network),
                         .targets = sequences.by_step(),
                         .target_columns = target_columns_of(model, a),
                         .categories = before.categories,
                         .ignored_columns = before.ignored_columns,
                         .missing = missing_values(before.missing)});
  const bool several = inputs.size() > 1;
  if (several && a.fit.crop) {
    throw InvalidArgument("[evaluate] --crop is for networks with one input", "use --resize");
  }
  if (several && fit.resize) inputs = resized_inputs(std::move(inputs), model.network);
  Readable readable(a.threads, skip);
  DatastorePtr data = readable.of(join_inputs(std::move(inputs)), names[0]).store;
  data = sequences.with_other(std::move(data), before.header && !a.no_header);
  const bool pixels = labels_pixels(model.network);
  if (!model.classes.empty() && !pixels) data = with_classes(data, model.classes);
  Notes notes;
  EvaluationOptions options{.threads = a.threads,
                            .noise = a.noise,
                            .seed = static_cast<uint64_t>(a.seed),
                            .metrics = metrics_of(model, a),
                            .confusion = a.confusion,
                            .notice = notes.printer()};
  note_missing_names(model, *data);
  if (sequences.have_targets()) {
    // They are in the data.
  } else if (pixels) {
    if (a.targets.empty() || a.targets == image_targets_inputs) {
      throw InvalidArgument("[evaluate] the network gives a class for each pixel",
                            "set --targets to the folder of the label images");
    }
    const std::string name = resolve_data_path(a.targets, ".");
    ImageFolderOptions labels = folder;
    labels.pixel_classes = pixel_classes_of(model);
    data = readable.of(open_with_label_images(data, name, labels), names[0]).store;
  } else if (a.targets == image_targets_inputs) {
    options.targets = data;
  } else if (is_table_file(resolve_data_path(a.targets, "."))) {
    options.targets = open_target_table(*data, resolve_data_path(a.targets, "."),
                                        {.categories = before.categories, .known = columns.target});
  } else if (!a.targets.empty()) {
    const std::string name = resolve_data_path(a.targets, ".");
    const ReadableImages targets = readable.of(open_target_images(*data, name,
                                                                  {.labeled = false,
                                                                   .allow_empty_folders = true,
                                                                   .list_unreadable = skip,
                                                                   .upright = folder.upright}),
                                               name);
    if (!targets.unreadable.empty()) data = subset(data, targets.indices);
    options.targets = targets.store;
  } else if (!takes_labels(model.network.loss()) && has_image_inputs(*data)) {
    throw InvalidArgument("[evaluate] the network outputs images, not labels",
                          "set --targets to the folder of the target images, a .csv file, or "
                          "\"inputs\"");
  }
  if (a.fit.any()) check_images(*data, a.fit.crop ? "--crop" : "--resize");
  if (fit.any() && has_image_inputs(*data)) {
    if (!several) data = fitted(data, model.network.input_shapes(), fit);
    if (options.targets) {
      options.targets = fitted(options.targets, model.network.output_shapes(), fit);
    }
  }
  const ReadingProgress reading(a.json);
  const DatastorePtr watched = reading.watch(data);
  if (options.targets == data) options.targets = watched;  // still the same data
  const Evaluation e = evaluate(model.network, watched, options);
  reading.finish();
  notes.print_new({data, options.targets});
  print_skipped(readable.skipped());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const bool classifies = std::isfinite(e.accuracy);
  if (a.json) {
    nlohmann::ordered_json result{
        {"accuracy", classifies ? nlohmann::ordered_json(e.accuracy) : nlohmann::ordered_json()},
        {"loss", e.loss},
        {"metrics", metrics_json(e.metrics)},
        {"observations", e.observations},
        {"skipped_images", skipped_json(readable.skipped())},
        {"seconds", seconds}};
    if (e.confusion) result["confusion"] = e.confusion->to_json();
    print_json(result);
  } else {
    std::vector<std::pair<std::string, std::string>> rows;
    if (classifies) rows.emplace_back("accuracy", percent(e.accuracy));
    rows.emplace_back("loss", fmt::format("{:.5g}", e.loss));
    for (const MetricValue& m : e.metrics) rows.emplace_back(m.name, metric_text(m));
    rows.emplace_back(e.examples, format_count(e.observations));
    print_table(rows);
    if (e.confusion) print("\n" + confusion_table(*e.confusion, output_width()));
  }
  return 0;
}

}  // namespace

void add_evaluate(Commands& commands) {
  auto a = std::make_shared<EvaluateArguments>();
  Subcommand sub = commands.add(
      "evaluate",
      "Accuracy and loss of a model on labeled images, rows, sequences or texts, or loss against "
      "other images",
      "Every observation counts once, so the result does not depend on threads or on the order of "
      "the observations. Sequences are taken whole. Of a network with several outputs the accuracy "
      "or the root-mean-square error of each is printed, too.",
      {{"lockstep evaluate runs/digits-1 builtin:digits", "the model of a run on all digits"},
       {"lockstep evaluate model.safetensors flowers/test --crop --json", "for programs"},
       {"lockstep evaluate runs/scenes-1 photos/test measured.csv", "a network with two inputs"},
       {"lockstep evaluate runs/waves-1 waves/test", "a folder of sequences for each class"},
       {"lockstep evaluate runs/gpt-1 other.txt --metrics perplexity", "a network of texts"},
       {"lockstep evaluate runs/reviews-1 other.jsonl", "texts with classes"},
       {"lockstep evaluate denoiser.safetensors images --targets inputs --salt-and-pepper 0.1",
        "the quality of noise removal"}},
      [a] { return evaluate_command(*a); });
  sub.add_option("model", a->model, "Model file, or the folder of a run")
      .required()
      .type_name("MODEL");
  sub.add_option(
         "data", a->data,
         "Folder with one folder of images for each class, a .csv file, or builtin:digits; of "
         "sequences: a folder with one folder of .csv, .tsv, .npy and .npz files for each class; "
         "of "
         "texts: a .txt file or a folder of them, or, with classes, a folder with one folder of "
         ".txt files for each class or a .jsonl file; one of these for each input of the network. "
         "The columns of a .csv file are matched by name")
      .required()
      .type_name("DATA");
  sub.add_option("--label-column", a->label_column,
                 "Label column of a .csv file (default: that of the training, else the last), or "
                 "the key of the labels in .jsonl files (default: that of the training)")
      .type_name("NAME");
  add_text_column(sub, a->text_column);
  add_no_header(sub, a->no_header);
  sub.add_option("--targets", a->targets,
                 "Image to image: folder of the target images, or \"inputs\"; labels of pixels: "
                 "folder of the label images; numbers: a .csv file "
                 "whose first column has the images' names; of sequences also \"next_step\" "
                 "(default: as in the training)")
      .type_name("DATA");
  sub.add_option("--salt-and-pepper", a->noise.salt_and_pepper,
                 "Fraction of input elements that are set to 0 or 255")
      .type_name("SHARE")
      .share();
  sub.add_option("--seed", a->seed, "Seed of the noise").type_name("N").not_negative();
  add_fitting(sub, a->fit, "the network's input and output");
  add_orientation(sub, a->orientation);
  add_labels(sub, a->labels, "as in the training");
  add_bad_images(sub, a->bad_images,
                 "Unreadable images: stop, or skip and list them (default: stop)");
  add_threads(sub, a->threads);
  std::vector<std::string> of_classes = metric_names(false);
  std::erase(of_classes, "accuracy");
  sub.add_option("--metrics", a->metrics,
                 fmt::format("Additional metrics: {}; of regression: {}",
                             fmt::join(of_classes, ", "), fmt::join(metric_names(true), ", ")))
      .separated_by_commas()
      .one_value_each()
      .type_name("NAME");
  sub.add_flag("--confusion", a->confusion, "Also print the confusion matrix");
  sub.add_flag("--json", a->json, "Print one JSON object");
}

}  // namespace lockstep::command
