// A finished training that continues with a later end gives the same bytes of receipt and model as
// a training with that end from the beginning.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/input/training_data.h"
#include "lockstep/train/state/receipt.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using nlohmann::json;
using testing::small_classifier;
using testing::small_options;
using testing::some_digits;
using testing::TemporaryFolder;
using Options = TrainingOptions;
using ExtensionChange = std::function<void(Options&)>;

TrainingProblem problem() { return {small_classifier(), {some_digits(47), some_digits(20, 10)}}; }

// 47 digits in mini-batches of 20, 20 and 7: three iterations per epoch.
Options options_with(const ExtensionChange& change) {
  Options options = small_options();
  options.data.last_mini_batch = LastMiniBatch::keep;
  options.validation.frequency = 5;
  options.max_epochs = 1;
  change(options);
  return options;
}

struct ExtendedOutcome {
  TrainingResult result;
  std::string receipt, model;
};

ExtendedOutcome run(const std::string& folder, const Options& options,
                    TrainingControl control = {}) {
  const auto call = make_call<&problem>();
  TrainingProblem mine = call();
  ReceiptWriter receipt(local_files(), folder);
  control.checkpoint_folder = join_path(folder, "checkpoints");
  control.observers.push_back(&receipt);
  ExtendedOutcome outcome{train(call, mine.network, mine.data, options, control), {}, {}};
  receipt.finish();
  outcome.receipt = read_text(local_files(), join_path(folder, "receipt.jsonl"));
  const std::string model = join_path(folder, "model.safetensors");
  save_model(local_files(), model, mine.network, {});
  outcome.model = read_text(local_files(), model);
  return outcome;
}

void expect_same_end(const ExtendedOutcome& went_on, const ExtendedOutcome& begun) {
  EXPECT_EQ(went_on.receipt, begun.receipt);
  EXPECT_EQ(went_on.model == begun.model, true) << "bytes of the models";
  EXPECT_EQ(went_on.result.last_iteration, begun.result.last_iteration);
  EXPECT_EQ(went_on.result.network_iteration, begun.result.network_iteration);
  EXPECT_EQ(went_on.result.out_of_patience, begun.result.out_of_patience);
  EXPECT_EQ(went_on.result.stopped, begun.result.stopped);
  ASSERT_EQ(went_on.result.validations.size(), begun.result.validations.size());
  for (size_t i = 0; i < begun.result.validations.size(); ++i) {
    EXPECT_EQ(went_on.result.validations[i].iteration, begun.result.validations[i].iteration);
    EXPECT_EQ(went_on.result.validations[i].loss, begun.result.validations[i].loss);
  }
}

// The log of a run lists the validations that count once each.
std::vector<int64_t> logged_validations(const std::string& folder) {
  std::vector<int64_t> iterations;
  const std::string text = read_text(local_files(), join_path(folder, "log.jsonl"));
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const json line = json::parse(text.substr(begin, end - begin));
    if (line.contains("validation_loss")) iterations.push_back(line["iteration"]);
  }
  return iterations;
}

std::vector<int64_t> iterations_of(const std::vector<ValidationRecord>& validations) {
  std::vector<int64_t> iterations;
  for (const auto& v : validations) iterations.push_back(v.iteration);
  return iterations;
}

ExtensionChange epochs(int64_t n) {
  return [n](Options& o) { o.max_epochs = n; };
}
ExtensionChange iterations(int64_t n) {
  return [n](Options& o) { o.max_epochs = 4, o.max_iterations = n; };
}
ExtensionChange patience(int64_t n) {
  return [n](Options& o) { o.max_epochs = 6, o.validation.patience = n; };
}

struct Row {
  const char* name;
  ExtensionChange base;
  std::vector<ExtensionChange> ends;  // in succession
};

// Solvers, schedules, orders, validation frequencies, networks and ends.
std::vector<Row> rows() {
  const std::vector<ExtensionChange> more{epochs(1), epochs(2), epochs(4)};
  const auto with = [&](const char* name, ExtensionChange base) {
    return Row{name, std::move(base), more};
  };
  const auto schedule = [&](const char* name, std::vector<std::string> parts,
                            std::vector<double> lasting) {
    return with(name, [parts = std::move(parts), lasting = std::move(lasting)](Options& o) {
      o.schedule.types = parts, o.schedule.epochs = lasting;
      o.schedule.drop_period = 1, o.schedule.final_factor = 0.25;
    });
  };
  const auto validated = [&](const char* name, int64_t frequency, FrequencyUnit unit) {
    return with(name, [=](Options& o) {
      o.validation.frequency = frequency, o.validation.frequency_unit = unit;
    });
  };
  // Validation does not improve every time.
  const ExtensionChange diverging = [](Options& o) {
    o.solver.initial_learning_rate = 0.6, o.validation.frequency = 1;
  };
  const auto best = [&](int64_t frequency, BatchNormalizationStatistics statistics) {
    return [=](Options& o) {
      diverging(o);
      o.validation.output_network = OutputNetwork::best, o.validation.frequency = frequency;
      o.batch_normalization_statistics = statistics;
    };
  };
  return {
      with("sgdm", [](Options&) {}),
      with("adam", [](Options& o) { o.solver.type = "adam"; }),
      with("adamw", [](Options& o) { o.solver.type = "adamw"; }),
      with("rmsprop", [](Options& o) { o.solver.type = "rmsprop"; }),
      schedule("piecewise", {"piecewise"}, {}),
      schedule("exponential", {"exponential"}, {}),
      schedule("cyclical", {"cyclical"}, {}),
      schedule("cosine that has its epochs", {"cosine"}, {1.5}),
      schedule("warmup, then none", {"warmup", "none"}, {0.5}),
      schedule("three in a row", {"warmup", "polynomial", "exponential"}, {0.4, 1.2}),
      with("shuffled once", [](Options& o) { o.data.shuffle = Shuffle::once; }),
      with("never shuffled", [](Options& o) { o.data.shuffle = Shuffle::never; }),
      with("last mini-batch dropped",
           [](Options& o) { o.data.last_mini_batch = LastMiniBatch::drop; }),
      validated("validated every time", 1, FrequencyUnit::iteration),
      validated("validated once an epoch", 0, FrequencyUnit::iteration),
      validated("validated every third epoch", 3, FrequencyUnit::epoch),
      validated("validated at the end only", 1000, FrequencyUnit::iteration),
      with("population",
           [](Options& o) {
             o.batch_normalization_statistics = BatchNormalizationStatistics::population;
           }),
      with("best of every iteration", best(1, BatchNormalizationStatistics::moving)),
      with("best of the end only", best(1000, BatchNormalizationStatistics::moving)),
      with("best of some, and population", best(4, BatchNormalizationStatistics::population)),
      {"patience", diverging, {patience(1), patience(2), patience(4), patience(0)}},
      // The validation at the end alone would count for patience.
      {"patience and ends",
       [=](Options& o) { diverging(o), o.validation.frequency = 5; },
       {[](Options& o) { o.max_epochs = 2, o.validation.patience = 1; },
        [](Options& o) { o.max_epochs = 4, o.validation.patience = 1; }, patience(2)}},
      {"iterations", [](Options&) {}, {iterations(1), iterations(5), iterations(9), iterations(0)}},
      {"iterations, then epochs",
       best(4, BatchNormalizationStatistics::population),
       {iterations(7), epochs(3), epochs(5)}},
  };
}

TEST(Extension, EndsInTheBytesOfATrainingBegunWithTheLaterEnd) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    const TemporaryFolder folder;
    const std::string went_on = join_path(folder.path, "went_on");
    int64_t before = 0;
    for (size_t i = 0; i < row.ends.size(); ++i) {
      SCOPED_TRACE("end " + std::to_string(i + 1));
      Options options = options_with(row.base);
      row.ends[i](options);
      options.threads = static_cast<int64_t>(i) % 3 + 1;
      const std::string whole = join_path(folder.path, "whole" + std::to_string(i));
      const ExtendedOutcome begun = run(whole, options);
      options.threads = 2;
      const ExtendedOutcome outcome = run(went_on, options, {.resume = i > 0});
      expect_same_end(outcome, begun);
      EXPECT_GE(outcome.result.last_iteration, before);
      before = outcome.result.last_iteration;
      EXPECT_EQ(logged_validations(went_on), iterations_of(begun.result.validations));
    }
    EXPECT_GT(before, 3) << "it went on";
  }
}

TEST(Extension, AFinishedTrainingThatIsResumedAsItWasIsTheSameAgain) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    const TemporaryFolder folder;
    Options options = options_with(row.base);
    row.ends[1](options);
    const ExtendedOutcome first = run(folder.path, options);
    for (int again = 0; again < 2; ++again) {
      const ExtendedOutcome outcome = run(folder.path, options, {.resume = true});
      EXPECT_TRUE(outcome.result.iterations.empty());
      expect_same_end(outcome, first);
      EXPECT_EQ(logged_validations(folder.path), iterations_of(first.result.validations));
    }
  }
}

TEST(Extension, OfATrainingThatWasStoppedAnywhere) {
  const ExtensionChange base = [](Options& o) {
    o.solver.initial_learning_rate = 0.6, o.validation.output_network = OutputNetwork::best,
    o.validation.frequency = 4;
    o.batch_normalization_statistics = BatchNormalizationStatistics::population;
  };
  const TemporaryFolder folder;
  Options longer = options_with(base), shorter = longer;
  longer.max_epochs = 4, shorter.max_epochs = 2;
  const ExtendedOutcome begun = run(join_path(folder.path, "whole"), longer);
  for (int64_t stop = 1; stop <= 6; ++stop) {
    SCOPED_TRACE(stop);
    const std::string into = join_path(folder.path, "stop" + std::to_string(stop));
    int64_t asked = 0;
    run(into, shorter, {.stop = [&] { return ++asked == stop; }});
    expect_same_end(run(into, longer, {.resume = true}), begun);
  }
}

TEST(Extension, OnWorkersAndByWorkers) {
  const ExtensionChange base = [](Options& o) {
    o.validation.output_network = OutputNetwork::best,
    o.batch_normalization_statistics = BatchNormalizationStatistics::population;
  };
  const TemporaryFolder folder;
  Options options = options_with(base);
  options.max_epochs = 4;
  const ExtendedOutcome begun = run(join_path(folder.path, "whole"), options);
  const std::string went_on = join_path(folder.path, "went_on");
  // With processes, without, processes that only validate, and processes to the end.
  for (const auto& [epochs, workers] :
       {std::pair<int64_t, int64_t>{1, 2}, {2, 0}, {2, 1}, {4, 3}}) {
    SCOPED_TRACE(workers);
    options.max_epochs = epochs, options.workers.count = workers, options.threads = 1;
    const ExtendedOutcome outcome = run(went_on, options, {.resume = epochs > 1 || workers == 0});
    EXPECT_EQ(outcome.result.last_iteration, 3 * epochs);
    EXPECT_EQ(outcome.result.validations.back().iteration, 3 * epochs);
    if (epochs == 4) expect_same_end(outcome, begun);
  }
}

// "message | hint"
std::string refusal(const std::string& folder, const Options& options) {
  try {
    run(folder, options, {.resume = true});
  } catch (const InvalidArgument& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "(nothing was thrown)";
}

TEST(Extension, ASchedulesLengthStaysAndCanBeWrittenOut) {
  for (const char* last : {"cosine", "polynomial", "warmup"}) {
    for (const bool in_a_row : {false, true}) {
      SCOPED_TRACE(std::string(last) + (in_a_row ? " in a row" : ""));
      const TemporaryFolder folder;
      const std::string went_on = join_path(folder.path, "went_on");
      Options options = options_with([&](Options& o) {
        o.schedule.types = {last};
        o.schedule.final_factor = 0.5;
        o.max_epochs = 2;
        if (in_a_row) {
          // Rounded to 2 iterations, so that 4 are left.
          o.schedule.types = {"none", last};
          o.schedule.epochs = {0.5};
        }
      });
      const ExtendedOutcome first = run(went_on, options);
      options.max_epochs = 4;
      const std::string said = refusal(went_on, options);
      const char* lengths = in_a_row ? "[2.0,4.0] iterations there, but [2.0,10.0] here"
                                     : "[6.0] iterations there, but [12.0] here";
      EXPECT_NE(said.find(lengths), std::string::npos) << said;
      EXPECT_NE(said.find("schedule_epochs"), std::string::npos) << said;
      EXPECT_EQ(read_text(local_files(), join_path(went_on, "receipt.jsonl")), first.receipt)
          << "nothing was written";

      options.schedule.epochs.push_back(in_a_row ? 4.0 / 3 : 2);
      const ExtendedOutcome outcome = run(went_on, options, {.resume = true});
      expect_same_end(outcome, run(join_path(folder.path, "whole"), options));
      EXPECT_EQ(outcome.receipt.substr(0, first.receipt.size()), first.receipt);
    }
  }
}

TEST(Extension, AnEndThatLiesBehindIsRefused) {
  const TemporaryFolder folder;
  const auto options = [](const ExtensionChange& change) {
    return options_with([&](Options& o) {
      o.solver.initial_learning_rate = 0.6, o.validation.frequency = 1;
      o.max_epochs = 4;
      change(o);
    });
  };
  run(folder.path, options([](Options&) {}));
  const auto expect = [&](const ExtensionChange& change, const std::string& words) {
    const std::string said = refusal(folder.path, options(change));
    EXPECT_NE(said.find(words), std::string::npos) << said;
    EXPECT_NE(said.find("continues after iteration 12"), std::string::npos) << said;
    EXPECT_NE(said.find("another folder"), std::string::npos) << said;
  };
  expect([](Options& o) { o.max_epochs = 3; },
         "max_epochs = 3 ends the training after iteration 9");
  expect([](Options& o) { o.max_iterations = 11; },
         "max_iterations = 11 ends the training after iteration 11");
  expect([](Options& o) { o.validation.patience = 1; },
         "validation_patience = 1 ends the training after iteration");
  // The same end in other options.
  Options same = options([](Options& o) { o.max_epochs = 9, o.max_iterations = 12; });
  EXPECT_EQ(run(folder.path, same, {.resume = true}).result.last_iteration, 12);
}

}  // namespace
}  // namespace lockstep
