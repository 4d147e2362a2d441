// The datastores of the library: images, arrays and sequences in memory, folders of images, CSV
// files, built-in digits, and datastores that resize or crop the images of another one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/fields.h"
#include "lockstep/base/numeric/shape.h"
#include "lockstep/data/datastores/datastore.h"
#include "lockstep/data/images/augmentation.h"

namespace lockstep {

class FileSystem;
class Tensor;
class ThreadPool;

// ---- Images and arrays of floats in memory ----

// The class of each observation and the names of the classes in the order of their numbers. Without
// labels, all observations belong to one class, "". Without names, the names are the numbers.
struct ImageLabels {
  std::vector<int64_t> labels = {};       // indices into `classes`
  std::vector<std::string> classes = {};  // without duplicates
};

// Images of any sizes with 1 or 3 channels. Takes ownership. Observations are called "image 0",
// "image 1", .... Throws InvalidArgument, naming the image if one is concerned, for a number of
// labels other than that of the images, a label outside the classes, a duplicate class name, or an
// empty or inconsistent image. Thread-safe.
DatastorePtr array_datastore(std::vector<Image> images, ImageLabels labels = {});

// One block of count x height x width x channels bytes. Takes ownership. Throws InvalidArgument as
// above, and for another number of bytes.
struct ImageBlock {
  int64_t count = 0, height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;
};
DatastorePtr array_datastore(ImageBlock block, ImageLabels labels = {});

// `count` arrays of floats of one shape (features; channels x length; channels x depth x height x
// width), row-major and consecutive. Takes ownership. They are inputs for feature_input,
// sequence_input, image3d_input and image_input, or targets. Observations are called "observation
// 0", .... Throws InvalidArgument as above, for a shape without elements, and for an element that
// is not finite, which the message names.
struct ArrayBlock {
  int64_t count = 0;
  Shape shape;  // shape of one array
  std::vector<float> values = {};
};
DatastorePtr array_datastore(ArrayBlock block, ImageLabels labels = {});
// The same for an f32 tensor of n x shape, whose elements are copied.
DatastorePtr array_datastore(const Tensor& values, ImageLabels labels = {});

// ---- Sequences in memory ----

// Sequences of floats, each steps x channels (or steps x any shape of a step); numbers of steps
// differ, from 1 on. Takes ownership. They are inputs, or targets by step (with_targets()). One
// label for each sequence. Observations are called "observation 0", .... Throws InvalidArgument, as
// array_datastore() and naming the observation, for no sequences, a sequence without steps, steps
// of different shapes, and an element that is not finite. Thread-safe.
DatastorePtr sequence_datastore(std::vector<Array> sequences, ImageLabels labels = {});
// The same of tokens: integers from 0 on, each sequence steps or steps x shape.
DatastorePtr sequence_datastore(std::vector<IntegerArray> sequences, ImageLabels labels = {});

// Classes of the steps of each sequence, indices into `classes`, as targets: with_targets(
// sequence_datastore(sequences), step_labels({.labels = ...})). Without names, the names are the
// numbers. The label of each observation is 0.
struct StepLabels {
  std::vector<std::vector<int32_t>> labels = {};
  std::vector<std::string> classes = {};  // without duplicates
};
DatastorePtr step_labels(StepLabels labels);

// ---- Sequences in a folder ----

// Targets by step that the files of sequences have themselves. At most one of the three.
struct StepTargets {
  std::string label_column = {};          // the class of each step: any text
  std::vector<std::string> columns = {};  // numbers of each step, which are not inputs then
  bool next_step = false;                 // the values of the next step; the last one has no input
  std::vector<std::string> classes = {};  // of label_column, in this order; empty: those of the
                                          // files, sorted bytewise

  bool numbers() const { return next_step || !columns.empty(); }
  bool any() const { return numbers() || !label_column.empty(); }
  std::string describe() const;  // "columns force, torque"
};

struct SequenceFolderOptions {
  // Each folder in `path` is a class, with the files of its sequences. False, or with `targets`:
  // all files in `path` and in its folders are sequences of one class, "".
  bool labeled = true;
  // The first line of a table may have the names of its columns. False: it is a step.
  bool header = true;
  StepTargets targets = {};
  // Columns of a training, as in CsvOptions: the classes and numbers of its steps. They are left
  // out, with a notice, of files whose steps have no such targets.
  std::string known_label = {};
  std::vector<std::string> known_targets = {};
  // Columns of texts among the targets, as in CsvOptions: each text of the files becomes a target,
  // `column=text`; those of a training are kept, and a step with another text is an error.
  std::vector<std::string> categories = {};
};

// The sequences of a folder and of the folders below: a .csv or .tsv file for each, with a line for
// each step and a column for each channel; the first line may have their names. Or an array of
// NumPy, .npy or .npz, steps x channels (see read_numpy()). Tables are read as csv_datastore()
// reads them. All files are read once, during this call, and kept in memory. The first folder below
// `path` is the class. Classes and files are sorted bytewise; hidden files and folders are left
// out, and notices() counts others. Throws FileError if the folder is missing or a file cannot be
// read. Throws DataError, naming file, line and column, for contents that csv_datastore() refuses,
// for files without steps or with other columns than the first, for a first line 0, 1, ..., which
// may be a step or the names that pandas gives, for files outside the folders of classes, for
// folders that hold parts of a data set (`train`, `test`, ...) in place of classes, for a folder
// without sequences, for columns of targets that a file has not, for a class that is not among
// `classes`, for texts that are not targets of the training, and for one step without a next one.
// Throws InvalidArgument for targets in two ways, and for categories that are not targets.
// Thread-safe.
DatastorePtr sequence_folder(const std::string& path, const SequenceFolderOptions& options = {});
// The same for these files, and for all files of folders among them; all are of one class, "".
// Throws DataError also for files with other extensions.
DatastorePtr sequence_files(const std::vector<std::string>& paths,
                            const SequenceFolderOptions& options = {});

// ---- Images in a folder ----

// Which folders name the class of an image, such as rooms/kitchen/old/1.png below `rooms`.
enum class FolderLabels {
  first,    // the first below the root: kitchen
  nearest,  // the one that contains the image: old
  path      // all of them: kitchen/old
};
// By the names that job files and the command use. Throws InvalidArgument for another name.
FolderLabels folder_labels(const std::string& name);
inline constexpr const char* folder_labels_names[] = {"first", "nearest", "path"};

// What the pixels of label images stand for.
struct PixelClasses {
  std::vector<std::string> names = {};  // 1 to 255, without duplicates
  // What stands for each class: one number (a gray value, or the index of a palette), or red, green
  // and blue; all of one kind. Empty: class k is the number k.
  std::vector<std::vector<int64_t>> values = {};
  // The value of pixels that have no class, and do not count; empty: all have one.
  std::vector<int64_t> ignored = {};

  bool colors() const;
  // Throws InvalidArgument, naming the class, for names and values that do not fit this.
  void check() const;
  friend bool operator==(const PixelClasses&, const PixelClasses&) = default;
};

struct ImageFolderOptions {
  bool recursive = true;  // also reads folders below; false: only the files of `path` itself
  FolderLabels labels = FolderLabels::first;
  // Whether the labels will be used. Then folders are refused that hold parts of a data set
  // (`train`, `test`, ...) in place of classes, and images with their classes in files next to
  // them.
  bool labeled = true;
  // If false, a folder that should be a class and has no image in it or below it is an error,
  // because it could not be learned. Of FolderLabels::first these are the folders in `path` itself.
  bool allow_empty_folders = false;
  // Lists names that are not files (broken links, pipes) as well. Reading them throws.
  bool list_unreadable = false;
  // Turns images as their EXIF orientation says (see upright()). Digests of the contents of those
  // that are turned are combined with the orientation.
  bool upright = false;
  // Decodes JPEG files at a smaller scale that leaves at least this size (see decode_image()), as
  // they are seen. Digests of the contents of all images are combined with it.
  LeastSize least = {};
  // The images are label images, PNG files with these classes: images of one channel with the
  // numbers of the classes, and ignored_pixel (ValueSpec::pixel_labels()). Labels and classes are
  // those of the pixels, and the label of each image is 0. Palettes are read by index where classes
  // are numbers, else by color. Reading throws DataError, naming file and pixel, for values of no
  // class, and for other kinds of files than PNG with at most 8 bits. Needs `labeled` to be false.
  std::optional<PixelClasses> pixel_classes = {};
};

// All images below `path`: files with a usual extension of a format that decode_image() reads, and
// other files that begin as such images. Other files are left out, and files and folders whose
// names begin with '.'; notices() counts them, and names images of other formats. The class is
// named by folders (see FolderLabels); images in `path` itself have the class of its last name.
// Classes and the listing are sorted bytewise, the listing by path relative to `path`. A file is
// read on each access. Symbolic links are followed, except to a folder that the walk is currently
// inside (a loop). notices() also counts the images read until now that have an EXIF orientation,
// unless they are turned.
// Throws FileError if the folder is missing or cannot be read. Throws DataError if it contains no
// image (the message lists its contents), for an image name that is not a file, and for folders
// that are not classes (see the options).
DatastorePtr image_folder(const std::string& path, ImageFolderOptions options = {});

// The same from images in memory: gray values, or colors. As targets of images:
// with_targets(images, label_images(array_datastore(masks), {.names = {"road", "sky"}})). Throws
// InvalidArgument as PixelClasses::check(). Thread-safe.
DatastorePtr label_images(DatastorePtr images, PixelClasses classes);

// A label image (one channel, the numbers of classes and ignored_pixel) as a PNG file with a
// palette, which image_folder() reads with the same classes. Of classes that are numbers the index
// is the class's number, and the colors are those of PASCAL VOC; of classes that are colors the
// index is the index of the class. Pixels without a class get the ignored value, else the index
// 255, or of colors black. Throws InvalidArgument for a pixel of no class. Thread-safe.
std::vector<std::byte> encode_label_image(const Image& labels, const PixelClasses& classes);

// The observations of `targets` with the names of those of `images` up to their extensions, in the
// order of `images`. Throws InvalidArgument, naming the observation, if one has no target, and for
// two targets whose names differ in the extension alone. Thread-safe.
DatastorePtr match_by_stem(const Datastore& images, DatastorePtr targets);

// ---- Vectors of features from a CSV file ----

// What stands for a value that is missing (an empty field, `NA`, `NaN`, `null`, `?`, ...).
enum class MissingValues : uint8_t {
  refuse,  // nothing: an error
  mean,    // the mean of the column; of categories one more, "missing"
  flag     // the same, and one more feature, `column=missing`, is 1 where a number is missing
};

struct CsvOptions {
  std::string label_column = {};  // name of the column; "": known_label, or else the last column
  bool labeled = true;  // false: all columns are features, and all rows belong to one class, ""
  bool header = true;   // false: the file has no names of columns, and its first line is a row
  // With header = false: if no field of the first line is a number, it has the names all the same.
  bool find_header = false;
  // The columns of a training whose network reads this file (ExampleSpec): if the file has a column
  // `known_label`, the labels are there; if it is read without labels, this column is left out.
  // Names of columns that are numbers are accepted if they are the known ones. With targets the
  // features are in the known order, if they have these names, and notices() says so.
  std::string known_label = {};
  std::vector<std::string> known_columns = {};
  // The same for the targets of a training, and for ExampleSpec::means.
  std::vector<std::string> known_targets = {};
  std::map<std::string, float> known_means = {};
  // Numbers to learn in place of labels: these columns, in this order (ExampleSpec::target). They
  // are not features. One of `categories` becomes a target for each of its texts, `column=text`,
  // that is 1 in its rows and 0 in others, in bytewise order; those of a training are kept, and a
  // row with another text is an error.
  std::vector<std::string> target_columns = {};
  // Columns of texts, at most 1,000 different ones each. Each text becomes a feature,
  // `column=text`, that is 1 in its rows and 0 in others, in bytewise order. Those of a training
  // (`known_columns`) are kept: a row with another text has zeros, and notices() says so.
  std::vector<std::string> categories = {};
  std::vector<std::string> ignored_columns = {};  // neither features nor targets
  MissingValues missing = MissingValues::refuse;  // of features
  // The labels name the rows: words for missing values, such as NA, are names as others.
  bool labels_are_names = false;
  bool note_rounded = true;  // notices() says which columns have whole numbers that f32 rounds
};

// The rows of a table as one-dimensional arrays, in the order of the file. The label column
// contains the class names. All other columns contain finite numbers, which are read as f64 and
// rounded to f32; numbers too near to 0 become 0. Numbers have decimal points, or decimal commas
// where semicolons or tabs separate the fields: a table has one kind. Classes are sorted bytewise.
//
// The first line contains the names of the columns (ValueSpec::columns), without which networks
// match columns by position (match_columns()). A first column without a name is the index of a data
// frame: it is left out, and notices() says so.
//
// Fields are separated by commas, semicolons or tabs, whichever gives the first two lines equally
// many fields. Fields in double quotes may contain separators, doubled quotes and line breaks.
// Blanks around other fields, no-break spaces included, and empty lines are ignored. Lines may end
// in LF, CR LF or CR. The text is UTF-8, or UTF-16 with a byte order mark.
//
// Observations are called "line 2", after the line where they begin. The file is read once, during
// this call. Throws FileError if it cannot be read. Throws DataError, naming file, line and column,
// for invalid contents: no lines, numbers instead of names, columns without a name or with equal
// names, a row with another number of columns, an invalid number or one beyond f32, both decimal
// points and commas, commas that may all separate thousands (1,234), a label or target that is
// empty or a word for a missing value (NA, NaN, null, ?; a label may be none), columns of the
// options that are not there. Thread-safe.
DatastorePtr csv_datastore(const std::string& path, const CsvOptions& options = {});
// The same for another file system than the local one.
DatastorePtr csv_datastore(FileSystem& files, const std::string& path,
                           const CsvOptions& options = {});
// Whether a file is a table by its name: .csv and .tsv, in upper or lower case.
bool is_table_name(std::string_view name);

// ---- Ten thousand drawn digits for tests and examples that need no download ----

// 10,000 images of digits, 28 x 28 x 1, light on dark, 1,000 of each class "0" to "9", listed class
// by class. Each image has the strokes of one of several handwriting variants with random slant,
// rotation, size, position, thickness, wobble and pixel noise. It is a function of the index only
// (RandomUse::digits), with the same bytes on every machine. Drawing all images takes well under a
// second. read() draws the image on each call. Thread-safe.
DatastorePtr builtin_digits();

// Writes every observation to <folder>/<class>/<number>.png. Numbers start at 0 in each class and
// have leading zeros, so that the order of the listing stays the same. Throws FileError.
void export_as_folder(const Datastore& store, const std::string& folder);

// ---- Resized images ----

// Returns the image with `height` rows and `width` columns, by linear interpolation between pixel
// centers. When an image gets smaller, each pixel is the mean of the covered pixels, weighted by a
// triangle, which prevents aliasing. Computes in integers, rows first, rounded to 8 bits after each
// direction, so the result is equal on every processor. An image that already has the size is
// unchanged. Throws InvalidArgument for an empty image or a size outside 1 to max_image_side.
// Thread-safe.
Image resize(Image image, int64_t height, int64_t width);

// Returns the same observations with resized images. Digests of contents are those of the
// originals. Thread-safe.
DatastorePtr resized(DatastorePtr store, int64_t height, int64_t width);

// The size of an image whose shorter side becomes `side` pixels; the longer one becomes side * long
// / short, rounded down. Throws InvalidArgument for a side outside 1 to max_image_side or an empty
// image. Thread-safe.
Size2d size_of_shorter(int64_t height, int64_t width, int64_t side);

// Returns the same observations with images of these sizes, which differ; a crop follows. Digests
// of contents are those of the originals combined with the side. Reading an image whose longer side
// would exceed max_image_side throws DataError, naming it. Thread-safe.
DatastorePtr shorter_resized(DatastorePtr store, int64_t side);

// ---- Windows of one size, cut from images ----

// The position of a window in an image. `row` and `column` are positions among the free rows and
// columns, in units of 2^-32. The default is the center, rounded towards the top left.
struct Window {
  bool center = true;
  uint32_t row = 0, column = 0;
  // Of images that are resized after the cut: the region that is cut. Nothing: the largest central
  // one of the result's proportions.
  std::optional<RegionDraw> region = {};

  // Returns the first of `size` positions among `whole` >= size.
  static int64_t first(bool center, uint32_t share, int64_t whole, int64_t size) {
    if (center) return (whole - size) / 2;
    return static_cast<int64_t>((uint64_t{share} * static_cast<uint64_t>(whole - size + 1)) >> 32);
  }
  int64_t top(int64_t rows, int64_t height) const { return first(center, row, rows, height); }
  int64_t left(int64_t columns, int64_t width) const {
    return first(center, column, columns, width);
  }
};

// Draws a uniformly distributed position: a function of the arguments only (RandomUse::augment,
// keys as in draw_augmentation(), words 8 and 9). Thread-safe.
Window draw_window(uint64_t seed, int64_t epoch, int64_t index_in_listing, int64_t repetition = 0);

// Throws DataError, naming the image, unless it has at least height x width pixels.
void check_holds_window(const Image& image, int64_t height, int64_t width, const std::string& name);

// Returns the height x width window of an image. Throws InvalidArgument if the image is smaller.
// Thread-safe.
Image crop(const Image& image, int64_t height, int64_t width, const Window& where = {});

// Returns the same observations, cut to their centers. Digests of contents are those of the
// originals combined with the size, so a cut image differs from a resized one. Reading an image
// that is smaller throws DataError, naming it. Thread-safe.
DatastorePtr center_cropped(DatastorePtr store, int64_t height, int64_t width);

// ---- The images of a datastore that can be read ----

struct UnreadableImage {
  std::string name;    // as Datastore::name()
  std::string reason;  // message of the error from reading it
};

struct ReadableImages {
  DatastorePtr store;                       // readable images; the given store if all are readable
  std::vector<int64_t> indices;             // indices in the given store, ascending
  std::vector<UnreadableImage> unreadable;  // unreadable images in the order of the listing
};

// Reads and decodes every image once and leaves out those that throw DataError. Does not depend on
// the number of threads. `stop`, if given, is called by all threads, one at a time; true ends the
// reading. Throws DataError if no image is readable, InvalidArgument without a store, and Cancelled
// if `stop` returned true.
ReadableImages readable_images(DatastorePtr store, ThreadPool& pool,
                               const std::function<bool()>& stop = {});

}  // namespace lockstep
