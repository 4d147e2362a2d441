// Jobs that train on the rows of a CSV file.
#include "lockstep/engine/formats/model.h"
#include "lockstep/runs/jobs/data_source.h"
#include "lockstep/runs/run.h"
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
  EXPECT_CONTAINS(message({"translate_x=2"}), "[augmentation] is for images");
  EXPECT_CONTAINS(message({"salt_and_pepper=0.1"}), "[noise] is for images");
  EXPECT_EQ(plan_job(job({"bad_images=skip"})).data.training->size(), 96);
  write("flowers.csv", "kind,length,width,more\na,1,2,3\nb,1,2,3\nc,1,2,3\na,2,2,2\nb,1,1,x\n");
  EXPECT_CONTAINS(message({}), "line 6, column 4 (more): `x` is not a number");
  write("flowers.csv", "kind,length\na,1\nb,1\nc,1\na,2\nb,1\nc,2\na,1\nb,3\nc,1\n");
  EXPECT_CONTAINS(message({}), "one input of 1 for");
}

}  // namespace
}  // namespace lockstep
