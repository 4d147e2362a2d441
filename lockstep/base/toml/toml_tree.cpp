#include "lockstep/base/toml/toml_tree.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr int deepest = 64;  // tables and lists inside each other

[[noreturn]] void too_deep(int line, const std::string& where) {
  throw DataError(where + (where.empty() ? "" : ", ") + "line " + std::to_string(line) +
                  ": tables or lists are nested more than " + std::to_string(deepest) +
                  " levels deep");
}

// The end of the string that begins at `at`.
size_t end_of_string(const std::string& text, size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool lines = text.compare(at, 3, three) == 0;
  for (size_t i = at + (lines ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (lines ? text.compare(i, 3, three) == 0 : text[i] == quote || text[i] == '\n') {
      return i + (lines ? 3 : 1);
    }
  }
  return text.size();
}

// Refuses deep nesting before the parser, which is recursive, and makes a table for each dot of a
// key.
void check_depth(const std::string& text, const std::string& where) {
  int line = 1, open = 0, dots = 0;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      const size_t end = end_of_string(text, i);
      line += static_cast<int>(std::count(text.begin() + static_cast<std::ptrdiff_t>(i),
                                          text.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
      i = end;
      continue;
    }
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    ++i;
    if (c == '\n') ++line;
    if (c == '[' || c == '{') ++open;
    if ((c == ']' || c == '}') && open > 0) --open;
    if (c == '.') {
      ++dots;
    } else if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '-' &&
               c != ' ' && c != '\t') {
      dots = 0;
    }
    if (open > deepest || dots > deepest) too_deep(line, where);
  }
}

json convert(const toml::node& node, const std::string& pointer, TomlTree& source,
             const std::string& where, int depth = 0) {
  source.lines[pointer] = static_cast<int>(node.source().begin.line);
  if (depth > deepest) too_deep(source.lines[pointer], where);
  if (const auto* table = node.as_table()) {
    json object = json::object();
    for (const auto& [key, value] : *table) {
      const std::string name(key.str());
      object[name] = convert(value, pointer + "/" + name, source, where, depth + 1);
    }
    return object;
  }
  if (const auto* array = node.as_array()) {
    json list = json::array();
    for (size_t i = 0; i < array->size(); ++i) {
      list.push_back(
          convert(*array->get(i), pointer + "/" + std::to_string(i), source, where, depth + 1));
    }
    return list;
  }
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* flag = node.as_boolean()) return flag->get();
  std::ostringstream text;
  if (const auto* date = node.as_date()) text << date->get();
  if (const auto* time = node.as_time()) text << time->get();
  if (const auto* both = node.as_date_time()) text << both->get();
  // Dates are refused, because as text they would be expressions: 2024-01-01 is 2022.
  std::string field = pointer.empty() ? "" : pointer.substr(1);
  std::replace(field.begin(), field.end(), '/', '.');
  throw InvalidArgument((field.empty() ? "" : "[" + field + "] ") + text.str() +
                            " is a date or a time, but no field has this type" +
                            (source.lines[pointer] > 0 && !field.empty()
                                 ? " (line " + std::to_string(source.lines[pointer]) + ")"
                                 : ""),
                        "put text in quotes");
}

}  // namespace

TomlTree parse_toml(const std::string& text, const std::string& where) {
  check_depth(text, where);
  TomlTree source;
  try {
    source.tree = convert(toml::parse(text), "", source, where);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(where + (where.empty() ? "" : ": ") + error.what(), error.hint());
  } catch (const toml::parse_error& error) {
    const auto& begin = error.source().begin;
    throw DataError(where + ", line " + std::to_string(begin.line) + ", column " +
                    std::to_string(begin.column) + ": " + std::string(error.description()));
  }
  return source;
}

}  // namespace lockstep
