#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/described.h"
#include "lockstep/data/datastores/image_listing.h"
#include "lockstep/data/datastores/sequences/numpy_file.h"

namespace lockstep {
namespace {

// A file below the folder, and its class.
struct SequenceFile {
  std::string name;  // relative
  std::string label;
};

struct FoundFiles {
  std::vector<SequenceFile> files;
  std::map<std::string, int64_t> others;  // number of other files by extension
  std::vector<std::string> empty;         // class folders without files
};

[[noreturn]] void refuse_folder(const std::string& what, const std::string& hint = {}) {
  throw DataError("[sequence_folder] " + what, hint);
}

// Folders in folders of classes. More are a link to a folder that contains it.
constexpr int kMostDepth = 32;

// Takes the tables and arrays of one folder, and of those below if it has a class; hidden ones are
// left out.
void take_files(const std::string& root, const std::string& folder, const std::string& label,
                FoundFiles& found, int depth = 0) {
  const std::string path = folder.empty() ? root : join_path(root, folder);
  if (depth > kMostDepth) {
    refuse_folder(path + " lies in more than " + std::to_string(kMostDepth) + " folders",
                  "a link to a folder that contains it has no end");
  }
  for (const std::string& file : local_files().list(path)) {
    if (file.starts_with('.')) continue;
    const std::string name = folder.empty() ? file : folder + '/' + file;
    if (local_files().is_folder(join_path(path, file))) {
      if (!folder.empty()) take_files(root, name, label, found, depth + 1);
    } else if (is_table_name(file) || is_numpy_name(file)) {
      found.files.push_back({name, label});
    } else {
      const size_t dot = file.find_last_of('.');
      ++found.others[dot == std::string::npos ? "" : file.substr(dot)];
    }
  }
}

FoundFiles files_of_folder(const std::string& root, bool labeled) {
  if (!local_files().is_folder(root)) {
    throw FileError("[sequence_folder] there is no folder " + root,
                    "a relative path starts in the working folder");
  }
  FoundFiles found;
  std::vector<std::string> folders;
  for (const std::string& name : local_files().list(root)) {
    if (!name.starts_with('.') && local_files().is_folder(join_path(root, name))) {
      folders.push_back(name);
    }
  }
  std::sort(folders.begin(), folders.end());
  take_files(root, "", "", found);
  if (labeled && !found.files.empty()) {
    refuse_folder(
        root + " has sequences outside the folders of classes, such as " + found.files.front().name,
        "put each file into a folder with the name of its class");
  }
  if (labeled && !folders.empty() && are_parts_of_data(folders)) {
    refuse_folder(root + " holds " + enumerated(folders) + ": parts of a data set, not classes",
                  "name one of them, such as " + join_path(root, folders[0]));
  }
  for (const std::string& folder : folders) {
    const size_t before = found.files.size();
    take_files(root, folder, folder, found);
    if (found.files.size() == before) found.empty.push_back(folder);
  }
  std::sort(found.files.begin(), found.files.end(),
            [](const SequenceFile& a, const SequenceFile& b) { return a.name < b.name; });
  return found;
}

// An array of NumPy, steps x channels; that of one dimension has one channel.
Array sequence_of_numpy(const std::string& path) {
  Array sequence = read_numpy(local_files().read(path), path);
  const Shape shape = sequence.shape;
  if (shape.rank() == 0) {
    refuse_folder(path + " is a single number", "a sequence is steps x channels");
  }
  if (shape.elements() == 0) {
    refuse_folder(path + " has the shape " + shape.to_string() + ", so no steps or no channels");
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
    refuse_folder(path + " has `" + *value +
                      "` in its first line, which is neither a number nor the "
                      "name of a column",
                  "give each step its values, or leave it out of the file");
  }
  int64_t before = 0;
  for (int64_t i = 0; i < rows.size(); ++i) {
    const int64_t line = std::stoll(rows.name(i).substr(std::string("line ").size()));
    if (i > 0 && line > before + 1) {
      refuse_folder(
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
  refuse_folder(path + " begins with the numbers 0 to " + last +
                    ", which may be names of columns, as pandas writes them, or a step",
                "if they are a step, say so: header = false in [data], or --no-header; if not, "
                "write the file without names (to_csv(header=False)) or with others");
}

// Notes of reading tables, without the names of these, and in how many.
using TableNotes = std::map<std::string, int64_t>;

std::string without(const std::string& path, std::string note) {
  const std::string prefix = "file " + path + ": ";
  return note.starts_with(prefix) ? note.substr(prefix.size()) : note;
}

// The rows of a table as the steps of a sequence. Notes of its reading are added to `notices`.
Array sequence_of(const std::string& path, bool header, std::vector<std::string>& columns,
                  TableNotes& notices) {
  if (is_numpy_name(path)) return sequence_of_numpy(path);
  const DatastorePtr rows =
      csv_datastore(path, {.labeled = false, .header = false, .find_header = header});
  const ValueSpec spec = rows->spec().inputs.at(0);
  if (rows->size() == 0) refuse_folder(path + " has names of columns, but no steps");
  columns = spec.columns;
  refuse_gaps(path, *rows, columns);
  if (columns.empty() && header) refuse_numbered_columns(path, read_array(*rows, 0));
  for (const std::string& note : rows->notices()) ++notices[without(path, note)];
  Array sequence{{rows->size(), spec.shape[0]}, {}};
  sequence.values.reserve(static_cast<size_t>(sequence.shape.elements()));
  for (int64_t i = 0; i < rows->size(); ++i) {
    const Array one = read_array(*rows, i);
    sequence.values.insert(sequence.values.end(), one.values.begin(), one.values.end());
  }
  return sequence;
}

std::string text_of(const std::vector<std::string>& columns) {
  std::string text;
  for (const std::string& column : columns) text += (text.empty() ? "" : ", ") + column;
  return text.empty() ? "none" : text;
}

// Reads the files, whose names are relative to `root`.
DatastorePtr read_sequences(const std::string& root, std::vector<SequenceFile> files, bool header,
                            std::vector<std::string> notices) {
  std::vector<Array> sequences;
  std::vector<std::string> columns;
  TableNotes of_tables;
  bool named = false;  // whether `columns` are those of a table
  ImageLabels labels;
  std::set<std::string> classes;
  for (const SequenceFile& file : files) classes.insert(file.label);
  labels.classes.assign(classes.begin(), classes.end());
  for (const SequenceFile& file : files) {
    std::vector<std::string> own;
    const std::string whole = root.empty() ? file.name : join_path(root, file.name);
    sequences.push_back(sequence_of(whole, header, own, of_tables));
    if (columns.empty() && !named) columns = own;
    named |= !is_numpy_name(whole);  // a table has names, or says that there are none
    const Shape step = sequences.back().shape.without_batch();
    const Shape first = sequences.front().shape.without_batch();
    if (step != first) {
      refuse_folder(whole + " has steps of " + step.to_string() + ", but those of " +
                    files.front().name + " are of " + first.to_string());
    }
    if (own != columns && !is_numpy_name(whole)) {
      refuse_folder(whole + " has the columns " + text_of(own) + ", but " + files.front().name +
                    " has " + text_of(columns));
    }
    labels.labels.push_back(std::distance(classes.begin(), classes.find(file.label)));
  }
  for (const auto& [note, count] : of_tables) {
    notices.push_back("in " + counted(count, "file") + ": " + note);
  }
  std::vector<std::string> names;
  for (const SequenceFile& file : files) names.push_back(file.name);
  return std::make_shared<Described>(
      sequence_datastore(std::move(sequences), std::move(labels)),
      Described::Description{
          .source = root.empty() ? counted(std::ssize(files), "file") : "folder " + root,
          .names = std::move(names),
          .columns = std::move(columns),
          .notices = std::move(notices)});
}

// What was left out of a folder.
void add_notices(const FoundFiles& found, const std::string& path,
                 std::vector<std::string>& notices) {
  for (const auto& [extension, count] : found.others) {
    notices.push_back(counted(count, "file") + " of " + path + " " + (count == 1 ? "is" : "are") +
                      " left out: " + (extension.empty() ? "without an extension" : extension));
  }
  for (const std::string& folder : found.empty) {
    notices.push_back("the folder " + folder + " of " + path + " has no sequences");
  }
}

}  // namespace

DatastorePtr sequence_folder(const std::string& path, const SequenceFolderOptions& options) {
  FoundFiles found = files_of_folder(path, options.labeled);
  if (found.files.empty()) {
    std::string others;
    for (const auto& [extension, count] : found.others) {
      others += (others.empty() ? ": " : ", ") + std::to_string(count) + " " +
                (extension.empty() ? "without an extension" : extension);
    }
    refuse_folder(
        path + " has no sequences" + others,
        "a sequence is a .csv or .tsv file with a line for each step, or a .npy or .npz file" +
            std::string(options.labeled ? ", in a folder with the name of its class" : ""));
  }
  if (!options.labeled) {
    for (SequenceFile& file : found.files) file.label.clear();
  }
  std::vector<std::string> notices;
  add_notices(found, path, notices);
  return read_sequences(path, std::move(found.files), options.header, std::move(notices));
}

DatastorePtr sequence_files(const std::vector<std::string>& paths, bool header) {
  std::vector<SequenceFile> files;
  std::vector<std::string> notices;
  for (const std::string& path : paths) {
    if (!local_files().is_folder(path)) {
      files.push_back({path, ""});
      continue;
    }
    const FoundFiles found = files_of_folder(path, false);
    add_notices(found, path, notices);
    for (const SequenceFile& file : found.files) {
      files.push_back({join_path(path, file.name), ""});
    }
  }
  if (files.empty()) refuse_folder("there are no sequences among the files");
  return read_sequences("", std::move(files), header, std::move(notices));
}

}  // namespace lockstep
