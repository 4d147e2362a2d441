// How the data of jobs are split: folds, groups of rows, and copies of images.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/base/os/file.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run_data.h"
#include "tests/runs/support.h"

namespace lockstep {
namespace {

using testing::refusal;

constexpr const char* digits_job = R"([data]
train = "digits"
[network]
input = { height = 28, width = 28, channels = 1 }
layers = [{ type = "fully_connected", units = 3 }, { type = "softmax" }]
[training]
mini_batch_size = 4
)";
constexpr const char* visits_job = R"([data]
train = "visits.csv"
group_column = "patient"
[network]
layers = [
  { type = "feature_input", features = 2 },
  { type = "fully_connected", units = 2 },
  { type = "softmax" } ]
[training]
mini_batch_size = 4
)";

class Splits : public testing::WithFolder {
 protected:
  Splits() {
    std::vector<int64_t> taken;  // 12 of each of three digits
    for (int64_t i = 0; i < 36; ++i) taken.push_back(i / 12 * 1000 + i % 12);
    export_as_folder(*subset(builtin_digits(), taken), folder + "/digits");
    // Unused digits would become empty folders.
    for (char c = '3'; c <= '9'; ++c) std::filesystem::remove(folder + "/digits/" + c);
    job_path = write("job.toml", digits_job);
  }
  Job job(const std::vector<std::string>& settings) {
    return read_job(local_files(), job_path, settings);
  }
  // For each file, the sides on which an image with its bytes is.
  void expect_copies_together(const RunData& data, size_t sides) {
    std::map<std::string, std::set<int>> found;
    int side = 0;
    for (const DatastorePtr& part : {data.training, data.validation, data.test}) {
      ++side;
      for (int64_t i = 0; part && i < part->size(); ++i) {
        found[read_text(local_files(), folder + "/digits/" + part->name(i))].insert(side);
      }
    }
    EXPECT_EQ(found.size(), 36U) << "all images are used";
    std::set<int> used;
    for (const auto& [bytes, where] : found) {
      EXPECT_EQ(where.size(), 1U);
      used.insert(where.begin(), where.end());
    }
    EXPECT_EQ(used.size(), sides);
  }
  std::string job_path;
};

TEST_F(Splits, FoldsPartitionTheTrainingDataWithEqualSharesOfEachLabel) {
  const auto part = [&](int64_t folds, int64_t fold, const std::string& more = "data.fold=1") {
    return open_run_data(
        job({more, "data.folds=" + std::to_string(folds), "data.fold=" + std::to_string(fold)}));
  };
  for (const int64_t folds : {2, 5, 36}) {
    std::vector<std::string> validated;
    for (int64_t fold = 1; fold <= folds; ++fold) {
      const RunData data = part(folds, fold);
      EXPECT_EQ(data.training->size() + data.validation->size(), 36);
      EXPECT_GE(data.validation->size(), 36 / folds);
      EXPECT_LE(data.validation->size(), (36 + folds - 1) / folds);
      for (const int64_t count : count_each_label(*data.validation)) {
        EXPECT_LE(count, (12 + folds - 1) / folds) << folds;
        EXPECT_GE(count, 12 / folds) << folds;
      }
      for (int64_t i = 0; i < data.validation->size(); ++i) {
        validated.push_back(data.validation->name(i));
      }
    }
    std::sort(validated.begin(), validated.end());
    EXPECT_EQ(std::unique(validated.begin(), validated.end()), validated.end());
    EXPECT_EQ(std::ssize(validated), 36) << "every observation is validated once";
  }
  EXPECT_EQ(part(3, 1).validation->name(0), part(3, 1).validation->name(0));
  const RunData tested = part(3, 2, "data.test_fraction=0.25");
  EXPECT_EQ(tested.test->size(), 9);
  EXPECT_EQ(tested.validation->size(), 9);
  EXPECT_EQ(tested.training->size(), 18);
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { part(37, 1); }), "fewer than folds = 37");
}

TEST_F(Splits, CopiesOfImagesStayOnOneSide) {
  for (const char digit : {'0', '2'}) {
    const std::string of_digit = folder + "/digits/" + digit;
    std::vector<std::filesystem::path> files(std::filesystem::directory_iterator(of_digit), {});
    ASSERT_EQ(files.size(), 12U);
    for (const std::filesystem::path& file : files) {
      for (const char* copy : {"/a-", "/z-"}) {
        std::filesystem::copy_file(file, of_digit + copy + file.filename().string());
      }
    }
  }
  for (const int seed : {0, 1, 2}) {
    const std::string seeded = "seed=" + std::to_string(seed);
    const RunData data =
        open_run_data(job({seeded, "data.validation_fraction=0.3", "data.test_fraction=0.2"}));
    expect_copies_together(data, 3);
    ASSERT_EQ(data.notices.size(), 1U);
    EXPECT_CONTAINS(data.notices[0], "48 images are copies");
    for (const char* fold : {"data.fold=1", "data.fold=3"}) {
      expect_copies_together(open_run_data(job({seeded, "data.folds=3", fold})), 2);
    }
  }
}

TEST_F(Splits, GroupsOfRowsStayOnOneSide) {
  std::string rows = "patient,number,age,ill\n";
  for (int i = 0; i < 120; ++i) {
    const int patient = i * i % 23;
    rows += "p" + std::to_string(patient) + "," + std::to_string(patient) + "," +
            std::to_string(i) + "," + (i % 3 == 0 ? "yes" : "no") + "\n";
  }
  write("visits.csv", rows);
  job_path = write("visits.toml", visits_job);
  const auto patients = [](const Datastore& data) {
    std::set<float> numbers;
    for (int64_t i = 0; i < data.size(); ++i) {
      numbers.insert(std::get<Array>(data.read(i).inputs.at(0)).values.at(0));
    }
    return numbers;
  };
  for (const std::vector<std::string>& settings :
       {std::vector<std::string>{"data.validation_fraction=0.3"},
        {"data.folds=4", "data.fold=2"}}) {
    const RunData data = open_run_data(job(settings));
    EXPECT_EQ(data.training->size() + data.validation->size(), 120);
    const std::set<float> trained = patients(*data.training), held = patients(*data.validation);
    std::vector<float> both;
    std::ranges::set_intersection(trained, held, std::back_inserter(both));
    EXPECT_TRUE(both.empty()) << settings[0];
    EXPECT_FALSE(held.empty());
  }
}

}  // namespace
}  // namespace lockstep
