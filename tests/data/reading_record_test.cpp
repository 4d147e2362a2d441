// What is kept of a reading is used only for the same files, and never changes a result.
#include "lockstep/data/batches/reading_record.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/build_id.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/images/image.h"
#include "tests/data/kept_readings.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

// Images whose files seem unchanged while `state` is the same.
class Files : public testing::MemoryStore {
 public:
  using MemoryStore::MemoryStore;
  std::optional<Digest> file_state() const override { return state; }
  std::vector<std::string> notices() const override {
    std::vector<std::string> all{"two are left out"};
    if (reads > 0) all.push_back("one is turned");
    return all;
  }
  std::optional<Digest> state = Digest{1, 2};
};

class ReadingRecord : public ::testing::Test {
 protected:
  std::vector<std::filesystem::path> records() const { return kept_.records(); }
  ExampleCache::Contents read(const ExampleCache& cache, const std::string& decoders = {}) {
    notices.clear();
    return read_or_recall(cache, pool_, {}, notices, decoders);
  }

  std::vector<std::string> notices;
  const testing::KeptReadings kept_;
  const testing::TemporaryFolder files_;
  ThreadPool pool_{2};
};

TEST_F(ReadingRecord, GivesWhatReadingFound) {
  const auto first = std::make_shared<Files>(20, 4, 5, 3);
  const ExampleCache read_cache(first, 4, 5, 3, 1 << 20);
  const auto found = read(read_cache);
  EXPECT_EQ(first->reads, 20);
  EXPECT_EQ(records().size(), 1u);
  const auto second = std::make_shared<Files>(20, 4, 5, 3);
  const ExampleCache cache(second, 4, 5, 3, 1 << 20);
  const auto recalled = read(cache);
  EXPECT_EQ(second->reads, 0);
  EXPECT_EQ(recalled.listing, found.listing);
  EXPECT_EQ(recalled.statistics, found.statistics);
  EXPECT_EQ(recalled.channels()[0][2].mean, found.channels()[0][2].mean);
  EXPECT_EQ(notices, (std::vector<std::string>{"one is turned"}));
  std::vector<uint8_t> scratch;
  for (int64_t i = 0; i < 20; ++i) {
    const uint8_t* const data = cache.get(i, scratch);
    EXPECT_EQ(std::vector<uint8_t>(data, data + cache.example_bytes()),
              to_planes(first->images[static_cast<size_t>(i)]));
  }
  EXPECT_TRUE(cache.filled());
}

TEST_F(ReadingRecord, IsOfTheSameFilesAndShapes) {
  const auto reads = [&](std::optional<Digest> state, int64_t channels) {
    const auto store = std::make_shared<Files>(5, 4, 5, 3);
    store->state = state;
    read(ExampleCache(store, 4, 5, channels, 1 << 20));
    return store->reads.load();
  };
  EXPECT_EQ(reads(Digest{1, 2}, 3), 5);
  EXPECT_EQ(reads(Digest{1, 2}, 3), 0);
  EXPECT_EQ(reads(Digest{1, 3}, 3), 5) << "other files";
  EXPECT_EQ(reads(Digest{1, 2}, 1), 5) << "another shape";
  EXPECT_EQ(reads(std::nullopt, 3), 5) << "files of which nothing is known";
  EXPECT_EQ(records().size(), 3u);
  for (const auto& path : records()) {  // damaged
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(30);
    file.put('x');
  }
  EXPECT_EQ(reads(Digest{1, 2}, 3), 5);
  EXPECT_EQ(reads(Digest{1, 2}, 3), 0);
}

TEST_F(ReadingRecord, IsOfTheSameDecoders) {
  const auto reads = [&](const std::string& decoders) {
    const auto store = std::make_shared<Files>(5, 4, 5, 3);
    read(ExampleCache(store, 4, 5, 3, 1 << 20), decoders);
    return store->reads.load();
  };
  EXPECT_EQ(reads(""), 5);
  EXPECT_EQ(reads(image_library_builds()), 0);
  EXPECT_EQ(reads("libjpeg of another build"), 5);
  const std::string builds = image_library_builds();
  testing::expect_says(builds, image_library_versions());
  for (const char* const name : {"jpeg_read_scanlines", "png_read_row", "WebPDecode"}) {
    testing::expect_says(builds, build_id_of(dlsym(RTLD_DEFAULT, name)));
  }
}

TEST_F(ReadingRecord, ThatIsWrongEndsInAnErrorAndIsRemoved) {
  read(ExampleCache(std::make_shared<Files>(5, 4, 5, 3), 4, 5, 3, 1 << 20));
  const auto changed = std::make_shared<Files>(5, 4, 5, 3);
  changed->images[3].pixels[0] ^= 1;
  const ExampleCache cache(changed, 4, 5, 3, 1 << 20);
  read(cache);
  std::vector<uint8_t> scratch;
  cache.get(2, scratch);
  EXPECT_EQ(records().size(), 1u);
  EXPECT_NE(testing::message_of<DataError>([&] {
              cache.get(3, scratch);
            }).find("image 3 (memory) has other contents than when an earlier training read it"),
            std::string::npos);
  EXPECT_EQ(records().size(), 0u);
}

TEST_F(ReadingRecord, FilesAreTheSameWhileTheFileSystemSaysSo) {
  const std::string folder = files_.path + "/data";
  std::filesystem::create_directories(folder + "/a");
  std::ofstream(folder + "/a/1.pgm") << "P5\n1 1\n255\nx";
  const auto state = [&](bool small = false) {
    const DatastorePtr store = image_folder(folder);
    return (small ? resized(store, 2, 2) : store)->file_state();
  };
  EXPECT_FALSE(state()) << "it may change again without another time";
  std::this_thread::sleep_for(std::chrono::seconds(4));
  const auto before = state();
  ASSERT_TRUE(before);
  EXPECT_EQ(state(), before);
  EXPECT_NE(state(true), before);
  EXPECT_EQ(subset(image_folder(folder), {0})->file_state(),
            subset(image_folder(folder), {0})->file_state());
  // Other contents of the same size with the old time of modification.
  const auto time = std::filesystem::last_write_time(folder + "/a/1.pgm");
  std::ofstream(folder + "/a/1.pgm") << "P5\n1 1\n255\ny";
  std::filesystem::last_write_time(folder + "/a/1.pgm", time);
  std::this_thread::sleep_for(std::chrono::seconds(4));
  ASSERT_TRUE(state());
  EXPECT_NE(state(), before);
}

}  // namespace
}  // namespace lockstep
