// Image folders: order, labels, links, and errors for missing parts.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::message_of;
using testing::patterned;
using testing::TemporaryFolder;

std::vector<std::string> names_of(const Datastore& store) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < store.size(); ++i) names.push_back(store.name(i));
  return names;
}

std::string label_name(const Datastore& store, int64_t index) {
  return store.classes()[static_cast<size_t>(store.label(index))];
}

TEST(ImageFolder, ListsByBytesAndLabelsByTheHoldingFolder) {
  const TemporaryFolder folder;
  const auto png = encode_png(patterned(2, 2, 1, 1));
  for (const char* name : {"b/2.png", "b/10.png", "b/10.PNG", "a-x/1.jpeg", "a/1.JPG", "B/1.png",
                           "a/deep/z.png", "\xc3\xa4/1.png", "top.png"}) {
    folder.write(name, png);
  }
  folder.write("a/notes.txt", png);
  folder.write("a/png", png);
  const DatastorePtr store = image_folder(folder.path + "/");
  // '-' sorts before '/', capitals before small letters, two-byte letters last.
  EXPECT_EQ(names_of(*store), (std::vector<std::string>{"B/1.png", "a-x/1.jpeg", "a/1.JPG",
                                                        "a/deep/z.png", "b/10.PNG", "b/10.png",
                                                        "b/2.png", "top.png", "\xc3\xa4/1.png"}));
  const std::string root = folder.path.substr(folder.path.rfind('/') + 1);
  EXPECT_EQ(store->classes(),
            (std::vector<std::string>{"B", "a", "a-x", "b", "deep", root, "\xc3\xa4"}));
  EXPECT_EQ(label_name(*store, 0), "B");
  EXPECT_EQ(label_name(*store, 1), "a-x");
  EXPECT_EQ(label_name(*store, 3), "deep");
  EXPECT_EQ(label_name(*store, 7), root);
  EXPECT_EQ(count_each_label(*store), (std::vector<int64_t>{1, 1, 1, 3, 1, 1, 1}));
  EXPECT_EQ(read_image(*store, 2), patterned(2, 2, 1, 1));
  EXPECT_EQ(store->content_digest(2), digest_of(png.data(), png.size()));
  EXPECT_EQ(store->read(2).content, store->content_digest(2));
  EXPECT_THROW(store->read(9), InvalidArgument);
  EXPECT_THROW(store->label(-1), InvalidArgument);
}

TEST(ImageFolder, CanStayInItsOwnFolder) {
  const TemporaryFolder folder;
  const auto png = encode_png(patterned(2, 2, 1, 1));
  folder.write("cat/1.png", png);
  folder.write("cat/below/2.png", png);
  const DatastorePtr store = image_folder(folder.path + "/cat", {.recursive = false});
  EXPECT_EQ(names_of(*store), std::vector<std::string>{"1.png"});
  EXPECT_EQ(store->classes(), std::vector<std::string>{"cat"});
}

TEST(ImageFolder, LinksAreFollowedAndLoopsEnd) {
  const TemporaryFolder folder;
  folder.write("real/1.png", encode_png(patterned(2, 2, 1, 1)));
  std::filesystem::create_directory_symlink("..", folder.path + "/real/up");
  std::filesystem::create_directory_symlink(".", folder.path + "/self");
  std::filesystem::create_directory_symlink("real", folder.path + "/alias");
  std::filesystem::create_symlink("../real/1.png", folder.path + "/real/2.png");
  const DatastorePtr store = image_folder(folder.path);
  EXPECT_EQ(names_of(*store),
            (std::vector<std::string>{"alias/1.png", "alias/2.png", "real/1.png", "real/2.png"}));
}

TEST(ImageFolder, BrokenLinksAndPipesWithAnImagesNameAreRefused) {
  const TemporaryFolder broken;
  broken.write("a/1.png", encode_png(patterned(2, 2, 1, 1)));
  std::filesystem::create_symlink("nowhere", broken.path + "/a/2.png");
  EXPECT_NE(message_of<DataError>([&] { image_folder(broken.path); }).find("a/2.png"),
            std::string::npos);
  const TemporaryFolder pipe;
  ASSERT_EQ(mkfifo((pipe.path + "/1.png").c_str(), 0600), 0);
  EXPECT_THROW(image_folder(pipe.path), DataError);
}

TEST(ImageFolder, LinksThatLeadNowhereButToThemselvesNeverHang) {
  const TemporaryFolder folder;
  folder.write("a/1.png", encode_png(patterned(2, 2, 1, 1)));
  std::filesystem::create_directory_symlink("two", folder.path + "/one");
  std::filesystem::create_directory_symlink("one", folder.path + "/two");
  EXPECT_EQ(names_of(*image_folder(folder.path)), std::vector<std::string>{"a/1.png"});
  std::filesystem::create_symlink("2.png", folder.path + "/a/2.png");
  EXPECT_NE(message_of<DataError>([&] { image_folder(folder.path); }).find("a/2.png"),
            std::string::npos);
}

TEST(ImageFolder, WhatIsNoFileMayBeListedAndIsRefusedWhenRead) {
  const TemporaryFolder folder;
  folder.write("a/1.png", encode_png(patterned(2, 2, 1, 1)));
  std::filesystem::create_symlink("2.png", folder.path + "/a/2.png");
  std::filesystem::create_symlink("nowhere", folder.path + "/a/3.png");
  ASSERT_EQ(mkfifo((folder.path + "/a/4.png").c_str(), 0600), 0);
  const DatastorePtr store = image_folder(folder.path, {.list_unreadable = true});
  ASSERT_EQ(store->size(), 4);
  EXPECT_EQ(read_image(*store, 0).height, 2);
  for (int64_t i = 1; i < 4; ++i) {
    EXPECT_NE(message_of<FileError>([&] { store->read(i); }).find(store->name(i)),
              std::string::npos);
    EXPECT_THROW(store->content_digest(i), FileError);
  }
}

TEST(ImageFolder, FoldersWithoutImagesAreRefusedUnlessAllowed) {
  const TemporaryFolder folder;
  const auto png = encode_png(patterned(2, 2, 1, 1));
  folder.write("cat/1.png", png);
  folder.write("group/dog/1.png", png);
  std::filesystem::create_directories(folder.path + "/.thumbnails/deep");
  EXPECT_EQ(image_folder(folder.path)->size(), 2);
  folder.write("group/eel/notes.txt", png);
  std::filesystem::create_directories(folder.path + "/fox/young");
  const std::string message = message_of<DataError>([&] { image_folder(folder.path); });
  EXPECT_NE(
      message.find(folder.path + "/fox holds no image, nor does " + folder.path + "/group/eel"),
      std::string::npos)
      << message;
  const DatastorePtr store = image_folder(folder.path, {.allow_empty_folders = true});
  EXPECT_EQ(store->classes(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(image_folder(folder.path + "/cat", {.recursive = false})->size(), 1);
}

TEST(ImageFolder, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  const std::string missing = folder.path + "/none";
  EXPECT_NE(message_of<FileError>([&] { image_folder(missing); }).find(missing), std::string::npos);
  folder.write("a/1.bmp", {});
  folder.write("a/2.bmp", {});
  folder.write("b/readme", {});
  const std::string message = message_of<DataError>([&] { image_folder(folder.path); });
  EXPECT_NE(message.find("2 folders and 3 other files (2 .bmp, 1 no extension)"), std::string::npos)
      << message;
  EXPECT_THROW(image_folder(folder.path + "/a/1.bmp"), FileError);
  EXPECT_THROW(image_folder(""), InvalidArgument);
}

TEST(ImageFolder, ErrorsOfOneFileNameItsPath) {
  const TemporaryFolder folder;
  folder.write("a/1.png", {});
  folder.write("a/2.png", {std::byte{1}});
  const DatastorePtr store = image_folder(folder.path);
  EXPECT_NE(message_of<DataError>([&] { store->read(1); }).find(folder.path + "/a/2.png"),
            std::string::npos);
  std::filesystem::remove(folder.path + "/a/1.png");
  EXPECT_NE(message_of<FileError>([&] { store->read(0); }).find(folder.path + "/a/1.png"),
            std::string::npos);
}

TEST(ImageFolder, ReadsTheSharedTestData) {
  const char* root = std::getenv("LOCKSTEP_TEST_DATA");
  TemporaryFolder drawn;
  std::string path;
  int64_t channels = 1;
  if (root != nullptr && *root != '\0') {
    path = std::string(root) + "/cifar10/test/cat";
    channels = 3;
  } else {
    std::cout << "LOCKSTEP_TEST_DATA is not set: built-in digits are used\n";
    std::vector<int64_t> some;
    for (int64_t i = 3000; i < 3100; ++i) some.push_back(i);
    export_as_folder(*subset(builtin_digits(), some), drawn.path);
    path = drawn.path + "/3";
  }
  const DatastorePtr store = image_folder(path);
  EXPECT_EQ(store->size(), channels == 3 ? 1000 : 100);
  EXPECT_EQ(store->classes(), std::vector<std::string>{channels == 3 ? "cat" : "3"});
  for (int64_t i = 0; i < store->size(); ++i) {
    const Image image = read_image(*store, i);
    ASSERT_EQ(image.channels, channels) << store->name(i);
    ASSERT_EQ(image.height, channels == 3 ? 32 : 28);
    ASSERT_EQ(image.width, image.height);
  }
}

}  // namespace
}  // namespace lockstep
