#include "lockstep/runs/run.h"

#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "lockstep/engine/formats/model.h"
#include "lockstep/runs/compare_runs.h"
#include "lockstep/runs/folders/run_folder.h"
#include "tests/runs/digits_run.h"

namespace lockstep {
namespace {

using testing::refusal;

class Run : public testing::DigitsRun {
 protected:
  Run()
      : DigitsRun(20, R"([data]
train = "digits"
validation_fraction = 0.2
test_fraction = 0.1
[augmentation]
translate_x = 1
)" + testing::digits_layers_and_training) {}
  bool there(const std::string& name) { return local_files().exists(folder + "/" + name); }
};

TEST_F(Run, DataIsSplitByLabel) {
  const RunData data = open_run_data(job());
  EXPECT_EQ(data.training->size(), 140);
  EXPECT_EQ(data.validation->size(), 40);
  EXPECT_EQ(data.test->size(), 20);
  for (const auto& store : {data.training, data.validation, data.test}) {
    const auto counts = count_each_label(*store);
    EXPECT_EQ(counts, std::vector<int64_t>(10, store->size() / 10));
  }
  const RunData other = open_run_data(job({"seed=1"}));
  bool differs = false;
  for (int64_t i = 0; i < 40; ++i) differs |= other.validation->name(i) != data.validation->name(i);
  EXPECT_TRUE(differs);
  const RunData whole = open_run_data(job({"validation_fraction=0", "test_fraction=0"}));
  EXPECT_EQ(whole.training->size(), 200);
  EXPECT_EQ(whole.validation, nullptr);
  EXPECT_EQ(whole.test, nullptr);
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { open_run_data(job({"test_fraction=0.001"})); }),
                  "test_fraction leaves no image of the 200");
}

TEST_F(Run, LabelsOfOtherFoldersAreMatchedByName) {
  std::filesystem::create_directories(folder + "/two/7");
  std::filesystem::create_directories(folder + "/two/3");
  std::filesystem::copy_file(folder + "/digits/7/00.png", folder + "/two/7/a.png");
  std::filesystem::copy_file(folder + "/digits/3/00.png", folder + "/two/3/a.png");
  const RunData data = open_run_data(job({"test_fraction=0", "data.test=two"}));
  ASSERT_EQ(data.test->size(), 2);
  EXPECT_EQ(data.test->label(0), 3);
  EXPECT_EQ(data.test->label(1), 7);
  std::filesystem::rename(folder + "/two/7", folder + "/two/seven");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] {
                    open_run_data(job({"test_fraction=0", "data.test=two"}));
                  }),
                  "`seven`");
}

TEST_F(Run, FolderHoldsWhatIsPromised) {
  RunOptions options = into("out");
  options.save_initial = true;
  const RunResult result = run_job(job(), options);
  EXPECT_EQ(result.training.last_iteration, 6);
  EXPECT_FALSE(result.training.stopped);
  ASSERT_TRUE(result.validation && result.test);
  EXPECT_EQ(result.validation->observations, 40);
  EXPECT_EQ(result.test->observations, 20);
  EXPECT_EQ(result.classes.size(), 10u);
  for (const char* name : {"model.safetensors", "initial.safetensors", "receipt.jsonl", "log.jsonl",
                           "job.json", "checkpoints"}) {
    EXPECT_TRUE(there(std::string("out/") + name)) << name;
  }
  const std::string receipt = text("out/receipt.jsonl");
  EXPECT_EQ(std::count(receipt.begin(), receipt.end(), '\n'), 6);
  EXPECT_CONTAINS(receipt, result.training.digest.to_string());
  // The options can be read again, with the same result.
  const Job again = read_job(local_files(), folder + "/out/job.json");
  Job expected = job();
  expected.training.validation.frequency = 0;  // once an epoch, which is shorter than the default
  expected.validation_frequency_given = true;
  EXPECT_EQ(again.resolved().dump(), expected.resolved().dump());
  EXPECT_EQ(run_job(again, into("again")).training.digest, result.training.digest);
  EXPECT_EQ(text("again/model.safetensors"), text("out/model.safetensors"));
  // Training the initial network again gives the same network. It differs from the trained one.
  EXPECT_NE(text("out/initial.safetensors"), text("out/model.safetensors"));
  RunOptions from = into("from");
  from.initial_model = folder + "/out/initial.safetensors";
  EXPECT_EQ(run_job(job(), from).training.digest, result.training.digest);
  from = into("other");
  from.initial_model = folder + "/out/model.safetensors";
  EXPECT_NE(run_job(job(), from).training.digest, result.training.digest);
  EXPECT_CONTAINS(text("other/job.json"), "initial_model");
  // The files hold the measured values.
  Model model = load_model(local_files(), result.model);
  const Evaluation test = evaluate(model.network, open_run_data(job()).test, {.threads = 1});
  EXPECT_EQ(test.accuracy, result.test->accuracy);
  EXPECT_EQ(test.loss, result.test->loss);
}

// Target images lie in another folder, under the same names.
TEST_F(Run, TargetsOfAnotherFolderAreMatchedByName) {
  const std::string text = R"([data]
train = "digits"
targets = "TARGETS"
test = "digits"
test_targets = "TARGETS"
[network]
input = { height = 28, width = 28, channels = 1 }
layers = [ { type = "convolution2d", filters = 1, kernel = 3, padding = "same" } ]
loss = "mean_squared_error"
[training]
mini_batch_size = 50
max_epochs = 1
device = "cpu"
)";
  const auto with = [&](const std::string& targets) {
    std::string job = text;
    for (size_t at; (at = job.find("TARGETS")) != std::string::npos;) job.replace(at, 7, targets);
    return read_job(local_files(), write("image_job.toml", job));
  };
  std::filesystem::copy(folder + "/digits", folder + "/wanted",
                        std::filesystem::copy_options::recursive);
  const RunResult own = run_job(with("inputs"), into("own")),
                  copied = run_job(with("wanted"), into("copied"));
  EXPECT_TRUE(own.classes.empty());
  EXPECT_EQ(copied.training.digest, own.training.digest);
  EXPECT_EQ(copied.test->loss, own.test->loss);
  EXPECT_TRUE(load_model(local_files(), own.model).classes.empty());
  const RunData data = open_run_data(with("wanted"));
  for (int64_t i : {0, 57, 199}) {
    EXPECT_EQ(data.training_targets->name(i), data.training->name(i));
    EXPECT_EQ(read_image(*data.training_targets, i), read_image(*data.training, i));
  }
  // Flat folders have no labels to learn.
  std::filesystem::copy(folder + "/digits/1", folder + "/flat");
  Job flat = with("inputs");
  flat.data.train = {folder + "/flat"};
  flat.data.test = {folder + "/digits/2"};
  flat.training.mini_batch_size = 10;
  EXPECT_EQ(run_job(flat, into("flat_run")).test->observations, 20);
  std::filesystem::remove(folder + "/wanted/7/03.png");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { run_job(with("wanted"), into("missing")); }),
                  "7/03.png");
}

TEST_F(Run, StopAndResumeGiveTheSameBitsOnAnyThreads) {
  const RunResult whole = run_job(job(), into("whole"));
  for (int64_t stop : {1, 2, 3, 5}) {
    const std::string name = "part" + std::to_string(stop);
    RunOptions options = into(name);
    int64_t asked = 0;
    options.stop = [&] { return ++asked == stop; };
    RunResult part = run_job(job(), options);
    EXPECT_TRUE(part.training.stopped);
    EXPECT_EQ(part.training.last_iteration, stop);
    EXPECT_FALSE(part.test || part.validation);
    EXPECT_EQ(part.model, folder + "/" + name + "/model.safetensors");
    EXPECT_TRUE(local_files().exists(part.checkpoint)) << part.checkpoint;
    EXPECT_NE(text(name + "/model.safetensors"), text("whole/model.safetensors"));
    options.stop = {};
    options.resume = true;
    part = run_job(job({"threads=3"}), options);
    ASSERT_EQ(part.training.iterations.front().iteration, stop + 1) << "it has begun anew";
    EXPECT_EQ(part.training.digest, whole.training.digest) << stop;
    EXPECT_EQ(part.test->loss, whole.test->loss);
    EXPECT_EQ(text(name + "/receipt.jsonl"), text("whole/receipt.jsonl"));
    EXPECT_EQ(text(name + "/model.safetensors"), text("whole/model.safetensors"));
  }
}

TEST_F(Run, AFinishedRunMayBeResumedAndStaysAsItIs) {
  RunOptions options = into("out");
  const RunResult first = run_job(job(), options);
  options.resume = true;
  const RunResult second = run_job(job(), options);
  EXPECT_EQ(second.training.digest, first.training.digest);
  EXPECT_EQ(second.training.last_iteration, 6);
  EXPECT_EQ(second.test->accuracy, first.test->accuracy);
}

TEST_F(Run, MetricsAndConfusionAreOfTheNetworkInTheEnd) {
  const Job measured = job({R"(metrics=["f1"])", "batch_normalization_statistics=population"});
  const RunResult result = run_job(measured, into("out"));
  Network network = load_model(local_files(), result.model).network;
  const RunData data = open_run_data(measured);
  const Evaluation e = evaluate(network, data.validation, {.metrics = {"f1"}, .confusion = true});
  EXPECT_EQ(result.validation->loss, e.loss);
  EXPECT_EQ(result.validation->metrics, e.metrics);
  EXPECT_EQ(result.validation->confusion, e.confusion);
  EXPECT_NE(result.validation->loss, result.training.validations.back().loss) << "moving ones";
  const auto file = nlohmann::ordered_json::parse(text("out/confusion.json"));
  EXPECT_EQ(file.at("validation"), e.confusion->to_json());
  EXPECT_EQ(file.at("test"), result.test->confusion->to_json());
  // Metrics may change when a run is resumed, statistics may not.
  RunOptions options = into("out");
  options.resume = true;
  EXPECT_TRUE(run_job(job({"batch_normalization_statistics=population"}), options)
                  .validation->metrics.empty());
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { run_job(job(), options); }),
                  "batch_normalization_statistics");
}

TEST_F(Run, ResumeStartsAnewWhereNothingIs) {
  RunOptions options = into("out");
  options.resume = true;
  EXPECT_EQ(run_job(job(), options).training.last_iteration, 6);
}

TEST_F(Run, FoldersOfOtherRunsAreRefused) {
  RunOptions options = into("out");
  run_job(job(), options);
  const std::string before = text("out/job.json");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { run_job(job(), options); }), "--out");
  options.resume = true;
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { run_job(job({"momentum=0.8"}), options); }),
                  "training.momentum: 0.9 there, 0.8 here");
  EXPECT_EQ(text("out/job.json"), before);
  write("out/job.json", "{");
  EXPECT_THROW(run_job(job(), options), DataError);
  std::filesystem::remove(folder + "/out/job.json");
  EXPECT_THROW(run_job(job(), options), InvalidArgument);
  options.folder = write("file", "x");
  options.resume = false;
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { run_job(job(), options); }), "is a file");
}

TEST_F(Run, AFinishedRunGoesOnWithMoreEpochs) {
  const std::vector<std::string> settings{"validation_frequency=4", "output_network=best",
                                          "batch_normalization_statistics=population"};
  const auto with = [&](const char* end) {
    std::vector<std::string> all = settings;
    all.emplace_back(end);
    return job(all);
  };
  RunOptions options = into("out");
  run_job(with("max_iterations=5"), options);  // two iterations per epoch
  options.resume = true;
  for (const char* end : {"max_epochs=4", "max_epochs=7"}) {
    const RunResult result = run_job(with(end), options);
    const RunResult begun = run_job(with(end), into(end));
    EXPECT_EQ(result.validation->loss, begun.validation->loss);
    for (const char* file : {"receipt.jsonl", "model.safetensors", "job.json", "confusion.json"}) {
      EXPECT_EQ(text(std::string("out/") + file), text(std::string(end) + "/" + file)) << file;
    }
  }
  const Verification late = verify_run(folder + "/out", 13);
  EXPECT_EQ(late.differs, 0) << late.what;
  EXPECT_EQ(compare_runs(folder + "/out", folder + "/max_epochs=4").common, 8);
}

TEST_F(Run, AnInitialModelThatHasChangedIsNotTakenForTheOriginal) {
  run_job(job({"max_iterations=1"}), into("first"));
  run_job(job({"max_iterations=2"}), into("second"));
  RunOptions options = into("out");
  options.initial_model = folder + "/first";
  run_job(job(), options);
  EXPECT_EQ(verify_run(folder + "/out", 1).differs, 0);
  const std::string original = text("first/model.safetensors");
  for (const std::string& other : {text("second/model.safetensors"), std::string("damaged")}) {
    write("first/model.safetensors", other);
    EXPECT_CONTAINS(refusal<FileError>([&] { verify_run(folder + "/out", 1); }),
                    "out started from the values of " + folder +
                        "/first, which is missing or has changed | name the original with "
                        "--initial-model");
    // From a checkpoint, none is needed.
    const Verification late = verify_run(folder + "/out", 6);
    EXPECT_GT(late.from, 0);
    EXPECT_EQ(late.differs, 0) << late.what;
  }
  EXPECT_CONTAINS(refusal<FileError>([&] {
                    verify_run(folder + "/out", 1, {1, folder + "/second"});
                  }),
                  "out did not start from the values of");
  write("first/model.safetensors", text("second/model.safetensors"));
  options.initial_model.clear();
  options.resume = true;
  EXPECT_CONTAINS(refusal<FileError>([&] { run_job(job({"max_epochs=4"}), options); }),
                  "/first has changed since the run in ");
  // Its new path is kept.
  options.initial_model = write("moved.safetensors", original);
  run_job(job({"max_epochs=4"}), options);
  EXPECT_CONTAINS(text("out/job.json"), options.initial_model);
  options.initial_model.clear();
  EXPECT_EQ(run_job(job({"max_epochs=5"}), options).training.last_iteration, 10);
  EXPECT_EQ(verify_run(folder + "/out", 1).differs, 0);
}

TEST_F(Run, AScheduleThatLastsAsLongAsTheEpochsForbidsMoreOfThem) {
  RunOptions options = into("out");
  const std::vector<std::string> settings{"learning_rate_schedule=cosine", "final_factor=0.5"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), settings.begin(), settings.end());
    return job(more);
  };
  run_job(with({}), options);
  const std::string before = text("out/job.json");
  options.resume = true;
  EXPECT_EQ(refusal<InvalidArgument>([&] { run_job(with({"max_epochs=4"}), options); }),
            "[run] " + options.folder +
                " contains a run of another job: training.max_epochs: 3 there, 4 here, and the "
                "schedule \"cosine\" has the same length: the learning rates of finished "
                "iterations would differ | train again into another folder with --out, or keep the "
                "length of the schedule and continue at its last rate: --set max_epochs=4 --set "
                "'schedule_epochs=3.0'");
  EXPECT_EQ(text("out/job.json"), before);
  const Job longer = with({"max_epochs=4", "schedule_epochs=3.0"});
  run_job(longer, options);
  run_job(longer, into("whole"));
  for (const char* file : {"receipt.jsonl", "model.safetensors", "job.json"}) {
    EXPECT_EQ(text(std::string("out/") + file), text(std::string("whole/") + file)) << file;
  }
}

TEST_F(Run, AnEndThatIsRefusedLeavesTheJobAsItWas) {
  RunOptions options = into("out");
  run_job(job(), options);
  const std::string before = text("out/job.json"), receipt = text("out/receipt.jsonl");
  options.resume = true;
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { run_job(job({"max_epochs=2"}), options); }),
                  "max_epochs = 2 ends the training after iteration 4");
  EXPECT_EQ(text("out/job.json"), before);
  EXPECT_EQ(text("out/receipt.jsonl"), receipt);
}

// A run of an earlier version, whose identity has no version, stopped after iteration 20 of 36.
TEST_F(Run, OneOfAnEarlierVersionIsRefusedAndStaysAsItIs) {
  std::filesystem::copy(LOCKSTEP_SOURCE_FOLDER "/tests/runs/first_version", folder + "/out",
                        std::filesystem::copy_options::recursive);
  const std::string begun = text("out/receipt.jsonl");
  const Job job =
      read_job(local_files(), LOCKSTEP_SOURCE_FOLDER "/tests/runs/first_version/job.json",
               {"allow_other_numerics=true"});
  RunOptions options = into("out");
  options.resume = true;
  const std::string said = refusal<InvalidArgument>([&] { run_job(job, options); });
  EXPECT_CONTAINS(said, "has an identity of version 1, but this program writes version 2");
  EXPECT_CONTAINS(said, "continue with the version of lockstep that wrote it");
  EXPECT_EQ(text("out/receipt.jsonl"), begun);
}

TEST_F(Run, TwoAtOnceInOneFolderAreRefusedAndADeadOneIsNot) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const Job mine = job({"validation_frequency=epoch"});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const RunFolder held(local_files(), folder + "/out", mine, nlohmann::ordered_json::object(),
                         false);
    if (::write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  RunOptions options = into("out");
  options.resume = true;
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { run_job(mine, options); }), "another process");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  EXPECT_EQ(run_job(mine, options).training.last_iteration, 6);
}

TEST_F(Run, WhatCannotRunLeavesNoFolder) {
  EXPECT_THROW(run_job(job({"data.train=nowhere"}), into("a")), DataError);
  std::filesystem::rename(folder + "/digits/9", folder + "/digits/8/9");
  std::filesystem::remove_all(folder + "/digits/8/9");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { run_job(job(), into("a")); }), "units = 9");
  EXPECT_FALSE(there("a"));
}

}  // namespace
}  // namespace lockstep
