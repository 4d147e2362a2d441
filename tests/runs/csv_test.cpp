// Jobs that train on the rows of a CSV file.
#include <set>

#include "lockstep/data/datastores/datastores.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/runs/run.h"
#include "lockstep/runs/sources/data_source.h"
#include "lockstep/train/custom_loop.h"
#include "lockstep/train/optimizer/updates.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/workers/worker_messages.h"
#include "tests/runs/support.h"

namespace lockstep {
namespace {

using testing::refusal;

class CsvJob : public testing::WithFolder {
 protected:
  CsvJob() {
    std::string rows = "kind,length,width\n";
    for (int i = 0; i < 120; ++i) {
      const int kind = i % 3;
      rows += std::string(1, static_cast<char>('a' + kind)) + "," +
              std::to_string(kind * 4 + i % 7 * 0.5) + "," + std::to_string(i % 5 - kind) + "\n";
    }
    write("flowers.csv", rows);
    path_ = write("job.toml", R"([data]
train = "flowers.csv"
label_column = "kind"
validation_fraction = 0.2
[network]
layers = [
  { type = "feature_input", features = 2, normalization = "z-score" },
  { type = "fully_connected", units = 8 },
  { type = "relu" },
  { type = "fully_connected", units = 3 },
  { type = "softmax" } ]
[training]
mini_batch_size = 16
shard_size = 5
max_epochs = 40
device = "cpu"
threads = 2
)");
  }
  Job job(const std::vector<std::string>& settings = {}) const {
    return read_job(local_files(), path_, settings);
  }
  RunOptions into(const std::string& name) const {
    RunOptions options;
    options.folder = folder + "/" + name;
    return options;
  }

 private:
  std::string path_;
};

TEST_F(CsvJob, IsTrainedAndTheModelKnowsItsClasses) {
  const RunResult two = run_job(job(), into("two"));
  const RunResult three = run_job(job({"threads=3", "cache_mib=0"}), into("three"));
  EXPECT_EQ(two.training.digest, three.training.digest);
  EXPECT_GE(two.validation->accuracy, 0.9);
  Model model = load_model(local_files(), two.model);
  EXPECT_EQ(model.classes, (std::vector<std::string>{"a", "b", "c"}));
  const DatastorePtr all = open_data(folder + "/flowers.csv", {}, {.label_column = "kind"});
  EXPECT_EQ(all->size(), 120);
  EXPECT_GE(evaluate(model.network, all).accuracy, 0.9);
}

TEST_F(CsvJob, WhatDoesNotFitIsRefused) {
  const auto message = [&](const std::vector<std::string>& settings) {
    return refusal<Error>([&] { plan_job(job(settings)); });
  };
  EXPECT_CONTAINS(message({"label_column=knd"}), "there is no column `knd`");
  EXPECT_CONTAINS(message({"label_column=kind", "data.train=not.csv"}), "does not exist");
  EXPECT_CONTAINS(message({"resize=true"}), "[data.resize] is for images");
  EXPECT_CONTAINS(message({"crop=center"}), "[data.crop] is for images");
  EXPECT_CONTAINS(message({"translate_x=2"}), "[augmentation] translate_x is for images");
  EXPECT_CONTAINS(message({"salt_and_pepper=0.1"}), "[noise] is for images");
  EXPECT_EQ(plan_job(job({"bad_images=skip"})).data.training->size(), 96);
  write("flowers.csv", "kind,length,width,more\na,1,2,3\nb,1,2,3\nc,1,2,3\na,2,2,2\nb,1,1,x\n");
  EXPECT_CONTAINS(message({}), "line 6, column 4 (more): `x` is not a number");
  write("flowers.csv", "kind,length\na,1\nb,1\nc,1\na,2\nb,1\nc,2\na,1\nb,3\nc,1\n");
  EXPECT_CONTAINS(message({}), "one input of 1 for");
}

TrainingProblem problem_of(const std::string& training, const std::string& validation) {
  return {{feature_input({.features = 2, .normalization = "z-score"}),
           fully_connected({.units = 3}), softmax()},
          {.training = csv_datastore(training, {.label_column = "kind"}),
           .validation = csv_datastore(validation, {.label_column = "kind"})}};
}

// Columns by name in programs. tables_test.py tests the command.
class Columns : public testing::WithFolder {
 protected:
  Columns() {
    std::string rows = "length,width,kind\n", turned = "kind,width,length\n";
    for (int i = 0; i < 60; ++i) {
      const int kind = i % 3;
      const std::string length = std::to_string(kind * 4 + i % 7 * 0.5),
                        width = std::to_string(20 - 6 * kind + i % 5 * 0.5),
                        name(1, static_cast<char>('a' + kind));
      rows += length + "," + width + "," + name + "\n";
      turned += name + "," + width + "," + length + "\n";
    }
    write("plain.csv", rows);
    write("turned.csv", turned);
    plain = csv_datastore(folder + "/plain.csv");
    turned_ = csv_datastore(folder + "/turned.csv", {.label_column = "kind"});
    bare = array_datastore(ArrayBlock{2, {2}, {1, 20, 9, 8}});
  }
  static Network made() {
    Network network({feature_input({.features = 2, .normalization = "z-score"}),
                     fully_connected({.units = 3}), softmax()});
    network.initialize(1);
    return network;
  }
  static TrainingOptions options() {
    TrainingOptions o;
    o.mini_batch_size = 20;
    o.max_epochs = 20;
    o.threads = 1;
    o.device = "cpu";
    return o;
  }
  static TrainingOptions with_workers(TrainingOptions o) {
    o.workers.count = 2;
    return o;
  }
  static const TableColumns& names() {
    static const TableColumns columns{{{"length", "width"}}, {}, "kind"};
    return columns;
  }

  class Notices : public TrainingObserver {
   public:
    void notice(const std::string& text) override { all.push_back(text); }
    std::vector<std::string> all;
  };

  DatastorePtr plain, turned_, bare;
};

TEST_F(Columns, ATrainingMatchesItsPartsByName) {
  Network one = made(), two = made();
  Notices quiet, notices;
  TrainingControl control;
  control.observers = {&quiet};
  const TrainingResult same = train(one, {plain, plain}, options(), control);
  control.observers = {&notices};
  const TrainingResult matched = train(two, {plain, turned_}, options(), control);
  EXPECT_EQ(one.columns(), names());
  EXPECT_EQ(matched.digest, same.digest);
  EXPECT_EQ(matched.validations.back().loss, same.validations.back().loss);
  EXPECT_TRUE(quiet.all.empty());
  ASSERT_EQ(notices.all.size(), 1u);
  EXPECT_CONTAINS(notices.all[0], "turned.csv has its columns in a different order");
  // A network that has learned keeps its order.
  Network more = one.clone();
  EXPECT_EQ(more.columns(), names());
  const TrainingResult again = train(one, {plain}, options(), control);
  EXPECT_EQ(train(more, {turned_}, options(), control).digest, again.digest);
}

TEST_F(Columns, ATrainingThatIsRefusedLeavesNoneBehind) {
  Network network = made();
  TrainingOptions refused = options();
  refused.class_weights = {1, 2};  // for three classes
  EXPECT_THROW(train(network, {plain}, refused), InvalidArgument);
  EXPECT_THROW(train(make_call<&problem_of>(folder + "/plain.csv", folder + "/plain.csv"), network,
                     {plain}, with_workers(refused)),
               InvalidArgument);
  EXPECT_TRUE(network.columns().empty());
  train(network, {turned_}, options());
  EXPECT_EQ(network.columns(), (TableColumns{{{"width", "length"}}, {}, "kind"}));
}

TEST_F(Columns, WorkersMatchThemAsTheirClientDoes) {
  for (const char* const training : {"plain.csv", "turned.csv"}) {
    Network one = made(), two = made();
    for (Network* const network : {&one, &two}) network->set_columns(names());
    const std::string path = folder + "/" + training, other = folder + "/turned.csv";
    const TrainingData data = problem_of(path, other).data;
    const TrainingResult alone = train(one, data, options());
    const TrainingResult together =
        train(make_call<&problem_of>(path, other), two, data, with_workers(options()));
    EXPECT_EQ(together.digest, alone.digest) << training;
    EXPECT_EQ(together.validations.back().loss, alone.validations.back().loss) << training;
    EXPECT_EQ(two.columns(), names()) << training;
  }
}

// Workers whose tables have other columns than the client's are refused by this.
TEST_F(Columns, TheDigestOfNamesKnowsThemAll) {
  const auto with = [&](DatastorePtr training, const DatastorePtr& targets = nullptr) {
    return digest_of_names({.training = std::move(training), .training_targets = targets});
  };
  write("targets.csv", "first,second\n1,2\n3,4\n");
  write("renamed.csv", "first,third\n1,2\n3,4\n");
  const DatastorePtr targets = csv_datastore(folder + "/targets.csv", {.labeled = false}),
                     renamed = csv_datastore(folder + "/renamed.csv", {.labeled = false});
  std::set<std::string> all;
  for (const DatastorePtr& data :
       {bare, targets, renamed, with_targets(bare, targets), with_targets(bare, renamed)}) {
    all.insert(with(data).to_string());
  }
  for (const DatastorePtr& learned : {targets, renamed}) {
    all.insert(with(bare, learned).to_string());
  }
  EXPECT_EQ(all.size(), 7u);
  write("kinds.csv", "length,width,class\n1,2,a\n");
  write("classes.csv", "length,width,kind\n1,2,a\n");
  EXPECT_NE(with(csv_datastore(folder + "/kinds.csv")),
            with(csv_datastore(folder + "/classes.csv")));
}

TEST_F(Columns, EvaluationsMatchByNameAndSaySo) {
  Network network = made();
  train(network, {plain}, options());
  std::vector<std::string> said;
  const EvaluationOptions how{.threads = 1,
                              .notice = [&](const std::string& text) { said.push_back(text); }};
  const Evaluation right = evaluate(network, plain, how);
  EXPECT_TRUE(said.empty());
  const Evaluation matched = evaluate(network, turned_, how);
  EXPECT_EQ(matched.loss, right.loss);
  EXPECT_GT(matched.accuracy, 0.9);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(predict(network, turned_, how).to_vector(), predict(network, plain).to_vector());
  EXPECT_EQ(match_columns(network, plain), plain);
  // Without names by position, which is said.
  said.clear();
  predict(network, bare, how);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_CONTAINS(said[0], "has no names of columns");
  write("other.csv", "lenght,width,kind\n1,2,a\n");
  const DatastorePtr other = csv_datastore(folder + "/other.csv");
  for (const auto& call : {std::function<void()>([&] { evaluate(network, other); }),
                           std::function<void()>([&] { predict(network, other); }),
                           std::function<void()>([&] { match_columns(network, other); }),
                           std::function<void()>([&] { train(network, {other}, options()); }),
                           std::function<void()>([&] {
                             train(network, {plain, other}, options());
                           })}) {
    const std::string refused = refusal<InvalidArgument>(call);
    EXPECT_CONTAINS(refused,
                    "other.csv has different columns than the training data: `length` is missing");
    EXPECT_CONTAINS(refused, "did you mean `length` by `lenght`?");
  }
}

TEST_F(Columns, TargetsOfNumbersHaveNamesToo) {
  write(
      "targets.csv", "first,second\n" + [] {
        std::string rows;
        for (int i = 0; i < 60; ++i)
          rows += std::to_string(i % 3) + "," + std::to_string(-i % 3) + "\n";
        return rows;
      }());
  const DatastorePtr targets = csv_datastore(folder + "/targets.csv", {.labeled = false});
  const DatastorePtr swapped = reorder(targets, 0, {1, 0});
  Network network(
      {feature_input({.features = 2, .normalization = "z-score"}), fully_connected({.units = 2})});
  network.set_loss("mean_squared_error");
  network.initialize(1);
  train(network, {.training = plain, .training_targets = targets}, options());
  EXPECT_EQ(network.columns().target, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(evaluate(network, plain, {.targets = swapped}).loss,
            evaluate(network, plain, {.targets = targets}).loss);
  EXPECT_EQ(evaluate(network, with_targets(turned_, swapped)).loss,
            evaluate(network, plain, {.targets = targets}).loss);
}

TEST_F(Columns, LoopsAndModelsKeepThem) {
  Network network = made();
  network.set_columns(columns_of(network, *plain));
  EXPECT_EQ(network.columns(), names());
  const Model model = decode_model(encode_model(network, {"a", "b", "c"}));
  EXPECT_EQ(model.network.columns(), names());
  SgdmState state, other;
  save_loop(local_files(), folder + "/loop", {3, 0, 1}, {{network, &state}});
  Network loaded = made();
  load_loop(local_files(), folder + "/loop", {{loaded, &other}});
  EXPECT_EQ(loaded.columns(), names());
  EXPECT_EQ(read_array(*match_columns(loaded, turned_), 1).values, read_array(*plain, 1).values);
  loaded.set_columns(columns_of(loaded, *turned_));
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] {
                    load_loop(local_files(), folder + "/loop", {{loaded, &other}});
                  }),
                  "columns");
  // Images and tables without names have none, and their models are as before.
  Network without = made();
  without.set_columns(columns_of(without, *bare));
  EXPECT_TRUE(without.columns().empty());
  for (const TableColumns& wrong :
       {TableColumns{{{"a"}}, {}, ""}, TableColumns{{{"a", "a"}}, {}, ""},
        TableColumns{{{"a", ""}}, {}, ""}, TableColumns{{{"a", "\xE9"}}, {}, ""},
        TableColumns{{{}, {}}, {}, ""}}) {
    EXPECT_THROW(network.set_columns(wrong), InvalidArgument);
  }
  EXPECT_EQ(network.columns(), names());
}

}  // namespace
}  // namespace lockstep
