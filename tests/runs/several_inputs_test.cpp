// Jobs whose networks have several inputs: a folder of images beside another one or a CSV file.
#include <nlohmann/json.hpp>

#include "lockstep/runs/compare_runs.h"
#include "tests/runs/digits_run.h"

namespace lockstep {
namespace {

using testing::refusal;

// Digits in two sizes, and one row of features for each digit.
class SeveralInputs : public testing::DigitsRun {
 protected:
  SeveralInputs()
      : DigitsRun(10, R"([data]
train = ["digits", "small", "features.csv"]
validation_fraction = 0.2
[network]
layers = [
  { type = "image_input", name = "large", height = 28, width = 28, channels = 1 },
  { type = "convolution2d", filters = 4, kernel = 5, stride = 3 },
  { type = "batch_normalization" },
  { type = "fully_connected", name = "seen", units = 6 },
  { type = "image_input", name = "little", height = 14, width = 14, channels = 1 },
  { type = "fully_connected", name = "coarse", units = 6 },
  { type = "feature_input", features = 2, normalization = "z-score" },
  { type = "fully_connected", name = "known", units = 6 },
  { type = "concatenation", inputs = ["seen", "coarse", "known"] },
  { type = "fully_connected", units = 10 },
  { type = "softmax" } ]
[training]
mini_batch_size = 20
shard_size = 3
max_epochs = 2
device = "cpu"
threads = 1
)") {
    const DatastorePtr digits = image_folder(folder + "/digits");
    std::string rows = "first,second\n";
    for (int64_t i = 0; i < digits->size(); ++i) {
      rows += std::to_string(digits->label(i) * 3 % 7) + "," + std::to_string(i % 5) + ".5\n";
    }
    write("features.csv", rows);
    export_as_folder(*resized(digits, 14, 14), folder + "/small");
  }
};

TEST_F(SeveralInputs, OneDigestForAnyThreadsAndResumes) {
  const RunResult one = run_job(job(), into("one"));
  ASSERT_FALSE(one.training.stopped);
  EXPECT_EQ(one.training.last_iteration, 8);
  EXPECT_EQ(one.validation->observations, 20);
  EXPECT_EQ(run_job(job({"threads=3", "cache_mib=0"}), into("threads")).training.network_digest,
            one.training.network_digest);
  RunOptions resumed = into("resumed");
  resumed.stop_after = 3;
  run_job(job(), resumed);
  resumed.stop_after = 0;
  resumed.resume = true;
  EXPECT_EQ(run_job(job(), resumed).training.network_digest, one.training.network_digest);
  EXPECT_EQ(text("one/receipt.jsonl"), text("threads/receipt.jsonl"));
  EXPECT_EQ(verify_run(folder + "/one", 8).differs, 0);
  // Every input counts: other features, or another small image, give other bits.
  write("features.csv", text("features.csv").replace(text("features.csv").rfind(",") + 1, 1, "9"));
  EXPECT_NE(run_job(job(), into("features")).training.network_digest, one.training.network_digest);
}

TEST_F(SeveralInputs, TheResolvedJobIsTheSameJob) {
  const Job first =
      job({"data.validation=[\"digits\", \"small\", \"features.csv\"]", "validation_fraction=0"});
  EXPECT_EQ(first.data.train, (std::vector<std::string>{folder + "/digits", folder + "/small",
                                                        folder + "/features.csv"}));
  const std::string resolved = first.resolved().dump();
  EXPECT_EQ(read_resolved_job(resolved).resolved().dump(), resolved);
  // As in job files of before: one name is text, and none is "".
  const auto data = job({"data.train=digits"}).resolved()["data"];
  EXPECT_EQ(data["train"], folder + "/digits");
  EXPECT_EQ(data["test"], "");
}

TEST_F(SeveralInputs, FurtherFoldersAreMatchedByName) {
  const RunData data = open_run_data(job({"validation_fraction=0"}));
  ASSERT_EQ(data.training->size(), 100);
  EXPECT_EQ(data.training->name(57), "5/7.png");
  EXPECT_EQ(data.training->read(57).inputs.size(), 3u);
  std::filesystem::rename(folder + "/small/5/7.png", folder + "/small/5/77.png");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { open_run_data(job()); }), "5/7.png");
}

TEST_F(SeveralInputs, ImagesAreResizedToTheirInputs) {
  std::filesystem::remove_all(folder + "/small");
  const RunResult result = run_job(
      job({"data.train=[\"digits\", \"digits\", \"features.csv\"]", "resize=true"}), into("out"));
  EXPECT_EQ(result.training.last_iteration, 8);
  EXPECT_CONTAINS(refusal<Error>([&] {
                    run_job(job({"data.train=[\"digits\", \"digits\", \"features.csv\"]"}),
                            into("other"));
                  }),
                  "14");
}

TEST_F(SeveralInputs, WhatDoesNotFitIsRefusedByName) {
  const auto message = [&](const std::vector<std::string>& settings) {
    return refusal<Error>([&] { plan_job(job(settings)); });
  };
  EXPECT_CONTAINS(message({"data.train=[\"digits\", \"small\"]"}), "the network has 3 inputs");
  EXPECT_CONTAINS(message({"data.train=digits"}), "its inputs are 1x28x28, 1x14x14, 2");
  EXPECT_CONTAINS(message({"data.train=[\"digits\", \"features.csv\", \"small\"]"}), "little");
  EXPECT_CONTAINS(message({"data.train=[\"digits\", \"\", \"features.csv\"]"}),
                  "[data] train has an entry without a name");
  EXPECT_CONTAINS(message({"data.test=[\"digits\", \"small\"]"}),
                  "[data] test names 2 inputs, but train names 3");
  EXPECT_CONTAINS(message({"data.train=[]"}), "[data] train is missing");
  EXPECT_CONTAINS(message({"data.train=[\"digits\", 7, \"features.csv\"]"}), "train");
  EXPECT_CONTAINS(message({"crop=center"}), "[data] crop is for networks with one input");
  EXPECT_CONTAINS(message({"data.train=[\"digits\", \"small\", \"none.csv\"]"}), "none.csv");
  write("features.csv", "first,second\n1,2\n");
  EXPECT_CONTAINS(message({}), "features.csv has 1 observation, but " + folder + "/digits has 100");
}

TEST_F(SeveralInputs, ExamplesWithAnUnreadableInputAreLeftOut) {
  write("small/3/2.png", "no image");
  const RunData data = open_run_data(job({"bad_images=skip", "validation_fraction=0"}));
  EXPECT_EQ(data.training->size(), 99);
  ASSERT_EQ(data.skipped.size(), 1u);
  EXPECT_CONTAINS(data.skipped[0].reason, "3/2.png");
}

}  // namespace
}  // namespace lockstep
