// Feature vectors from CSV files, and errors for invalid files.
#include <gtest/gtest.h>

#include <cmath>
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
  const DatastorePtr ends = open("x,kind\n1e-400,a\n-1e-99999999999,a\n3.4028235e38,a\n");
  EXPECT_EQ(row(*ends, 0), (std::vector<float>{0}));
  EXPECT_TRUE(std::signbit(row(*ends, 1)[0]));
  EXPECT_EQ(row(*ends, 2), (std::vector<float>{std::numeric_limits<float>::max()}));
  EXPECT_EQ(store->label(0), 2);
  EXPECT_EQ(store->name(1), "line 4");
  EXPECT_EQ(store->describe(), "file " + path());
}

TEST_F(CsvDatastore, WholeNumbersThatAreRoundedAreTold) {
  const std::string rest = ", because values are fp32: subtract an offset if differences matter";
  const std::string text =
      "a,b,y\n1700000001,16777216,2000000001\n-1700000128,16777217.0,2000000000\n1e20,0.1,"
      "-2000000003\n";
  EXPECT_EQ(open(text, {.target_columns = {"y"}})->notices(),
            (std::vector<std::string>{
                "file " + path() +
                    ", column `a`: 1 whole number, such as `1700000001`, is rounded, "
                    "here to 1700000000" +
                    rest,
                "file " + path() +
                    ", column `b`: 1 whole number, such as `16777217.0`, is rounded, "
                    "here to 16777216" +
                    rest,
                "file " + path() +
                    ", column `y`: 2 whole numbers, such as `2000000001`, are "
                    "rounded, here to 2000000000" +
                    rest}));
  EXPECT_TRUE(open(text, {.target_columns = {"y"}, .note_rounded = false})->notices().empty());
  // Labels are not numbers.
  EXPECT_TRUE(open("x,kind\n1,2000000001\n2,2000000003\n")->notices().empty());
  EXPECT_EQ(open("x,kind\n9007199254740993,a\n9007199254740992,a\n")->notices().size(), 1u);
}

TEST_F(CsvDatastore, ColumnsInAnotherOrderHaveTheSameDigestsWithTargets) {
  const DatastorePtr first = open("a,b,y\n1,2,3\n4,5,6\n", {.target_columns = {"y"}});
  const std::vector<std::string> columns = first->spec().inputs[0].columns;
  const DatastorePtr turned =
      open("b,y,a\n2,3,1\n5,6,4\n", {.known_columns = columns, .target_columns = {"y"}});
  EXPECT_EQ(turned->spec().inputs[0].columns, columns);
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(row(*turned, i), row(*first, i));
    EXPECT_EQ(turned->content_digest(i), first->content_digest(i));
  }
  EXPECT_EQ(turned->notices(),
            (std::vector<std::string>{"file " + path() +
                                      " has its columns in a different order "
                                      "than the training data: they are matched by name"}));
  EXPECT_TRUE(first->notices().empty());
}

TEST_F(CsvDatastore, TheLabelsColumnMayBeNamedOrMissing) {
  const DatastorePtr first = open("kind,x\na,1\nb,2\n", {.label_column = "kind"});
  EXPECT_EQ(row(*first, 1), (std::vector<float>{2}));
  EXPECT_EQ(first->classes(), (std::vector<std::string>{"a", "b"}));
  const DatastorePtr none = open("x,y\n1,2\n", {.labeled = false});
  EXPECT_EQ(none->spec().inputs[0].shape, Shape({2}));
  EXPECT_EQ(none->classes(), (std::vector<std::string>{""}));
}

TEST_F(CsvDatastore, EndsOfLinesAndAByteOrderMarkDoNotMatter) {
  ThreadPool pool(1);
  const Digest plain = listing_digest(*open("x,kind\n1,a\n2,b\n"), pool);
  EXPECT_EQ(listing_digest(*open("\xEF\xBB\xBFx,kind\r\n1,a\r\n2,b"), pool), plain);
  EXPECT_NE(listing_digest(*open("x,kind\n1,a\n3,b\n"), pool), plain);
}

// tables_test.py compares random tables with Python's csv module.
TEST_F(CsvDatastore, OtherProgramsTablesAreRead) {
  ThreadPool pool(1);
  const Digest plain = listing_digest(*open("x,y,kind\n1,2,a\n3,4,b\n"), pool);
  const std::string wide[] = {"x;y;kind\n1;2;a\n3;4;b\n",
                              "x\ty\tkind\r1\t2\ta\r3\t4\tb\r",
                              "sep=;\nx;y;kind\n1;2;a\n3;4;b\n",
                              "\"x\",\"y\",\"kind\"\n\"1\",\"2\",\"a\"\n\"3\",\"4\",\"b\"\n",
                              ",x,y,kind\n0,1,2,a\nname,3,4,b\n",
                              "x,y,kind\n\xC2\xA0"
                              "1\xE2\x80\xAF,2,a\xC2\xA0\n3,4,b\n"};
  for (const std::string& text : wide) {
    const DatastorePtr store = open(text);
    EXPECT_EQ(store->spec().inputs[0].columns, (std::vector<std::string>{"x", "y"})) << text;
    EXPECT_EQ(store->spec().label_column, "kind");
    EXPECT_EQ(store->notices().size(), text.starts_with(',') ? 1u : 0u);
    for (int64_t i = 0; i < 2; ++i) {
      const auto first = static_cast<float>(2 * i + 1);
      EXPECT_EQ(row(*store, i), (std::vector<float>{first, first + 1}));
    }
    EXPECT_EQ(store->classes(), (std::vector<std::string>{"a", "b"}));
  }
  for (const bool little : {true, false}) {
    std::string text(little ? "\xFF\xFE" : "\xFE\xFF");
    for (const char c : std::string("x,y,kind\n1,2,a\n3,4,b\n")) {
      text += little ? std::string{c, '\0'} : std::string{'\0', c};
    }
    EXPECT_EQ(listing_digest(*open(text), pool), plain);
  }
  const DatastorePtr bare = open("1,2,a\n3,4,b\n", {.header = false});
  EXPECT_TRUE(bare->spec().inputs[0].columns.empty());
  EXPECT_EQ(row(*bare, 1), (std::vector<float>{3, 4}));
  EXPECT_EQ(bare->name(0), "line 1");
}

TEST_F(CsvDatastore, DecimalCommasAreReadBetweenSemicolonsAndTabs) {
  for (const char* const text :
       {"x;y;kind\n1,5;2;a\n-0,25e1;1,234;b\n", "x\ty\tkind\n1,5\t2\ta\n-,25e1\t1,234\tb\n",
        "sep=;\nx;y;kind\n+1,5;2;a\n-2,5;1,234;b\n"}) {
    const DatastorePtr store = open(text);
    EXPECT_EQ(row(*store, 0), (std::vector<float>{1.5f, 2})) << text;
    EXPECT_EQ(row(*store, 1)[1], 1.234f) << text;
  }
  // Names of columns do not turn into a row, nor a row into names.
  EXPECT_NE(refusal("1,5;2,5;3,5\n3,5;4,5;5,5\n", {.labeled = false}).find("instead of the names"),
            std::string::npos);
  const DatastorePtr bare = open("1,5;2,5;a\n3,5;4,5;b\n", {.header = false});
  EXPECT_EQ(row(*bare, 1), (std::vector<float>{3.5f, 4.5f}));
  // Commas in the names do not make them separators.
  EXPECT_EQ(row(*open("x, cm;y, cm;kind\n1,5;2,5;a\n"), 0), (std::vector<float>{1.5f, 2.5f}));
  EXPECT_EQ(row(*open("x,kind;y\n1,a;b\n"), 0), (std::vector<float>{1}));
}

TEST_F(CsvDatastore, NumbersWithSeveralMeaningsAreRefused) {
  EXPECT_EQ(refusal("x;y;kind\n1,5;2;a\n1;2.5;b\n"),
            " line 3, column 2 (y): `2.5` has another decimal sign than line 2, column 1 (x): "
            "`1,5`");
  EXPECT_EQ(refusal("x;kind\n1.500;a\n2,5;b\n"),
            " line 3, column 1 (x): `2,5` has another decimal sign than line 2, column 1 (x): "
            "`1.500`");
  EXPECT_EQ(refusal("x;kind\n7;a\n1,234;b\n-12,500;b\n"),
            " line 3, column 1 (x): `1,234` may be a whole number, or have a decimal comma, and so "
            "may all numbers with commas in the table");
  for (const char* const surely : {"0,234", "1,2345", "1234,567", "1,23"}) {
    EXPECT_EQ(open("x;kind\n1,234;a\n" + std::string(surely) + ";b\n")->size(), 2) << surely;
  }
  for (const char* const none : {"1.234,5", "1,234.5", "1,234,567", ",", "1 234,5"}) {
    EXPECT_EQ(refusal("x;kind\n" + std::string(none) + ";a\n"),
              " line 2, column 1 (x): `" + std::string(none) + "` is not a number");
  }
  // Between commas, and where it is not known what separates.
  EXPECT_EQ(refusal("x,kind\n\"1,5\",a\n"), " line 2, column 1 (x): `1,5` is not a number");
  EXPECT_EQ(refusal("\n1,5;a\n2,5;b\n", {.header = false}),
            " line 3: commas may separate fields, or be decimal commas between semicolons");
  EXPECT_EQ(row(*open("sep=;\n1,5;a\n2,5;b\n", {.header = false}), 0), (std::vector<float>{1.5f}));
}

TEST_F(CsvDatastore, TheColumnsOfATrainingAreKnown) {
  const std::string text = "kind,x\na,1\nb,2\n";
  EXPECT_EQ(open(text, {.known_label = "kind"})->classes(), (std::vector<std::string>{"a", "b"}));
  const DatastorePtr features = open(text, {.labeled = false, .known_label = "kind"});
  EXPECT_EQ(row(*features, 1), (std::vector<float>{2}));
  EXPECT_EQ(features->notices().size(), 1u);
  EXPECT_EQ(open("x,sort\n1,a\n", {.known_label = "kind"})->notices().size(), 1u);
  EXPECT_EQ(refusal("x,kind\n1,a\n", {.label_column = "sort", .known_label = "kind"}),
            " line 1: there is no column `sort`");
  EXPECT_EQ(refusal("400,410\n1,2\n", {.labeled = false}),
            " line 1: numbers instead of the names of columns");
  const DatastorePtr spectrum =
      open("410,400\n1,2\n", {.labeled = false, .known_columns = {"400", "410"}});
  EXPECT_EQ(spectrum->spec().inputs[0].columns, (std::vector<std::string>{"410", "400"}));
}

TEST_F(CsvDatastore, ElementsAreReordered) {
  const DatastorePtr store = open("x,y,z,kind\n1,2,3,a\n4,5,6,b\n");
  const DatastorePtr turned = reorder(store, 0, {2, 0, 1}, "turned");
  EXPECT_EQ(turned->spec().inputs[0].columns, (std::vector<std::string>{"z", "x", "y"}));
  EXPECT_EQ(row(*turned, 1), (std::vector<float>{6, 4, 5}));
  EXPECT_EQ(turned->notices(), (std::vector<std::string>{"turned"}));
  ThreadPool pool(1);
  EXPECT_EQ(listing_digest(*turned, pool),
            listing_digest(*open("z,x,y,kind\n3,1,2,a\n6,4,5,b\n"), pool));
  EXPECT_EQ(turned->read(0).content, turned->content_digest(0));
  for (const std::vector<size_t>& wrong :
       {std::vector<size_t>{0, 1}, {0, 1, 1}, {0, 1, 3}, {0, 1, 2, 3}}) {
    EXPECT_THROW(reorder(store, 0, wrong), InvalidArgument);
  }
  EXPECT_THROW(reorder(store, 1, {0, 1, 2}), InvalidArgument);  // there is no target
  EXPECT_THROW(reorder(builtin_digits(), 0, {0}), InvalidArgument);
  // Of several inputs and of targets.
  const DatastorePtr both =
      with_targets(combine({store, open("u,v,kind\n7,8,a\n9,10,b\n")}), store);
  const DatastorePtr second = reorder(both, 1, {1, 0});
  EXPECT_EQ(std::get<Array>(second->read(1).inputs[1]).values, (std::vector<float>{10, 9}));
  EXPECT_EQ(std::get<Array>(second->read(1).inputs[0]).values, (std::vector<float>{4, 5, 6}));
  const DatastorePtr target = reorder(both, 2, {1, 2, 0});
  EXPECT_EQ(std::get<Array>(target->read(1).target).values, (std::vector<float>{5, 6, 4}));
  EXPECT_EQ(target->read(1).content, target->content_digest(1));
  EXPECT_NE(target->content_digest(1), second->content_digest(1));
}

TEST_F(CsvDatastore, MistakesAreNamedWithLineAndColumn) {
  EXPECT_EQ(refusal(""), " is empty");
  EXPECT_EQ(refusal("\r\n \n"), " is empty");
  EXPECT_EQ(refusal("x,kind\n"), " names columns, but has no rows");
  EXPECT_EQ(refusal("x,y,kind\n1,2,a\n1,a\n"), " line 3 has 2 columns, but the first line names 3");
  EXPECT_EQ(refusal("x,y,kind\n1\n"), " line 2 has 1 column, but the first line names 3");
  EXPECT_EQ(refusal("x,kind\n1,a,\n"), " line 2 has 3 columns, but the first line names 2");
  EXPECT_EQ(refusal("x,y,kind\n1,wide,a\n"), " line 2, column 2 (y): `wide` is not a number");
  EXPECT_EQ(refusal("x,y,kind\n1,2 3,a\n"), " line 2, column 2 (y): `2 3` is not a number");
  EXPECT_EQ(refusal("x,y,kind\n1,+-2,a\n"), " line 2, column 2 (y): `+-2` is not a number");
  EXPECT_EQ(refusal("x,y,kind\n\n1,,a\n"), " line 3, column 2 (y): a number is missing");
  EXPECT_EQ(refusal("x,kind\nnan,a\n"), " line 2, column 1 (x): `nan` is not finite");
  EXPECT_EQ(refusal("x,kind\n-inf,a\n"), " line 2, column 1 (x): `-inf` is not finite");
  for (const char* huge :
       {"1e39", "-1e39", "1e999", "-1e9999999999", "3.4028236e38", "3.4028235677973367e38"}) {
    EXPECT_EQ(refusal("x,kind\n" + std::string(huge) + ",a\n"),
              " line 2, column 1 (x): `" + std::string(huge) + "` is out of the range of f32");
  }
  EXPECT_EQ(refusal("x,kind\n" + std::string(100000, 'z') + ",a\n"),
            " line 2, column 1 (x): `" + std::string(40, 'z') + "...` is not a number");
  EXPECT_EQ(refusal("x,kind\n1,\n"), " line 2, column 2 (kind): the label is missing");
  for (const std::string word : {"NA", "\"NaN\"", "null", "?", "#N/A"}) {
    const std::string text = "x,kind\n1,a\n2," + word + "\n";
    EXPECT_TRUE(refusal(text).starts_with(" line 3, column 2 (kind): the label is missing: "))
        << word;
    EXPECT_EQ(open(text, {.labels_are_names = true})->classes().size(), 2u);
  }
  EXPECT_EQ(open("x,kind\n1,nano\n2,unknown\n")->classes().size(), 2u);
  EXPECT_EQ(refusal("x,kind\n1,\"a\n"), " line 2, column 2: a quote is not closed");
  EXPECT_EQ(refusal("x,kind\n1,\"a\"b\n"), " line 2, column 2: `b` after a closing quote");
  EXPECT_EQ(refusal("x,x\n1,a\n"), " line 1: two columns have the same name `x`");
  EXPECT_EQ(refusal("1,2\n3,4\n"), " line 1: numbers instead of the names of columns");
  EXPECT_EQ(refusal("kind\na\n"), " line 1: there is one column, so labels without features");
  EXPECT_EQ(refusal("x,kind\n1,a\n", {.label_column = "kin"}), " line 1: there is no column `kin`");
  EXPECT_EQ(refusal("x,,kind\n1,2,a\n"), " line 1, column 2 has no name");
  EXPECT_EQ(refusal("1,2,a\n3,4,b\n5,6,a\n"),
            " line 1: a row instead of the names of columns: numbers, and the label `a`");
  EXPECT_EQ(refusal("x,kind\n1,\"a\n\n2,b\n"), " line 2, column 2: a quote is not closed");
  EXPECT_EQ(refusal("x,kind\n1,\"a\nb\"\nz,a\n"), " line 4, column 1 (x): `z` is not a number");
  EXPECT_EQ(refusal(std::string("x,kind\n1,a\0\n", 12)),
            " line 2 has a byte of zero, which text does not have");
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
