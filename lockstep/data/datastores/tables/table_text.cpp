#include "lockstep/data/datastores/tables/table_text.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/tables/table_numbers.h"

namespace lockstep {
namespace {

// The white space of Unicode beyond ASCII, and the zero width no-break space.
constexpr std::string_view wide_blanks[] = {
    "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81",
    "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86",
    "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8",
    "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80", "\xEF\xBB\xBF"};

bool is_narrow_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The bytes of a blank at the begin or the end of a text; 0: there is none.
size_t blank_at_begin(std::string_view text) {
  if (text.empty()) return 0;
  if (is_narrow_blank(text.front())) return 1;
  if (static_cast<unsigned char>(text.front()) < 0x80) return 0;
  for (const std::string_view blank : wide_blanks) {
    if (text.starts_with(blank)) return blank.size();
  }
  return 0;
}
size_t blank_at_end(std::string_view text) {
  if (text.empty()) return 0;
  if (is_narrow_blank(text.back())) return 1;
  if (static_cast<unsigned char>(text.back()) < 0x80) return 0;
  for (const std::string_view blank : wide_blanks) {
    if (text.ends_with(blank)) return blank.size();
  }
  return 0;
}

void append_utf8(std::string& text, uint32_t c) {
  const auto byte = [&](uint32_t bits) { text += static_cast<char>(bits); };
  const auto more = [&](int shift) { byte(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) {
    byte(0xC0 | c >> 6);
    return more(0);
  }
  if (c < 0x10000) {
    byte(0xE0 | c >> 12);
  } else {
    byte(0xF0 | c >> 18);
    more(12);
  }
  more(6);
  more(0);
}

// UTF-16 after its byte order mark.
std::string from_utf16(std::string_view bytes, bool little, const std::string& path) {
  const auto unit = [&](size_t i) {
    const auto first = static_cast<unsigned char>(bytes[i]),
               second = static_cast<unsigned char>(bytes[i + 1]);
    return static_cast<uint32_t>(little ? first | second << 8 : first << 8 | second);
  };
  const auto refuse = [&](size_t i) {
    throw DataError(
        "[csv_datastore] " + path + " is not valid UTF-16 at byte " + std::to_string(i + 2),
        "save it as UTF-8");
  };
  std::string text;
  text.reserve(bytes.size() / 2);
  for (size_t i = 0; i < bytes.size(); i += 2) {
    if (i + 1 == bytes.size()) refuse(i);
    uint32_t c = unit(i);
    if (c >= 0xDC00 && c < 0xE000) refuse(i);
    if (c >= 0xD800 && c < 0xDC00) {
      if (i + 3 >= bytes.size()) refuse(i);
      const uint32_t low = unit(i + 2);
      if (low < 0xDC00 || low >= 0xE000) refuse(i);
      c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
      i += 2;
    }
    append_utf8(text, c);
  }
  return text;
}

}  // namespace

std::string shown_field(std::string_view field) {
  constexpr size_t most = 40;
  return "`" + std::string(field.substr(0, most)) + (field.size() > most ? "...`" : "`");
}

std::string_view without_blanks(std::string_view text) {
  while (const size_t blank = blank_at_begin(text)) text.remove_prefix(blank);
  while (const size_t blank = blank_at_end(text)) text.remove_suffix(blank);
  return text;
}

std::string_view table_text(std::span<const std::byte> bytes, const std::string& path,
                            std::string& storage) {
  using namespace std::string_view_literals;
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\xFF\xFE\0\0"sv) || text.starts_with("\0\0\xFE\xFF"sv)) {
    throw DataError("[csv_datastore] " + path + " is UTF-32, which is not read",
                    "save it as UTF-8");
  }
  const bool little = text.starts_with("\xFF\xFE");
  if (little || text.starts_with("\xFE\xFF")) {
    storage = from_utf16(text.substr(2), little, path);
    text = storage;
  } else if (text.starts_with("\xEF\xBB\xBF")) {
    text.remove_prefix(3);
  }
  const size_t zero = text.find('\0');
  if (zero == std::string_view::npos) return text;
  const auto line =
      1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(zero), '\n');
  throw DataError("[csv_datastore] " + path + " line " + std::to_string(line) +
                      " has a byte of zero, which text does not have",
                  "save the table as UTF-8; UTF-16 is read if it begins with a byte order mark");
}

TableRecords::TableRecords(const std::string& path, std::string_view text)
    : path_(path), rest_(text) {
  take_named_separator();
  if (next_line_ == 1) find_separator();
}

TableRecords::TableRecords(const std::string& path, std::string_view text, char separator)
    : path_(path), rest_(text), separator_(separator) {}

// A first line such as `sep=;`.
void TableRecords::take_named_separator() {
  constexpr std::string_view key = "sep=";
  std::string_view line = rest_.substr(0, rest_.find_first_of("\r\n"));
  const size_t length = line.size();
  if (line.size() > 2 && line.starts_with('"') && line.ends_with('"')) {
    line = line.substr(1, line.size() - 2);
  }
  if (line.size() != key.size() + 1 || !line.starts_with(key)) return;
  if (std::string_view(",;\t|").find(line.back()) == std::string_view::npos) return;
  separator_ = line.back();
  rest_.remove_prefix(length);
  take_line_end();
}

void TableRecords::find_separator() {
  char usable = '\0';
  bool fits = false;
  std::vector<std::string> between_commas;  // of the last record, if commas fit
  for (const char separator : {',', ';', '\t'}) {
    TableRecords attempt(path_, rest_, separator);
    std::vector<std::string> names, row;
    try {
      if (!attempt.next(names) || names.size() < 2) continue;
      const bool more = attempt.next(row);
      if (!usable && (!more || row.size() > 1)) usable = separator;
      if (more && row.size() != names.size()) continue;
    } catch (const DataError&) {  // it is thrown again if nothing fits better
      continue;
    }
    const std::vector<std::string>& last = row.empty() ? names : row;
    if (!fits) separator_ = separator;
    if (separator == ',') between_commas = last;
    if (fits && separator_ == ',') {
      line_ = attempt.line();  // for errors
      prefer_decimal_commas(between_commas, separator, last);
    }
    fits = true;
  }
  if (usable && !fits) separator_ = usable;
}

// In `1,5;2,5;a` both separators give as many fields in every record.
void TableRecords::prefer_decimal_commas(const std::vector<std::string>& between_commas, char other,
                                         const std::vector<std::string>& between_others) {
  const char* why = nullptr;
  const auto is_number = [&](const std::string& field) {
    float value = 0;
    return parse_table_number(field, value, why);
  };
  const auto is_comma_number = [&](const std::string& field) {
    CommaNumber number;
    return parse_comma_number(field, number, why);
  };
  if (std::none_of(between_others.begin(), between_others.end(), is_comma_number)) return;
  // The labels are the only text that a record has.
  const auto texts = std::count_if(between_commas.begin(), between_commas.end(),
                                   [&](const std::string& field) { return !is_number(field); });
  if (texts > 1) {
    separator_ = other;
    return;
  }
  refuse(std::string(": commas may separate fields, or be decimal commas between ") +
             (other == ';' ? "semicolons" : "tabs"),
         "name the separator in a line before, such as `sep=;` or `sep=,`, or write numbers with "
         "decimal points");
}

void TableRecords::refuse(const std::string& what, const std::string& hint) const {
  throw DataError("[csv_datastore] " + path_ + " line " + std::to_string(line_) + what, hint);
}

void TableRecords::skip_blanks() {
  while (!rest_.empty() && !ends_field(rest_.front())) {
    const size_t blank = blank_at_begin(rest_);
    if (blank == 0) return;
    rest_.remove_prefix(blank);
  }
}

void TableRecords::take_line_end() {
  if (rest_.empty()) return;
  rest_.remove_prefix(rest_.starts_with("\r\n") ? 2 : 1);
  ++next_line_;
}

bool TableRecords::at_empty_line() const {
  std::string_view line = rest_;
  while (!line.empty() && line.front() != '\n' && line.front() != '\r') {
    const size_t blank = line.front() == separator_ ? 0 : blank_at_begin(line);
    if (blank == 0) return false;
    line.remove_prefix(blank);
  }
  return true;
}

bool TableRecords::next(std::vector<std::string>& fields) {
  while (!rest_.empty() && at_empty_line()) {
    skip_blanks();
    take_line_end();
  }
  if (rest_.empty()) return false;
  line_ = next_line_;
  fields.clear();
  for (;;) {
    take_field(fields);
    if (rest_.empty() || rest_.front() != separator_) break;
    rest_.remove_prefix(1);
  }
  take_line_end();
  return true;
}

void TableRecords::take_field(std::vector<std::string>& fields) {
  skip_blanks();
  fields.emplace_back();
  if (rest_.starts_with('"')) return take_quoted(fields);
  const auto end = std::find_if(rest_.begin(), rest_.end(), [&](char c) { return ends_field(c); });
  const std::string_view field(rest_.begin(), end);
  fields.back() = without_blanks(field);
  rest_.remove_prefix(field.size());
}

void TableRecords::take_quoted(std::vector<std::string>& fields) {
  const std::string where = ", column " + std::to_string(fields.size());
  std::string& field = fields.back();
  rest_.remove_prefix(1);
  for (;;) {
    const size_t stop = rest_.find_first_of("\"\r\n");
    if (stop == std::string_view::npos) {
      refuse(where + ": a quote is not closed",
             next_line_ > line_ ? "fields in quotes may have line breaks, so that it ends with the "
                                  "file"
                                : "");
    }
    field += rest_.substr(0, stop);
    rest_.remove_prefix(stop);
    if (rest_.front() != '"') {
      field += '\n';
      take_line_end();
      continue;
    }
    rest_.remove_prefix(1);
    if (!rest_.starts_with('"')) break;
    field += '"';
    rest_.remove_prefix(1);
  }
  skip_blanks();
  if (rest_.empty() || ends_field(rest_.front())) return;
  const auto end = std::find_if(rest_.begin(), rest_.end(), [&](char c) { return ends_field(c); });
  refuse(where + ": " + shown_field(without_blanks({rest_.begin(), end})) +
         " after a closing quote");
}

}  // namespace lockstep
