// The files of a folder of sequences.
#include <variant>

#include "lockstep/base/error.h"
#include "lockstep/data/datastores/datastores.h"
#include "tests/fuzz/arrays.h"
#include "tests/fuzz/scratch.h"

namespace lockstep::fuzz {

// The first byte chooses the kind of the file and its targets.
void parse(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  static const Scratch folder;
  folder.empty();
  const int first = std::to_integer<int>(bytes.front());
  const bool array = (first & 0x40) != 0;
  SequenceFolderOptions options{.labeled = false, .header = (first & 0x80) == 0};
  switch (first % 4) {
    case 0:
      break;
    case 1:
      options.targets.label_column = "class";
      break;
    case 2:
      options.targets.columns = {"force"};
      break;
    default:
      options.targets.next_step = true;
  }
  folder.write(array ? "a.npy" : "a.csv", bytes.subspan(1));
  const DatastorePtr store = sequence_folder(folder.path(), options);
  for (int64_t i = 0; i < store->size(); ++i) {
    const Example example = store->read(i);
    const Array& steps = std::get<Array>(example.inputs.at(0));
    if (store->spec().target && store->steps(i, 1) != steps.shape[0]) {
      throw InternalError("[fuzz] another number of targets than of steps");
    }
    check_array(steps);
  }
}

std::vector<Bytes> seeds() {
  const std::string array = npy_file("<f4", "(3, 2)", raw_bytes<float>({1, 2, 3, 4, 5, 6}));
  return {bytes_of("\x04x,y\n1,2\n3,4\n"),
          bytes_of("\x80"
                   "0,1\n2,3\n"),
          bytes_of("\x05x,class\n1,a\n2,b\n"),
          bytes_of("\x06x;force\n1;2\n3;4\n"),
          bytes_of("\x07"
                   "1\t2\n3\t4\n"),
          bytes_of("\x44" + array),
          bytes_of("\x47" + array)};
}

}  // namespace lockstep::fuzz
