#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "lockstep/base/cloud/s3_files.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/suggest.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"

namespace lockstep {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

// Shortens a field for messages.
std::string shown(std::string_view field) {
  constexpr size_t most = 40;
  return "`" + std::string(field.substr(0, most)) + (field.size() > most ? "...`" : "`");
}

class Reader {
 public:
  Reader(const std::string& path, std::string_view text) : path_(path), text_(text) {
    constexpr std::string_view mark = "\xEF\xBB\xBF";
    if (text_.starts_with(mark)) text_.remove_prefix(mark.size());
  }

  // Reads the fields of the next non-empty line. Returns false at the end.
  bool next(std::vector<std::string>& fields) {
    while (!text_.empty()) {
      const size_t end = text_.find('\n');
      std::string_view line = text_.substr(0, end);
      text_.remove_prefix(end == std::string_view::npos ? text_.size() : end + 1);
      ++line_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (trimmed(line).empty()) continue;
      split(line, fields);
      return true;
    }
    return false;
  }
  int64_t line() const { return line_; }

  [[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) const {
    throw DataError("[csv_datastore] " + path_ + " line " + std::to_string(line_) + what, hint);
  }

 private:
  void split(std::string_view line, std::vector<std::string>& fields) const {
    fields.clear();
    for (;;) {
      fields.emplace_back();
      const std::string_view field = trimmed(line.substr(0, line.find(',')));
      if (field.starts_with('"')) {
        line.remove_prefix(line.find('"') + 1);
        take_quoted(line, fields);
      } else {
        fields.back() = field;
        line.remove_prefix(std::min(line.size(), line.find(',')));
      }
      if (line.empty()) return;
      line.remove_prefix(1);  // the comma
    }
  }

  // Reads from after the opening quote to the comma after the closing quote.
  void take_quoted(std::string_view& line, std::vector<std::string>& fields) const {
    const std::string where = ", column " + std::to_string(fields.size());
    for (;;) {
      const size_t quote = line.find('"');
      if (quote == std::string_view::npos) refuse(where + ": a quote is not closed");
      fields.back() += line.substr(0, quote);
      line.remove_prefix(quote + 1);
      if (!line.starts_with('"')) break;
      fields.back() += '"';
      line.remove_prefix(1);
    }
    const size_t comma = std::min(line.size(), line.find(','));
    if (!trimmed(line.substr(0, comma)).empty()) {
      refuse(where + ": " + shown(line.substr(0, comma)) + " behind a closing quote");
    }
    line.remove_prefix(comma);
  }

  const std::string& path_;
  std::string_view text_;
  int64_t line_ = 0;
};

// Parses a finite number that f32 can hold into `value`. Otherwise returns false and sets `why`.
bool parse(std::string_view text, float& value, const char*& why) {
  text = trimmed(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double wide = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, wide);
  why = "is not a number";
  if (text.empty() || stop != end || error == std::errc::invalid_argument) return false;
  why = "is not finite";
  if (error == std::errc() && !std::isfinite(wide)) return false;
  why = "is out of the range of f32";
  // What lies below the middle between the largest float and the next power of two rounds to it.
  if (error != std::errc() || std::abs(wide) >= 0x1.ffffffp127) return false;
  value = static_cast<float>(wide);
  return true;
}

class CsvRows final : public DatastoreWrapper {
 public:
  CsvRows(DatastorePtr store, std::string path, std::vector<int64_t> lines)
      : DatastoreWrapper(std::move(store)), path_(std::move(path)), lines_(std::move(lines)) {}
  std::string name(int64_t index) const override {
    wrapped().label(index);  // throws for an invalid index
    return "line " + std::to_string(lines_[static_cast<size_t>(index)]);
  }
  std::string describe() const override { return "file " + path_; }

 private:
  std::string path_;
  std::vector<int64_t> lines_;
};

// Returns the index of the label column, or the number of columns if there is none.
size_t label_column(const Reader& reader, const std::vector<std::string>& columns,
                    const CsvOptions& options) {
  if (std::set<std::string>(columns.begin(), columns.end()).size() != columns.size()) {
    reader.refuse(": two columns have the same name", "the first line names the columns");
  }
  float number = 0;
  const char* why = nullptr;
  if (std::all_of(columns.begin(), columns.end(),
                  [&](const std::string& c) { return parse(c, number, why); })) {
    reader.refuse(": numbers instead of the names of columns", "the first line names the columns");
  }
  if (!options.labelled) return columns.size();
  if (columns.size() < 2) reader.refuse(": there is one column, so labels without features");
  if (options.label_column.empty()) return columns.size() - 1;
  const auto found = std::find(columns.begin(), columns.end(), options.label_column);
  if (found == columns.end()) {
    reader.refuse(": there is no column `" + options.label_column + "`",
                  suggest(options.label_column, columns));
  }
  return static_cast<size_t>(found - columns.begin());
}

}  // namespace

DatastorePtr csv_datastore(const std::string& path, const CsvOptions& options) {
  return csv_datastore(cloud::files_of(path), path, options);
}

DatastorePtr csv_datastore(FileSystem& files, const std::string& path, const CsvOptions& options) {
  const std::vector<std::byte> bytes = files.read(path);
  Reader reader(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  std::vector<std::string> columns, fields, names;
  if (!reader.next(columns)) {
    throw DataError("[csv_datastore] " + path + " is empty", "the first line names the columns");
  }
  const size_t label = label_column(reader, columns, options);
  ArrayBlock block;
  block.shape = {static_cast<int64_t>(columns.size() - (options.labelled ? 1 : 0))};
  std::vector<int64_t> lines;
  std::map<std::string, int64_t> classes;
  for (; reader.next(fields); ++block.count) {
    if (fields.size() != columns.size()) {
      reader.refuse(" has " + std::to_string(fields.size()) +
                    " columns, but the first line names " + std::to_string(columns.size()));
    }
    lines.push_back(reader.line());
    for (size_t c = 0; c < fields.size(); ++c) {
      const auto where = [&] {
        return ", column " + std::to_string(c + 1) + " (" + columns[c] + "): ";
      };
      if (c == label) {
        if (fields[c].empty()) reader.refuse(where() + "the label is missing");
        classes.emplace(fields[c], 0);
        names.push_back(std::move(fields[c]));
        continue;
      }
      float value = 0;
      const char* why = nullptr;
      if (fields[c].empty()) reader.refuse(where() + "a number is missing");
      if (!parse(fields[c], value, why)) reader.refuse(where() + shown(fields[c]) + " " + why);
      block.values.push_back(value);
    }
  }
  if (block.count == 0) {
    throw DataError("[csv_datastore] " + path + " names columns, but has no rows");
  }
  ImageLabels labels;
  for (auto& [name, number] : classes) {
    number = static_cast<int64_t>(labels.classes.size());
    labels.classes.push_back(name);
  }
  for (const std::string& name : names) labels.labels.push_back(classes.at(name));
  return std::make_shared<CsvRows>(array_datastore(std::move(block), std::move(labels)), path,
                                   std::move(lines));
}

}  // namespace lockstep
