#include "lockstep/train/options/options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/train/input/training_data.h"
#include "tests/train/hosts.h"
#include "tests/train/support.h"

namespace lockstep {
namespace {

using testing::small_classifier;
using testing::small_options;
using testing::some_digits;
using testing::TemporaryFolder;

using Change = std::function<void(TrainingOptions&)>;

std::set<std::string> fields_of_options() {
  FieldLister lister;
  TrainingOptions options;
  options.visit(lister);
  std::set<std::string> names;
  for (const auto& field : lister.fields) names.insert(field.name);
  return names;
}

TEST(Options, DefaultsAreValid) { EXPECT_NO_THROW(TrainingOptions().check()); }

TEST(Options, EveryFieldOutOfRangeIsRefusedByName) {
  const double nan = std::nan(""), infinite = std::numeric_limits<double>::infinity();
  using O = TrainingOptions;
  struct Row {
    const char* field;
    Change change;
  };
  std::vector<Row> rows;
  // `path` leads to the member: the group's member pointer, if there is one, and its own.
  const auto numbers = [&](const char* field, std::vector<double> values, auto... path) {
    values.insert(values.end(), {nan, infinite, -infinite});
    for (double value : values) {
      rows.push_back({field, [=](O& o) { (o.*....*path) = value; }});
    }
  };
  const auto integers = [&](const char* field, const std::vector<int64_t>& values, auto... path) {
    for (int64_t value : values) {
      rows.push_back({field, [=](O& o) { (o.*....*path) = value; }});
    }
  };
  const auto texts = [&](const char* field, auto... path) {
    for (const char* value : {"", "other", "NONE"}) {
      rows.push_back({field, [=](O& o) { (o.*....*path) = value; }});
    }
  };
  const auto words = [&](const char* field, auto... path) {
    rows.push_back({field, [=](O& o) {
                      auto& member = (o.*....*path);
                      member = static_cast<std::remove_reference_t<decltype(member)>>(99);
                    }});
  };
  texts("solver", &O::solver, &SolverOptions::type);
  numbers("momentum", {-0.1, 1, 2}, &O::solver, &SolverOptions::momentum);
  numbers("gradient_decay", {-0.1, 1}, &O::solver, &SolverOptions::gradient_decay);
  numbers("squared_gradient_decay", {-0.1, 1}, &O::solver, &SolverOptions::squared_gradient_decay);
  numbers("epsilon", {0, -1}, &O::solver, &SolverOptions::epsilon);
  numbers("initial_learning_rate", {-1e-9}, &O::solver, &SolverOptions::initial_learning_rate);
  rows.push_back({"learning_rate_schedule", [](O& o) { o.schedule.types = {"other"}; }});
  rows.push_back({"learning_rate_schedule", [](O& o) {
                    o.schedule.types = {"none", "NONE"};
                    o.schedule.epochs = {1};
                  }});
  rows.push_back({"learning_rate_schedule", [](O& o) { o.schedule.types = {}; }});
  rows.push_back({"schedule_epochs", [](O& o) { o.schedule.epochs = {0}; }});
  rows.push_back({"schedule_epochs", [](O& o) { o.schedule.epochs = {1, 1}; }});
  rows.push_back({"schedule_epochs", [](O& o) {
                    o.schedule.types = {"none", "cosine", "none"};
                    o.schedule.epochs = {1};
                  }});
  numbers("schedule_power", {-1}, &O::schedule, &ScheduleOptions::power);
  numbers("final_factor", {-0.1, 1.1}, &O::schedule, &ScheduleOptions::final_factor);
  numbers("warmup_factor", {-0.1, 1.1}, &O::schedule, &ScheduleOptions::warmup_factor);
  numbers("rise_share", {-0.1, 1}, &O::schedule, &ScheduleOptions::rise_share);
  numbers("first_factor", {-0.1, 1.1}, &O::schedule, &ScheduleOptions::first_factor);
  numbers("last_factor", {-0.1, 1.1}, &O::schedule, &ScheduleOptions::last_factor);
  numbers("period_factor", {0.9, -1}, &O::schedule, &ScheduleOptions::period_factor);
  numbers("plateau_threshold", {-0.1, 1.1}, &O::schedule, &ScheduleOptions::plateau_threshold);
  integers("plateau_patience", {-1}, &O::schedule, &ScheduleOptions::plateau_patience);
  integers("plateau_cooldown", {-1}, &O::schedule, &ScheduleOptions::plateau_cooldown);
  numbers("label_smoothing", {-0.1, 1.1}, &O::label_smoothing);
  numbers("average_decay", {-0.1, 1}, &O::average_decay);
  texts("objective", &O::validation, &ValidationOptions::objective);
  numbers("gradient_threshold", {-1}, &O::solver, &SolverOptions::gradient_threshold);
  words("gradient_threshold_method", &O::solver, &SolverOptions::gradient_threshold_method);
  rows.push_back({"class_weights", [](O& o) { o.class_weights = {1, -1}; }});
  words("validation_frequency_unit", &O::validation, &ValidationOptions::frequency_unit);
  words("checkpoint_frequency_unit", &O::checkpoints, &CheckpointOptions::frequency_unit);
  numbers("max_time", {-1}, &O::max_time);
  numbers("drop_factor", {0, -1}, &O::schedule, &ScheduleOptions::drop_factor);
  integers("drop_period", {0, -1}, &O::schedule, &ScheduleOptions::drop_period);
  numbers("l2", {-1e-9}, &O::solver, &SolverOptions::l2);
  integers("mini_batch_size", {0, -1, (1 << 24) + 1}, &O::mini_batch_size);
  integers("max_epochs", {0, -1}, &O::max_epochs);
  integers("max_iterations", {-1}, &O::max_iterations);
  words("shuffle", &O::data, &DataOptions::shuffle);
  words("sampling", &O::data, &DataOptions::sampling);
  words("last_mini_batch", &O::data, &DataOptions::last_mini_batch);
  integers("sequence_length", {-1}, &O::data, &DataOptions::sequence_length);
  integers("group_by_length", {-1, (1 << 24) + 1}, &O::data, &DataOptions::group_by_length);
  integers("shard_size", {-1, (1 << 24) + 1}, &O::shards, &ShardOptions::size);
  integers("validation_patience", {-1}, &O::validation, &ValidationOptions::patience);
  words("output_network", &O::validation, &ValidationOptions::output_network);
  words("precision", &O::precision, &PrecisionOptions::type);
  numbers("loss_scale", {-1, 0.5, 3, 1 << 25}, &O::precision, &PrecisionOptions::loss_scale);
  words("batch_normalization_statistics", &O::batch_normalization_statistics);
  integers("seed", {-1}, &O::seed);
  texts("device", &O::device);
  integers("streams", {0, 65}, &O::streams);
  integers("threads", {-1, 1025}, &O::threads);
  integers("workers", {-1, 1025}, &O::workers, &TrainingWorkerOptions::count);
  rows.push_back({"worker_load", [](O& o) {
                    o.workers.count = 2;
                    o.workers.load = {1, -1};
                  }});
  rows.push_back({"worker_load", [](O& o) {
                    o.workers.count = 2;
                    o.workers.load = {0, 0};
                  }});
  rows.push_back({"worker_load", [](O& o) { o.workers.load = {1}; }});
  for (const char* entry :
       {"", ":2", "a:0", "a:x", "a:1025", "-oProxyCommand=x", "a b", "[::1", "fd00::2"}) {
    rows.push_back({"hosts", [entry](O& o) {
                      o.workers.count = 2;
                      o.workers.hosts = {entry};
                    }});
  }
  rows.push_back({"hosts", [](O& o) {
                    o.workers.count = 2;
                    o.workers.hosts = {"a", "a"};
                  }});
  rows.push_back({"hosts", [](O& o) {
                    o.workers.count = 3;
                    o.workers.hosts = {"a", "b"};
                  }});
  numbers("worker_limit", {-1}, &O::workers, &TrainingWorkerOptions::limit);
  integers("worker_memory_mib", {-1, (1 << 24) + 1}, &O::workers,
           &TrainingWorkerOptions::memory_mib);
  rows.push_back({"worker_environment", [](O& o) { o.workers.environment = {"NAME"}; }});
  rows.push_back({"worker_environment", [](O& o) { o.workers.environment = {"=value"}; }});
  integers("check_frequency", {-1}, &O::shards, &ShardOptions::check_frequency);
  integers("loader_threads", {0, 257}, &O::data, &DataOptions::loader_threads);
  integers("prefetch", {0, 1025}, &O::data, &DataOptions::prefetch);
  integers("cache_mib", {-1, (1 << 24) + 1}, &O::data, &DataOptions::cache_mib);
  words("keep_features", &O::data, &DataOptions::keep_features);
  for (const char* entry : {"", "a", "a:", ":2", "a:1", "a:0", "a:-2", "a:2x", "a:31"}) {
    rows.push_back({"unfreeze", [=](O& o) { o.unfreeze = {entry}; }});
  }
  integers("validation_frequency", {-1}, &O::validation, &ValidationOptions::frequency);
  integers("checkpoint_frequency", {-1}, &O::checkpoints, &CheckpointOptions::frequency);
  integers("checkpoints_kept", {0, -1}, &O::checkpoints, &CheckpointOptions::kept);

  // Both values are valid by themselves. Options do not know which layers exist and which metrics
  // fit.
  std::set<std::string> covered{
      "allow_other_numerics", "deterministic",       "freeze",  "metrics", "host_launch",
      "host_address",         "compare_first_shard", "nesterov"};
  for (const auto& row : rows) {
    covered.insert(row.field);
    TrainingOptions options;
    row.change(options);
    try {
      options.check();
      ADD_FAILURE() << row.field << " was accepted";
    } catch (const InvalidArgument& error) {
      const std::string text =
          row.field == std::string("device") ? "device" : " " + std::string(row.field) + " must ";
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
    // The trainer refuses it at the beginning.
    Network network = small_classifier();
    EXPECT_THROW(train(network, {some_digits(40), nullptr}, options), InvalidArgument) << row.field;
  }
  EXPECT_EQ(covered, fields_of_options()) << "a row for every field";
}

TEST(Options, ResolvingFillsInWhatDependsOnDefaults) {
  TrainingOptions options;
  EXPECT_EQ(options.resolved().solver.initial_learning_rate, 0.01);
  options.solver.type = "adam";
  const TrainingOptions r = options.resolved();
  EXPECT_EQ(r.solver.initial_learning_rate, 0.001);
  EXPECT_EQ(r.shards.size, 16);
  EXPECT_GE(r.threads, 1);
  options.device = "cuda:1";
  EXPECT_EQ(options.resolved().shards.size, 256);
  options.solver.initial_learning_rate = 0.5;
  options.shards.size = 3;
  options.threads = 7;
  EXPECT_EQ(options.resolved().solver.squared_gradient_decay, 0.999);
  options.solver.type = "rmsprop";
  EXPECT_EQ(options.resolved().solver.squared_gradient_decay, 0.9);
  options.solver.squared_gradient_decay = 0.5;
  EXPECT_EQ(options.resolved().solver.squared_gradient_decay, 0.5);
  EXPECT_EQ(options.resolved().solver.initial_learning_rate, 0.5);
  EXPECT_EQ(options.resolved().shards.size, 3);
  EXPECT_EQ(options.resolved().threads, 7);
}

// ---- Every option has its documented effect ----

// MiB. A sanitizer reserves the address space for its shadow in every process.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kWorkerMemory = 0;
#else
constexpr int64_t kWorkerMemory = 4096;
#endif

// other_network: the digest after the last iteration is the same, but the final network differs.
enum class Effect { other_result, same_digest, other_network };

struct Row {
  std::string field;
  Effect effect;
  Change base;  // settings that the field needs to have an effect
  Change change;
};

// 50 observations: the last mini-batch of an epoch is partial.
TrainingProblem small_problem() {
  return {small_classifier(), {some_digits(50), some_digits(10, 5), {.reflect_x = true}}};
}

TrainingResult train_with(const TrainingOptions& options) {
  TrainingProblem problem = small_problem();
  const TemporaryFolder folder;
  TrainingControl control;
  control.checkpoint_folder = folder.path;
  return train(make_call<&small_problem>(), problem.network, problem.data, options, control);
}

TEST(Options, EveryOneHasItsDocumentedEffect) {
  using O = TrainingOptions;
  const auto nothing = [](O&) {};
  const auto adam = [](O& o) {
    o.solver.type = "adam";
    o.solver.initial_learning_rate = 0.01;
  };
  const auto diverging = [](O& o) {
    o.solver.initial_learning_rate = 0.5;
    o.validation.frequency = 1;
    o.max_epochs = 6;
  };
  const auto one_thread = [](O& o) {
    o.threads = 1;
    o.mini_batch_size = 49;  // 7 shards: the tree adds them as (0+1)+(2+3), (4+5)+6
  };
  const auto piecewise = [](O& o) {
    o.schedule.types = {"piecewise"};
    o.schedule.drop_period = 1;
  };
  const auto schedule = [](const char* name) {
    return [name](O& o) { o.schedule.types = {name}; };
  };
  const auto base_of_plateau = [=](O& o) {
    diverging(o);
    o.schedule.plateau_patience = 0;
  };
  const auto plateau = [=](O& o) {
    base_of_plateau(o);
    o.schedule.types = {"plateau"};
  };
  const auto cut = [](O& o) { o.solver.gradient_threshold = 0.01; };
  const std::vector<Row> rows{
      {"solver", Effect::other_result, nothing, [](O& o) { o.solver.type = "adam"; }},
      {"momentum", Effect::other_result, nothing, [](O& o) { o.solver.momentum = 0.8; }},
      {"nesterov", Effect::other_result, nothing, [](O& o) { o.solver.nesterov = true; }},
      {"nesterov", Effect::same_digest, adam, [](O& o) { o.solver.nesterov = true; }},
      {"gradient_decay", Effect::other_result, adam, [](O& o) { o.solver.gradient_decay = 0.8; }},
      {"squared_gradient_decay", Effect::other_result, adam,
       [](O& o) { o.solver.squared_gradient_decay = 0.99; }},
      {"epsilon", Effect::other_result, adam, [](O& o) { o.solver.epsilon = 1e-3; }},
      {"initial_learning_rate", Effect::other_result, nothing,
       [](O& o) { o.solver.initial_learning_rate = 0.04; }},
      {"learning_rate_schedule", Effect::other_result, [](O& o) { o.schedule.drop_period = 1; },
       [](O& o) { o.schedule.types = {"piecewise"}; }},
      {"learning_rate_schedule", Effect::other_result, nothing, schedule("cosine")},
      {"schedule_epochs", Effect::other_result,
       [](O& o) {
         o.schedule.types = {"warmup", "none"};
         o.schedule.epochs = {1};
       },
       [](O& o) { o.schedule.epochs = {0.5}; }},
      {"schedule_power", Effect::other_result, schedule("polynomial"),
       [](O& o) { o.schedule.power = 2; }},
      {"final_factor", Effect::other_result, schedule("cosine"),
       [](O& o) { o.schedule.final_factor = 0.1; }},
      {"warmup_factor", Effect::other_result, schedule("warmup"),
       [](O& o) { o.schedule.warmup_factor = 0.5; }},
      {"learning_rate_schedule", Effect::other_result, nothing, schedule("one-cycle")},
      {"learning_rate_schedule", Effect::other_result, nothing, schedule("warm-restarts")},
      {"learning_rate_schedule", Effect::other_result, base_of_plateau, schedule("plateau")},
      {"rise_share", Effect::other_result, schedule("one-cycle"),
       [](O& o) { o.schedule.rise_share = 0.5; }},
      {"first_factor", Effect::other_result, schedule("one-cycle"),
       [](O& o) { o.schedule.first_factor = 0.5; }},
      {"last_factor", Effect::other_result, schedule("one-cycle"),
       [](O& o) { o.schedule.last_factor = 0.5; }},
      {"period_factor", Effect::other_result,
       [](O& o) {
         o.schedule.types = {"warm-restarts"};
         o.schedule.drop_period = 1;
       },
       [](O& o) { o.schedule.period_factor = 2; }},
      {"plateau_patience", Effect::other_result, plateau,
       [](O& o) { o.schedule.plateau_patience = 100; }},
      {"plateau_cooldown", Effect::other_result, plateau,
       [](O& o) { o.schedule.plateau_cooldown = 100; }},
      {"plateau_threshold", Effect::other_result, plateau,
       [](O& o) { o.schedule.plateau_threshold = 1; }},
      {"objective", Effect::other_result, plateau,
       [](O& o) { o.validation.objective = "accuracy"; }},
      {"objective", Effect::same_digest, nothing, [](O& o) { o.validation.objective = "f1"; }},
      {"label_smoothing", Effect::other_result, nothing, [](O& o) { o.label_smoothing = 0.1; }},
      {"average_decay", Effect::other_result, nothing, [](O& o) { o.average_decay = 0.9; }},
      {"gradient_threshold", Effect::other_result, nothing, cut},
      {"gradient_threshold", Effect::same_digest, nothing,
       [](O& o) { o.solver.gradient_threshold = 1e6; }},
      {"gradient_threshold_method", Effect::other_result, cut,
       [](O& o) { o.solver.gradient_threshold_method = GradientThresholdMethod::global_l2norm; }},
      {"gradient_threshold_method", Effect::other_result, cut,
       [](O& o) { o.solver.gradient_threshold_method = GradientThresholdMethod::absolute_value; }},
      {"class_weights", Effect::other_result, nothing,
       [](O& o) { o.class_weights = {2, 1, 1, 1, 1, 1, 1, 1, 1, 1}; }},
      {"class_weights", Effect::same_digest, nothing, [](O& o) { o.class_weights.assign(10, 1); }},
      {"freeze", Effect::other_result, nothing, [](O& o) { o.freeze = {"convolution2d_1"}; }},
      {"freeze", Effect::same_digest, nothing, [](O& o) { o.freeze = {"relu_1"}; }},
      {"unfreeze", Effect::other_result, [](O& o) { o.freeze = {"convolution2d_1"}; },
       [](O& o) { o.unfreeze = {"convolution2d_1:2"}; }},
      {"solver", Effect::other_result, adam, [](O& o) { o.solver.type = "adamw"; }},
      {"solver", Effect::other_result, adam, [](O& o) { o.solver.type = "rmsprop"; }},
      {"drop_factor", Effect::other_result, piecewise, [](O& o) { o.schedule.drop_factor = 0.5; }},
      {"drop_period", Effect::other_result, piecewise, [](O& o) { o.schedule.drop_period = 2; }},
      {"l2", Effect::other_result, nothing, [](O& o) { o.solver.l2 = 0.01; }},
      {"mini_batch_size", Effect::other_result, nothing, [](O& o) { o.mini_batch_size = 21; }},
      {"max_epochs", Effect::other_result, nothing, [](O& o) { o.max_epochs = 3; }},
      {"max_iterations", Effect::other_result, nothing, [](O& o) { o.max_iterations = 3; }},
      {"shuffle", Effect::other_result, nothing, [](O& o) { o.data.shuffle = Shuffle::once; }},
      {"shuffle", Effect::other_result, [](O& o) { o.data.shuffle = Shuffle::once; },
       [](O& o) { o.data.shuffle = Shuffle::never; }},
      {"sampling", Effect::other_result, nothing,
       [](O& o) { o.data.sampling = Sampling::balanced; }},
      {"last_mini_batch", Effect::other_result, nothing,
       [](O& o) { o.data.last_mini_batch = LastMiniBatch::keep; }},
      {"shard_size", Effect::other_result, nothing, [](O& o) { o.shards.size = 10; }},
      {"precision", Effect::other_result, nothing,
       [](O& o) { o.precision.type = Precision::bf16; }},
      // A power of two does not change significands.
      {"loss_scale", Effect::same_digest, nothing, [](O& o) { o.precision.loss_scale = 1024; }},
      {"seed", Effect::other_result, nothing, [](O& o) { o.seed = 1; }},
      // The learning rate is far too large, so validation does not improve every time.
      {"validation_patience", Effect::other_result, diverging,
       [](O& o) { o.validation.patience = 1; }},
      // The last iteration's values stay the same. Another test covers the network's values.
      {"output_network", Effect::same_digest, nothing,
       [](O& o) { o.validation.output_network = OutputNetwork::best; }},
      {"batch_normalization_statistics", Effect::other_network, nothing,
       [](O& o) { o.batch_normalization_statistics = BatchNormalizationStatistics::population; }},
      // One thread: shards arrive in order, but are added sequentially and not by the tree.
      {"deterministic", Effect::other_result, one_thread, [](O& o) { o.deterministic = false; }},
      // Fields of another solver or schedule have no effect.
      {"momentum", Effect::same_digest, adam, [](O& o) { o.solver.momentum = 0.1; }},
      {"epsilon", Effect::same_digest, nothing, [](O& o) { o.solver.epsilon = 1e-3; }},
      {"gradient_decay", Effect::same_digest, nothing, [](O& o) { o.solver.gradient_decay = 0.1; }},
      {"drop_factor", Effect::same_digest, nothing, [](O& o) { o.schedule.drop_factor = 0.5; }},
      // These affect only speed, memory and output.
      // Without a GPU both values mean the CPU. device_step_test.cpp covers GPUs.
      {"device", Effect::same_digest, nothing, [](O& o) { o.device = "cpu"; }},
      {"metrics", Effect::same_digest, nothing,
       [](O& o) {
         o.validation.metrics = {"f1", "top-3"};
       }},
      {"streams", Effect::same_digest, nothing, [](O& o) { o.streams = 3; }},
      {"threads", Effect::same_digest, nothing, [](O& o) { o.threads = 3; }},
      {"workers", Effect::same_digest, nothing, [](O& o) { o.workers.count = 2; }},
      {"worker_load", Effect::same_digest, [](O& o) { o.workers.count = 2; },
       [](O& o) {
         o.workers.load = {1, 2};
       }},
      {"hosts", Effect::same_digest, [](O& o) { o.workers.count = 2; },
       [](O& o) { o.workers.hosts = {"localhost:2"}; }},
      {"host_launch", Effect::same_digest, [](O& o) { testing::place_on_hosts(o, {"127.0.0.2"}); },
       [](O& o) { o.workers.host_launch = "env"; }},
      {"host_address", Effect::same_digest, [](O& o) { testing::place_on_hosts(o, {"127.0.0.2"}); },
       [](O& o) { o.workers.host_address = "127.0.0.5"; }},
      {"worker_limit", Effect::same_digest, [](O& o) { o.workers.count = 2; },
       [](O& o) { o.workers.limit = 100; }},
      {"worker_memory_mib", Effect::same_digest, [](O& o) { o.workers.count = 2; },
       [](O& o) { o.workers.memory_mib = kWorkerMemory; }},
      {"worker_environment", Effect::same_digest, [](O& o) { o.workers.count = 2; },
       [](O& o) { o.workers.environment = {"LOCKSTEP_TEST_WORKER=here"}; }},
      {"check_frequency", Effect::same_digest, nothing, [](O& o) { o.shards.check_frequency = 1; }},
      {"compare_first_shard", Effect::same_digest, nothing,
       [](O& o) { o.shards.compare_first = false; }},
      {"keep_features", Effect::same_digest, [](O& o) { o.freeze = {"convolution2d_1"}; },
       [](O& o) { o.data.keep_features = KeepFeatures::never; }},
      {"loader_threads", Effect::same_digest, nothing, [](O& o) { o.data.loader_threads = 3; }},
      {"prefetch", Effect::same_digest, nothing, [](O& o) { o.data.prefetch = 1; }},
      {"cache_mib", Effect::same_digest, nothing, [](O& o) { o.data.cache_mib = 0; }},
      {"validation_frequency", Effect::same_digest, nothing,
       [](O& o) { o.validation.frequency = 1; }},
      {"validation_frequency_unit", Effect::same_digest, nothing,
       [](O& o) { o.validation.frequency_unit = FrequencyUnit::epoch; }},
      {"checkpoint_frequency_unit", Effect::same_digest, nothing,
       [](O& o) { o.checkpoints.frequency_unit = FrequencyUnit::epoch; }},
      {"max_time", Effect::same_digest, nothing, [](O& o) { o.max_time = 3600; }},
      {"checkpoint_frequency", Effect::same_digest, nothing,
       [](O& o) { o.checkpoints.frequency = 1; }},
      {"checkpoints_kept", Effect::same_digest, nothing, [](O& o) { o.checkpoints.kept = 5; }},
      {"allow_other_numerics", Effect::same_digest, nothing,
       [](O& o) { o.checkpoints.allow_other_numerics = true; }},
  };
  // Those of sequences are in cut_sequences_test.cpp.
  std::set<std::string> covered{"sequence_length", "group_by_length"};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.field);
    covered.insert(row.field);
    if (row.field == "precision" && !kernels::table_for({}).bf16) {
      std::printf("note: precision = bf16 was NOT trained: no instructions for it here\n");
      continue;
    }
    TrainingOptions options = small_options();
    row.base(options);
    const TrainingResult before = train_with(options);
    row.change(options);
    const TrainingResult after = train_with(options);
    EXPECT_EQ(after.digest == before.digest, row.effect != Effect::other_result);
    if (row.effect == Effect::other_network) {
      EXPECT_NE(after.network_digest, before.network_digest);
    }
  }
  EXPECT_EQ(covered, fields_of_options()) << "a row for every option";
}

}  // namespace
}  // namespace lockstep
