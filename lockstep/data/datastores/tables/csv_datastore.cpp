#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/tables/table_numbers.h"
#include "lockstep/data/datastores/tables/table_text.h"
#include "lockstep/storage/s3_files.h"

namespace lockstep {
namespace {

constexpr const char* names_hint = "the first line names the columns";
constexpr const char* no_groups_hint =
    "numbers have one decimal comma or point, and no separators of thousands";
constexpr const char* no_names_hint =
    "the first line names the columns; a file without names is read with header = false "
    "(--no-header)";

class CsvRows final : public DatastoreWrapper {
 public:
  CsvRows(DatastorePtr store, std::string path, std::vector<int64_t> lines,
          std::vector<std::string> columns, std::string label, std::vector<std::string> notices)
      : DatastoreWrapper(std::move(store)),
        path_(std::move(path)),
        lines_(std::move(lines)),
        spec_(wrapped().spec()),
        notices_(std::move(notices)) {
    spec_.inputs[0].columns = std::move(columns);
    spec_.label_column = std::move(label);
  }
  ExampleSpec spec() const override { return spec_; }
  std::string name(int64_t index) const override {
    wrapped().label(index);  // throws for an invalid index
    return "line " + std::to_string(lines_[static_cast<size_t>(index)]);
  }
  std::string describe() const override { return "file " + path_; }
  std::vector<std::string> notices() const override { return notices_; }

 private:
  std::string path_;
  std::vector<int64_t> lines_;
  ExampleSpec spec_;
  std::vector<std::string> notices_;
};

// Makes the rows of one file.
class CsvReading {
 public:
  CsvReading(const std::string& path, std::string_view text, const CsvOptions& options)
      : path_(path), options_(options), records_(path, text) {}

  DatastorePtr read() {
    std::vector<std::string> fields;
    if (!records_.next(fields))
      throw DataError("[csv_datastore] " + path_ + " is empty", names_hint);
    if (options_.find_header && !header_) {
      header_ = std::none_of(fields.begin(), fields.end(),
                             [this](const std::string& field) { return is_number(field); });
    }
    if (header_) {
      columns_ = std::move(fields);
      count_ = columns_.size();
      choose_columns();
      fields.clear();
    } else {
      count_ = fields.size();
      choose_places();
      take(fields);
    }
    while (records_.next(fields)) take(fields);
    return finish();
  }

 private:
  // Where fields are separated by commas, a comma is not a decimal one, not even in quotes.
  bool may_have_commas() const { return records_.separator() != ','; }

  bool is_number(const std::string& text) const {
    float number = 0;
    CommaNumber comma;
    const char* why = nullptr;
    return parse_table_number(text, number, why) ||
           (may_have_commas() && parse_comma_number(text, comma, why));
  }

  // Which columns are features, and which one has the labels.
  void choose_columns() {
    leave_out_index();
    check_names();
    const auto place_of = [&](const std::string& name) -> std::optional<size_t> {
      const auto found = std::find(columns_.begin(), columns_.end(), name);
      if (name.empty() || found == columns_.end()) return std::nullopt;
      return static_cast<size_t>(found - columns_.begin());
    };
    const std::optional<size_t> known = place_of(options_.known_label);
    if (!options_.labeled) {
      if (known && columns_read() > 1) {
        ignored_ = known;
        notices_.push_back("file " + path_ + ": the column `" + columns_[*known] +
                           "` has the labels and is left out");
      }
      return;
    }
    if (columns_read() < 2) {
      records_.refuse(": there is one column, so labels without features",
                      "fields are separated by commas, semicolons or tabs");
    }
    if (options_.label_column.empty()) {
      label_ = known ? *known : count_ - 1;
      if (!known && !options_.known_label.empty()) {
        notices_.push_back("file " + path_ + ": the labels are those of its last column, `" +
                           columns_.back() + "`; in the training they were in `" +
                           options_.known_label + "`");
      }
      return;
    }
    label_ = place_of(options_.label_column);
    if (!label_) {
      records_.refuse(": there is no column `" + options_.label_column + "`",
                      suggest(options_.label_column, named_columns()));
    }
  }

  // The same for a file without names.
  void choose_places() {
    if (!options_.labeled) return;
    if (!options_.label_column.empty()) {
      records_.refuse(": there is no column `" + options_.label_column +
                          "`, because the file is read as one without names of columns",
                      "the labels of such a file are in its last column");
    }
    if (count_ < 2) records_.refuse(": there is one column, so labels without features");
    label_ = count_ - 1;
  }

  // Data frames are written with a first column without a name: the names or numbers of the rows.
  void leave_out_index() {
    if (count_ < 2 || !columns_.front().empty()) return;
    index_ = 0;
    notices_.push_back("file " + path_ +
                       ": its first column has no name, as the index of a data frame, and is left "
                       "out; give it a name to use it");
  }

  void check_names() {
    std::set<std::string> seen;
    for (const std::string& name : columns_) {
      if (name.empty() || seen.insert(name).second) continue;
      records_.refuse(": two columns have the same name " + shown_field(name), names_hint);
    }
    for (size_t c = 0; c < count_; ++c) {
      if (columns_[c].empty() && c != index_) {
        records_.refuse(", column " + std::to_string(c + 1) + " has no name",
                        "name every column, or leave it out; a first column without a name counts "
                        "as the index of the rows");
      }
      if (is_utf8(columns_[c])) continue;
      records_.refuse(", column " + std::to_string(c + 1) + ": the name " +
                          shown_field(columns_[c]) + " is not UTF-8",
                      "save the table as UTF-8");
    }
    const std::vector<std::string> named = named_columns();
    const auto number = [&](const std::string& name) { return is_number(name); };
    if (!std::all_of(named.begin(), named.end(), number)) return;
    // Such as the wavelengths of a spectrum.
    const std::set<std::string> here(columns_.begin(), columns_.end());
    const auto is_here = [&](const std::string& name) { return here.contains(name); };
    if (!options_.known_columns.empty() &&
        std::all_of(options_.known_columns.begin(), options_.known_columns.end(), is_here)) {
      return;
    }
    records_.refuse(": numbers instead of the names of columns", no_names_hint);
  }

  std::vector<std::string> named_columns() const {
    return {columns_.begin() + (index_ ? 1 : 0), columns_.end()};
  }

  // Columns that are read: features and labels.
  size_t columns_read() const { return count_ - (index_ ? 1 : 0) - (ignored_ ? 1 : 0); }
  bool is_feature(size_t c) const { return c != label_ && c != ignored_ && c != index_; }

  std::string where(size_t c) const {
    return ", column " + std::to_string(c + 1) +
           (columns_.empty() ? ": " : " (" + columns_[c] + "): ");
  }

  void take(std::vector<std::string>& fields) {
    if (fields.size() != count_) {
      records_.refuse(" has " + std::to_string(fields.size()) + " columns, but the first line " +
                      (columns_.empty() ? "has " : "names ") + std::to_string(count_));
    }
    lines_.push_back(records_.line());
    for (size_t c = 0; c < count_; ++c) {
      if (c == label_) {
        if (fields[c].empty()) records_.refuse(where(c) + "the label is missing");
        ++classes_[fields[c]];
        names_.push_back(std::move(fields[c]));
      }
      if (!is_feature(c)) continue;
      if (fields[c].empty()) records_.refuse(where(c) + "a number is missing");
      values_.push_back(number_of(fields[c], c));
    }
    ++rows_;
  }

  // A number, whose comma or point is remembered: a table has one kind.
  float number_of(const std::string& field, size_t c) {
    const bool comma = field.find(',') != std::string::npos;
    float value = 0;
    const char* why = nullptr;
    if (comma && may_have_commas()) {
      CommaNumber number;
      if (!parse_comma_number(field, number, why)) {
        records_.refuse(where(c) + shown_field(field) + " " + why, no_groups_hint);
      }
      if (!number.grouped) commas_certain_ = true;
      remember(commas_, points_, field, c);
      return number.value;
    }
    if (!parse_table_number(field, value, why)) {
      records_.refuse(where(c) + shown_field(field) + " " + why,
                      comma ? "decimal commas are read where semicolons or tabs separate the "
                              "fields; here numbers have decimal points"
                            : "");
    }
    if (field.find('.') != std::string::npos) remember(points_, commas_, field, c);
    return value;
  }

  // The first number with a kind of decimal sign.
  struct FirstNumber {
    int64_t line = 0;  // 0: there is none
    std::string place;
  };

  void remember(FirstNumber& own, const FirstNumber& other, const std::string& field, size_t c) {
    if (other.line > 0) {
      records_.refuse(where(c) + shown_field(field) + " has another decimal sign than line " +
                          std::to_string(other.line) + other.place,
                      "a table has decimal commas or decimal points, and no separators of "
                      "thousands");
    }
    if (own.line == 0) own = {records_.line(), where(c) + shown_field(field)};
  }

  // Commas that may all be separators of thousands.
  void check_commas() const {
    if (commas_.line == 0 || commas_certain_) return;
    throw DataError("[csv_datastore] " + path_ + " line " + std::to_string(commas_.line) +
                        commas_.place +
                        " may be a whole number, or have a decimal comma, and so may all numbers "
                        "with commas in the table",
                    "write numbers with decimal points, and without separators of thousands");
  }

  // A file of numbers whose first line is a row would lose this row and have its numbers as names.
  void check_first_line() const {
    if (!header_ || !label_) return;
    for (size_t c = 0; c < count_; ++c) {
      if (is_feature(c) && !is_number(columns_[c])) return;
    }
    if (!classes_.contains(columns_[*label_])) return;
    throw DataError("[csv_datastore] " + path_ +
                        " line 1: a row instead of the names of columns: numbers, and the label " +
                        shown_field(columns_[*label_]),
                    no_names_hint);
  }

  DatastorePtr finish() {
    if (rows_ == 0) {
      throw DataError("[csv_datastore] " + path_ + " names columns, but has no rows");
    }
    check_first_line();
    check_commas();
    ImageLabels labels;
    std::map<std::string, int64_t> numbers;
    for (const auto& [name, count] : classes_) {
      numbers[name] = static_cast<int64_t>(labels.classes.size());
      labels.classes.push_back(name);
    }
    for (const std::string& name : names_) labels.labels.push_back(numbers.at(name));
    std::vector<std::string> features;
    for (size_t c = 0; c < columns_.size(); ++c) {
      if (is_feature(c)) features.push_back(columns_[c]);
    }
    const size_t width = columns_read() - (label_ ? 1 : 0);
    ArrayBlock block{rows_, {static_cast<int64_t>(width)}, std::move(values_)};
    const bool named = label_ && !columns_.empty();
    return std::make_shared<CsvRows>(array_datastore(std::move(block), std::move(labels)), path_,
                                     std::move(lines_), std::move(features),
                                     named ? columns_[*label_] : "", std::move(notices_));
  }

  const std::string& path_;
  const CsvOptions& options_;
  bool header_ = options_.header;
  TableRecords records_;
  std::vector<std::string> columns_;  // empty: they have no names
  size_t count_ = 0;                  // of columns
  std::optional<size_t> index_, label_, ignored_;
  std::vector<std::string> notices_;
  FirstNumber commas_, points_;
  bool commas_certain_ = false;  // one of them is not a separator of thousands
  int64_t rows_ = 0;
  std::vector<float> values_;
  std::vector<int64_t> lines_;
  std::vector<std::string> names_;          // of the rows' classes
  std::map<std::string, int64_t> classes_;  // with their rows
};

}  // namespace

DatastorePtr csv_datastore(const std::string& path, const CsvOptions& options) {
  return csv_datastore(storage::files_of(path), path, options);
}

DatastorePtr csv_datastore(FileSystem& files, const std::string& path, const CsvOptions& options) {
  const std::vector<std::byte> bytes = files.read(path);
  std::string storage;
  return CsvReading(path, table_text(bytes, path, storage), options).read();
}

bool is_table_name(std::string_view name) {
  const auto ends = [&](std::string_view extension) {
    if (name.size() <= extension.size()) return false;
    const std::string_view end = name.substr(name.size() - extension.size());
    return std::equal(end.begin(), end.end(), extension.begin(), [](char a, char b) {
      return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
    });
  };
  return ends(".csv") || ends(".tsv");
}

}  // namespace lockstep
