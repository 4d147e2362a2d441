#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/report/tensorboard/confusion_image.h"
#include "lockstep/report/tensorboard/crc32c.h"
#include "lockstep/report/tensorboard/events.h"
#include "lockstep/report/tensorboard/tensorboard_writer.h"
#include "lockstep/train/records/training_start.h"
#include "tests/base/breaking_files.h"

namespace lockstep {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw FileError("mkdtemp");
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

// Examples of RFC 3720, B.4.
TEST(TensorBoard, Crc32c) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(masked_crc32c(""), 0xa282ead8u);
}

// The bytes of a scalar and of texts; tests/apps/tensorboard_test.py reads whole files.
TEST(TensorBoard, EncodesMessages) {
  EventValues values;
  EXPECT_TRUE(values.empty());
  values.scalar("ab", 1.0);
  EXPECT_EQ(values.summary(), std::string("\x0a\x09\x0a\x02"
                                          "ab\x15\x00\x00\x80\x3f",
                                          11));
  EventValues names;
  names.scalar("bad \xff", 0);  // messages hold UTF-8 alone
  EXPECT_NE(names.summary().find("bad \\xff"), std::string::npos);
}

TEST(TensorBoard, HistogramsOfSpecialValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = INFINITY;
  EventValues values;
  values.histogram("none", {});
  values.histogram("none", std::vector<float>{nan, inf, -inf});
  EXPECT_TRUE(values.empty());
  values.histogram("one", std::vector<float>{2, nan, 2});
  EXPECT_FALSE(values.empty());
}

TEST(TensorBoard, FilesOfOneSecondHaveDifferentNames) {
  const Folder folder;
  const EventFile a(local_files(), folder.path), b(local_files(), folder.path);
  EXPECT_NE(a.path(), b.path());
  EXPECT_EQ(local_files().list(folder.path).size(), 2u);
}

TEST(TensorBoard, ProblemsOfFilesAreReportedOnce) {
  // The file cannot be opened, cannot be written at first, or later.
  for (const int fail_at : {0, 1, 2, 3}) {
    const Folder folder;
    testing::BreakingFiles files(fail_at);
    std::vector<std::string> problems;
    TensorBoardWriter writer(files, folder.path, true,
                             [&](const std::string& text) { problems.push_back(text); });
    writer.start({});
    for (int64_t i = 1; i <= 3; ++i) {
      IterationRecord record;
      record.iteration = i;
      record.seconds = 1;
      writer.iteration(record);
      writer.validation({.iteration = i, .loss = 1});
    }
    writer.checkpoint(folder.path + "/missing", 3);
    writer.evaluation("test", {}, 3);
    writer.finish();
    ASSERT_EQ(problems.size(), 1u) << fail_at;
    EXPECT_NE(problems[0].find("TensorBoard are incomplete: [test] broken"), std::string::npos)
        << problems[0];
  }
}

TEST(TensorBoard, AnUnreadableCheckpointIsReported) {
  const Folder folder;
  std::vector<std::string> problems;
  TensorBoardWriter writer(local_files(), folder.path, true,
                           [&](const std::string& text) { problems.push_back(text); });
  writer.start({});
  writer.checkpoint(folder.path + "/missing", 3);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("missing"), std::string::npos);
}

std::vector<int> pixel(const Image& image, int64_t y, int64_t x) {
  const auto* at = image.pixels.data() + (y * image.width + x) * 3;
  return {at[0], at[1], at[2]};
}

TEST(TensorBoard, ConfusionImage) {
  ConfusionMatrix matrix({"a", "b"});
  matrix.add(0, 0, 4);
  matrix.add(1, 0, 3);
  matrix.add(1, 1, 1);
  const Image image = confusion_image(matrix);
  ASSERT_EQ(image.width, 24 + 2 * 44 + 1);
  ASSERT_EQ(image.height, image.width);
  // The corners of the cells: all of a row, none, three quarters and one quarter of a row.
  const auto cell = [&](int64_t row, int64_t column) {
    return pixel(image, 24 + row * 44, 24 + column * 44);
  };
  EXPECT_EQ(cell(0, 0), (std::vector<int>{31, 99, 170}));
  EXPECT_GT(cell(0, 1)[2], 245);
  EXPECT_LT(cell(1, 0)[2], 120);  // dark orange
  EXPECT_GT(cell(1, 1)[0], 150);  // light blue
  EXPECT_GT(cell(1, 1)[2], cell(1, 1)[0]);
}

TEST(TensorBoard, ConfusionImagesOfAnyNumberOfClasses) {
  for (const int64_t classes : {0, 1, 12, 13, 29, 100, 1000, 1300, 20000}) {
    std::vector<std::string> names(static_cast<size_t>(classes), "name");
    ConfusionMatrix matrix(names);
    for (int64_t c = 0; c < classes; ++c) matrix.add(c, c, int64_t{1} << 40);
    const Image image = confusion_image(matrix);
    EXPECT_LE(image.width, 1305) << classes;
    EXPECT_EQ(image.pixels.size(), static_cast<size_t>(image.width * image.height * 3));
    EXPECT_FALSE(encode_png(image).empty());
  }
}

}  // namespace
}  // namespace lockstep
