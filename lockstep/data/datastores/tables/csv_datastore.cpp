#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/suggest.h"
#include "lockstep/base/text.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/tables/category_names.h"
#include "lockstep/data/datastores/tables/column_match.h"
#include "lockstep/data/datastores/tables/table_features.h"
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
          std::vector<std::string> columns, std::string label, std::map<std::string, float> means,
          std::vector<std::string> notices)
      : DatastoreWrapper(std::move(store)),
        path_(std::move(path)),
        lines_(std::move(lines)),
        spec_(wrapped().spec()),
        notices_(std::move(notices)) {
    spec_.inputs[0].columns = std::move(columns);
    spec_.label_column = std::move(label);
    spec_.means = std::move(means);
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
      choose_unnamed_columns();
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

  // What the columns are.
  void choose_columns() {
    roles_.assign(count_, Role::feature);
    leave_out_index();
    check_names();
    check_ways();
    for (const std::string& name : options_.ignored_columns) {
      // A file for a trained network need not have it.
      if (!options_.known_columns.empty() && !index_of(name)) continue;
      roles_[unused_column(name, "ignored_columns")] = Role::left_out;
    }
    for (const std::string& name : options_.categories) {
      if (!is_learned(name)) roles_[unused_column(name, "categories")] = Role::category;
    }
    if (options_.target_columns.empty()) {
      choose_label();
    } else {
      for (const std::string& name : options_.target_columns) choose_target(name);
    }
    leave_out_known();
    make_room();
    if (features() == 0) {
      records_.refuse(": no column is left for features",
                      count_ == 1 ? "fields are separated by commas, semicolons or tabs" : "");
    }
  }

  // The column of texts that gives a target: itself, or of `kind=a`; "": it gives numbers.
  std::string text_target(const std::string& name) const {
    for (const std::string& column : options_.categories) {
      if (name == column || is_category_of(name, column)) return column;
    }
    return "";
  }

  // Whether a column of texts is a target, of this file or of a training.
  bool is_learned(const std::string& column) const {
    const auto& names =
        options_.target_columns.empty() ? options_.known_targets : options_.target_columns;
    return std::ranges::any_of(names,
                               [&](const auto& name) { return text_target(name) == column; });
  }

  void choose_target(const std::string& name) {
    const std::string column = text_target(name);
    if (column.empty()) {
      targets_.push_back(unused_column(name, "target_columns"));
      roles_[targets_.back()] = Role::target;
      return;
    }
    // A model names all texts of a column, one after the other.
    if (const auto c = index_of(column); c && roles_[*c] == Role::text_target) {
      if (name != column && targets_.back() == *c) return;
    }
    targets_.push_back(unused_column(column, "target_columns"));
    roles_[targets_.back()] = Role::text_target;
  }

  void choose_label() {
    if (!options_.labeled) return;
    if (features() < 2) {
      records_.refuse(": there is one column, so labels without features",
                      "fields are separated by commas, semicolons or tabs");
    }
    if (!options_.label_column.empty()) {
      label_ = unused_column(options_.label_column, "label_column");
    } else if (const std::optional<size_t> known = index_of(options_.known_label)) {
      label_ = known;
    } else {
      label_ = count_ - 1;
      while (!is_feature(*label_)) --*label_;  // one that is not left out
      if (!options_.known_label.empty()) {
        notices_.push_back("file " + path_ + ": the labels are those of its last column, `" +
                           columns_[*label_] + "`; in the training they were in `" +
                           options_.known_label + "`");
      }
    }
    roles_[*label_] = Role::label;
  }

  // What a training learned, of which a file to predict may have some.
  void leave_out_known() {
    const auto leave_out = [&](const std::string& name, const char* what) {
      const std::optional<size_t> c = index_of(name);
      if (!c || !is_feature(*c) || features() < 2) return;
      roles_[*c] = Role::left_out;
      notices_.push_back("file " + path_ + ": the column `" + name + "` has " + what +
                         " and is left out");
    };
    if (!options_.labeled) leave_out(options_.known_label, "the labels");
    if (!options_.target_columns.empty()) return;
    std::set<std::string> told;
    for (const std::string& name : options_.known_targets) {
      const std::string column = text_target(name);
      if (told.insert(column.empty() ? name : column).second) {
        leave_out(column.empty() ? name : column, "targets");
      }
    }
  }

  // Targets are numbers or labels, and a column has one use.
  void check_ways() const {
    if (options_.target_columns.empty()) return;
    if (!options_.label_column.empty()) {
      throw InvalidArgument("[csv_datastore] the label column `" + options_.label_column +
                                "` and target columns are both given",
                            "a network learns labels or numbers");
    }
  }

  std::optional<size_t> index_of(const std::string& name) const {
    const auto found = std::find(columns_.begin(), columns_.end(), name);
    if (name.empty() || found == columns_.end()) return std::nullopt;
    return static_cast<size_t>(found - columns_.begin());
  }
  // `what`: the option that names the column.
  size_t unused_column(const std::string& name, const char* what) const {
    const std::optional<size_t> c = index_of(name);
    if (!c) {
      records_.refuse(": there is no column `" + name + "`", suggest(name, named_columns()));
    }
    if (roles_[*c] != Role::feature) {
      records_.refuse(": the column `" + name + "` (" + what + ") has another use already");
    }
    return *c;
  }

  void make_room() {
    numbers_.resize(count_);
    texts_.resize(count_);
  }

  // The same for a file without names.
  void choose_unnamed_columns() {
    roles_.assign(count_, Role::feature);
    make_room();
    for (const auto* names :
         {&options_.target_columns, &options_.categories, &options_.ignored_columns}) {
      if (names->empty()) continue;
      const auto learned = [this](const auto& name) { return is_learned(name); };
      if (names == &options_.categories && std::ranges::all_of(*names, learned)) continue;
      records_.refuse(": there is no column `" + names->front() +
                      "`, because the file is read as one without names of columns");
    }
    if (!options_.labeled) return;
    if (!options_.label_column.empty()) {
      records_.refuse(": there is no column `" + options_.label_column +
                          "`, because the file is read as one without names of columns",
                      "the labels of such a file are in its last column");
    }
    if (count_ < 2) records_.refuse(": there is one column, so labels without features");
    label_ = count_ - 1;
    roles_[*label_] = Role::label;
  }

  // Data frames are written with a first column without a name: the names or numbers of the rows.
  void leave_out_index() {
    if (count_ < 2 || !columns_.front().empty()) return;
    index_ = 0;
    roles_[0] = Role::left_out;
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

  bool is_feature(size_t c) const {
    return roles_[c] == Role::feature || roles_[c] == Role::category;
  }
  // Columns that are features.
  size_t features() const {
    size_t count = 0;
    for (size_t c = 0; c < count_; ++c) count += is_feature(c) ? 1 : 0;
    return count;
  }

  std::string where(size_t c) const {
    return ", column " + std::to_string(c + 1) +
           (columns_.empty() ? ": " : " (" + columns_[c] + "): ");
  }

  void take(std::vector<std::string>& fields) {
    if (fields.size() != count_) {
      records_.refuse(" has " + counted(fields.size(), "column") + ", but the first line " +
                      (columns_.empty() ? "has " : "names ") + std::to_string(count_));
    }
    lines_.push_back(records_.line());
    for (size_t c = 0; c < count_; ++c) {
      std::string& field = fields[c];
      switch (roles_[c]) {
        case Role::label:
          check_label(field, c);
          ++classes_[field];
          names_.push_back(std::move(field));
          break;
        case Role::category:
          texts_[c].push_back(text_of(field, c));
          break;
        case Role::feature:
          numbers_[c].push_back(feature_of(field, c));
          break;
        case Role::text_target:
          if (is_missing(field)) records_.refuse(where(c) + "the target is missing");
          texts_[c].push_back(std::move(field));
          break;
        case Role::target:
          if (is_missing(field)) records_.refuse(where(c) + "the target is missing");
          numbers_[c].push_back(number_of(field, c));
          break;
        case Role::left_out:
          break;
      }
    }
    ++rows_;
  }

  // As the common programs write a value that is not there.
  static bool is_missing(std::string field) {
    if (field.size() > 4) return false;
    for (char& c : field) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const auto words = {"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "?"};
    return std::ranges::find(words, field) != words.end();
  }

  void check_label(const std::string& field, size_t c) const {
    if (field.empty()) records_.refuse(where(c) + "the label is missing");
    // A class may well be called so.
    const bool none = field == "none" || field == "None" || field == "NONE";
    if (options_.labels_are_names || !is_missing(field) || none) return;
    records_.refuse(
        where(c) + "the label is missing: " + shown_field(field) + " stands for a missing value",
        "leave the row out, or rename the class, such as to `class " + field + "`");
  }

  // NaN stands for one that is missing.
  float feature_of(const std::string& field, size_t c) {
    if (options_.missing != MissingValues::refuse && is_missing(field)) {
      return std::numeric_limits<float>::quiet_NaN();
    }
    if (field.empty()) {
      records_.refuse(where(c) + "a number is missing",
                      columns_.empty() ? "" : "missing = \"mean\" or \"flag\" fills it in");
    }
    return number_of(field, c);
  }

  std::string text_of(std::string& field, size_t c) {
    if (!is_missing(field)) return std::move(field);
    if (options_.missing == MissingValues::refuse) {
      records_.refuse(where(c) + "the category is missing",
                      "missing = \"mean\" or \"flag\" makes it a category");
    }
    return kMissing;
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
      records_.refuse(where(c) + shown_field(field) + " " + why, hint_of_number(field, comma));
    }
    if (field.find('.') != std::string::npos) remember(points_, commas_, field, c);
    if (rounds_whole_number(field, value)) {
      if (rounded_[c].count++ == 0) rounded_[c] = {1, field, value};
    }
    return value;
  }

  // Such as the seconds of 1970, or counts.
  void note_rounded() {
    if (!options_.note_rounded) return;
    for (const auto& [c, numbers] : rounded_) {
      const std::string column = columns_.empty() ? std::to_string(c + 1) : "`" + columns_[c] + "`";
      const std::string to = fmt::format("{:.0f}", static_cast<double>(numbers.value));
      notices_.push_back("file " + path_ + ", column " + column + ": " +
                         counted(numbers.count, "whole number") + ", such as " +
                         shown_field(numbers.first) + ", " + (numbers.count > 1 ? "are" : "is") +
                         " rounded, here to " + to +
                         ", because values are fp32: subtract an offset if differences matter");
    }
  }

  std::string hint_of_number(const std::string& field, bool comma) const {
    if (comma) {
      return "decimal commas are read where semicolons or tabs separate the fields; here numbers "
             "have decimal points";
    }
    if (columns_.empty()) return "";
    return is_missing(field) ? "missing = \"mean\" or \"flag\" fills it in"
                             : "a column of texts can be one of the `categories`, or of the "
                               "`ignored_columns`";
  }

  // Whole numbers of a column that f32 does not hold exactly.
  struct RoundedNumbers {
    int64_t count = 0;
    std::string first;
    float value = 0;  // of the first
  };

  // The first number with a kind of decimal sign.
  struct FirstNumber {
    int64_t line = 0;  // 0: there is none
    std::string where;
  };

  void remember(FirstNumber& own, const FirstNumber& other, const std::string& field, size_t c) {
    if (other.line > 0) {
      records_.refuse(where(c) + shown_field(field) + " has another decimal sign than line " +
                          std::to_string(other.line) + other.where,
                      "a table has decimal commas or decimal points, and no separators of "
                      "thousands");
    }
    if (own.line == 0) own = {records_.line(), where(c) + shown_field(field)};
  }

  // Commas that may all be separators of thousands.
  void check_commas() const {
    if (commas_.line == 0 || commas_certain_) return;
    throw DataError("[csv_datastore] " + path_ + " line " + std::to_string(commas_.line) +
                        commas_.where +
                        " may be a whole number, or have a decimal comma, and so may all numbers "
                        "with commas in the table",
                    "write numbers with decimal points, and without separators of thousands");
  }

  // A file of numbers whose first line is a row would lose this row and have its numbers as names.
  void check_first_line() const {
    if (!header_ || !label_) return;
    for (size_t c = 0; c < count_; ++c) {
      if (roles_[c] == Role::feature && !is_number(columns_[c])) return;
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
    note_rounded();
    ImageLabels labels;
    std::map<std::string, int64_t> numbers;
    for (const auto& [name, count] : classes_) {
      numbers[name] = static_cast<int64_t>(labels.classes.size());
      labels.classes.push_back(name);
    }
    for (const std::string& name : names_) labels.labels.push_back(numbers.at(name));
    TableFeatures features("file " + path_, options_);
    for (size_t c = 0; c < count_; ++c) {
      const std::string name = columns_.empty() ? "" : columns_[c];
      if (roles_[c] == Role::feature) features.add_numbers(name, std::move(numbers_[c]));
      if (roles_[c] == Role::category) features.add_category(name, texts_[c]);
    }
    if (!targets_.empty()) put_in_known_order(features);
    std::ranges::move(features.notices, std::back_inserter(notices_));
    DatastorePtr rows =
        array_datastore(ArrayBlock{rows_, {std::ssize(features.values)}, by_row(features.values)},
                        std::move(labels));
    if (columns_.empty()) features.names.clear();
    const bool named = label_ && !columns_.empty();
    rows = std::make_shared<CsvRows>(std::move(rows), path_, lines_, std::move(features.names),
                                     named ? columns_[*label_] : "", std::move(features.means),
                                     std::move(notices_));
    if (targets_.empty()) return rows;
    TableFeatures learned = targets();
    DatastorePtr targets =
        array_datastore(ArrayBlock{rows_, {std::ssize(learned.values)}, by_row(learned.values)});
    return with_targets(
        std::move(rows),
        std::make_shared<CsvRows>(std::move(targets), path_, lines_, std::move(learned.names), "",
                                  std::map<std::string, float>(), std::vector<std::string>()));
  }

  // As with_columns() does, but with the digests of a table in this order. Rows with targets would
  // have others, and a resumed training would take them for other data.
  void put_in_known_order(TableFeatures& features) {
    const std::vector<std::string>& known = options_.known_columns;
    if (features.names == known) return;
    std::map<std::string, size_t> indices;
    for (size_t k = 0; k < features.names.size(); ++k) indices.emplace(features.names[k], k);
    const auto is_here = [&](const std::string& name) { return indices.contains(name); };
    if (known.size() != indices.size() || !std::ranges::all_of(known, is_here)) return;
    std::vector<std::vector<float>> ordered;
    for (const std::string& name : known) {
      ordered.push_back(std::move(features.values[indices.at(name)]));
    }
    features.values = std::move(ordered);
    features.names = known;
    notices_.push_back("file " + path_ + kMatchedByName);
  }

  // Columns of numbers, and of texts as categories: those of the training if they are known.
  TableFeatures targets() {
    known_texts_ = options_;
    known_texts_.known_columns = options_.known_targets;
    TableFeatures made("file " + path_, known_texts_);
    for (const size_t c : targets_) {
      if (roles_[c] == Role::target) {
        made.values.push_back(std::move(numbers_[c]));
        made.names.push_back(columns_[c]);
        continue;
      }
      made.add_category(columns_[c], texts_[c]);
      if (made.notices.empty()) continue;
      throw DataError("[csv_datastore] " + made.notices.front(),
                      "evaluate and resume with the texts of the training");
    }
    return made;
  }

  // Row after row from columns.
  std::vector<float> by_row(const std::vector<std::vector<float>>& columns) const {
    std::vector<float> values;
    values.reserve(columns.size() * static_cast<size_t>(rows_));
    for (size_t i = 0; i < static_cast<size_t>(rows_); ++i) {
      for (const std::vector<float>& column : columns) values.push_back(column[i]);
    }
    return values;
  }

  // The use of a column.
  enum class Role : uint8_t { feature, category, label, target, text_target, left_out };

  const std::string& path_;
  const CsvOptions& options_;
  bool header_ = options_.header;
  TableRecords records_;
  std::vector<std::string> columns_;  // empty: they have no names
  size_t count_ = 0;                  // of columns
  std::vector<Role> roles_;           // of each column
  std::optional<size_t> index_, label_;
  std::vector<size_t> targets_;  // in the order of the options
  std::vector<std::string> notices_;
  FirstNumber commas_, points_;
  std::map<size_t, RoundedNumbers> rounded_;  // by column
  bool commas_certain_ = false;               // one of them is not a separator of thousands
  int64_t rows_ = 0;
  std::vector<std::vector<float>> numbers_;      // by column: of features and targets
  std::vector<std::vector<std::string>> texts_;  // by column: of categories
  CsvOptions known_texts_;                       // for targets()
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
