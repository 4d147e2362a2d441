// The index of a listing, tar archives, and names of their members.
#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/image_index.h"
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
  // Padding of zeros, as GNU tar writes it, is no other archive.
  EXPECT_EQ(members_of(as_bytes(archive + std::string(7168, '\0')), "x.tar").size(), 1U);
  for (const size_t padding : {0, 512, 7168, 100}) {
    const std::string joined = archive + std::string(padding, '\0') + archive;
    const std::string said = message_of<DataError>([&] { members_of(as_bytes(joined), "x.tar"); });
    EXPECT_NE(said.find("x.tar goes on after the end of its archive (byte " +
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
  for (const int64_t channels : {3, 1}) {  // grey is converted, so the facts do not suffice
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
  EXPECT_NE(
      message_of<DataError>([&] { shards->read(1); }).find("are not those of which the index"),
      std::string::npos);
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
  ASSERT_EQ(store->notices().size(), 1U);
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
