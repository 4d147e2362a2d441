#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/tables/column_match.h"
#include "tests/fuzz/target.h"
#include "tests/train/power_cut.h"

namespace lockstep::fuzz {

// The first byte chooses the position of the labels, what is known of them, and names of columns.
void parse(std::span<const std::byte> bytes) {
  CsvOptions options;
  if (!bytes.empty()) {
    const int first = std::to_integer<int>(bytes.front());
    const int choice = first % 3;
    options.labeled = choice != 0;
    options.label_column = choice == 1 ? "class" : "";
    options.header = (first & 0x40) == 0;
    if ((first & 0x80) != 0) options.known_label = "class";
    bytes = bytes.subspan(1);
  }
  testing::PowerCutFiles files;  // in memory
  write_atomically(files, "rows.csv", bytes);
  const DatastorePtr store = csv_datastore(files, "rows.csv", options);

  const ValueSpec input = store->spec().inputs.at(0);
  if (!input.columns.empty() &&
      static_cast<int64_t>(input.columns.size()) != input.shape.elements()) {
    throw InternalError("[fuzz] columns without elements");
  }
  std::vector<std::string> columns = input.columns;
  std::reverse(columns.begin(), columns.end());
  const DatastorePtr turned = with_columns(store, 0, columns);
  const auto classes = static_cast<int64_t>(store->classes().size());
  for (int64_t k = 0; k < store->size(); ++k) {
    const int64_t label = store->label(k);
    if (label < 0 || label >= classes) throw InternalError("[fuzz] a label of no class");
    std::vector<float> values = read_array(*store, k).values;
    for (float value : values) {
      if (!std::isfinite(value)) throw InternalError("[fuzz] a number that is not finite");
    }
    if (!columns.empty()) std::reverse(values.begin(), values.end());
    if (read_array(*turned, k).values != values) throw InternalError("[fuzz] another order");
  }
}

namespace {

// With a byte order mark, of ASCII.
std::string utf16(const std::string& text) {
  std::string wide = "\xFF\xFE";
  for (const char c : text) wide += {c, '\0'};
  return wide;
}

}  // namespace

std::vector<Bytes> seeds() {
  const std::string rows =
      "width,\"the \"\"height\"\"\", class\r\n1, 2.5e-3,oak\n\n-0.5,+7,\"a, b\"\n";
  return {bytes_of("1\xEF\xBB\xBF" + rows),
          bytes_of("1" + rows),
          bytes_of("2" + rows),
          bytes_of("0a,b\n1,2\n3,4\n"),
          bytes_of("1class,b\n1e38,2\n\"1e-320\",-4\n"),
          bytes_of("\x81;x;class;y\r0;1;\"a\r\nb\";1e-400\r"),  // as features, the class known
          bytes_of("A1\t2\n3\t4\n"),                            // without names
          bytes_of("2" + utf16("a,b\n1,c\n")),
          bytes_of("2sep=;\na;b\n\xC2\xA0 1;\"x\"\"y\"\n")};
}

}  // namespace lockstep::fuzz
