// Prints what csv_datastore() reads, for tables_test.py: a JSON object for each line "OPTIONS PATH"
// of standard input, where OPTIONS are letters: l (labeled), n (no names of columns).
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"

namespace {

using namespace lockstep;
using nlohmann::ordered_json;

ordered_json contents(const Datastore& store) {
  ordered_json rows = ordered_json::array();
  for (int64_t i = 0; i < store.size(); ++i) {
    ordered_json values = ordered_json::array();
    for (const float value : read_array(store, i).values) {
      char text[40];
      std::snprintf(text, sizeof text, "%a", static_cast<double>(value));
      values.push_back(text);
    }
    rows.push_back({{"name", store.name(i)},
                    {"label", store.classes()[static_cast<size_t>(store.label(i))]},
                    {"values", values}});
  }
  return {{"columns", store.spec().inputs[0].columns},
          {"label", store.spec().label_column},
          {"notices", store.notices()},
          {"rows", rows}};
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const size_t blank = line.find(' ');
    const std::string options = line.substr(0, blank), path = line.substr(blank + 1);
    ordered_json result;
    try {
      result = contents(*csv_datastore(path, {.labeled = options.find('l') != std::string::npos,
                                              .header = options.find('n') == std::string::npos}));
    } catch (const Error& error) {
      result = {{"error", error.what()}, {"hint", error.hint()}};
    }
    std::printf("%s\n", result.dump(-1, ' ', true, ordered_json::error_handler_t::replace).c_str());
  }
}
