// Trains several networks at once, with depths 1 to 4, each in its own worker process, and draws
// four accuracy curves meanwhile. A network that makes no progress is cancelled. Then the network
// with the best validation accuracy is tested. A second run prints the same table, except for the
// seconds.
//
// usage: parallel_networks [FOLDER [EPOCHS]]
//   FOLDER holds train/<class>/ and test/<class>/ with images, such as CIFAR-10. Without FOLDER, or
//   for "digits", the networks learn the built-in digits. Writes parallel_networks.svg.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "lockstep/lockstep.h"
#include "lockstep/train/records/observer.h"

using namespace lockstep;

namespace {

struct Task {
  int network = 0;  // index of the curve
  int64_t depth = 1;
  double learning_rate = 0.1 * 128 / 256;
  std::string folder;  // "": digits
  int64_t epochs = 30;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(network, depth, learning_rate, folder, epochs);
  }
};

struct Point {
  int network = 0;
  int64_t iteration = 0, iterations = 0;
  double accuracy = 0, validation = 0;  // NaN if there is none at this iteration

  template <class Archive>
  void serialize(Archive& archive) {
    archive(network, iteration, iterations, accuracy, validation);
  }
};

struct Trained {
  double validation = 0, seconds = 0;
  std::string digest;
  Bytes model;  // contents of a model file

  template <class Archive>
  void serialize(Archive& archive) {
    archive(validation, seconds, digest, model);
  }
};

struct Data {
  DatastorePtr training, validation, test;
};

Data open_data(const std::string& folder) {
  if (folder.empty()) {
    const auto parts = split_each_label(builtin_digits(), {0.8, 0.1}, /*seed=*/0);
    return {parts[0], parts[1], parts[2]};
  }
  const auto parts = split_each_label(image_folder(folder + "/train"), {0.9}, /*seed=*/0);
  return {parts[0], parts[1], image_folder(folder + "/test")};
}

// Sends every tenth training accuracy and all validations to the client.
class Sender : public TrainingObserver {
 public:
  Sender(int network, const QueueSender<Point>& queue) : network_(network), queue_(queue) {}
  void start(const TrainingStart& s) override { iterations_ = s.iterations; }
  void iteration(const IterationRecord& r) override {
    if (r.iteration % 10 == 0) say(r.iteration, r.accuracy, std::nan(""));
  }
  void validation(const ValidationRecord& v) override {
    say(v.iteration, std::nan(""), v.accuracy);
  }

 private:
  void say(int64_t iteration, double accuracy, double validation) {
    queue_.send({network_, iteration, iterations_, accuracy, validation});
  }
  const int network_;
  const QueueSender<Point> queue_;
  int64_t iterations_ = 0;
};

// Runs in a worker.
Trained train_one(const Task& task, const QueueSender<Point>& queue) {
  const Data data = open_data(task.folder);
  const Image image = read_image(*data.training, 0);
  const auto filters = static_cast<int64_t>(std::lround(16 / std::sqrt(task.depth)));
  Network network = plain_cnn({.height = image.height,
                               .width = image.width,
                               .channels = image.channels,
                               .filters = filters,
                               .depth = task.depth});
  network.initialize(/*seed=*/0);
  const TrainingOptions options{
      .max_epochs = task.epochs,
      .mini_batch_size = 128,
      .threads = 1,
      .solver = {.initial_learning_rate = task.learning_rate, .l2 = 1e-10},
      .validation = {.frequency = 0}};  // once per epoch
  TrainingData all{.training = data.training, .validation = data.validation};
  if (!task.folder.empty()) {
    all.augmentation = {.reflect_x = true, .translate_x = {-4, 4}, .translate_y = {-4, 4}};
  }
  Sender sender(task.network, queue);
  TrainingControl control;
  control.observers = {&sender};
  control.stop = task_cancelled;
  const TrainingResult result = train(network, all, options, control);
  check_cancelled();
  std::printf("depth %d: %d parameters, %.0f images per second\n", static_cast<int>(task.depth),
              static_cast<int>(network.parameter_elements()), result.images_per_second);
  return {result.validations.back().accuracy, result.seconds, result.network_digest.to_string(),
          encode_model(network, data.training->classes())};
}

// Draws curves on a terminal; otherwise prints a line for each validation. Used by the pool's
// callback thread, and by the main thread once no more values arrive.
class Curves {
 public:
  explicit Curves(std::vector<std::string> names) : terminal_(isatty(STDOUT_FILENO) != 0) {
    for (auto& name : names) training_.push_back({name, {}}), validation_.push_back({name, {}});
  }

  void add(const Point& p) {
    const auto n = static_cast<size_t>(p.network);
    const auto x = static_cast<double>(p.iteration);
    if (std::isnan(p.validation)) {
      training_[n].points.emplace_back(x, 100 * p.accuracy);
    } else {
      const std::lock_guard lock(mutex_);
      validation_[n].points.emplace_back(x, 100 * p.validation);
    }
    if (terminal_) {
      draw(false);
    } else if (!std::isnan(p.validation)) {
      std::printf("%-14s iteration %d/%d  validation accuracy %.2f%%\n", training_[n].name.c_str(),
                  static_cast<int>(p.iteration), static_cast<int>(p.iterations),
                  100 * p.validation);
    }
  }

  void draw(bool last) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || (!last && now - drawn_ < std::chrono::milliseconds(200))) return;
    std::vector<std::string> charts;
    for (const LineSeries& s : std::span(training_).first(4)) {
      LineSeries one = s;
      charts.push_back(line_chart_text({&one, 1}, {.title = s.name + ": training accuracy, %",
                                                   .low = 0,
                                                   .high = 100,
                                                   .columns = 38,
                                                   .rows = 7}));
    }
    const std::string text = side_by_side(charts, 80);
    if (lines_ > 0) std::printf("\x1b[%dA", lines_);
    std::printf("%s", text.c_str());
    std::fflush(stdout);
    lines_ = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    drawn_ = now;
  }

  // Best validation accuracy so far; 0 before the first. Thread-safe.
  double best(size_t n) const {
    const std::lock_guard lock(mutex_);
    double most = 0;
    for (const auto& p : validation_[n].points) most = std::max(most, p.second);
    return most;
  }
  const std::vector<LineSeries>& validations() const { return validation_; }

 private:
  const bool terminal_;
  int lines_ = 0;
  std::chrono::steady_clock::time_point drawn_;
  std::vector<LineSeries> training_, validation_;
  mutable std::mutex mutex_;
};

}  // namespace

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);
  try {
    const std::string given = argc > 1 ? argv[1] : "digits";
    const std::string folder = given == "digits" ? "" : given;
    const int64_t epochs = argc > 2 ? std::max(1, std::atoi(argv[2])) : 30;
    std::vector<std::string> names;
    for (int depth = 1; depth <= 4; ++depth) names.push_back("depth " + std::to_string(depth));
    names.push_back("hopeless");

    Curves curves(names);  // before the pool, whose callbacks use it
    Pool pool({.workers = 4});
    DataQueue<Point> queue(pool);
    queue.after_each([&](const Point& p) { curves.add(p); });
    std::vector<Future<Trained>> futures;
    // The first one has a learning rate that is too small for any progress.
    futures.push_back(pool.submit<&train_one>(
        Task{.network = 4, .depth = 1, .learning_rate = 1e-9, .folder = folder, .epochs = 1000},
        queue.sender()));
    for (int n = 0; n < 4; ++n) {
      futures.push_back(pool.submit<&train_one>(
          Task{.network = n, .depth = n + 1, .folder = folder, .epochs = epochs}, queue.sender()));
    }
    // Meanwhile this thread cancels the one without progress, so that the next one begins.
    while (!futures[0].done()) {
      futures[0].wait_for(0.05);
      if (curves.best(4) > 0 && curves.best(0) > 2 * curves.best(4)) futures[0].cancel();
    }
    const std::vector<Future<Trained>> rest(futures.begin() + 1, futures.end());
    const std::vector<Trained> trained = fetch_all(rest);
    queue.finish();
    curves.draw(true);

    std::printf("\nthe hopeless one was %s\n", to_string(futures[0].state()));
    std::printf("%-10s %12s %10s  %s\n", "network", "validation", "seconds", "digest");
    size_t best = 0;
    for (size_t i = 0; i < trained.size(); ++i) {
      std::printf("%-10s %11.2f%% %10.1f  %s\n", names[i].c_str(), 100 * trained[i].validation,
                  trained[i].seconds, trained[i].digest.c_str());
      if (trained[i].validation > trained[best].validation) best = i;
    }
    std::printf("diary of the best: %s", rest[best].diary().c_str());

    const Model model = decode_model(trained[best].model);
    Network network = model.network.clone();
    const Evaluation test = evaluate(network, open_data(folder).test, {.confusion = true});
    std::printf("%s: test accuracy %.2f%%\n%s", names[best].c_str(), 100 * test.accuracy,
                confusion_table(*test.confusion, 100).c_str());
    const auto& series = curves.validations();
    const std::string svg =
        line_chart_svg(std::span(series).first(4), {.title = "Four networks at once",
                                                    .x_label = "iteration",
                                                    .y_label = "validation accuracy, %"});
    write_atomically(local_files(), "parallel_networks.svg", svg);
    return futures[0].state() == TaskState::cancelled && test.accuracy > 0.5 ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
    return 1;
  }
}
