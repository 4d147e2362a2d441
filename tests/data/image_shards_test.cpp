// The index of a listing, tar archives, and names of their members.
#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/images/image_index.h"
#include "lockstep/data/datastores/tar.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::message_of;
using testing::patterned;
using testing::TemporaryFolder;

TEST(ImageShards, NamesOfMembersCanBeReadBack) {
  for (const char* const path : {"a/1.png", "1.JPG", "a.b/i..j.png", "a/100%.png", "a/%2E.png",
                                 "a/%-1.png", "a/.png", "k\xc3\xa4se/x y=+.jpeg", "a/b.tar.png"}) {
    for (const int64_t number : {0, 7}) {
      const std::string member = member_name(path, number);
      EXPECT_EQ(listing_path(member), path) << member;
      // WebDataset's key ends at the first dot: it must be the extension's.
      EXPECT_EQ(member_key(member).size(), member.rfind('.')) << member;
    }
  }
  EXPECT_EQ(member_name("3/i..j.png", 0), "3/i%2E%2Ej.png");
  EXPECT_EQ(member_name("3/i.png", 2), "3/i%-2.png");
}

TEST(ImageShards, ArchivesHoldTheirMembers) {
  std::string archive;
  const std::string far(300, 'n');
  add_member(archive, "a/1.png", "one");
  add_member(archive, far + ".png", std::string(512, 'x'));
  add_member(archive, "\xc3\xa4.png", "");
  end_archive(archive);
  const auto members = members_of(as_bytes(archive), "x.tar");
  ASSERT_EQ(members.size(), 3U);
  EXPECT_EQ(members[0].name, "a/1.png");
  EXPECT_EQ(archive.substr(members[0].offset, members[0].size), "one");
  EXPECT_EQ(members[1].name, far + ".png");
  EXPECT_EQ(archive.substr(members[1].offset, members[1].size), std::string(512, 'x'));
  EXPECT_EQ(members[2].name, "\xc3\xa4.png");
  // Cut archives, also between members, lose no image silently.
  for (const size_t size : {size_t{0}, size_t{100}, size_t{1024}, size_t{1300}}) {
    EXPECT_THROW(members_of(as_bytes(archive).first(size), "x.tar"), DataError) << size;
  }
}

// The second archive's images would be lost silently.
TEST(ImageShards, ArchivesThatWereJoinedAreRefused) {
  std::string archive;
  add_member(archive, "a/1.png", "one");
  end_archive(archive);
  // Padding of zeros, as GNU tar writes it, is not another archive.
  EXPECT_EQ(members_of(as_bytes(archive + std::string(7168, '\0')), "x.tar").size(), 1U);
  for (const size_t padding : {0, 512, 7168, 100}) {
    const std::string joined = archive + std::string(padding, '\0') + archive;
    const std::string said = message_of<DataError>([&] { members_of(as_bytes(joined), "x.tar"); });
    EXPECT_NE(said.find("x.tar continues after the end of its archive (byte " +
                        std::to_string(archive.size() + padding) + ")"),
              std::string::npos)
        << said;
  }
  EXPECT_THROW(members_of(as_bytes(archive + "x"), "x.tar"), DataError);
}

TEST(ImageShards, FactsGiveDigestAndStatisticsOfReadingEverything) {
  const TemporaryFolder folder;
  folder.write("a/1.png", encode_png(patterned(3, 4, 3, 1)));
  folder.write("a/2.png", encode_png(patterned(3, 4, 3, 2)));
  folder.write("b/1.png", encode_png(patterned(3, 4, 1, 3)));
  const DatastorePtr plain = image_folder(folder.path);
  const TemporaryFolder packed;
  ImageIndex index{.root_name = "root", .classes = plain->classes()};
  std::string archive;
  for (int64_t i = 0; i < plain->size(); ++i) {
    const std::string bytes = read_text(local_files(), join_path(folder.path, plain->name(i)));
    IndexedImage image = indexed_image(*plain, i, bytes.size());
    add_member(archive, plain->name(i), bytes);
    image.offset = archive.size() - (bytes.size() + 511) / 512 * 512;
    image.facts = facts_of_file(as_bytes(bytes), "x");
    index.images.push_back(image);
  }
  end_archive(archive);
  index.shards = {{"s.tar", archive.size()}};
  packed.write("lockstep-index", write_index(index));
  packed.write("s.tar", {as_bytes(archive).begin(), as_bytes(archive).end()});
  const DatastorePtr shards = image_folder(packed.path);
  ASSERT_EQ(shards->size(), 3);
  ThreadPool pool(2);
  for (const int64_t channels : {3, 1}) {  // gray is converted, so the facts do not suffice
    const ExampleCache here(plain, 3, 4, channels, 1 << 20), there(shards, 3, 4, channels, 1 << 20);
    const auto a = here.fill(pool), b = there.fill(pool);
    EXPECT_EQ(a.listing, b.listing);
    EXPECT_EQ(a.statistics, b.statistics);
    EXPECT_TRUE(here.filled());
    EXPECT_FALSE(there.filled());  // at least one image was not read
    std::vector<uint8_t> one, two;
    for (int64_t i = 0; i < 3; ++i) {
      const uint8_t* const x = here.get(i, one);
      const uint8_t* const y = there.get(i, two);
      EXPECT_TRUE(std::equal(x, x + here.example_bytes(), y));
    }
    EXPECT_TRUE(there.filled());
  }
  // Contents that differ from the index are found when they arrive.
  archive[index.images[1].offset + 60] ^= 1;
  packed.write("s.tar", {as_bytes(archive).begin(), as_bytes(archive).end()});
  EXPECT_NO_THROW(shards->read(0));
  EXPECT_NE(message_of<DataError>([&] { shards->read(1); }).find("do not match the index"),
            std::string::npos);
}

// A folder of archives of `images`, with an index.
void write_shards(const TemporaryFolder& folder, ImageIndex index,
                  const std::vector<std::pair<std::string, uint32_t>>& images) {
  const std::vector<std::byte> png = encode_png(patterned(3, 4, 3, 1));
  const std::string image(reinterpret_cast<const char*>(png.data()), png.size());
  std::string archive;
  for (const auto& [name, label] : images) {
    IndexedImage indexed{.name = name, .label = label, .size = image.size()};
    indexed.offset = add_member(archive, name, image);
    index.images.push_back(indexed);
  }
  end_archive(archive);
  index.shards = {{"s.tar", archive.size()}};
  folder.write("lockstep-index", write_index(index));
  folder.write("s.tar", {as_bytes(archive).begin(), as_bytes(archive).end()});
}

TEST(ImageShards, AnIndexKeepsTheRuleOfTheLabels) {
  const TemporaryFolder folder;
  ImageIndex index{.root_name = "root", .classes = {"a", "x", "y"}};
  const std::vector<std::pair<std::string, uint32_t>> images = {
      {"a/1.png", 0}, {"a/x/1.png", 1}, {"b/y/1.png", 2}};
  index.labels = FolderLabels::nearest;
  write_shards(folder, index, images);
  const auto notices = [&](const ImageFolderOptions& options) {
    std::string text;
    for (const std::string& notice : image_folder(folder.path, options)->notices()) text += notice;
    return text;
  };
  EXPECT_EQ(notices({}),
            folder.path +
                ": its archives were written for labels = \"nearest\", and labels are read by "
                "another rule here: 2 images have another class, such as a/x/1.png `a` instead of "
                "`x` (labels = \"nearest\" in [data] of a job, --labels nearest of a command)");
  EXPECT_EQ(notices({.labels = FolderLabels::nearest}), "");
  EXPECT_EQ(notices({.labeled = false}), "");
  // An index of an earlier version has no rule.
  index.labels = {};
  write_shards(folder, index, images);
  const std::vector<std::byte> plain = local_files().read(folder.path + "/lockstep-index");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(plain.data()), 23),
            "lockstep image index 1\n");
  EXPECT_NE(notices({}).find("2 images lie in folders below"), std::string::npos) << notices({});
  EXPECT_EQ(notices({.labels = FolderLabels::nearest}), "");
}

TEST(ImageShards, AnIndexOfEitherKindIsReadAndChecked) {
  ImageIndex index{.root_name = "root", .labels = FolderLabels::path, .class_files = 3};
  std::vector<std::byte> bytes = write_index(index);
  EXPECT_EQ(read_index(bytes, "x").labels, FolderLabels::path);
  EXPECT_EQ(read_index(bytes, "x").class_files, 3);
  EXPECT_EQ(read_index(write_index({.root_name = "r"}), "x").labels, std::nullopt);
  // The rule stands behind the root's name, and the number of files of classes behind it.
  const size_t rule = std::string("lockstep image index 2\n").size() + 2 + 4;
  const auto with = [&](size_t at, int value) {
    std::vector<std::byte> changed = bytes;
    changed[at] = static_cast<std::byte>(value);
    constexpr size_t mark = 23, sum = 16;
    const Digest digest = digest_of(changed.data() + mark, changed.size() - mark - sum);
    for (size_t i = 0; i < 8; ++i) {
      changed[changed.size() - sum + i] = static_cast<std::byte>(digest.high >> (8 * i));
      changed[changed.size() - sum + 8 + i] = static_cast<std::byte>(digest.low >> (8 * i));
    }
    return message_of<DataError>([&] { read_index(changed, "x"); });
  };
  EXPECT_NE(with(rule, 3).find("there is no such rule of labels"), std::string::npos);
  EXPECT_NE(with(rule + 8, 0x80).find("too many files of classes"), std::string::npos);
  EXPECT_NE(with(22, ' ').find("x is not an index of this version"), std::string::npos);
}

// As the folder from which they come.
TEST(ImageShards, AnIndexDoesNotHideFilesOfClasses) {
  const TemporaryFolder folder;
  ImageIndex index{.root_name = "root", .labels = FolderLabels::first, .classes = {"root"}};
  const std::vector<std::pair<std::string, uint32_t>> images = {{"1.png", 0}, {"2.png", 0}};
  write_shards(folder, index, images);
  EXPECT_EQ(image_folder(folder.path)->notices(), std::vector<std::string>{});
  index.class_files = 2;
  write_shards(folder, index, images);
  EXPECT_NE(message_of<DataError>([&] {
              image_folder(folder.path);
            }).find("would be one class, but there are 2 .cls files"),
            std::string::npos);
  EXPECT_EQ(image_folder(folder.path, {.labeled = false})->notices(),
            std::vector<std::string>{folder.path + ": left out: 2 other files (2 .cls)"});
}

TEST(ImageShards, ArchivesOfOthersAreListedAsFoldersAre) {
  const std::vector<std::byte> png = encode_png(patterned(3, 4, 3, 1));
  const std::string image(reinterpret_cast<const char*>(png.data()), png.size());
  const TemporaryFolder folder;
  const auto write = [&](const std::map<std::string, std::string>& members) {
    std::string archive;
    for (const auto& [name, contents] : members) add_member(archive, name, contents);
    end_archive(archive);
    folder.write("s.tar", {as_bytes(archive).begin(), as_bytes(archive).end()});
  };
  write({{"./a/1.png", image},
         {"./a/1.cls", "0"},
         {"./b/deep/2", image},
         {"./b/deep/2.cls", "1"},
         {"./b/3.tif", std::string("II*\0....", 8)},
         {"./.ipynb_checkpoints/1.png", image}});
  const DatastorePtr store = image_folder(folder.path);
  ASSERT_EQ(store->size(), 2);
  EXPECT_EQ(store->name(1), "./b/deep/2");
  EXPECT_EQ(store->classes(), (std::vector<std::string>{"a", "b"}));
  ASSERT_EQ(store->notices().size(), 2U);
  EXPECT_NE(
      store->notices()[1].find("1 image lies in a folder below that of its class: ./b/deep/2"),
      std::string::npos)
      << store->notices()[1];
  EXPECT_EQ(store->notices()[0],
            folder.path +
                ": left out: 1 TIFF image (such as ./b/3.tif), 1 hidden name (such as "
                "./.ipynb_checkpoints), 2 other files (2 .cls)");
  write({{"1.png", image}, {"1.cls", "0"}, {"2.png", image}, {"2.cls", "1"}});
  EXPECT_NE(message_of<DataError>([&] { image_folder(folder.path); }).find("would be one class"),
            std::string::npos);
  write({{"train/a/1.png", image}, {"test/a/2.png", image}});
  EXPECT_NE(message_of<DataError>([&] { image_folder(folder.path); }).find("holds test and train"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
