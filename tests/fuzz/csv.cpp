#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/fuzz/target.h"
#include "tests/train/power_cut.h"

namespace lockstep::fuzz {

// The first byte chooses the position of the labels.
void parse(std::span<const std::byte> bytes) {
  CsvOptions options;
  if (!bytes.empty()) {
    const int choice = std::to_integer<int>(bytes.front()) % 3;
    options.labelled = choice != 0;
    options.label_column = choice == 1 ? "class" : "";
    bytes = bytes.subspan(1);
  }
  testing::PowerCutFiles files;  // in memory
  write_atomically(files, "rows.csv", bytes);
  const DatastorePtr store = csv_datastore(files, "rows.csv", options);

  const auto classes = static_cast<int64_t>(store->classes().size());
  for (int64_t k = 0; k < store->size(); ++k) {
    const int64_t label = store->label(k);
    if (label < 0 || label >= classes) throw InternalError("[fuzz] a label of no class");
    for (float value : read_array(*store, k).values) {
      if (!std::isfinite(value)) throw InternalError("[fuzz] a number that is not finite");
    }
  }
}

std::vector<Bytes> seeds() {
  const std::string rows =
      "width,\"the \"\"height\"\"\", class\r\n1, 2.5e-3,oak\n\n-0.5,+7,\"a, b\"\n";
  return {bytes_of("1\xEF\xBB\xBF" + rows), bytes_of("1" + rows), bytes_of("2" + rows),
          bytes_of("0a,b\n1,2\n3,4\n"), bytes_of("1class,b\n1e38,2\n\"1e-320\",-4\n")};
}

}  // namespace lockstep::fuzz
