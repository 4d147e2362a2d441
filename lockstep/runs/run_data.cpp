#include "lockstep/runs/run_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/runs/data_options.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/sources/data_source.h"
#include "lockstep/runs/sources/sequence_source.h"
#include "lockstep/runs/sources/target_table.h"
#include "lockstep/runs/sources/text_source.h"
#include "lockstep/runs/splits.h"
#include "lockstep/runs/text_data.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/input/training_images.h"

namespace lockstep {
namespace {

SequenceTargets targets_of(const JobData& data) {
  return {
      .label_column = data.label_column, .columns = data.target_columns, .targets = data.targets};
}

// Opens the folders of a job, without unreadable images if the job skips them.
class Opener {
 public:
  Opener(const Job& job, const std::function<bool()>& stop, const TableColumns& columns,
         std::vector<UnreadableImage>& skipped)
      : job_(job),
        network_(build_network(job)),
        tables_{.label_column = job.data.label_column,
                .header = job.data.header,
                .columns = columns,
                .sequences = sequence_inputs(network_),
                .target_columns = job.data.target_columns,
                .categories = job.data.categories,
                .ignored_columns = columns_without_features(job.data),
                .missing = missing_values(job.data.missing)},
        skip_(job.data.bad_images == "skip"),
        threads_(static_cast<int>(job.training.resolved().threads)),
        stop_(stop),
        skipped_(skipped) {
    if (tables_.sequences.at(0)) tables_.targets = step_targets(targets_of(job.data), network_);
  }

  // Images of a network with several inputs are resized here, each to its input.
  DatastorePtr open(const std::vector<std::string>& names, bool allow_empty_folders) {
    std::vector<DatastorePtr> inputs =
        open_inputs(names, folder_options(allow_empty_folders), tables_);
    if (inputs.size() > 1 && job_.data.resize) {
      inputs = resized_inputs(std::move(inputs), network_);
    }
    const DatastorePtr store = join_inputs(std::move(inputs));
    return skip_ ? readable(store, names[0]).store : store;
  }

  // Opens the targets that have the names of the images. If a target cannot be read, its image is
  // left out too.
  DatastorePtr open_targets(DatastorePtr& images, const std::string& name) {
    if (!images || name == image_targets_inputs) return images;
    if (is_table_file(name)) {
      DatastorePtr targets = open_target_table(*images, name,
                                               {.columns = job_.data.target_columns,
                                                .categories = job_.data.categories,
                                                .known = tables_.columns.target,
                                                .others = columns_without_features(job_.data)});
      // Those of the training are opened first.
      tables_.columns.target = targets->spec().inputs.at(0).columns;
      return targets;
    }
    ImageFolderOptions options = folder_options(true);
    options.least = {};
    const DatastorePtr targets = open_target_images(*images, name, options);
    if (!skip_) return targets;
    const ReadableImages found = readable(targets, name);
    if (!found.unreadable.empty()) images = subset(images, found.indices);
    return found.store;
  }

  // Images with their label images as targets. What cannot be read of either is left out.
  DatastorePtr with_label_images(DatastorePtr images, const std::string& name) {
    ImageFolderOptions options = folder_options(true);
    options.pixel_classes = job_.data.pixel_classes;
    DatastorePtr all = open_with_label_images(std::move(images), name, options);
    return skip_ ? readable(all, job_.data.train[0]).store : all;
  }

  // Sequences with targets of other files.
  DatastorePtr with_targets_of(DatastorePtr sequences, const std::string& name) {
    return with_other_targets(std::move(sequences), name, tables_.header, network_);
  }

  // For what is opened from now on: the columns and classes of the training.
  void use(const TableColumns& columns, const std::vector<std::string>& classes) {
    tables_.columns = columns;
    if (!tables_.targets.label_column.empty()) tables_.targets.classes = classes;
  }

 private:
  ImageFolderOptions folder_options(bool allow_empty_folders) const {
    return {.labels = folder_labels(job_.data.labels),
            .labeled = job_.data.targets.empty(),
            .allow_empty_folders = allow_empty_folders,
            .list_unreadable = skip_,
            .upright = job_.data.orientation == "exif",
            .least = least_decoded(preparation_of(job_), network_)};
  }

  ReadableImages readable(const DatastorePtr& store, const std::string& name) {
    ThreadPool pool(threads_);
    ReadableImages found = readable_images(store, pool, stop_);
    for (const UnreadableImage& image : found.unreadable) {
      skipped_.push_back({join_path(name, image.name), image.reason});
    }
    return found;
  }

  const Job& job_;
  const Network network_;
  TableOptions tables_;
  bool skip_;
  int threads_;
  const std::function<bool()> stop_;
  std::vector<UnreadableImage>& skipped_;
};

bool is_folder_of_images(const std::string& name) {
  return !is_table_file(name) && name != builtin_digits_name;
}

// A class without readable images cannot be learned.
void check_classes_left(const Datastore& images) {
  const std::vector<int64_t> counts = count_each_label(images);
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] > 0) continue;
    throw DataError("[data] no image of the class `" + images.classes()[c] + "` can be read (" +
                        images.describe() + ")",
                    "repair or remove the folder of the class");
  }
}

// Images that lie in the folder itself, not in one of a class.
int64_t loose_images(const Datastore& images) {
  int64_t count = 0;
  for (int64_t i = 0; i < images.size(); ++i) {
    if (images.name(i).find('/') == std::string::npos) ++count;
  }
  return count;
}

// Without folders of classes all images would be of one class, which cannot be learned.
void require_class_folders(const Datastore& images) {
  if (images.classes().size() != 1 || !has_image_inputs(images)) return;
  if (loose_images(images) < images.size()) return;
  throw DataError("[data] " + images.describe() + " has no class folders: its " +
                      std::to_string(images.size()) +
                      (images.size() == 1 ? " image lies" : " images lie") +
                      " in the folder itself",
                  "put the images of each class into one folder, named after the class; for "
                  "image to image, set `targets`");
}

// Adds the targets of each part by the names of its images.
void add_targets(RunData& data, const JobData& job, Opener& opener) {
  if (job.targets.empty()) return;
  data.training_targets = opener.open_targets(data.training, job.targets);
  data.validation_targets = opener.open_targets(
      data.validation, job.validation.empty() ? job.targets : job.validation_targets);
  data.test_targets =
      opener.open_targets(data.test, job.test.empty() ? job.targets : job.test_targets);
}

// Resizes all images to the size of the network's input, and targets to the size of its output.
// Several inputs have been resized when they were opened.
void resize_images(RunData& data, const Network& network) {
  const auto inputs = network.input_shapes(), outputs = network.output_shapes();
  const bool single = inputs.size() == 1;
  if (single && inputs[0].rank() != 3) return;  // the trainer refuses it
  const auto part = [&](DatastorePtr& images, DatastorePtr& targets) {
    const bool same = single && images == targets && !outputs.empty() && outputs[0] == inputs[0];
    if (single && images) images = resized(images, inputs[0][1], inputs[0][2]);
    if (targets && outputs.size() == 1 && outputs[0].rank() == 3) {
      targets = same ? images : resized(targets, outputs[0][1], outputs[0][2]);
    }
  };
  part(data.training, data.training_targets);
  part(data.validation, data.validation_targets);
  part(data.test, data.test_targets);
}

// The pixels that the shorter side of an image gets before it is cut at its center; 0: it is not
// resized.
int64_t shorter_side(const JobData& data, const Network& network) {
  if (data.resize_shorter > 0 || data.crop != "random_resized") return data.resize_shorter;
  const auto inputs = network.input_shapes();
  if (inputs.size() != 1 || inputs[0].rank() != 3) return 0;  // the trainer refuses it
  // Of a network for 224 x 224 pixels it is 256, as usual.
  return std::min(max_image_side, (8 * std::max(inputs[0][1], inputs[0][2]) + 3) / 7);
}

// Cuts all images and their targets to the size of the network's input, after resizing them if a
// shorter side is given.
void crop_images(RunData& data, const Network& network, const JobData& job) {
  const auto inputs = network.input_shapes(), outputs = network.output_shapes();
  if (inputs.size() != 1 || inputs[0].rank() != 3) return;  // the trainer refuses it
  const int64_t height = inputs[0][1], width = inputs[0][2];
  const bool to_images = data.training_targets && has_image_inputs(*data.training_targets);
  if (to_images && (outputs.size() != 1 || outputs[0].rank() != 3 || outputs[0][1] != height ||
                    outputs[0][2] != width)) {
    throw InvalidArgument(
        "[data] crop: the network's output images have another size than its input",
        "resize images and targets instead");
  }
  const bool resized = job.crop == "random_resized";
  const int64_t shorter = shorter_side(job, network);
  // Training images of which regions are resized keep their size.
  const auto fitted = [&](const DatastorePtr& images, bool cut) {
    const bool sized = shorter > 0 && (cut || !resized);
    const DatastorePtr all = sized ? shorter_resized(images, shorter) : images;
    return cut ? center_cropped(all, height, width) : all;
  };
  const auto part = [&](DatastorePtr& images, DatastorePtr& targets, bool cut) {
    const bool same = images == targets;
    if (images) images = fitted(images, cut);
    if (targets && to_images) targets = same ? images : fitted(targets, cut);
  };
  data.random_crop = job.crop == "random";
  if (resized) data.resized_crop = {.area = job.crop_area, .ratio = job.crop_ratio};
  part(data.training, data.training_targets, job.crop == "center");
  part(data.validation, data.validation_targets, true);
  part(data.test, data.test_targets, true);
}

struct KeptData {
  std::string key;
  RunData data;
};

Mutex kept_mutex;
bool keeps_data LOCKSTEP_GUARDED_BY(kept_mutex) = false;
std::optional<KeptData> kept_data LOCKSTEP_GUARDED_BY(kept_mutex);

// Everything that the data of a job depend on.
std::string data_key(const Job& job, const TableColumns& columns) {
  nlohmann::ordered_json key{{"data", job.resolved()["data"]},
                             {"seed", job.training.seed},
                             {"columns", columns.to_json()}};
  const Network network = build_network(job);
  for (const auto& shapes : {network.input_shapes(), network.output_shapes()}) {
    for (const Shape& shape : shapes) key["shapes"].push_back(shape.to_string());
    key["shapes"].push_back("");
  }
  return key.dump();
}

RunData open_new_data(const Job& job, const std::function<bool()>& stop,
                      const TableColumns& columns) {
  check_folds(job.data);
  const Network built = build_network(job);
  if (takes_text(built)) {
    return classifies_texts(built) ? open_labeled_texts(job, columns)
                                   : open_text_data(job, columns);
  }
  const bool sequences = takes_only_sequences(built);
  refuse_options_of_texts(job.data, sequences ? "sequences of numbers" : "images and tables");
  if (sequences) {
    check_options_of_sequences(job.data);
  } else {
    check_options_of_tables(job.data);
  }
  RunData data;
  Opener opener(job, stop, columns, data.skipped);
  const bool labels = job.data.targets.empty();
  const bool pixels = !job.data.pixel_classes.names.empty();
  DatastorePtr all = opener.open(job.data.train, !labels);
  if (pixels) all = opener.with_label_images(std::move(all), job.data.targets);
  if (sequences) all = opener.with_targets_of(std::move(all), job.data.targets);
  if (job.data.resize) check_images(*all, "data.resize");
  if (job.data.crop != "none") check_images(*all, "data.crop");
  if (labels) require_class_folders(*all);
  if (labels && !data.skipped.empty()) check_classes_left(*all);
  data.training = all;
  data.columns = columns.empty() ? table_columns_of(*all) : columns;
  opener.use(data.columns, all->classes());
  split_data(data, job, !sequences && is_folder_of_images(job.data.train[0]));
  const auto open_part = [&](const std::vector<std::string>& names, const std::string& targets) {
    DatastorePtr store = opener.open(names, true);
    if (pixels) return opener.with_label_images(std::move(store), targets);
    if (sequences) store = opener.with_targets_of(std::move(store), targets);
    return labels ? with_classes(std::move(store), all->classes()) : store;
  };
  if (!job.data.validation.empty()) {
    data.validation = open_part(job.data.validation, job.data.validation_targets);
  }
  if (!job.data.test.empty()) data.test = open_part(job.data.test, job.data.test_targets);
  if (!sequences && !pixels) add_targets(data, job.data, opener);
  if (job.data.resize) resize_images(data, build_network(job));
  if (job.data.crop != "none") {
    crop_images(data, build_network(job), job.data);
  }
  return data;
}

}  // namespace

std::string skipped_text(const std::vector<UnreadableImage>& skipped) {
  std::string text = std::to_string(skipped.size()) +
                     (skipped.size() == 1 ? " image cannot be read and is skipped: "
                                          : " images cannot be read and are skipped: ");
  std::vector<std::string> names;
  for (const UnreadableImage& image : skipped) names.push_back(image.name);
  return text + list_of_some(names, 5);
}

void keep_run_data(bool keep) {
  keep_images(keep);
  const MutexLock lock(kept_mutex);
  if (std::exchange(keeps_data, keep) != keep) kept_data.reset();
}

RunData open_run_data(const Job& job, const std::function<bool()>& stop,
                      const TableColumns& columns) {
  {
    const MutexLock lock(kept_mutex);
    if (!keeps_data) return open_new_data(job, stop, columns);
  }
  std::string key = data_key(job, columns);
  const MutexLock lock(kept_mutex);
  if (kept_data && kept_data->key == key) return kept_data->data;
  kept_data.reset();
  RunData data = open_new_data(job, stop, columns);
  kept_data = {std::move(key), data};
  return data;
}

LeastSize least_decoded(const Preparation& preparation, const Network& network) {
  LeastSize least;
  if (!preparation.scaled) return least;
  if (preparation.crop) return {preparation.resize_shorter, preparation.resize_shorter};
  if (!preparation.resize) return least;
  for (const Shape& shape : network.input_shapes()) {
    if (shape.rank() != 3) continue;
    least.height = std::max(least.height, shape[1]);
    least.width = std::max(least.width, shape[2]);
  }
  return least;
}

Preparation preparation_of(const Job& job) {
  const JobData& data = job.data;
  const Network network = build_network(job);
  const bool text = takes_text(network), classes = text && classifies_texts(network);
  const auto targets = [&]() -> std::string {
    if (!data.target_columns.empty() && data.targets.empty()) return "columns";
    const bool kept = data.targets == targets_next_step || data.targets == image_targets_inputs;
    return kept && takes_only_sequences(network) ? data.targets : "";
  };
  return {.resize = data.resize,
          .crop = data.crop != "none",
          .resize_shorter = shorter_side(data, network),
          .scaled = data.scaled_decoding,
          .upright = data.orientation == "exif",
          .labels = data.labels,
          .header = data.header,
          .tokens = text ? data.tokens : "",
          .window_length = text ? data.window_length : 0,
          .text_column = classes ? data.text_column : "",
          .label_column = classes ? data.label_column : "",
          .targets = targets(),
          .pixel_values = data.pixel_classes.values,
          .ignored_value = data.pixel_classes.ignored,
          .categories = data.categories,
          .ignored_columns = columns_without_features(data),
          .missing = data.missing};
}

std::vector<std::string> notices_of(const RunData& data) {
  std::vector<std::string> all = data.notices;
  for (const DatastorePtr& store : {data.training, data.validation, data.test}) {
    if (!store) continue;
    for (std::string& notice : store->notices()) {
      if (std::find(all.begin(), all.end(), notice) == all.end()) all.push_back(std::move(notice));
    }
  }
  return all;
}

Network build_network(const Job& job) {
  const nlohmann::json description = *job.network;
  Network network = Network::from_json(description);
  network.check();
  return network;
}

}  // namespace lockstep
