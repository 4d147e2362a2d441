#include "lockstep/runs/run.h"

#include "lockstep/base/digest.h"
#include "lockstep/base/error.h"
#include "lockstep/data/crop.h"
#include "lockstep/data/resize.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/runs/data_source.h"
#include "lockstep/runs/run_folder.h"
#include "lockstep/train/mini_batches.h"
#include "lockstep/train/receipt.h"
#include "lockstep/train/training_problem.h"

namespace lockstep {
namespace {

// Values of another model's layers, by name.
void copy_values(const Network& from, Network& to, const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument("[run] the initial model " + path + " does not fit the job: " + what);
  };
  const auto expected = to.value_shapes(), given = from.value_shapes();
  for (size_t i = 0; i < expected.size() || i < given.size(); ++i) {
    if (i >= given.size()) refuse("it has no " + expected[i].first);
    if (i >= expected.size()) refuse("the job has no " + given[i].first);
    if (expected[i] == given[i]) continue;
    refuse("it has " + given[i].first + " of " + given[i].second.to_string() +
           " where the job has " + expected[i].first + " of " + expected[i].second.to_string());
  }
  for (size_t i = 0; i < to.learnables().size(); ++i) {
    to.learnables()[i].value.copy_from(from.learnables()[i].value);
  }
  for (size_t i = 0; i < to.state().size(); ++i) {
    to.state()[i].value.copy_from(from.state()[i].value);
  }
}

// Notes checkpoints, and saves the network as it is before the first iteration.
class Witness : public TrainingObserver {
 public:
  Witness(const RunFolder& folder, const Network& network, const std::vector<std::string>& classes,
          bool save_initial)
      : folder_(folder), network_(network), classes_(classes), save_initial_(save_initial) {}

  void start(const TrainingStart& start) override {
    if (!save_initial_ || start.first_iteration != 1) return;
    save_model(local_files(), folder_.file("initial.safetensors"), network_, classes_);
  }
  void checkpoint(const std::string& path, int64_t) override { last = path; }

  std::string last;

 private:
  const RunFolder& folder_;
  const Network& network_;
  const std::vector<std::string>& classes_;
  bool save_initial_;
};

void require_images(const DatastorePtr& store, const char* what, const DatastorePtr& all) {
  if (store->size() > 0) return;
  throw InvalidArgument("[data] " + std::string(what) + " leaves no image of the " +
                        std::to_string(all->size()) + " of " + all->describe());
}

void check_outputs(const Network& network, const std::vector<std::string>& classes) {
  const std::vector<Shape> outputs = network.output_shapes();
  if (network.loss() != "cross_entropy" || outputs.size() != 1) return;
  const auto count = static_cast<int64_t>(classes.size());
  if (outputs[0].elements() == count) return;
  throw InvalidArgument("[run] the network gives " + outputs[0].to_string() +
                            " values, the training images have " + std::to_string(count) +
                            " classes",
                        "give the last fully_connected layer units = " + std::to_string(count));
}

// Opens the folders of a job, without images that cannot be read where it says so.
class Opener {
 public:
  Opener(const Job& job, std::vector<UnreadableImage>& skipped)
      : label_column_(job.data.label_column),
        skip_(job.data.bad_images == "skip"),
        threads_(static_cast<int>(job.training.resolved().threads)),
        skipped_(skipped) {}

  DatastorePtr open(const std::string& name, bool allow_empty_folders) {
    const DatastorePtr store = listed(name, allow_empty_folders);
    return skip_ ? readable(store, name).store : store;
  }

  // Targets of the images, by name; where a target cannot be read, its image is left out, too.
  DatastorePtr open_targets(DatastorePtr& images, const std::string& name) {
    if (!images || name == image_targets_inputs) return images;
    const DatastorePtr targets = match_by_name(*images, listed(name, true));
    if (!skip_) return targets;
    const ReadableImages found = readable(targets, name);
    if (!found.unreadable.empty()) images = subset(images, found.indices);
    return found.store;
  }

 private:
  DatastorePtr listed(const std::string& name, bool allow_empty_folders) const {
    return open_data(name, {.allow_empty_folders = allow_empty_folders, .list_unreadable = skip_},
                     label_column_);
  }

  ReadableImages readable(const DatastorePtr& store, const std::string& name) {
    ThreadPool pool(threads_);
    ReadableImages found = readable_images(store, pool);
    for (const UnreadableImage& image : found.unreadable) {
      skipped_.push_back({join_path(name, image.name), image.reason});
    }
    return found;
  }

  const std::string label_column_;
  bool skip_;
  int threads_;
  std::vector<UnreadableImage>& skipped_;
};

// A class of which nothing can be read cannot be learned.
void check_classes_left(const ImageDatastore& images) {
  const std::vector<int64_t> counts = count_each_label(images);
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] > 0) continue;
    throw DataError("[data] no image of the class `" + images.classes()[c] + "` can be read (" +
                        images.describe() + ")",
                    "mend or remove the class's folder");
  }
}

// Targets of each part, by the names of its images.
void add_targets(RunData& data, const JobData& job, Opener& opener) {
  if (job.targets.empty()) return;
  data.training_targets = opener.open_targets(data.training, job.targets);
  data.validation_targets = opener.open_targets(
      data.validation, job.validation.empty() ? job.targets : job.validation_targets);
  data.test_targets =
      opener.open_targets(data.test, job.test.empty() ? job.targets : job.test_targets);
}

// "2 images cannot be read and are left out: a/1.png, a/2.png"
std::string skipped_text(const std::vector<UnreadableImage>& skipped) {
  constexpr size_t most = 5;
  std::string text = std::to_string(skipped.size()) +
                     (skipped.size() == 1 ? " image cannot be read and is left out: "
                                          : " images cannot be read and are left out: ");
  for (size_t i = 0; i < skipped.size() && i < most; ++i) {
    text += (i > 0 ? ", " : "") + skipped[i].name;
  }
  if (skipped.size() > most) text += " and " + std::to_string(skipped.size() - most) + " more";
  return text;
}

// All images to the size of the network's input, targets to that of its output.
void resize_images(RunData& data, const Network& network) {
  const auto inputs = network.input_shapes(), outputs = network.output_shapes();
  if (inputs.size() != 1 || inputs[0].rank() != 3) return;  // refused where it is trained
  const auto part = [&](DatastorePtr& images, DatastorePtr& targets) {
    const bool same = images == targets && !outputs.empty() && outputs[0] == inputs[0];
    if (images) images = resized(images, inputs[0][1], inputs[0][2]);
    if (targets && outputs.size() == 1 && outputs[0].rank() == 3) {
      targets = same ? images : resized(targets, outputs[0][1], outputs[0][2]);
    }
  };
  part(data.training, data.training_targets);
  part(data.validation, data.validation_targets);
  part(data.test, data.test_targets);
}

// All images cut to the size of the network's input, their targets with them.
void crop_images(RunData& data, const Network& network, bool random) {
  const auto inputs = network.input_shapes(), outputs = network.output_shapes();
  if (inputs.size() != 1 || inputs[0].rank() != 3) return;  // refused where it is trained
  const int64_t height = inputs[0][1], width = inputs[0][2];
  if (data.training_targets && (outputs.size() != 1 || outputs[0].rank() != 3 ||
                                outputs[0][1] != height || outputs[0][2] != width)) {
    throw InvalidArgument("[data] crop: the network makes images of another size than it takes",
                          "resize images and targets instead");
  }
  const auto part = [&](DatastorePtr& images, DatastorePtr& targets) {
    const bool same = images == targets;
    if (images) images = center_cropped(images, height, width);
    if (targets) targets = same ? images : center_cropped(targets, height, width);
  };
  data.random_crop = random;
  if (!random) part(data.training, data.training_targets);
  part(data.validation, data.validation_targets);
  part(data.test, data.test_targets);
}

}  // namespace

RunData open_run_data(const Job& job) {
  RunData data;
  Opener opener(job, data.skipped);
  const bool labels = job.data.targets.empty();
  const DatastorePtr all = opener.open(job.data.train, !labels);
  if (job.data.resize) check_images(*all, "data.resize");
  if (job.data.crop != "none") check_images(*all, "data.crop");
  if (labels && !data.skipped.empty()) check_classes_left(*all);
  data.training = all;
  if (job.data.validation_fraction > 0 || job.data.test_fraction > 0) {
    const auto parts = split_each_label(all, {job.data.validation_fraction, job.data.test_fraction},
                                        static_cast<uint64_t>(job.training.seed));
    if (job.data.validation_fraction > 0) {
      data.validation = parts[0];
      require_images(data.validation, "validation_fraction", all);
    }
    if (job.data.test_fraction > 0) {
      data.test = parts[1];
      require_images(data.test, "test_fraction", all);
    }
    data.training = parts[2];
    require_images(data.training, "splitting", all);
  }
  const auto open_part = [&](const std::string& name) {
    const DatastorePtr store = opener.open(name, true);
    return labels ? with_classes(store, all->classes()) : store;
  };
  if (!job.data.validation.empty()) data.validation = open_part(job.data.validation);
  if (!job.data.test.empty()) data.test = open_part(job.data.test);
  add_targets(data, job.data, opener);
  if (job.data.resize) resize_images(data, build_network(job));
  if (job.data.crop != "none") {
    crop_images(data, build_network(job), job.data.crop == "random");
  }
  return data;
}

Network build_network(const Job& job) {
  const nlohmann::json description = job.network;
  Network network = Network::from_json(description);
  network.check();
  return network;
}

JobPlan plan_job(const Job& job, const std::string& initial_model) {
  JobPlan plan{.job = job, .data = open_run_data(job), .network = build_network(job)};
  const RunData& data = plan.data;
  if (!data.training_targets) {
    plan.classes = data.training->classes();
    check_outputs(plan.network, plan.classes);
  }
  plan.network.initialize(static_cast<uint64_t>(job.training.seed));
  if (!initial_model.empty()) {
    const std::vector<std::byte> bytes = local_files().read(initial_model);
    plan.initial_model = digest_of(bytes.data(), bytes.size()).to_string();
    copy_values(load_model(local_files(), initial_model).network, plan.network, initial_model);
  }
  plan.training = {data.training,         data.validation,         job.augmentation,
                   data.training_targets, data.validation_targets, job.noise,
                   data.random_crop};
  // Which device it was is part of what is resumed.
  if (job.training.workers > 0 && job.training.device == "auto") plan.job.training.device = "cpu";
  check_training(plan.network, plan.training, plan.job.training);
  if (!job.training.metrics.empty() && !data.validation && !data.test) {
    throw InvalidArgument("[training] metrics are of validation or test images, and there are none",
                          "give data.validation, data.validation_fraction, or test images");
  }
  plan.job.training.device = to_string(resolve_training_device(plan.network, plan.job.training));
  plan.iterations_per_epoch =
      batches_per_epoch(data.training->size(), mini_batches_of(plan.training, job.training));
  return plan;
}

namespace {

// What worker processes do to have the same as plan_job() gave here.
TrainingProblem job_problem(std::string job, std::string initial_model) {
  JobPlan plan = plan_job(read_resolved_job(job), initial_model);
  return {std::move(plan.network), std::move(plan.training)};
}

}  // namespace

RunResult run_job(const Job& job, const RunOptions& options) {
  if (!options.resume) refuse_other_run(local_files(), options.folder);
  JobPlan plan = plan_job(job, options.initial_model);
  const RunData& data = plan.data;
  Network& network = plan.network;
  RunResult result;
  result.skipped = data.skipped;
  result.classes = plan.classes;
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
  if (!plan.initial_model.empty()) extra["initial_model"] = plan.initial_model;
  const RunFolder folder(local_files(), options.folder, plan.job, extra, options.resume);
  ReceiptWriter receipt(local_files(), folder.path());
  Witness witness(folder, network, result.classes, options.save_initial);
  TrainingControl control;
  control.observers = {&receipt, &witness};
  control.observers.insert(control.observers.end(), options.observers.begin(),
                           options.observers.end());
  if (!data.skipped.empty()) {
    for (TrainingObserver* observer : control.observers) {
      observer->notice(skipped_text(data.skipped));
    }
  }
  control.checkpoint_folder = folder.file("checkpoints");
  control.resume = folder.resumed();
  control.stop = options.stop;
  control.interrupted = options.interrupted;
  control.stop_after = options.stop_after;
  control.dry_run = options.dry_run;
  control.profile = options.profile;
  const auto call = make_call<&job_problem>(plan.job.resolved().dump(), options.initial_model);
  result.training = train(call, network, plan.training, plan.job.training, control);
  receipt.finish();
  result.checkpoint = witness.last;
  if (result.training.stopped) return result;

  // First of all: whatever becomes of the evaluation, the network is there.
  result.model = folder.file("model.safetensors");
  save_model(local_files(), result.model, network, result.classes);

  // Anew, although the trainer may have validated these values: for the confusion, and since
  // population statistics may have come after.
  // Workers are gone by now: all processors are free.
  const int64_t threads = job.training.workers > 0 ? 0 : job.training.threads;
  EvaluationOptions evaluation{.threads = static_cast<int>(threads),
                               .noise = job.noise,
                               .seed = static_cast<uint64_t>(job.training.seed),
                               .metrics = job.training.metrics,
                               .own_metrics = job.training.own_metrics,
                               .confusion = !data.training_targets};
  nlohmann::ordered_json confusion;
  const auto measure = [&](const char* part, const DatastorePtr& images,
                           const DatastorePtr& targets, std::optional<Evaluation>& into) {
    if (!images) return;
    evaluation.targets = targets;
    into = evaluate(network, images, evaluation);
    if (into->confusion) confusion[part] = into->confusion->to_json();
  };
  measure("validation", data.validation, data.validation_targets, result.validation);
  measure("test", data.test, data.test_targets, result.test);
  if (!confusion.is_null()) {
    write_atomically(
        local_files(), folder.file("confusion.json"),
        confusion.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }
  return result;
}

}  // namespace lockstep
