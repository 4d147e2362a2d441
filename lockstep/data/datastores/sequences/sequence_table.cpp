#include "lockstep/data/datastores/sequences/sequence_table.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/suggest.h"
#include "lockstep/data/datastores/sequences/numpy_file.h"
#include "lockstep/data/datastores/tables/category_names.h"

namespace lockstep {
namespace {

// An array of NumPy, steps x channels; that of one dimension has one channel.
Array sequence_of_numpy(const std::string& path) {
  Array sequence = read_numpy(local_files().read(path), path);
  const Shape shape = sequence.shape;
  if (shape.rank() == 0) {
    refuse_sequences(path + " is a single number", "a sequence is steps x channels");
  }
  if (shape.elements() == 0) {
    refuse_sequences(path + " has the shape " + shape.to_string() + ", so no steps or no channels");
  }
  if (shape.rank() == 1) sequence.shape = Shape{shape[0], 1};
  return sequence;
}

// Whether a cell holds a value, or stands for one that is missing, in whatever notation: `NA`,
// `#N/A`, `-nan`, `1e999`, `0x1`, `1,000`. Then it is not the name of a column.
bool is_value(const std::string& cell) {
  std::string word;
  for (const char c : cell) {
    if (c != ' ' && c != '"')
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const auto missing = {"", "na", "n/a", "null", "none", "-", "?"};
  if (word.starts_with("#n") || std::ranges::find(missing, word) != missing.end()) return true;
  char* end = nullptr;
  std::strtod(word.c_str(), &end);
  return *end == '\0' || word.find_first_not_of("0123456789.,+-") == std::string::npos;
}

// A step that is missing would move all later ones.
void refuse_gaps(const std::string& path, const Datastore& rows,
                 const std::vector<std::string>& columns) {
  const auto value = std::ranges::find_if(columns, is_value);
  if (value != columns.end()) {
    refuse_sequences(path + " has `" + *value +
                         "` in its first line, which is neither a number nor the "
                         "name of a column",
                     "give each step its values, or leave it out of the file");
  }
  int64_t before = 0;
  for (int64_t i = 0; i < rows.size(); ++i) {
    const int64_t line = std::stoll(rows.name(i).substr(std::string("line ").size()));
    if (i > 0 && line > before + 1) {
      refuse_sequences(
          path + " line " + std::to_string(before + 1) + " is empty, but more steps follow",
          "give each step its values, or remove the line");
    }
    before = line;
  }
}

// Data frames of pandas have the names 0, 1, ..., which look like a step.
void refuse_numbered_columns(const std::string& path, const Array& first) {
  if (first.values.size() < 2) return;
  for (size_t i = 0; i < first.values.size(); ++i) {
    if (first.values[i] != static_cast<float>(i)) return;
  }
  const std::string last = std::to_string(first.values.size() - 1);
  refuse_sequences(path + " begins with the numbers 0 to " + last +
                       ", which may be names of columns, as pandas writes them, or a step",
                   "if they are a step, say so: header = false in [data], or --no-header; if not, "
                   "write the file without names (to_csv(header=False)) or with others");
}

std::string without(const std::string& path, std::string note) {
  const std::string prefix = "file " + path + ": ";
  return note.starts_with(prefix) ? note.substr(prefix.size()) : note;
}

// The rows of a table as the steps of a sequence.
SequenceTable sequence_of_table(const std::string& path, const SequenceFolderOptions& options,
                                TableNotes& notes) {
  const std::string& label = options.targets.label_column;
  CsvOptions reading{.label_column = label,
                     .labeled = !label.empty(),
                     .header = false,
                     .find_header = options.header,
                     .known_label = options.known_label};
  reading.note_rounded = false;  // of each file, other numbers
  reading.categories = options.categories;
  // Without targets, their texts are left out.
  if (options.targets.columns.empty() && !options.categories.empty()) {
    reading.known_targets = options.known_targets;
  }
  const DatastorePtr rows = csv_datastore(path, reading);
  const ValueSpec spec = rows->spec().inputs.at(0);
  if (rows->size() == 0) refuse_sequences(path + " has names of columns, but no steps");
  SequenceTable table{.columns = spec.columns};
  refuse_gaps(path, *rows, table.columns);
  if (table.columns.empty() && options.header) refuse_numbered_columns(path, read_array(*rows, 0));
  for (const std::string& note : rows->notices()) ++notes[without(path, note)];
  table.steps.shape = {rows->size(), spec.shape[0]};
  table.steps.values.reserve(static_cast<size_t>(table.steps.shape.elements()));
  for (int64_t i = 0; i < rows->size(); ++i) {
    const Array one = read_array(*rows, i);
    table.steps.values.insert(table.steps.values.end(), one.values.begin(), one.values.end());
    if (!label.empty()) {
      table.labels.push_back(rows->classes()[static_cast<size_t>(rows->label(i))]);
    }
  }
  return table;
}

// Some channels of a sequence, in this order.
Array channels_of(const Array& sequence, const std::vector<size_t>& channels) {
  const int64_t steps = sequence.shape[0], width = sequence.shape[1];
  Array some{{steps, static_cast<int64_t>(channels.size())}, {}};
  some.values.reserve(static_cast<size_t>(some.shape.elements()));
  for (int64_t t = 0; t < steps; ++t) {
    for (const size_t c : channels) {
      some.values.push_back(sequence.values[static_cast<size_t>(t * width) + c]);
    }
  }
  return some;
}

// Steps [first, first + count).
Array steps_of(const Array& sequence, int64_t first, int64_t count) {
  const Shape step = sequence.shape.without_batch();
  const auto begin = sequence.values.begin() + first * step.elements();
  return {batch_shape(count, step), {begin, begin + count * step.elements()}};
}

// Takes the channels with these names out of the table.
Array take_channels(const std::string& path, const std::vector<std::string>& names,
                    SequenceTable& table) {
  std::vector<size_t> taken, left;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(table.columns, name);
    if (found == table.columns.end()) {
      refuse_sequences(path + " has no column `" + name + "`" +
                           (table.columns.empty() ? ": its columns have no names" : ""),
                       suggest(name, table.columns));
    }
    taken.push_back(static_cast<size_t>(found - table.columns.begin()));
  }
  std::vector<std::string> names_left;
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (std::ranges::find(taken, c) != taken.end()) continue;
    left.push_back(c);
    names_left.push_back(table.columns[c]);
  }
  if (left.empty()) refuse_sequences(path + " has only columns of targets, but no inputs");
  Array values = channels_of(table.steps, taken);
  table.steps = channels_of(table.steps, left);
  table.columns = std::move(names_left);
  return values;
}

// Leaves out the targets of a training, of which a file to predict may have some.
void leave_out_known(const std::string& path, const std::vector<std::string>& known,
                     SequenceTable& table, TableNotes& notes) {
  std::vector<std::string> here;
  for (const std::string& name : known) {
    if (std::ranges::find(table.columns, name) != table.columns.end()) here.push_back(name);
  }
  if (here.empty() || here.size() == table.columns.size()) return;
  take_channels(path, here, table);
  for (const std::string& name : here) {
    ++notes["the column `" + name + "` has targets and is left out"];
  }
}

}  // namespace

void refuse_sequences(const std::string& what, const std::string& hint) {
  throw DataError("[sequence_folder] " + what, hint);
}

SequenceTable read_sequence_table(const std::string& path, const SequenceFolderOptions& options,
                                  TableNotes& notes) {
  const StepTargets& targets = options.targets;
  SequenceTable table;
  if (is_numpy_name(path)) {
    if (!targets.label_column.empty() || !targets.columns.empty()) {
      const std::string& name =
          targets.columns.empty() ? targets.label_column : targets.columns.front();
      refuse_sequences(path + " is an array of NumPy, which has no column `" + name + "`",
                       "targets by step of arrays are a folder with arrays of the same names");
    }
    table.steps = sequence_of_numpy(path);
  } else {
    table = sequence_of_table(path, options, notes);
    if (!targets.columns.empty()) {
      table.target_columns = with_categories(targets.columns, options.categories, table.columns);
      table.targets = take_channels(path, table.target_columns, table);
    } else {
      leave_out_known(path, options.known_targets, table, notes);
    }
  }
  if (targets.next_step) {
    const int64_t steps = table.steps.shape[0];
    if (steps < 2) {
      refuse_sequences(path + " has one step, so no step has a next one",
                       "targets that are the next step need two steps or more");
    }
    table.targets = steps_of(table.steps, 1, steps - 1);
    table.steps = steps_of(table.steps, 0, steps - 1);
  }
  return table;
}

}  // namespace lockstep
