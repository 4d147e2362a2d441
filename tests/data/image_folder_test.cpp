// Image folders: order, labels, links, and errors for missing parts.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <iostream>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/encode.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::message_of;
using testing::names_of;
using testing::patterned;
using testing::TemporaryFolder;

std::string all_notices(const Datastore& store) {
  std::string text;
  for (const std::string& notice : store.notices()) text += notice + "\n";
  return text;
}

std::string label_name(const Datastore& store, int64_t index) {
  return store.classes()[static_cast<size_t>(store.label(index))];
}

TEST(ImageFolder, ListsByBytesAndLabelsByTheFirstFolder) {
  const TemporaryFolder folder;
  const auto png = encode_png(patterned(2, 2, 1, 1));
  for (const char* name : {"b/2.png", "b/10.png", "b/10.PNG", "a-x/1.jpeg", "a/1.JPG", "B/1.png",
                           "a/deep/z.png", "\xc3\xa4/1.png", "top.png"}) {
    folder.write(name, png);
  }
  folder.write("a/notes.txt", png);
  const DatastorePtr store = image_folder(folder.path + "/");
  // '-' sorts before '/', capitals before small letters, two-byte letters last.
  EXPECT_EQ(names_of(*store), (std::vector<std::string>{"B/1.png", "a-x/1.jpeg", "a/1.JPG",
                                                        "a/deep/z.png", "b/10.PNG", "b/10.png",
                                                        "b/2.png", "top.png", "\xc3\xa4/1.png"}));
  const std::string root = folder.path.substr(folder.path.rfind('/') + 1);
  EXPECT_EQ(store->classes(), (std::vector<std::string>{"B", "a", "a-x", "b", root, "\xc3\xa4"}));
  EXPECT_EQ(label_name(*store, 0), "B");
  EXPECT_EQ(label_name(*store, 1), "a-x");
  EXPECT_EQ(label_name(*store, 3), "a");
  EXPECT_EQ(label_name(*store, 7), root);
  EXPECT_EQ(count_each_label(*store), (std::vector<int64_t>{1, 2, 1, 3, 1, 1}));
  const std::string notices = all_notices(*store);
  EXPECT_NE(notices.find("1 image next to the folders of classes has the class `" + root),
            std::string::npos)
      << notices;
  EXPECT_EQ(read_image(*store, 2), patterned(2, 2, 1, 1));
  EXPECT_EQ(store->content_digest(2), digest_of(png.data(), png.size()));
  EXPECT_EQ(store->read(2).content, store->content_digest(2));
  EXPECT_THROW(store->read(9), InvalidArgument);
  EXPECT_THROW(store->label(-1), InvalidArgument);
}

TEST(ImageFolder, LabelsMayBeOtherFolders) {
  const TemporaryFolder folder;
  const auto png = encode_png(patterned(2, 2, 1, 1));
  for (const char* name : {"church/indoor/1.png", "flat/indoor/1.png", "flat/2.png"}) {
    folder.write(name, png);
  }
  const auto classes = [&](FolderLabels labels) {
    return image_folder(folder.path, {.labels = labels})->classes();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(image_folder(folder.path)->classes(), (Names{"church", "flat"}));
  EXPECT_EQ(classes(FolderLabels::first), (Names{"church", "flat"}));
  EXPECT_EQ(classes(FolderLabels::nearest), (Names{"flat", "indoor"}));
  EXPECT_EQ(classes(FolderLabels::path), (Names{"church/indoor", "flat", "flat/indoor"}));
  EXPECT_EQ(all_notices(*image_folder(folder.path)),
            folder.path +
                ": 2 images lie in folders below that of their class: church/indoor/1.png has the "
                "class `church` of the first folder, and would have `indoor` of the nearest one "
                "(labels = \"nearest\" in [data] of a job, --labels nearest of a command)\n");
  for (const ImageFolderOptions& silent :
       {ImageFolderOptions{.labels = FolderLabels::path}, ImageFolderOptions{.labeled = false}}) {
    EXPECT_EQ(all_notices(*image_folder(folder.path, silent)), "");
  }
  EXPECT_EQ(folder_labels("path"), FolderLabels::path);
  EXPECT_NE(message_of<InvalidArgument>([] { folder_labels("pat"); }).find("`pat`"),
            std::string::npos);
}

TEST(ImageFolder, HiddenFilesAndFoldersAreLeftOutAndCounted) {
  const TemporaryFolder parent;
  const auto png = encode_png(patterned(2, 2, 1, 1));
  const std::string root = parent.path + "/.hidden root";
  for (const char* name : {"cat/1.png", "cat/._1.png", "cat/.deep/2.png", "dog/1.png",
                           ".ipynb_checkpoints/1.png", ".DS_Store"}) {
    parent.write(".hidden root/" + std::string(name), png);
  }
  const DatastorePtr store = image_folder(root);
  EXPECT_EQ(names_of(*store), (std::vector<std::string>{"cat/1.png", "dog/1.png"}));
  EXPECT_EQ(store->classes(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(all_notices(*store), root + ": left out: 4 hidden names (such as .DS_Store)\n");
}

TEST(ImageFolder, FoldersOfPartsAreNotClasses) {
  const TemporaryFolder folder;
  const auto png = encode_png(patterned(2, 2, 1, 1));
  for (const char* name : {"Train/cat/1.png", "Train/dog/1.png", "val/cat/1.png"}) {
    folder.write(name, png);
  }
  try {
    image_folder(folder.path);
    FAIL() << "it was not refused";
  } catch (const DataError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("holds Train and val: parts of a data set"), std::string::npos)
        << message;
    EXPECT_NE(error.hint().find(folder.path + "/Train"), std::string::npos) << error.hint();
    EXPECT_NE(error.hint().find("nearest"), std::string::npos) << error.hint();
  }
  using Names = std::vector<std::string>;
  EXPECT_EQ(image_folder(folder.path, {.labels = FolderLabels::nearest})->classes(),
            (Names{"cat", "dog"}));
  EXPECT_EQ(image_folder(folder.path, {.labeled = false})->size(), 3);
  EXPECT_EQ(image_folder(folder.path + "/Train")->classes(), (Names{"cat", "dog"}));
  folder.write("bus/1.png", png);  // so they are classes
  EXPECT_EQ(image_folder(folder.path)->classes(), (Names{"Train", "bus", "val"}));
}

TEST(ImageFolder, ImagesBesideFilesOfClassesAreNotOneClass) {
  const TemporaryFolder folder;
  const auto png = encode_png(patterned(2, 2, 1, 1));
  for (const char* name : {"0001", "0002"}) {
    folder.write(std::string(name) + ".png", png);
    folder.write(std::string(name) + ".cls", {std::byte{'0'}});
  }
  const std::string message = message_of<DataError>([&] { image_folder(folder.path); });
  EXPECT_NE(
      message.find("all 2 images of " + folder.path + " would be one class, but there are 2 .cls"),
      std::string::npos)
      << message;
  EXPECT_EQ(image_folder(folder.path, {.labeled = false})->size(), 2);
  folder.write("dog/1.png", png);
  EXPECT_EQ(image_folder(folder.path)->classes().size(), 2U);
}

TEST(ImageFolder, FilesAreRecognizedByContentAndOthersAreNamed) {
  const TemporaryFolder folder;
  const auto png = encode_png(patterned(2, 2, 3, 1));
  const auto text = [&](const std::string& name, const std::string& contents) {
    const auto* begin = reinterpret_cast<const std::byte*>(contents.data());
    folder.write(name, {begin, begin + contents.size()});
  };
  for (const char* name : {"a/no extension", "a/x.jfif", "a/x.dat", "a/x.tif", "b/x.webp",
                           "b/x.BMP", "b/x.gif", "a/x.json"}) {
    folder.write(name, png);
  }
  text("a/y.tif", std::string("II*\0....", 8));
  text("a/y.tiff", std::string("MM\0*....", 8));
  text("b/photo", std::string("\0\0\0\x18"
                              "ftypheic",
                              12));
  text("b/list", "P5 text");
  text("b/readme.md", "text");
  ASSERT_EQ(mkfifo((folder.path + "/b/pipe").c_str(), 0600), 0);
  const DatastorePtr store = image_folder(folder.path);
  EXPECT_EQ(names_of(*store),
            (std::vector<std::string>{"a/no extension", "a/x.dat", "a/x.jfif", "a/x.tif", "b/x.BMP",
                                      "b/x.gif", "b/x.webp"}));
  for (int64_t i = 0; i < store->size(); ++i) EXPECT_EQ(read_image(*store, i).channels, 3);
  EXPECT_EQ(all_notices(*store),
            folder.path +
                ": left out: 1 HEIC image (such as b/photo), 2 TIFF images (such as a/y.tif), "
                "4 other files (1 .json, 1 .md, 2 no extension)\n");
  // A class whose images cannot be read is not forgotten.
  text("c/1.tif", std::string("II*\0....", 8));
  const std::string message = message_of<DataError>([&] { image_folder(folder.path); });
  EXPECT_NE(message.find("/c holds no image (left out: 1 HEIC image"), std::string::npos)
      << message;
}

TEST(ImageFolder, OrientationsAreCountedWhenImagesAreRead) {
  const TemporaryFolder folder;
  const std::string exif(
      "\xff\xe1\0\x22"
      "Exif\0\0MM\0*\0\0\0\x8\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0",
      36);
  std::vector<std::byte> jpeg = testing::encode_jpeg(patterned(8, 8, 3, 1));
  const auto* begin = reinterpret_cast<const std::byte*>(exif.data());
  folder.write("a/0.jpg", jpeg);
  jpeg.insert(jpeg.begin() + 2, begin, begin + exif.size());
  for (const char* name : {"a/1.jpg", "b/1.jpg"}) folder.write(name, jpeg);
  const DatastorePtr store = image_folder(folder.path);
  EXPECT_EQ(store->notices(), std::vector<std::string>{});
  for (const int64_t i : {2, 0, 1, 1}) store->read(i);
  const std::string notice = folder.path +
                             ": 2 images (such as a/1.jpg) have an EXIF orientation, which is "
                             "ignored: pixels are used as they are stored\n";
  EXPECT_EQ(all_notices(*store), notice);
  // Also through what wraps the listing.
  EXPECT_EQ(all_notices(*resized(subset(store, {1, 2}), 4, 4)), notice);
  EXPECT_EQ(all_notices(*combine({store, store})), notice);
}

TEST(ImageFolder, ImagesAreTurnedByTheirOrientationIfWanted) {
  const TemporaryFolder folder;
  const std::string exif(
      "\xff\xe1\0\x22"
      "Exif\0\0MM\0*\0\0\0\x8\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0",
      36);
  std::vector<std::byte> jpeg = testing::encode_jpeg(patterned(8, 5, 3, 1));
  const auto* begin = reinterpret_cast<const std::byte*>(exif.data());
  folder.write("a/0.jpg", jpeg);
  jpeg.insert(jpeg.begin() + 2, begin, begin + exif.size());
  folder.write("a/1.jpg", jpeg);
  const DatastorePtr stored = image_folder(folder.path);
  const DatastorePtr turned = image_folder(folder.path, {.upright = true});
  EXPECT_EQ(read_image(*turned, 0), read_image(*stored, 0));
  EXPECT_EQ(turned->content_digest(0), stored->content_digest(0));
  EXPECT_EQ(read_image(*turned, 1), upright(read_image(*stored, 1), 6));
  EXPECT_EQ(read_image(*turned, 1).height, 5);
  EXPECT_NE(turned->content_digest(1), stored->content_digest(1));
  for (const int64_t i : {0, 1}) {
    EXPECT_EQ(turned->read(i).content, turned->content_digest(i));
  }
  EXPECT_EQ(all_notices(*turned), "");
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

TEST(ImageFolder, WhatIsNotAFileMayBeListedAndIsRefusedWhenRead) {
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
  EXPECT_EQ(image_folder(folder.path)->size(), 2);  // eel is not a class
  std::filesystem::create_directories(folder.path + "/fox/young");
  EXPECT_NE(message_of<DataError>([&] {
              image_folder(folder.path);
            }).find(folder.path + "/fox holds no image"),
            std::string::npos);
  const std::string message =
      message_of<DataError>([&] { image_folder(folder.path, {.labels = FolderLabels::nearest}); });
  EXPECT_NE(
      message.find(folder.path + "/fox holds no image, nor does " + folder.path + "/group/eel"),
      std::string::npos)
      << message;
  const DatastorePtr store = image_folder(folder.path, {.allow_empty_folders = true});
  EXPECT_EQ(store->classes(), (std::vector<std::string>{"cat", "group"}));
  EXPECT_EQ(image_folder(folder.path + "/cat", {.recursive = false})->size(), 1);
}

TEST(ImageFolder, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  const std::string missing = folder.path + "/none";
  EXPECT_NE(message_of<FileError>([&] { image_folder(missing); }).find(missing), std::string::npos);
  folder.write("a/1.xyz", {});
  folder.write("a/2.xyz", {});
  folder.write("b/readme", {});
  const std::string message = message_of<DataError>([&] { image_folder(folder.path); });
  EXPECT_NE(message.find("2 folders and 3 other files (2 .xyz, 1 no extension)"), std::string::npos)
      << message;
  EXPECT_THROW(image_folder(folder.path + "/a/1.xyz"), FileError);
  EXPECT_THROW(image_folder(""), InvalidArgument);
  folder.write("b/1.csv", {});
  try {
    image_folder(folder.path);
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_NE(error.hint().find("sequence_input without a length"), std::string::npos);
  }
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
