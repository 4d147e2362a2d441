#include "lockstep/base/toml/toml_tree.h"

#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using nlohmann::json;

json convert(const toml::node& node, const std::string& pointer, TomlTree& source) {
  source.lines[pointer] = static_cast<int>(node.source().begin.line);
  if (const auto* table = node.as_table()) {
    json object = json::object();
    for (const auto& [key, value] : *table) {
      const std::string name(key.str());
      object[name] = convert(value, pointer + "/" + name, source);
    }
    return object;
  }
  if (const auto* array = node.as_array()) {
    json list = json::array();
    for (size_t i = 0; i < array->size(); ++i) {
      list.push_back(convert(*array->get(i), pointer + "/" + std::to_string(i), source));
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
  TomlTree source;
  try {
    source.tree = convert(toml::parse(text), "", source);
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
