#include "lockstep/data/datastores/tables/table_column.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/suggest.h"
#include "lockstep/data/datastores/tables/table_text.h"

namespace lockstep {

TableColumn table_column(FileSystem& files, const std::string& path, const std::string& name,
                         const std::string& option) {
  const std::vector<std::byte> bytes = files.read(path);
  std::string storage;
  TableRecords records(path, table_text(bytes, path, storage));
  std::vector<std::string> fields;
  if (!records.next(fields)) throw DataError("[data] " + path + " is empty");
  const auto found = std::ranges::find(fields, name);
  if (found == fields.end()) {
    records.refuse(": there is no column `" + name + "` (" + option + ")", suggest(name, fields));
  }
  const auto at = static_cast<size_t>(found - fields.begin());
  const size_t count = fields.size();
  TableColumn column;
  while (records.next(fields)) {
    if (fields.size() != count) {
      records.refuse(" has " + std::to_string(fields.size()) +
                     " columns, but the first line names " + std::to_string(count));
    }
    column.fields.push_back(std::move(fields[at]));
    column.lines.push_back(records.line());
  }
  return column;
}

}  // namespace lockstep
