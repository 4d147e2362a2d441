// The text of a table, and its records: fields between commas, semicolons or tabs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns the bytes of a file as UTF-8: `storage` holds UTF-16 with a byte order mark when it is
// converted. A mark is left out. Other bytes are unchanged, also if they are not UTF-8. Throws
// DataError naming `path` for broken UTF-16, for UTF-32, and for bytes of zero, which text does not
// have.
std::string_view table_text(std::span<const std::byte> bytes, const std::string& path,
                            std::string& storage);

// Without blanks at both ends: white space of Unicode, no-break spaces included.
std::string_view without_blanks(std::string_view text);

// Reads the records of a text as RFC 4180 describes them, in order. Lines end in LF, CR LF or CR.
// Fields in double quotes may hold separators, doubled quotes and line breaks, which become LF.
// Blanks around other fields are left out, and so are empty lines. The separator is the one of
// comma, semicolon and tab that gives the first two records the same number of fields, two or more;
// a first line `sep=;`, as Excel writes it, names it. Of several the first, but if commas may be
// those of decimal numbers, fields that are not numbers decide. Not thread-safe.
class TableRecords {
 public:
  // Keep both alive. Throws DataError if commas may separate fields or be those of decimal numbers.
  TableRecords(const std::string& path, std::string_view text);

  // Reads the fields of the next record. Returns false at the end. Throws DataError for a quote
  // that is not closed and for text after one.
  bool next(std::vector<std::string>& fields);
  // The line where the last record begins, from 1.
  int64_t line() const { return line_; }
  char separator() const { return separator_; }
  // Throws DataError that begins with the file and the line.
  [[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) const;

 private:
  TableRecords(const std::string& path, std::string_view text, char separator);
  void take_named_separator();
  void find_separator();
  void prefer_decimal_commas(const std::vector<std::string>& between_commas, char other,
                             const std::vector<std::string>& between_others);
  bool ends_field(char c) const { return c == separator_ || c == '\n' || c == '\r'; }
  void skip_blanks();
  void take_line_end();
  bool at_empty_line() const;
  void take_field(std::vector<std::string>& fields);
  void take_quoted(std::vector<std::string>& fields);

  const std::string& path_;
  std::string_view rest_;
  char separator_ = ',';
  int64_t line_ = 0, next_line_ = 1;
};

// Shortens a field for messages.
std::string shown_field(std::string_view field);

}  // namespace lockstep
