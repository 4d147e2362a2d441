// Tables with numbers to learn, categories and missing values.
#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/fuzz/arrays.h"
#include "tests/fuzz/target.h"
#include "tests/train/power_cut.h"

namespace lockstep::fuzz {

// The first byte chooses the options.
void parse(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const int first = std::to_integer<int>(bytes.front());
  CsvOptions options{.labeled = false};
  if ((first & 1) != 0) options.target_columns = {"y"};
  if ((first & 2) != 0) options.target_columns.push_back("kind");
  if ((first & 4) != 0) options.categories = {"kind"};
  if ((first & 8) != 0) options.ignored_columns = {"id"};
  if ((first & 16) != 0) options.missing = MissingValues::mean;
  if ((first & 32) != 0) options.missing = MissingValues::flag;
  testing::PowerCutFiles files;  // in memory
  write_atomically(files, "rows.csv", bytes.subspan(1));
  const DatastorePtr store = csv_datastore(files, "rows.csv", options);
  const ExampleSpec spec = store->spec();
  for (int64_t i = 0; i < store->size(); ++i) {
    const Array values = read_array(*store, i);
    if (values.shape != spec.inputs.at(0).shape) throw InternalError("[fuzz] another shape");
    check_array(values);
  }
}

std::vector<Bytes> seeds() {
  const std::string rows = "id,x,kind,y\n1,2.5,oak,-1\n2,,elm,3e2\n3,NA,\"o\"\"k\",0\n";
  return {bytes_of("\x3d" + rows), bytes_of("\x2f" + rows), bytes_of("\x1d" + rows),
          bytes_of("\x01x;y\n1,5;2\n3;4,5\n")};
}

}  // namespace lockstep::fuzz
