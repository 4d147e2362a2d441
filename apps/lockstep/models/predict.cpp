#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <span>

#include "apps/lockstep/archives_progress.h"
#include "apps/lockstep/command.h"
#include "apps/lockstep/image_options.h"
#include "apps/lockstep/models/named_outputs.h"
#include "apps/lockstep/models/predicted_inputs.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/data/datastores/datastore_wrapper.h"
#include "lockstep/data/datastores/datastores.h"
#include "lockstep/data/datastores/images/pixel_labels.h"
#include "lockstep/engine/nn/inputs/sequences.h"
#include "lockstep/engine/nn/loss.h"
#include "lockstep/runs/sources/data_source.h"
#include "lockstep/runs/sources/text_source.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/storage/s3_files.h"
#include "lockstep/train/input/pixel_targets.h"
#include "lockstep/train/input/targets.h"
#include "lockstep/train/trainer.h"

namespace lockstep::command {
namespace {

struct PredictArguments {
  std::string model;
  std::vector<std::string> files;
  std::string out, label_column, text_column, orientation, bad_images = "stop";
  Fitting fit = no_fitting;
  bool no_header = false;
  Preparation before = {};  // of the model
  int top = 1;
  int threads = 0;
  bool arrays = false, json = false;
};

bool is_table(const PredictArguments& a) { return is_table_name(a.files[0]); }

TableOptions tables_of(const PredictArguments& a, const Network& network) {
  return {.label_column = a.label_column,
          .header = a.before.header && !a.no_header,
          .columns = network.columns(),
          .find_header = !a.no_header,
          .categories = a.before.categories,
          .ignored_columns = a.before.ignored_columns,
          .missing = missing_values(a.before.missing)};
}

// How file number `input` of the arguments is read. Labels are ignored.
CsvOptions table_options(const PredictArguments& a, const Network& network, size_t input) {
  CsvOptions options =
      csv_options(tables_of(a, network), input, input == 0 && !a.label_column.empty());
  options.labels_are_names = true;  // they need not be known
  return options;
}

// What outputs belong to: observations, or the steps of sequences.
struct OutputRow {
  int64_t observation = 0;
  std::string name;
};

std::vector<OutputRow> output_rows(const PredictArguments& a, const Tolerant& data,
                                   const Network& network) {
  std::vector<OutputRow> rows;
  const bool by_step = network.outputs().at(0).sequence;
  const bool lines = is_table(a) && !network.inputs().at(0).sequence;
  for (int64_t i = 0; i < data.size(); ++i) {
    const std::string name = (lines ? a.files[0] + " " : "") + data.name(i);
    if (!by_step) rows.push_back({i, name});
    const int64_t steps = by_step ? data.steps(i, 0).value_or(0) : 0;
    for (int64_t t = 1; t <= steps; ++t) rows.push_back({i, name + " step " + std::to_string(t)});
  }
  return rows;
}

// Prints one line for each output: the classes with the highest scores, best first.
void print_classes(const PredictArguments& a, const Model& model, const Tolerant& data,
                   const std::vector<float>& values) {
  const std::vector<OutputRow> rows = output_rows(a, data, model.network);
  const size_t count = rows.size(), outputs = count == 0 ? 0 : values.size() / count;
  nlohmann::ordered_json predictions = nlohmann::ordered_json::array();
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    if (data.failed(rows[i].observation)) continue;
    const float* row = values.data() + i * outputs;
    std::vector<size_t> order(outputs);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t x, size_t y) { return row[x] > row[y]; });
    order.resize(std::min(outputs, static_cast<size_t>(a.top)));
    const std::string& file = rows[i].name;
    text += printable(file);
    nlohmann::ordered_json best = nlohmann::ordered_json::array();
    for (const size_t k : order) {
      const std::string name = model.classes.empty() ? std::to_string(k) : model.classes[k];
      text += fmt::format("\t{}\t{:.4f}", printable(name), row[k]);
      best.push_back({{"class", name}, {"score", row[k]}});
    }
    text += "\n";
    predictions.push_back({{"file", file}, {"top", std::move(best)}});
  }
  if (a.json) {
    print_json({{"predictions", std::move(predictions)},
                {"skipped_images", skipped_json(data.skipped())}});
  } else {
    print(text);
  }
}

// Prints one line for each output: all its numbers, with names if the network has several outputs.
void print_values(const PredictArguments& a, const Model& model, const Tolerant& data,
                  size_t outputs, const std::vector<float>& values) {
  const NamedOutputs several(model, a.top);
  nlohmann::ordered_json predictions = nlohmann::ordered_json::array();
  std::string text;
  const float* next = values.data();
  for (const auto& [observation, file] : output_rows(a, data, model.network)) {
    const std::span row(next, outputs);
    next += outputs;
    if (data.failed(observation)) continue;
    const std::string fields =
        several.any() ? several.text(row) : fmt::format("\t{}", fmt::join(row, "\t"));
    text += printable(file) + fields + "\n";
    nlohmann::ordered_json found = row;
    if (several.any()) found = several.json(row);
    predictions.push_back({{"file", file}, {"outputs", std::move(found)}});
  }
  if (a.json) {
    print_json({{"predictions", std::move(predictions)},
                {"skipped_images", skipped_json(data.skipped())}});
  } else {
    print(text);
  }
}

// A file of NumPy's format 1.0: f32, little-endian, row-major.
std::vector<std::byte> encode_npy(const float* values, const Shape& shape) {
  std::string dims;
  for (const int64_t dim : shape.dims()) dims += std::to_string(dim) + ", ";
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + dims + "), }";
  constexpr size_t before = 10, alignment = 64;  // bytes in front of the header
  header.append(alignment - (before + header.size() + 1) % alignment, ' ');
  header += '\n';
  const std::string begin = std::string("\x93NUMPY\x01\x00", 8) +
                            static_cast<char>(header.size() & 0xff) +
                            static_cast<char>(header.size() >> 8) + header;
  const auto count = static_cast<size_t>(shape.elements());
  std::vector<std::byte> file(begin.size() + count * sizeof(float));
  std::memcpy(file.data(), begin.data(), begin.size());
  std::memcpy(file.data() + begin.size(), values, count * sizeof(float));
  return file;
}

// Converts values from 0 to 1 (channels x rows x columns) to pixels. Other values are clipped.
Image image_of(const float* values, const Shape& shape) {
  Image image{shape[1], shape[2], shape[0], {}};
  const int64_t plane = shape[1] * shape[2];
  image.pixels.resize(static_cast<size_t>(shape.elements()));
  for (int64_t i = 0; i < plane; ++i) {
    for (int64_t c = 0; c < shape[0]; ++c) {
      const float value = std::clamp(values[c * plane + i], 0.0f, 1.0f);
      image.pixels[static_cast<size_t>(i * shape[0] + c)] =
          static_cast<uint8_t>(std::lround(255 * (std::isnan(value) ? 0.0f : value)));
    }
  }
  return image;
}

bool is_image(const Shape& shape) {
  return shape.rank() == 3 && (shape[0] == 1 || shape[0] == 3) && shape[1] * shape[2] > 1;
}

// The paths of files in the folder --out, named after the inputs. Throws InvalidArgument if there
// is no folder, or one of them exists.
std::vector<std::string> output_paths(const PredictArguments& a, const std::string& what,
                                      const std::string& type, const Tolerant& images) {
  if (a.out.empty()) {
    throw InvalidArgument("[predict] the network" + what, "set --out to a folder for them");
  }
  FileSystem& files = storage::files_of(a.out);
  std::set<std::string> used;
  std::vector<std::string> paths;
  for (int64_t i = 0; i < images.size(); ++i) {
    const std::string stem = std::filesystem::path(images.name(i)).stem().string();
    std::string name = stem + type;
    for (int number = 2; !used.insert(name).second; ++number) {
      name = stem + "-" + std::to_string(number) + type;
    }
    paths.push_back(join_path(a.out, name));
    if (files.exists(paths.back())) {
      throw InvalidArgument("[predict] " + paths.back() + " exists already",
                            "set --out to a new folder, because files are not overwritten");
    }
  }
  return paths;
}

// Writes a file for each image that could be read: what `encode` makes of image i. Prints one line
// for each: input and result.
void write_files(const PredictArguments& a, const std::vector<std::string>& paths, const char* kind,
                 const Tolerant& images,
                 const std::function<std::vector<std::byte>(int64_t i)>& encode) {
  if (!storage::is_address(a.out)) make_folders(storage::files_of(a.out), a.out);
  nlohmann::ordered_json predictions = nlohmann::ordered_json::array();
  std::string text;
  for (int64_t i = 0; i < images.size(); ++i) {
    if (images.failed(i)) continue;
    const std::string file = images.name(i);
    const std::string& path = paths[static_cast<size_t>(i)];
    storage::write_file(path, encode(i));
    text += printable(file) + "\t" + printable(path) + "\n";
    predictions.push_back({{"file", file}, {kind, path}});
  }
  if (a.json) {
    print_json({{"predictions", std::move(predictions)},
                {"skipped_images", skipped_json(images.skipped())}});
  } else {
    print(text);
  }
}

// Writes outputs as images (PNG) or arrays (.npy); results by step as one array for each sequence.
void write_outputs(const PredictArguments& a, const NetworkValue& output, const Tolerant& images,
                   const std::vector<float>& values) {
  const Shape& shape = output.shape;
  const bool arrays = a.arrays || output.sequence || !is_image(shape);
  const std::string what =
      arrays ? "'s outputs are arrays of " + output.to_string() : " outputs images";
  const auto paths = output_paths(a, what, arrays ? ".npy" : ".png", images);
  std::vector<int64_t> first(1, 0);  // rows of `values` before those of each observation
  for (int64_t i = 0; i < images.size(); ++i) {
    first.push_back(first.back() + (output.sequence ? images.steps(i, 0).value_or(0) : 1));
  }
  write_files(a, paths, arrays ? "array" : "image", images, [&](int64_t i) {
    const auto k = static_cast<size_t>(i);
    const float* const own = values.data() + first[k] * shape.elements();
    if (!arrays) return encode_png(image_of(own, shape));
    if (!output.sequence) return encode_npy(own, shape);
    return encode_npy(own, shape_of_dims({first[k + 1] - first[k]}, shape.dims(), 0));
  });
}

// Labels of the network's size in that of the file.
Image in_size_of_file(const Image& labels, const Measured::Sizes& sizes) {
  const DecodedScale& scale = sizes.scale;
  const int64_t divisor = scale.divisor;
  Image shown = resize_labels(labels, sizes.height * divisor, sizes.width * divisor);
  if (divisor == 1) return shown;
  // Without what the decoded image shows beyond the edges.
  Image whole{scale.height, scale.width, 1, {}};
  for (int64_t y = scale.top; y < scale.top + scale.height; ++y) {
    const auto first = shown.pixels.begin() + y * shown.width + scale.left;
    whole.pixels.insert(whole.pixels.end(), first, first + scale.width);
  }
  return whole;
}

// Writes the classes of the pixels as label images. Those of images that were resized have the
// images' own sizes: `measured`, else null.
void write_label_images(const PredictArguments& a, Model& model, const Measured* measured,
                        const std::shared_ptr<const Tolerant>& images, const DatastorePtr& watched,
                        const EvaluationOptions& options) {
  const auto paths = output_paths(a, " gives a class for each pixel", ".png", *images);
  const std::vector<Image> labels = predict_labels(model.network, watched, options);
  if (std::ssize(images->skipped()) == images->size()) images->refuse();
  const PixelClasses classes = pixel_classes_of(model);
  write_files(a, paths, "mask", *images, [&](int64_t i) {
    const Image& own = labels[static_cast<size_t>(i)];
    if (measured == nullptr) return encode_label_image(own, classes);
    return encode_label_image(in_size_of_file(own, measured->sizes_of(i)), classes);
  });
}

// For a network with several inputs: one argument for each. Folders next to a folder are matched by
// name.
DatastorePtr open_several(const PredictArguments& a, const Model& model) {
  const Network& network = model.network;
  const bool turned = upright(model, a.orientation);
  const LeastSize least = least_of(model, fitting_of(model, a.fit));
  const size_t count = network.input_shapes().size();
  if (a.files.size() != count) {
    throw InvalidArgument(fmt::format("[predict] the network has {} inputs, received {} FILES",
                                      count, a.files.size()),
                          "give one image, sequence, folder of these or .csv file for each input, "
                          "in order");
  }
  if (a.fit.crop) {
    throw InvalidArgument("[predict] --crop is for networks with one input", "use --resize");
  }
  const bool by_name = storage::files_of(a.files[0]).is_folder(a.files[0]);
  std::vector<DatastorePtr> inputs;
  for (const std::string& file : a.files) {
    if (network.inputs().at(inputs.size()).sequence) {
      const bool folder = local_files().is_folder(file);
      const SequenceFolderOptions options =
          sequence_options(tables_of(a, network), inputs.size(), false);
      DatastorePtr sequences =
          folder ? sequence_folder(file, options) : sequence_files({file}, options);
      const bool matched = folder && by_name && !inputs.empty();
      inputs.push_back(matched ? match_by_name(*inputs[0], std::move(sequences))
                               : std::move(sequences));
    } else if (is_table_name(file)) {
      inputs.push_back(csv_datastore(file, table_options(a, network, inputs.size())));
    } else if (storage::files_of(file).is_folder(file)) {
      DatastorePtr images = image_folder(file, {.labeled = false,
                                                .allow_empty_folders = true,
                                                .list_unreadable = true,
                                                .upright = turned,
                                                .least = least});
      const bool matched = by_name && !inputs.empty();
      inputs.push_back(matched ? match_by_name(*inputs[0], std::move(images)) : std::move(images));
    } else {
      inputs.push_back(image_files({file}, false, turned, least));
    }
  }
  if (a.fit.resize || a.before.resize) inputs = resized_inputs(std::move(inputs), network);
  return join_inputs(std::move(inputs));
}

// Names of files that cannot be what the network's input takes.
void check_kind(const PredictArguments& a, const Network& network) {
  const size_t axes = network.inputs().at(0).shape.rank();
  const std::string received =
      a.files.size() == 1 ? a.files[0] : counted(std::ssize(a.files), "file");
  const auto found =
      std::ranges::find_if(a.files, [](const auto& file) { return is_table_name(file); });
  if (axes == 3 && found != a.files.end()) {
    throw InvalidArgument("[predict] the model takes images, received the table " + *found,
                          "give images, or folders of images");
  }
  if (axes == 1 && !(a.files.size() == 1 && is_table(a))) {
    throw InvalidArgument("[predict] the model takes rows of a table, received " + received,
                          "give one .csv or .tsv file, with a row for each observation");
  }
}

DatastorePtr open_observations(const PredictArguments& a, const Model& model) {
  const Network& network = model.network;
  if (!a.text_column.empty() && !takes_text(network)) refuse_text_column("predict");
  if (takes_text(network)) {
    if (!a.label_column.empty()) {
      throw InvalidArgument(
          "[predict] --label-column is for one .csv file of features, but the "
          "network's input is text, whose labels are not read");
    }
    return open_texts(a.files, false, model, {.text = a.text_column, .label = {}});
  }
  if (network.inputs().at(0).sequence) {
    if (!a.label_column.empty()) {
      throw InvalidArgument(
          "[predict] --label-column is for one .csv file of features, but the "
          "network's input is a sequence");
    }
    return sequence_files(a.files, sequence_options(tables_of(a, network), 0, false));
  }
  const bool table = a.files.size() == 1 && is_table(a);
  if (!a.label_column.empty() && !table) {
    throw InvalidArgument("[predict] --label-column is for one .csv file");
  }
  check_kind(a, network);
  if (table) return csv_datastore(a.files[0], table_options(a, network, 0));
  return image_files(a.files, /*list_unreadable=*/true, upright(model, a.orientation),
                     least_of(model, fitting_of(model, a.fit)));
}

int predict_command(const PredictArguments& given) {
  PredictArguments a = given;
  const ArchivesProgress archives(a.json);
  Model model = open_model(a.model);
  a.before = model.preparation;
  require_finite(model.network, a.model);
  const auto inputs = model.network.input_shapes();
  const bool several = inputs.size() > 1;
  DatastorePtr data = several ? open_several(a, model) : open_observations(a, model);
  note_missing_names(model, *data);
  const Fitting fit = fitting_of(model, a.fit);
  if (!several && a.fit.any()) check_images(*data, a.fit.crop ? "--crop" : "--resize");
  const bool masks = labels_pixels(model.network) && !a.arrays;
  std::shared_ptr<const Measured> measured;
  if (masks && !several && fit.resize) data = measured = std::make_shared<Measured>(data);
  if (!several && fit.any() && has_image_inputs(*data)) data = fitted(data, inputs, fit);
  const ReadingProgress reading(a.json);
  Notes notes;
  const auto tolerant = std::make_shared<Tolerant>(std::move(data), inputs);
  const EvaluationOptions options{.threads = a.threads, .notice = notes.printer()};
  if (masks) {
    write_label_images(a, model, measured.get(), tolerant, reading.watch(tolerant), options);
    reading.finish();
    notes.print_new({tolerant});
    if (a.bad_images == "stop") tolerant->refuse();
    print_skipped(tolerant->skipped());
    return 0;
  }
  const NetworkValue output = model.network.outputs().at(0);
  const Shape& shape = output.shape;
  const auto outputs = static_cast<size_t>(shape.elements());
  const bool classes = model.classes.size() == outputs;
  const bool writes = a.arrays || (shape.rank() > 1 && shape.elements() > shape[0] && !classes);
  if (!writes && !a.out.empty()) {
    throw InvalidArgument(
        "[predict] --out is for images and arrays, but the results of this network are printed",
        "add --arrays to write them as .npy files, or leave --out out");
  }
  const std::vector<float> values =
      predict(model.network, reading.watch(tolerant), options).to_vector();
  reading.finish();
  notes.print_new({tolerant});
  const std::vector<UnreadableImage> skipped = tolerant->skipped();
  if (std::ssize(skipped) == tolerant->size()) tolerant->refuse();
  const bool unnamed = model.classes.empty() && takes_labels(model.network.loss());
  if (writes) {
    write_outputs(a, output, *tolerant, values);
  } else if (unnamed || classes) {
    print_classes(a, model, *tolerant, values);
  } else {
    print_values(a, model, *tolerant, outputs, values);
  }
  if (a.bad_images == "stop") tolerant->refuse();
  print_skipped(skipped);
  return 0;
}

}  // namespace

void add_predict(Commands& commands) {
  auto a = std::make_shared<PredictArguments>();
  Subcommand sub = commands.add(
      "predict",
      "Classes of images, rows, sequences or texts, one line each: file, class, score; or output "
      "images",
      "Columns are separated by tabs. The output images of image-to-image networks are written as "
      "PNG files to the folder --out, and so are the classes of pixels: as label images with a "
      "palette, in the sizes of images that are resized for the network, else of its output. "
      "Other outputs with spatial or time axes (maps, sequences of one length) are written as "
      "NumPy arrays. Vectors that are not scores of the classes are printed in full; results by "
      "step have a line for each step. With --arrays all outputs are arrays in --out, those of a "
      "sequence by step as steps x values. Of a network "
      "with several outputs each has its name, and then its numbers or classes.",
      {{"lockstep predict runs/digits-1 seven.png", "file, class and score"},
       {"lockstep predict runs/digits-1 images --top 3",
        "all images of a folder, three classes each"},
       {"lockstep predict runs/iris-1 measured.csv", "all rows of a file of features"},
       {"lockstep predict runs/waves-1 1.csv 2.npy", "two sequences"},
       {"lockstep predict runs/reviews-1 new.txt more.jsonl", "texts"},
       {"lockstep predict denoiser.safetensors noisy --out clean", "output images"},
       {"lockstep predict runs/streets-1 photos --out masks", "the class of each pixel"}},
      [a] { return predict_command(*a); });
  sub.add_option("model", a->model, "Model file, or the folder of a run")
      .required()
      .type_name("MODEL");
  sub.add_option("files", a->files,
                 "Images, or folders of images; or one .csv file of features, whose columns are "
                 "matched by name; of sequences: .csv, .tsv, .npy and .npz files, or folders of "
                 "them; of texts: .txt files, folders of them, and .jsonl files, whose lines need "
                 "no labels; for a network with several inputs: one of these for each input")
      .required()
      .type_name("FILES");
  sub.add_option("--label-column", a->label_column,
                 "Label column of a .csv file that has labels; it is ignored, as is that of the "
                 "training")
      .type_name("NAME");
  add_text_column(sub, a->text_column);
  add_no_header(sub, a->no_header);
  sub.add_option(
         "--out", a->out,
         "Folder or address for output images (PNG) and arrays (.npy), where there are some; "
         "results that are printed need --arrays for it")
      .type_name("DIR")
      .not_empty();
  add_fitting(sub, a->fit, "the network's input");
  add_orientation(sub, a->orientation);
  add_bad_images(sub, a->bad_images,
                 "If images cannot be read, the others are predicted anyway; then: stop with "
                 "an error, or skip: list them only (default: stop)");
  sub.add_option("--top", a->top, "Number of classes to print, the best first")
      .type_name("K")
      .range(1, 1 << 20);
  sub.add_flag("--arrays", a->arrays, "Write all outputs as NumPy arrays (.npy), f32 as computed");
  add_threads(sub, a->threads);
  sub.add_flag("--json", a->json, "Print one JSON object");
}

}  // namespace lockstep::command
