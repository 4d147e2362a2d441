// One file for each sequence: CSV and NumPy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/sequences/numpy_file.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::expect_says;
using testing::message_of;
using testing::TemporaryFolder;

std::vector<std::byte> bytes_of_text(const std::string& text) {
  const auto* const first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

// An .npy file of version 1 with any header and elements.
std::vector<std::byte> npy(const std::string& type, const std::string& shape,
                           const std::string& elements,
                           const std::string& columns_first = "False") {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': " + columns_first + ", 'shape': " + shape + ", }";
  header.resize(118, ' ');
  return bytes_of_text("\x93NUMPY\x01" + std::string(1, '\0') + "v" + std::string(1, '\0') +
                       header + elements);
}

template <class T>
std::string raw_elements(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// numpy.savez(file, x=numpy.array([[7, -8, 9]], dtype=">i2")) of NumPy 1.24.2.
const char* const kNpz =
    "504b030414000000000000002100890fb259860000008600000005001400782e6e707901001000860000000000"
    "00008600000000000000934e554d5059010076007b276465736372273a20273e6932272c2027666f727472616e"
    "5f6f72646572273a2046616c73652c20277368617065273a2028312c2033292c207d2020202020202020202020"
    "202020202020202020202020202020202020202020202020202020202020202020202020202020202020202020"
    "20200a0007fff80009504b0102140314000000000000002100890fb25986000000860000000500000000000000"
    "00000000800100000000782e6e7079504b0506000000000100010033000000bd0000000000";

std::string numpy_refusal(const std::vector<std::byte>& bytes, const std::string& member = {}) {
  return message_of<DataError>([&] { read_numpy(bytes, "f.npy", member); });
}

TEST(NumpyFile, ReadsWhatNumpyWrites) {
  const Array array = read_numpy(from_hex(kNpz), "f.npz");
  EXPECT_EQ(array, (Array{{1, 3}, {7, -8, 9}}));
  EXPECT_EQ(read_numpy(from_hex(kNpz), "f.npz", "x"), array);
  expect_says(numpy_refusal(from_hex(kNpz), "y"),
              "has the arrays `x`, but an array `y` is expected");
}

TEST(NumpyFile, ReadsAllTypesOfNumbers) {
  const std::vector<float> expected{0, 1, -2, 100};
  const auto read = [&](const std::string& type, const std::string& elements) {
    const Array array = read_numpy(npy(type, "(4,)", elements), "f.npy");
    EXPECT_EQ(array.shape, Shape{4});
    return array.values;
  };
  EXPECT_EQ(read("<f8", raw_elements<double>({0, 1, -2, 100})), expected);
  EXPECT_EQ(read("<f4", raw_elements<float>({0, 1, -2, 100})), expected);
  EXPECT_EQ(read("|i1", raw_elements<int8_t>({0, 1, -2, 100})), expected);
  EXPECT_EQ(read("<i2", raw_elements<int16_t>({0, 1, -2, 100})), expected);
  EXPECT_EQ(read("<i4", raw_elements<int32_t>({0, 1, -2, 100})), expected);
  EXPECT_EQ(read("<i8", raw_elements<int64_t>({0, 1, -2, 100})), expected);
  EXPECT_EQ(read("<u8", raw_elements<uint64_t>({0, 1, 2, 3})), (std::vector<float>{0, 1, 2, 3}));
  EXPECT_EQ(read("|b1", raw_elements<uint8_t>({0, 1, 1, 0})), (std::vector<float>{0, 1, 1, 0}));
  // numpy.array([1.5, -2.25, 6e-8, 65504], dtype="<f2"); the third is subnormal.
  EXPECT_EQ(read("<f2", std::string("\x00\x3e\x80\xc0\x01\x00\xff\x7b", 8)),
            (std::vector<float>{1.5f, -2.25f, 0x1p-24f, 65504}));
  EXPECT_EQ(read(">f4", std::string("\x3f\x80\0\0\x40\0\0\0\xc0\x40\0\0\0\0\0\0", 16)),
            (std::vector<float>{1, 2, -3, 0}));
}

TEST(NumpyFile, ColumnsFirstAreTheSameArray) {
  const std::string by_columns = raw_elements<double>({1, 3, 5, 2, -4, 6.5});
  EXPECT_EQ(read_numpy(npy("<f8", "(3, 2)", by_columns, "True"), "f.npy"),
            (Array{{3, 2}, {1, 2, 3, -4, 5, 6.5}}));
  // 2 x 3 x 2, against the formula of the order.
  std::vector<float> stored(12);
  std::vector<float> expected;
  for (size_t i = 0; i < 2; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      for (size_t k = 0; k < 2; ++k) {
        const auto value = static_cast<float>(100 * i + 10 * j + k);
        stored[i + 2 * (j + 3 * k)] = value;
        expected.push_back(value);
      }
    }
  }
  EXPECT_EQ(read_numpy(npy("<f4", "(2, 3, 2)", raw_elements(stored), "True"), "f.npy").values,
            expected);
}

TEST(NumpyFile, WhatIsNotReadIsNamed) {
  expect_says(numpy_refusal({}), "[numpy] f.npy is empty");
  expect_says(numpy_refusal(bytes_of_text("1,2,3")), "is not an array of NumPy");
  expect_says(numpy_refusal(npy("<c8", "(1,)", raw_elements<double>({1}))),
              "elements of the type <c8");
  expect_says(numpy_refusal(npy("|O", "(1,)", raw_elements<double>({1}))),
              "elements of the type |O");
  expect_says(numpy_refusal(npy("<f8", "(2,)", raw_elements<double>({1}))),
              "has 8 bytes of elements, but its");
  expect_says(numpy_refusal(npy("<f8", "(1,)", raw_elements<double>({1, 2}))),
              "has 16 bytes of elements");
  expect_says(numpy_refusal(npy("<f8", "(-1,)", "")), "has no valid shape");
  expect_says(numpy_refusal(npy("<f8", "(9999999999, 9999999999, 99)", "")), "too many elements");
  expect_says(numpy_refusal(npy("<f8", "(2, 2)", raw_elements<double>({1, 2, std::nan(""), 4}))),
              "has NaN at [1, 0], which is not finite");
  expect_says(numpy_refusal(npy("<f8", "(1, 2)", raw_elements<double>({1, 1e39}))),
              "at [0, 1], which is out of the range of f32");
  const std::vector<std::byte> whole = npy("<f8", "(1,)", raw_elements<double>({1}));
  for (size_t kept = 1; kept < whole.size(); ++kept) {
    EXPECT_THROW(read_numpy(std::span(whole).first(kept), "f.npy"), DataError) << kept;
  }
}

// f32 has integers of 24 bits; others were rounded without a word.
TEST(NumpyFile, IntegersThatWouldBeRoundedAreRefused) {
  const auto refusal = [](const std::string& type, const std::string& elements) {
    return numpy_refusal(npy(type, "(2, 2)", elements));
  };
  expect_says(refusal("<i8", raw_elements<int64_t>({1, 2, 3, (1 << 24) + 1})),
              "[numpy] f.npy has 16777217 at [1, 1], which f32 cannot hold");
  expect_says(refusal("<i8", raw_elements<int64_t>({1, -(1 << 24) - 1, 3, 4})),
              "has -16777217 at [0, 1]");
  expect_says(refusal("<i8", raw_elements<int64_t>({1, 2, 1700000000123, 4})),
              "has 1700000000123 at [1, 0]");
  const auto most = std::numeric_limits<uint64_t>::max();
  expect_says(refusal("<u8", raw_elements<uint64_t>({most, 2, 3, 4})),
              "has 18446744073709551615 at [0, 0]");
  expect_says(refusal("<i8", raw_elements<int64_t>({1, 2, std::numeric_limits<int64_t>::max(), 4})),
              "has 9223372036854775807 at [1, 0]");
  expect_says(refusal("<i4", raw_elements<int32_t>({1, 2, 3, 33554435})), "has 33554435 at [1, 1]");
  expect_says(refusal("<u4", raw_elements<uint32_t>({4294967295u, 2, 3, 4})), "has 4294967295 at");
  expect_says(refusal(">i4", std::string("\0\0\0\1\1\0\0\1\0\0\0\1\0\0\0\1", 16)),
              "has 16777217 at [0, 1]");
  expect_says(
      numpy_refusal(npy("<i8", "(2, 2)", raw_elements<int64_t>({1, 16777217, 3, 4}), "True")),
      "has 16777217 at [1, 0]");
  // Those that f32 has, however large.
  const auto read = [](const std::string& type, const std::string& elements) {
    return read_numpy(npy(type, "(4,)", elements), "f.npy").values;
  };
  const auto least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(read("<i8", raw_elements<int64_t>({1 << 24, -(1 << 24), least, 0xFFFFFFll << 39})),
            (std::vector<float>{0x1p24f, -0x1p24f, -0x1p63f, 0xFFFFFFp39f}));
  EXPECT_EQ(
      read("<u8", raw_elements<uint64_t>({0, uint64_t{1} << 63, 0xFFFFFFull << 40, 16777218})),
      (std::vector<float>{0, 0x1p63f, 0xFFFFFFp40f, 16777218}));
  EXPECT_EQ(read("<u4", raw_elements<uint32_t>({0x80000000u, 0xFFFFFF00u, 7, 16777215})),
            (std::vector<float>{0x1p31f, 4294967040.0f, 7, 16777215}));
}

TEST(NumpyFile, DamagedArchivesAreRefused) {
  const std::vector<std::byte> whole = from_hex(kNpz);
  for (size_t kept = 1; kept < whole.size(); ++kept) {
    EXPECT_THROW(read_numpy(std::span(whole).first(kept), "f.npz"), DataError) << kept;
  }
  std::vector<std::byte> other = whole;
  other[0xbc] ^= std::byte{1};  // an element
  expect_says(numpy_refusal(other), "`x.npy` has another checksum");
  other = whole;
  other[0xbd + 10] = std::byte{8};  // deflated
  expect_says(numpy_refusal(other), "is compressed, which is not read");
}

TEST(SequenceFolder, ReadsCsvAndNumpyAlike) {
  const TemporaryFolder folder;
  folder.write("b/1.csv", bytes_of_text("x,y\n1,2\n3,-4\n5,6.5\n"));
  folder.write("b/2.npy", npy("<f8", "(3, 2)", raw_elements<double>({1, 2, 3, -4, 5, 6.5})));
  folder.write("a/one.TSV", bytes_of_text("x\ty\n0\t0.5\n"));
  folder.write("a/notes.txt", bytes_of_text("hello"));
  folder.write("a/.hidden.csv", bytes_of_text("hello"));
  const DatastorePtr store = sequence_folder(folder.path);
  EXPECT_EQ(testing::names_of(*store),
            (std::vector<std::string>{"a/one.TSV", "b/1.csv", "b/2.npy"}));
  EXPECT_EQ(store->classes(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(store->label(0), 0);
  EXPECT_EQ(store->label(2), 1);
  const ValueSpec spec = store->spec().inputs.at(0);
  EXPECT_TRUE(spec.sequence);
  EXPECT_EQ(spec.shape, Shape{2});
  EXPECT_EQ(spec.columns, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(std::get<Array>(store->read(0).inputs.at(0)), (Array{{1, 2}, {0, 0.5f}}));
  EXPECT_EQ(store->read(1).inputs, store->read(2).inputs);
  EXPECT_EQ(store->content_digest(1), store->content_digest(2));
  EXPECT_NE(store->content_digest(0), store->content_digest(1));
  EXPECT_EQ(store->steps(1), 3);
}

TEST(SequenceFolder, NamesOfColumnsAreThoseOfTables) {
  const TemporaryFolder folder;
  folder.write("a/1.npy", npy("<f4", "(1, 2)", raw_elements<float>({1, 2})));
  folder.write("a/2.csv", bytes_of_text("x,y\n1,2\n"));
  EXPECT_EQ(sequence_folder(folder.path)->spec().inputs.at(0).columns,
            (std::vector<std::string>{"x", "y"}));
  folder.write("a/3.csv", bytes_of_text("y,x\n1,2\n"));
  expect_says(message_of<DataError>([&] { sequence_folder(folder.path); }), "a/3.csv has the col");
}

TEST(SequenceFolder, BadFilesAreNamed) {
  const TemporaryFolder folder;
  folder.write("a/1.csv", bytes_of_text("x,y\n1,2\n"));
  const auto refusal = [&](const std::string& name, const std::vector<std::byte>& bytes) {
    folder.write(name, bytes);
    const std::string message = message_of<DataError>([&] { sequence_folder(folder.path); });
    std::filesystem::remove(folder.path + "/" + name);
    expect_says(message, folder.path + "/" + name);
    return message;
  };
  EXPECT_THROW(sequence_folder(folder.path + "/nothing"), FileError);
  expect_says(refusal("b/2.csv", bytes_of_text("x,y\n1,2\n3,nan\n")), "line 3, column 2 (y)");
  expect_says(refusal("b/2.csv", bytes_of_text("x,y\n1,2\n3\n")), "line 3 has 1 column, but");
  expect_says(refusal("b/2.csv", bytes_of_text("x,y\n1,\n")), "a number is missing");
  // Also later ones, and without names.
  expect_says(refusal("b/2.csv", bytes_of_text("1,2\n3,4\n,6\n")), "line 3, column 1");
  expect_says(refusal("b/2.csv", bytes_of_text("1,2\n3,4\n5,NaN\n")), "line 3, column 2");
  expect_says(refusal("b/2.csv", bytes_of_text("1,2\n3,-inf\n")), "line 2, column 2");
  expect_says(refusal("b/2.csv", bytes_of_text("1,2\n3,4\n5,NA\n")), "line 3, column 2");
  expect_says(refusal("b/2.csv", bytes_of_text("1,2\n3,4\nx,y\n5,6\n")), "line 3, column 1");
  expect_says(refusal("b/2.csv", bytes_of_text("1,2\n3,1e39\n")), "line 2, column 2");
  expect_says(refusal("b/2.tsv", bytes_of_text("x\ty\n1\t2\n3\t \n")), "line 3, column 2 (y)");
  expect_says(refusal("b/2.csv", bytes_of_text("1,2,3\n4,5,6\n")),
              "has steps of 3, but those of a/1.csv are of 2");
  expect_says(refusal("b/2.npy", npy("<f4", "(0, 2)", "")), "so no steps or no channels");
  expect_says(refusal("b/2.npy", npy("<f4", "()", raw_elements<float>({1}))), "is a single number");
  expect_says(refusal("b/2.npy", npy("<f4", "(2,)", raw_elements<float>({1, 2}))),
              "has steps of 1");
  expect_says(refusal("b/2.csv", bytes_of_text("x,y\n1,2\n\n3,4\n")), "line 3 is empty");
}

// A step that is missing would move all later ones; in one column it is a blank line, or looks like
// the name of the column.
TEST(SequenceFolder, StepsThatAreMissingAreRefused) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& text) {
    folder.write("a/1.csv", bytes_of_text(text));
    return message_of<DataError>([&] { sequence_folder(folder.path); });
  };
  expect_says(refusal("1\n2\n\n4\n"), "a/1.csv line 3 is empty");
  expect_says(refusal("1\r\n\r\n4\r\n"), "a/1.csv line 2 is empty");
  for (const char* const first : {"NA", "inf", "-nan", "#N/A", "1e999", "0x1", "\"1,000\""}) {
    expect_says(refusal(std::string(first) + "\n2\n3\n"), "a/1.csv has `");
  }
  expect_says(refusal("\"null\",NA\n2,1\n3,1\n"), "a/1.csv has `null`");
  for (const char* const good : {"1\n2\n4\n", "\n1\n2\n4\n\n\n", "x\n1\n2\n4\n", "x\n\n1\n2\n4"}) {
    folder.write("a/1.csv", bytes_of_text(good));
    EXPECT_EQ(sequence_folder(folder.path)->steps(0, 0), 3) << good;
  }
}

// pandas names columns 0, 1, ...: that line became a step.
TEST(SequenceFolder, NumbersThatMayBeNamesAreRefused) {
  const TemporaryFolder folder;
  folder.write("a/1.csv", bytes_of_text("0,1,2\n5,6,7\n"));
  expect_says(message_of<DataError>([&] { sequence_folder(folder.path); }),
              "a/1.csv begins with the numbers 0 to 2");
  EXPECT_THROW(sequence_files({folder.path + "/a/1.csv"}), DataError);
  EXPECT_EQ(sequence_folder(folder.path, {.header = false})->steps(0), 2);
  EXPECT_EQ(sequence_files({folder.path}, {.header = false})->steps(0), 2);
  for (const char* const good : {"0\n1\n", "0,2\n1,1\n", "x,y\n0,1\n1,1\n", "1,0\n0,1\n"}) {
    folder.write("a/1.csv", bytes_of_text(good));
    EXPECT_EQ(sequence_folder(folder.path)->steps(0), 2) << good;
  }
  // Without names there is no name.
  folder.write("a/1.csv", bytes_of_text("x,y\n0,1\n"));
  expect_says(message_of<DataError>([&] { sequence_folder(folder.path, {.header = false}); }),
              "a/1.csv line 1");
}

// What is not read is said; deeper folders belong to the class above them.
TEST(SequenceFolder, NothingIsLeftOutSilently) {
  const TemporaryFolder folder;
  folder.write("a/1.csv", bytes_of_text(",x\n0,1\n1,2\n"));
  folder.write("a/old/2.csv", bytes_of_text(",x\n0,3\n"));
  folder.write("a/old/older/3.csv", bytes_of_text(",x\n0,3\n"));
  folder.write("a/old/.hidden/4.csv", bytes_of_text("q"));
  folder.write("a/old/notes.txt", bytes_of_text("q"));
  folder.write("b/1.csv", bytes_of_text(",x\n0,3\n"));
  const DatastorePtr labeled = sequence_folder(folder.path);
  EXPECT_EQ(testing::names_of(*labeled),
            (std::vector<std::string>{"a/1.csv", "a/old/2.csv", "a/old/older/3.csv", "b/1.csv"}));
  EXPECT_EQ(labeled->label(2), 0);
  for (const DatastorePtr& store : {labeled, sequence_files({folder.path})}) {
    EXPECT_EQ(store->size(), 4);
    EXPECT_EQ(store->spec().inputs.at(0).shape, Shape{1});
    const std::vector<std::string> notices = store->notices();
    ASSERT_EQ(notices.size(), 2u);
    EXPECT_EQ(notices[0], "1 file of " + folder.path + " is left out: .txt");
    expect_says(notices[1], "in 4 files: its first column has no name");
  }
  std::filesystem::create_directory_symlink(folder.path + "/a", folder.path + "/a/old/again");
  expect_says(message_of<DataError>([&] { sequence_folder(folder.path); }), "more than 32 folders");
  const TemporaryFolder parts;
  parts.write("train/1.csv", bytes_of_text("1\n"));
  parts.write("Test/1.csv", bytes_of_text("1\n"));
  expect_says(message_of<DataError>([&] { sequence_folder(parts.path); }),
              "holds Test and train: parts of a data set, not classes");
}

// They were read as CSV.
TEST(SequenceFolder, FilesOfOtherKindsAreNotSequences) {
  const TemporaryFolder folder;
  folder.write("notes.txt", bytes_of_text("1,2\n3,4\n"));
  folder.write("1.csv", bytes_of_text("1,2\n3,4\n"));
  expect_says(message_of<DataError>([&] {
                sequence_files({folder.path + "/1.csv", folder.path + "/notes.txt"});
              }),
              "/notes.txt is not a sequence");
  EXPECT_THROW(sequence_files({folder.path + "/missing.txt"}), FileError);
  EXPECT_EQ(sequence_files({folder.path + "/1.csv"})->steps(0), 2);
}

TEST(SequenceFolder, ReadsTheSharedTestData) {
  const char* const root = std::getenv("LOCKSTEP_TEST_DATA");
  const std::string path = root == nullptr ? "" : std::string(root) + "/japanese_vowels/train";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no Japanese vowels in LOCKSTEP_TEST_DATA";
  const DatastorePtr store = sequence_folder(path);
  EXPECT_EQ(store->size(), 270);
  EXPECT_EQ(store->classes().size(), 9u);
  EXPECT_EQ(store->spec().inputs.at(0).shape, Shape{12});
  int64_t least = 1000, most = 0;
  for (int64_t i = 0; i < store->size(); ++i) {
    const int64_t steps = store->steps(i).value_or(0);
    least = std::min(least, steps);
    most = std::max(most, steps);
  }
  EXPECT_EQ(least, 7);
  EXPECT_EQ(most, 26);
}

}  // namespace
}  // namespace lockstep
