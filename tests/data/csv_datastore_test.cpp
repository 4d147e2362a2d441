// Feature vectors from CSV files, and errors for invalid files.
#include <gtest/gtest.h>

#include <limits>

#include "lockstep/base/os/file.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/data/batches/example_cache.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::TemporaryFolder;

class CsvDatastore : public ::testing::Test {
 protected:
  DatastorePtr open(const std::string& text, const CsvOptions& options = {}) {
    const auto bytes = std::as_bytes(std::span(text));
    folder_.write("t.csv", {bytes.begin(), bytes.end()});
    return csv_datastore(path(), options);
  }
  std::string path() const { return folder_.path + "/t.csv"; }
  // The message behind the file's name.
  std::string refusal(const std::string& text, const CsvOptions& options = {}) {
    const std::string message = testing::message_of<DataError>([&] { open(text, options); });
    const size_t at = message.find(path());
    return at == std::string::npos ? message : message.substr(at + path().size());
  }
  static std::vector<float> row(const Datastore& store, int64_t index) {
    return read_array(store, index).values;
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(CsvDatastore, ReadsNumbersAndLabels) {
  const DatastorePtr store =
      open("width,height,kind\n1,2.5,zebra\n\n -3e-1 ,+4,ant\n0,1e-60,\"a \"\"b\"\", c\"\n");
  ASSERT_EQ(store->size(), 3);
  EXPECT_EQ(store->spec().inputs[0].shape, Shape({2}));
  EXPECT_EQ(store->classes(), (std::vector<std::string>{"a \"b\", c", "ant", "zebra"}));
  EXPECT_EQ(row(*store, 0), (std::vector<float>{1, 2.5f}));
  EXPECT_EQ(row(*store, 1), (std::vector<float>{-0.3f, 4}));
  EXPECT_EQ(row(*store, 2), (std::vector<float>{0, 0}));  // nearest in f32
  EXPECT_EQ(store->label(0), 2);
  EXPECT_EQ(store->name(1), "line 4");
  EXPECT_EQ(store->describe(), "file " + path());
}

TEST_F(CsvDatastore, TheLabelsColumnMayBeNamedOrMissing) {
  const DatastorePtr first = open("kind,x\na,1\nb,2\n", {.label_column = "kind"});
  EXPECT_EQ(row(*first, 1), (std::vector<float>{2}));
  EXPECT_EQ(first->classes(), (std::vector<std::string>{"a", "b"}));
  const DatastorePtr none = open("x,y\n1,2\n", {.labelled = false});
  EXPECT_EQ(none->spec().inputs[0].shape, Shape({2}));
  EXPECT_EQ(none->classes(), (std::vector<std::string>{""}));
}

TEST_F(CsvDatastore, EndsOfLinesAndAByteOrderMarkDoNotMatter) {
  ThreadPool pool(1);
  const Digest plain = listing_digest(*open("x,kind\n1,a\n2,b\n"), pool);
  EXPECT_EQ(listing_digest(*open("\xEF\xBB\xBFx,kind\r\n1,a\r\n2,b"), pool), plain);
  EXPECT_NE(listing_digest(*open("x,kind\n1,a\n3,b\n"), pool), plain);
}

TEST_F(CsvDatastore, MistakesAreNamedWithLineAndColumn) {
  EXPECT_EQ(refusal(""), " is empty");
  EXPECT_EQ(refusal("\r\n \n"), " is empty");
  EXPECT_EQ(refusal("x,kind\n"), " names columns, but has no rows");
  EXPECT_EQ(refusal("x,y,kind\n1,2,a\n1,a\n"), " line 3 has 2 columns, but the first line names 3");
  EXPECT_EQ(refusal("x,kind\n1,a,\n"), " line 2 has 3 columns, but the first line names 2");
  EXPECT_EQ(refusal("x,y,kind\n1,wide,a\n"), " line 2, column 2 (y): `wide` is not a number");
  EXPECT_EQ(refusal("x,y,kind\n1,2 3,a\n"), " line 2, column 2 (y): `2 3` is not a number");
  EXPECT_EQ(refusal("x,y,kind\n1,+-2,a\n"), " line 2, column 2 (y): `+-2` is not a number");
  EXPECT_EQ(refusal("x,y,kind\n\n1,,a\n"), " line 3, column 2 (y): a number is missing");
  EXPECT_EQ(refusal("x,kind\nnan,a\n"), " line 2, column 1 (x): `nan` is not finite");
  EXPECT_EQ(refusal("x,kind\n-inf,a\n"), " line 2, column 1 (x): `-inf` is not finite");
  for (const char* huge : {"1e39", "-1e39", "1e999", "3.4028236e38", "3.4028235677973367e38"}) {
    EXPECT_EQ(refusal("x,kind\n" + std::string(huge) + ",a\n"),
              " line 2, column 1 (x): `" + std::string(huge) + "` is out of the range of f32");
  }
  EXPECT_EQ(refusal("x,kind\n" + std::string(100000, 'z') + ",a\n"),
            " line 2, column 1 (x): `" + std::string(40, 'z') + "...` is not a number");
  EXPECT_EQ(refusal("x,kind\n1,\n"), " line 2, column 2 (kind): the label is missing");
  EXPECT_EQ(refusal("x,kind\n1,\"a\n"), " line 2, column 2: a quote is not closed");
  EXPECT_EQ(refusal("x,kind\n1,\"a\"b\n"), " line 2, column 2: `b` behind a closing quote");
  EXPECT_EQ(refusal("x,x\n1,a\n"), " line 1: two columns have the same name");
  EXPECT_EQ(refusal("1,2\n3,4\n"), " line 1: numbers instead of the names of columns");
  EXPECT_EQ(refusal("kind\na\n"), " line 1: there is one column, so labels without features");
  EXPECT_EQ(refusal("x,kind\n1,a\n", {.label_column = "kin"}), " line 1: there is no column `kin`");
  EXPECT_THROW(csv_datastore(path() + ".not"), FileError);
}

// As tools print the largest float, with 8 digits: more than its value, which is the nearest float.
TEST_F(CsvDatastore, TheLargestFloatIsAFloat) {
  const DatastorePtr store =
      open("x,y,z,kind\n3.4028235e38,-3.4028235E+38,3.4028234663852886e38,a\n");
  constexpr float most = std::numeric_limits<float>::max();
  EXPECT_EQ(read_array(*store, 0).values, (std::vector<float>{most, -most, most}));
}

TEST_F(CsvDatastore, LargeFilesAreRead) {
  std::string text = "a,b,kind\n";
  for (int i = 0; i < 100000; ++i) {
    text += std::to_string(i) + "," + std::to_string(-i) + ",c" + std::to_string(i % 10) + "\n";
  }
  const DatastorePtr store = open(text);
  ASSERT_EQ(store->size(), 100000);
  EXPECT_EQ(store->classes().size(), 10u);
  EXPECT_EQ(row(*store, 99999), (std::vector<float>{99999, -99999}));
}

}  // namespace
}  // namespace lockstep
