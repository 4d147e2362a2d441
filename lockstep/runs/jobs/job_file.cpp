#include "lockstep/runs/jobs/job_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json_text.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"
#include "lockstep/runs/jobs/expression.h"
#include "lockstep/runs/jobs/job_keys.h"
#include "lockstep/runs/jobs/job_source.h"
#include "lockstep/runs/jobs/networks/network_table.h"
#include "lockstep/runs/jobs/pixel_classes.h"
#include "lockstep/runs/jobs/sweep_table.h"
#include "lockstep/runs/sources/data_source.h"
#include "lockstep/storage/object_store.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kBalanced = "balanced";  // class_weights

// The fields of [training]: the trainer's options and verbose_frequency.
void visit_training(Job& job, FieldVisitor& v) {
  job.training.visit(v);
  v.integer("verbose_frequency", job.verbose_frequency,
            "iterations between rows of the progress table", {.min = 1});
}

// Documents the keys of [sweep]: its fields, and the table of parameters.
std::vector<FieldInfo> sweep_fields() {
  FieldLister lister;
  SweepOptions().visit(lister);
  lister.fields.push_back({"parameters", "table", "required",
                           "the fields and variables that vary: a list of values, { values, when } "
                           "or { low, high, scale, integer, steps, when }"});
  return lister.fields;
}

const std::vector<std::string> tables{"data",    "augmentation", "noise", "variables",
                                      "network", "training",     "sweep", "name"};
// Keys that runs add to their job.json.
constexpr const char* noted_by_runs[] = {"initial_model", "initial_model_file", "columns"};

template <class Visit>
std::vector<FieldInfo> fields_of(Visit visit) {
  FieldLister lister;
  visit(lister);
  return lister.fields;
}

// Resolves the paths of [data]. Paths in the file are relative to the job file, paths in settings
// are relative to the current folder.
class DataPaths {
 public:
  explicit DataPaths(const std::string& job) : beside_(folder_of(job)) {}
  // Records that a setting has set the field at `pointer`, for example "/data/train".
  void note_setting(const std::string& pointer) { set_.insert(pointer); }
  // The path of a model.
  std::string resolve_from(const std::string& path) const {
    const bool set = set_.contains("/network/from");
    return storage::is_address(path) ? path : resolve_data_path(path, set ? "." : beside_);
  }
  std::string resolve(const std::string& field, const std::string& path) const {
    return resolve_data_path(path, set_.contains("/data/" + field) ? "." : beside_);
  }

 private:
  const std::string beside_;
  std::set<std::string> set_;
};

// Makes the paths of the inputs absolute. Every part of the data has the same number of inputs.
void resolve_inputs(JobData& data, const DataPaths& paths) {
  const std::pair<const char*, std::vector<std::string>*> parts[] = {
      {"train", &data.train}, {"validation", &data.validation}, {"test", &data.test}};
  for (const auto& [field, names] : parts) {
    const std::string where = "[data] " + std::string(field);
    if (!names->empty() && names->size() != data.train.size()) {
      throw InvalidArgument(where + " names " + counted(names->size(), "input") +
                                ", but train names " + std::to_string(data.train.size()),
                            "give one folder or .csv file for each input of the network");
    }
    for (std::string& name : *names) {
      if (name.empty()) throw InvalidArgument(where + " has an entry without a name");
      name = paths.resolve(field, name);
    }
  }
  if (data.train.size() > 1 && data.crop != "none") {
    throw InvalidArgument("[data] crop is for networks with one input, but train names " +
                              std::to_string(data.train.size()),
                          "set resize = true to give all images the sizes of their inputs");
  }
}

// Makes the paths of targets absolute. Each part of the data has its own targets.
void resolve_targets(JobData& data, const DataPaths& paths) {
  if (data.targets == image_targets_inputs || data.targets == targets_next_step) {
    for (std::string* own : {&data.validation_targets, &data.test_targets}) {
      if (own->empty()) *own = data.targets;
    }
  }
  const std::tuple<const char*, std::string*, const std::vector<std::string>*> parts[] = {
      {"targets", &data.targets, &data.train},
      {"validation_targets", &data.validation_targets, &data.validation},
      {"test_targets", &data.test_targets, &data.test}};
  for (const auto& [field, targets, images] : parts) {
    const bool named = *targets == image_targets_inputs || *targets == targets_next_step;
    if (!named) *targets = paths.resolve(field, *targets);
    if (data.targets.empty() && !targets->empty()) {
      throw InvalidArgument("[data] " + std::string(field) + " are given, but no targets to train");
    }
    if (!data.targets.empty() && targets->empty() && !images->empty()) {
      throw InvalidArgument("[data] " + std::string(field) + " are missing",
                            "a folder with files of the same names, or \"inputs\"");
    }
  }
}

// Moves class_weights from [training] to the job if it is a table of names, or "balanced".
void take_class_weights(json& training, const FieldReader::Expression& expression, Job& job) {
  if (!training.is_object() || !training.contains("class_weights")) return;
  const json weights = training["class_weights"];
  job.balanced_class_weights = weights == kBalanced;
  if (!weights.is_object() && !job.balanced_class_weights) return;
  training.erase("class_weights");
  if (job.balanced_class_weights) return;
  FieldReader reader(weights, "training.class_weights", expression);
  for (const auto& [name, unused] : weights.items()) {
    double weight = 1;
    reader.number(name.c_str(), weight, "", {.min = 0, .max = 1e30});
    job.class_weights[name] = weight;
  }
  reader.finish();
}

std::vector<std::string> given_fields(const json& tree) {
  std::vector<std::string> names;
  for (const char* table : {"augmentation", "noise", "training"}) {
    if (!tree.contains(table)) continue;
    for (const auto& [name, unused] : tree[table].items()) {
      names.push_back(std::string(table) + "." + name);
    }
  }
  return names;
}

void check_crop(const JobData& data) {
  if (data.resize && data.crop != "none") {
    throw InvalidArgument("[data] resize and crop cannot both be given",
                          "resize already changes every image to the size of the network's input; "
                          "resize_shorter = 256 keeps its proportions before the crop");
  }
  if (data.resize_shorter > 0 && data.crop == "none") {
    throw InvalidArgument("[data] resize_shorter is for images that are cropped afterwards",
                          "set crop = \"center\" or \"random\", or use resize = true alone");
  }
  const bool resizes = data.resize || data.resize_shorter > 0 || data.crop == "random_resized";
  if (data.scaled_decoding && !resizes) {
    throw InvalidArgument("[data] scaled_decoding is for images that are resized",
                          "set resize = true, or resize_shorter before a crop");
  }
  const RandomResizedCrop usual, given{.area = data.crop_area, .ratio = data.crop_ratio};
  given.check();
  if (data.crop == "random_resized" || given == usual) return;
  throw InvalidArgument(std::string("[data] ") +
                            (given.area == usual.area ? "crop_ratio" : "crop_area") +
                            " is for regions that are resized, but crop is \"" + data.crop + "\"",
                        "set crop = \"random_resized\"");
}

Job read_tree(JobSource& source, const std::string& path,
              const std::vector<std::string>& settings) {
  json& tree = source.tree;
  DataPaths paths(path);
  for (const std::string& setting : settings) {
    paths.note_setting(apply_setting(
        source, setting, [&](const std::string& key) { return path_of_key(tree, key); }));
  }
  for (const auto& [key, unused] : tree.items()) {
    const bool noted = std::find(std::begin(noted_by_runs), std::end(noted_by_runs), key) !=
                       std::end(noted_by_runs);
    if (path.ends_with(".json") && noted) continue;
    if (std::find(tables.begin(), tables.end(), key) == tables.end()) {
      throw InvalidArgument("[job] unknown table or key '" + key + "'", suggest(key, tables));
    }
  }
  const Variables variables = job_variables(tree);
  const FieldReader::Expression expression = [&](const std::string& text,
                                                 const std::string& where) {
    return variables.evaluate(text, where);
  };
  const json nothing = json::object();
  const auto read = [&](const char* table, auto visit) {
    FieldReader reader(tree.contains(table) ? tree[table] : nothing, table, expression);
    visit(reader);
    reader.finish();
  };

  Job job;
  job.name = std::filesystem::path(path).stem().string();
  if (tree.contains("name")) {
    if (!tree["name"].is_string()) throw InvalidArgument("[job] name must be text");
    job.name = tree["name"].get<std::string>();
  }
  const bool fit = !job.name.empty() && is_utf8(job.name) && job.name.size() <= 100 &&
                   job.name.front() != '.' && job.name.find('/') == std::string::npos;
  if (!fit) {
    throw InvalidArgument("[job] `" + job.name + "` is not a valid job name",
                          "it becomes a part of a folder name");
  }
  if (tree.contains("data")) take_pixel_classes(tree["data"], job.data);
  read("data", [&](FieldVisitor& v) { job.data.visit(v); });
  read("augmentation", [&](FieldVisitor& v) { job.augmentation.visit(v); });
  read("noise", [&](FieldVisitor& v) { job.noise.visit(v); });
  json training = tree.contains("training") ? tree["training"] : nothing;
  take_class_weights(training, expression, job);
  job.validation_frequency_given =
      training.is_object() &&
      (training.contains("validation_frequency") || training.contains("validation_frequency_unit"));
  FieldReader training_reader(training, "training", expression);
  visit_training(job, training_reader);
  training_reader.finish();
  job.training.check();
  if (tree.contains("sweep")) read_sweep_table(tree["sweep"]);
  if (job.data.train.empty()) {
    throw InvalidArgument("[data] train is missing",
                          "a folder of images, a .csv file, or \"builtin:digits\"");
  }
  check_crop(job.data);
  if (!job.data.validation.empty() && job.data.validation_fraction > 0) {
    throw InvalidArgument("[data] validation and validation_fraction cannot both be given");
  }
  if (job.data.folds > 0) {
    if (job.data.folds == 1 || job.data.fold > job.data.folds) {
      throw InvalidArgument(fmt::format("[data] folds = {} and fold = {} name no part to validate",
                                        job.data.folds, job.data.fold),
                            "folds from 2 on, and fold from 1 to folds");
    }
    if (!job.data.validation.empty() || job.data.validation_fraction > 0) {
      throw InvalidArgument(
          "[data] folds takes the validation data from the training data, so "
          "validation and validation_fraction cannot be given with it");
    }
  }
  if (!job.data.test.empty() && job.data.test_fraction > 0) {
    throw InvalidArgument("[data] test and test_fraction cannot both be given");
  }
  if (job.data.validation_fraction + job.data.test_fraction >= 1) {
    throw InvalidArgument("[data] validation_fraction and test_fraction leave nothing to train on");
  }
  resolve_inputs(job.data, paths);
  resolve_targets(job.data, paths);
  check_pixel_classes(job.data);
  const auto resolve = [&](const std::string& name) { return paths.resolve_from(name); };
  job.network = std::make_shared<const ordered_json>(
      read_network(source, expression, resolve, job.data.target_scaling, job.from));
  job.variables = variables.values();
  if (!path.ends_with(".json")) job.given = given_fields(tree);
  return job;
}

// No name is written as "", one name as a text.
void visit_names(FieldVisitor& v, const char* field, std::vector<std::string>& names,
                 const char* help) {
  if (names.empty()) names = {""};
  v.texts(field, names, help);
  if (names.size() == 1 && names[0].empty()) names.clear();
}

}  // namespace

void JobData::visit(FieldVisitor& v) {
  visit_names(
      v, "train", train,
      "folder of training images with a folder for each class, a .csv file, or \"builtin:digits\"; "
      "for tokens: a .txt file, a folder of them, or a file of tokens; for classes of texts: a "
      "folder with a folder "
      "of .txt files for each class, or a .jsonl file; for sequences: a folder with a folder of "
      ".csv, .tsv, .npy or .npz files for each class; for several inputs: one for each, of which "
      "the first has the labels");
  visit_names(v, "validation", validation, "the same, for validation during training");
  visit_names(v, "test", test, "the same, for the test after training");
  v.text("labels", labels,
         "folders that name the class of an image: the \"first\" below the data's folder, the "
         "\"nearest\" to the image, or the whole \"path\"",
         {"first", "nearest", "path"});
  v.text("label_column", label_column,
         "label column of .csv files; \"\": the last; of sequences: the class of each step; of "
         ".jsonl files of texts: the key of the labels; \"\": \"label\"");
  v.text("text_column", text_column, "key of the texts in .jsonl files; \"\": \"text\"");
  visit_names(v, "target_columns", target_columns,
              "columns with the numbers that each row is to give, or each step of a sequence; in "
              "place of labels");
  v.text("target_scaling", target_scaling,
         "targets that are numbers are learned normalized, by the standard deviation and mean "
         "(\"z-score\") or the range (\"rescale-zero-one\") of the training data; predictions and "
         "metrics are in the data's units, the loss is not",
         {"none", "z-score", "rescale-zero-one"});
  visit_names(v, "categories", categories,
              "tables, also of targets next to images, and targets by step: columns of texts; "
              "each text becomes a feature or target that is 0 or 1");
  v.text("category_encoding", category_encoding,
         "tables: the network sees the features of categories as they are (\"one-hot\"), or begins "
         "with a learned vector for each category (\"embedding\")",
         {"one-hot", "embedding"});
  v.integer("embedding_size", embedding_size,
            "tables: numbers of these vectors; 0: half of the column's categories, at most 50",
            {.min = 0, .max = 1 << 16});
  visit_names(v, "ignored_columns", ignored_columns, "tables: columns that are left out");
  v.text("missing", missing,
         "tables: missing values of features are an error (\"refuse\"), the \"mean\" of the "
         "column, or that and a \"flag\" as a further feature",
         {"refuse", "mean", "flag"});
  v.flag("header", header,
         "the first line of .csv files names the columns; false: it is a row, and columns are "
         "matched by position");
  v.text("targets", targets,
         "image to image, and sequences: folder with a target for each, of the same name, or "
         "\"inputs\"; for sequences also \"next_step\"; \"\": labels");
  v.text("validation_targets", validation_targets, "the same, for the validation data");
  v.text("test_targets", test_targets, "the same, for the test data");
  v.flag("resize", resize, "resize images to the network's input and output");
  v.integer("resize_shorter", resize_shorter,
            "pixels of the shorter side to which images are resized before `crop`; 0: not resized, "
            "with \"random_resized\" 8/7 of the network's input (256 for 224); that resizes "
            "validation and test images alone",
            {.min = 0, .max = max_image_side});
  v.text("crop", crop,
         "crop images to the network's input: at their \"center\", or in training at \"random\" "
         "positions, or \"random_resized\": random regions, resized to the input",
         {"none", "center", "random", "random_resized"});
  v.number_range("crop_area", crop_area,
                 "random_resized: share of the image that is kept, drawn from [low, high]",
                 {.min = 0, .max = 1});
  v.number_range("crop_ratio", crop_ratio,
                 "random_resized: width over height of what is kept, drawn from [low, high] by its "
                 "logarithm",
                 {.min = 0.01, .max = 100});
  v.flag("scaled_decoding", scaled_decoding,
         "decode JPEG files at 1/8, 1/4 or 1/2 where that leaves the pixels that resizing needs: "
         "faster, with slightly other values");
  v.text("orientation", orientation,
         "images as \"stored\", or turned as their \"exif\" orientation says", {"stored", "exif"});
  v.text("bad_images", bad_images, "unreadable images: \"stop\" the run, or \"skip\" and list them",
         {"stop", "skip"});
  v.text(
      "tokens", tokens,
      "texts: what a token is; \"numbers\": those in files of tokens (.npy, .bin, .tokens), or in "
      "texts, below the network's vocabulary",
      {"characters", "bytes", "words", "numbers"});
  v.integer("max_tokens", max_tokens,
            "texts: the most tokens of the vocabulary, all others are unknown; 0: all of the text",
            {.min = 0, .max = int64_t{1} << 31});
  v.integer("window_length", window_length, "texts: tokens of an example",
            {.min = 1, .max = int64_t{1} << 31});
  v.integer("window_stride", window_stride,
            "texts: tokens from the begin of an example to that of the next; 0: window_length",
            {.min = 0, .max = int64_t{1} << 31});
  v.number("validation_fraction", validation_fraction,
           "fraction of the training images of each class that is held out for validation, of a "
           "text its last part",
           {.min = 0, .max = 1, .max_excluded = true});
  v.number("test_fraction", test_fraction,
           "fraction of the training images of each class that is held out for the test",
           {.min = 0, .max = 1, .max_excluded = true});
  v.text("group_column", group_column,
         "tables, and tables of targets of images: rows with the same text in this column are "
         "never on two sides of a split (also of folds); it is not a feature or target");
  v.text("time_column", time_column,
         "the same tables: column of numbers or ISO dates; the last rows by time are held out for "
         "the test, those before for validation; it is not a feature or target");
  v.integer("folds", folds,
            "k-fold cross-validation: number of parts of the training data, of which one is "
            "validated; 0: none",
            {.min = 0, .max = int64_t{1} << 31});
  v.integer("fold", fold, "the part of `folds` that is validated, from 1",
            {.min = 1, .max = int64_t{1} << 31});
}

std::vector<JobTable> job_tables() {
  Job job;
  std::vector<FieldInfo> data = fields_of([&](FieldVisitor& v) { job.data.visit(v); });
  const auto after = std::ranges::find(data, "test_targets", &FieldInfo::name) + 1;
  const std::vector<FieldInfo> pixels = pixel_class_fields();
  data.insert(after, pixels.begin(), pixels.end());
  return {
      {"data", "The data sets.", std::move(data)},
      {"augmentation",
       "Random changes of training images, and of training sequences of numbers, drawn again for "
       "each use. Those of sequences are `jitter` and what follows.",
       fields_of([&](FieldVisitor& v) { job.augmentation.visit(v); })},
      {"noise", "Noise on the inputs of image-to-image networks.",
       fields_of([&](FieldVisitor& v) { job.noise.visit(v); })},
      {"network", "The network.", network_fields()},
      {"training", "The options of the training.",
       fields_of([&](FieldVisitor& v) { visit_training(job, v); })},
      {"sweep", "The trials of `lockstep sweep`. Other commands ignore this table.",
       sweep_fields()}};
}

ordered_json Job::resolved() const {
  Job copy = *this;
  copy.training = training.resolved();
  copy.training.threads = training.threads;          // processors may differ elsewhere
  copy.training.shards.size = training.shards.size;  // plan_job() decides
  ordered_json object;
  object["name"] = name;
  const auto write = [&](const char* table, auto visit) {
    ordered_json fields = ordered_json::object();
    FieldWriter writer(fields);
    visit(writer);
    object[table] = std::move(fields);
  };
  write("data", [&](FieldVisitor& v) { copy.data.visit(v); });
  put_pixel_classes(data, object["data"]);
  write("augmentation", [&](FieldVisitor& v) { copy.augmentation.visit(v); });
  write("noise", [&](FieldVisitor& v) { copy.noise.visit(v); });
  object["network"] = network ? *network : ordered_json();
  if (!from.empty()) object["network"]["from"] = from;
  write("training", [&](FieldVisitor& v) { visit_training(copy, v); });
  if (!validation_frequency_given) {  // plan_job() decides
    object["training"].erase("validation_frequency");
    object["training"].erase("validation_frequency_unit");
  }
  if (!class_weights.empty()) object["training"]["class_weights"] = class_weights;
  if (balanced_class_weights) object["training"]["class_weights"] = kBalanced;
  return object;
}

namespace {

// Makes errors name the job file.
template <class Read>
auto in_file(const std::string& path, Read read) {
  try {
    return read();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(path + ": " + error.what(), error.hint());
  } catch (const Unsupported& error) {
    throw Unsupported(path + ": " + error.what(), error.hint());
  } catch (const DataError& error) {
    throw DataError(path + ": " + error.what(), error.hint());
  } catch (const json::exception&) {
    throw InvalidArgument(path + ": a value has the wrong type for its field",
                          "`lockstep reference` lists all fields with their types");
  }
}

}  // namespace

Job read_job(FileSystem& files, const std::string& path, const std::vector<std::string>& settings) {
  const OrdinaryArithmetic arithmetic;  // numbers are parsed in this mode
  JobSource source = read_job_source(files, path);
  return in_file(path, [&] {
    Job job = read_tree(source, path, settings);
    job.file = path;
    return job;
  });
}

namespace {

JobText text_of(JobSource& source, const std::string& path,
                const std::vector<std::string>& settings) {
  return in_file(path, [&] {
    const Job job = read_tree(source, path, settings);
    source.tree["data"] = json(job.resolved()["data"]);
    source.tree["name"] = job.name;
    return JobText{std::filesystem::absolute(path).lexically_normal().string(), source.tree.dump()};
  });
}

}  // namespace

JobText read_job_text(FileSystem& files, const std::string& path,
                      const std::vector<std::string>& settings) {
  const OrdinaryArithmetic arithmetic;
  JobSource source = read_job_source(files, path);
  return text_of(source, path, settings);
}

JobText with_settings(const JobText& text, const std::vector<std::string>& settings) {
  const OrdinaryArithmetic arithmetic;
  JobSource source{parse_json<json>(text.tree), {}};
  return text_of(source, text.file, settings);
}

Job job_of(const JobText& text, const std::vector<std::pair<std::string, std::string>>& fields) {
  const OrdinaryArithmetic arithmetic;
  JobSource source{parse_json<json>(text.tree), {}};
  return in_file(text.file, [&] {
    for (const auto& [key, value] : fields) {
      set_field(source, key, parse_json<json>(value),
                [&](const std::string& name) { return path_of_key(source.tree, name); });
    }
    Job job = read_tree(source, text.file, {});
    job.file = text.file;
    return job;
  });
}

std::string field_of_key(const JobText& text, const std::string& key) {
  JobSource source{parse_json<json>(text.tree), {}};
  return set_field(source, key, json::object(),
                   [&](const std::string& name) { return path_of_key(source.tree, name); });
}

Job read_resolved_job(const std::string& text) {
  JobSource source{parse_json<json>(text), {}};
  Job job = read_tree(source, "the client's job", {});
  job.given.clear();
  return job;
}

}  // namespace lockstep
