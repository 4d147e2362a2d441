// How the data of jobs are split: folds, groups of rows, and copies of images.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/base/os/file.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/run_data.h"
#include "tests/data/support.h"
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

constexpr const char* photos_job = R"([data]
train = "digits"
targets = "photos.csv"
[network]
loss = "mean_squared_error"
input = { height = 28, width = 28, channels = 1 }
layers = [{ type = "fully_connected", units = 1 }]
[training]
mini_batch_size = 4
)";

// Images whose groups, times and targets are in a table.
class PhotosWithGroups : public Splits {
 protected:
  PhotosWithGroups() {
    const DatastorePtr images = image_folder(folder + "/digits");
    for (int64_t i = 0; i < images->size(); ++i) {
      groups_[images->name(i)] = "p" + std::to_string(i * i % 11);
      days_[images->name(i)] = 1 + i * 5 % 18;
    }
    job_path = write("photos.toml", photos_job);
  }
  // In another order than the listing.
  void write_table() {
    std::string rows = "file,patient,light,day\n";
    for (auto it = groups_.rbegin(); it != groups_.rend(); ++it) {
      rows += it->first + "," + it->second + ",0.5," + std::to_string(days_[it->first]) + "\n";
    }
    write("photos.csv", rows);
  }
  RunData open(const std::vector<std::string>& settings) {
    write_table();
    std::vector<std::string> all = settings;
    all.emplace_back("data.target_columns=light");
    return open_run_data(job(all));
  }
  std::set<std::string> groups_of(const Datastore& images) {
    std::set<std::string> all;
    for (int64_t i = 0; i < images.size(); ++i) all.insert(groups_.at(images.name(i)));
    return all;
  }
  void expect_groups_apart(const RunData& data, int64_t count) {
    std::set<std::string> seen;
    size_t groups = 0;
    for (const DatastorePtr& part : {data.training, data.validation, data.test}) {
      if (!part) continue;
      const std::set<std::string> some = groups_of(*part);
      EXPECT_FALSE(some.empty());
      groups += some.size();
      seen.insert(some.begin(), some.end());
      count -= part->size();
    }
    EXPECT_EQ(seen.size(), groups);
    EXPECT_EQ(count, 0);
    EXPECT_EQ(data.training->size(), data.training_targets->size());
    EXPECT_EQ(data.training_targets->spec().inputs.at(0).shape, Shape{1});
  }
  std::map<std::string, std::string> groups_;
  std::map<std::string, int64_t> days_;
};

TEST_F(PhotosWithGroups, StayOnOneSide) {
  const std::string group = "data.group_column=patient";
  for (const char* seed : {"seed=1", "seed=2"}) {
    const RunData data =
        open({group, seed, "data.validation_fraction=0.3", "data.test_fraction=0.2"});
    expect_groups_apart(data, 36);
    EXPECT_CONTAINS(data.notices.at(0), "photos.csv names groups, and is not a target");
    std::set<std::string> validated;
    for (int fold = 1; fold <= 3; ++fold) {
      const RunData part = open({group, seed, "data.folds=3", "data.fold=" + std::to_string(fold)});
      expect_groups_apart(part, 36);
      const std::set<std::string> some = groups_of(*part.validation);
      for (const std::string& name : some) EXPECT_TRUE(validated.insert(name).second) << name;
    }
    EXPECT_EQ(validated.size(), groups_of(*data.training).size() +
                                    groups_of(*data.validation).size() +
                                    groups_of(*data.test).size());
  }
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { open({group, "data.folds=30"}); }), "6 groups");
  groups_.begin()->second = "";
  EXPECT_CONTAINS(refusal<DataError>([&] {
                    open({group, "data.folds=3"});
                  }),
                  "photos.csv, line 37, column `patient`: the group is missing");
  EXPECT_CONTAINS(refusal<DataError>([&] {
                    open({"data.group_column=patients", "data.folds=3"});
                  }),
                  "no column `patients`");
  EXPECT_CONTAINS(refusal<InvalidArgument>([&] { open({"data.group_column=light"}); }),
                  "has another use already");
}

TEST_F(PhotosWithGroups, OfCopiesAreOneGroup) {
  const std::string original = groups_.begin()->first, copy = "2/copy.png";
  std::filesystem::copy_file(folder + "/digits/" + original, folder + "/digits/" + copy);
  groups_[copy] = "p4";
  days_[copy] = 18;
  days_[original] = 1;
  ASSERT_NE(groups_[original], "p4");
  for (int fold = 1; fold <= 3; ++fold) {
    const RunData data =
        open({"data.group_column=patient", "data.folds=3", "data.fold=" + std::to_string(fold)});
    expect_groups_apart(data, 37);
    const std::set<std::string> held = groups_of(*data.validation);
    EXPECT_EQ(held.contains("p4"), held.contains(groups_[original]));
  }
  const RunData later = open({"data.time_column=day", "data.validation_fraction=0.25"});
  const std::vector<std::string> held = testing::names_of(*later.validation);
  EXPECT_TRUE(std::ranges::find(held, copy) != held.end());
  EXPECT_TRUE(std::ranges::find(held, original) != held.end());
  days_[original] = 18;
  int64_t first_held = 18, last_trained = 0;
  for (const std::string& name : held) first_held = std::min(first_held, days_.at(name));
  for (const std::string& name : testing::names_of(*later.training)) {
    last_trained = std::max(last_trained, days_.at(name));
  }
  EXPECT_LT(last_trained, first_held);
}

TEST_F(PhotosWithGroups, AllOtherColumnsAreTargets) {
  write_table();
  const RunData data =
      open_run_data(job({"data.group_column=patient", "data.validation_fraction=0.3"}));
  EXPECT_EQ(data.training_targets->spec().inputs.at(0).columns,
            (std::vector<std::string>{"light", "day"}));
}

}  // namespace
}  // namespace lockstep
