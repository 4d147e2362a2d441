// One description of a struct's fields is used to read it from JSON (job files, model files), to
// check it, to write it back and to document it. The struct has a member
//   void visit(FieldVisitor& v) {
//     v.integer("filters", filters, "number of filters", {.min = 1, .required = true});
//     ...
//   }
//
// The member names every field once, with its unit in the help text.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Padding of a two-dimensional window: numbers, or "same" (output = ceil(input / stride)).
struct Padding2d {
  bool same = false;
  int64_t top = 0, bottom = 0, left = 0, right = 0;
  friend bool operator==(const Padding2d&, const Padding2d&) = default;
};
inline constexpr Padding2d same_padding{.same = true};
constexpr Padding2d padding(int64_t all) { return {false, all, all, all, all}; }

// The same along one axis (Padding1d), or along depth, rows and columns (Padding3d).
template <size_t axes>
struct PaddingAlong {
  bool same = false;
  std::array<int64_t, axes> before{}, after{};
  static constexpr PaddingAlong all(int64_t n) {
    PaddingAlong p;
    p.before.fill(n);
    p.after.fill(n);
    return p;
  }
  friend bool operator==(const PaddingAlong&, const PaddingAlong&) = default;
};
using Padding1d = PaddingAlong<1>;
using Padding3d = PaddingAlong<3>;

using Size2d = std::array<int64_t, 2>;      // rows, columns
using Size3d = std::array<int64_t, 3>;      // depth, rows, columns
using NumberRange = std::array<double, 2>;  // low, high

struct IntegerRule {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
  bool required = false;
};
struct NumberRule {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;  // strictly greater than min
  bool max_excluded = false;  // strictly less than max
};

struct NumberRangeRule {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool symmetric = false;  // a single number v >= 0 means [-v, v] instead of [v, v]
};

// What a change of a training's field affects.
enum class FieldEffect : uint8_t {
  result,  // the result
  ending,  // only when the training ends
  speed,   // only speed, memory and output
};

class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  // The effect of the fields from here on; at the beginning FieldEffect::result.
  virtual void effect(FieldEffect) {}
  virtual void integer(const char* name, int64_t& value, const char* help,
                       IntegerRule rule = {}) = 0;
  // The value is always finite: infinities and NaN are refused even if the rule has no bounds.
  virtual void number(const char* name, double& value, const char* help, NumberRule rule = {}) = 0;
  virtual void flag(const char* name, bool& value, const char* help) = 0;
  // Any text. If `choices` is not empty, the text must be one of them.
  virtual void text(const char* name, std::string& value, const char* help,
                    const std::vector<std::string>& choices = {}) = 0;
  // Two whole numbers. A single number is used for both.
  virtual void size(const char* name, Size2d& value, const char* help, IntegerRule rule = {}) = 0;
  // Three whole numbers. A single number is used for all three.
  virtual void size(const char* name, Size3d& value, const char* help, IntegerRule rule = {}) = 0;
  // One or more whole numbers. A single number is a list of one.
  virtual void integers(const char* name, std::vector<int64_t>& value, const char* help,
                        IntegerRule rule = {}) = 0;
  // [low, high] with low <= high, both included. A single number v >= 0 means [-v, v].
  virtual void range(const char* name, Size2d& value, const char* help) = 0;
  // [low, high] with low <= high within the rule's bounds, or a single number (see the rule).
  virtual void number_range(const char* name, NumberRange& value, const char* help,
                            NumberRangeRule rule = {}) = 0;
  // "same", one number, [rows, columns] or [top, bottom, left, right]. Each number is >= 0.
  virtual void padding(const char* name, Padding2d& value, const char* help) = 0;
  // 1d: "same", one number or [before, after]. 3d: "same", one number, [depth, rows, columns], or
  // six numbers: before and after for each axis.
  virtual void padding(const char* name, Padding1d& value, const char* help) = 0;
  virtual void padding(const char* name, Padding3d& value, const char* help) = 0;
  // A whole number >= 1, or `word`, which is stored as 0 (for example "epoch").
  virtual void integer_or(const char* name, int64_t& value, const char* word, const char* help) = 0;
  // A list of numbers. A single number is a list of one.
  virtual void numbers(const char* name, std::vector<double>& values, const char* help,
                       NumberRule rule = {}) = 0;
  // A list of texts. If `choices` is not empty, each text must be one of them. A single text is a
  // list of one.
  virtual void texts(const char* name, std::vector<std::string>& values, const char* help,
                     const std::vector<std::string>& choices = {}) = 0;
};

// A field with one of several words, which an enum stands for. `words`: the word of each value, in
// the order of the enum's values, which count from 0.
template <class E>
void visit_word(FieldVisitor& v, const char* name, E& value, const char* help,
                const std::vector<std::string>& words) {
  const auto number = static_cast<size_t>(value);
  std::string word = number < words.size() ? words[number] : std::to_string(number);
  v.text(name, word, help, words);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == word) value = static_cast<E>(i);
  }
}

// Reads fields from a JSON object. `where` names the object in errors ("training", "layer 3
// (convolution2d)"). A numeric field may hold text if there is an `expression`, which evaluates it.
// A wrong type, a value out of range or a missing required field throws InvalidArgument with the
// field's name. finish() throws InvalidArgument for a key that no field has claimed, with the
// nearest valid name.
class FieldReader : public FieldVisitor {
 public:
  using Expression = std::function<double(const std::string& text, const std::string& where)>;
  // Keeps a reference to `object`. `also` lists the keys that the caller handles.
  FieldReader(const nlohmann::json& object, std::string where, Expression expression = {},
              std::vector<std::string> also = {});
  ~FieldReader() override;

  void integer(const char*, int64_t&, const char*, IntegerRule) override;
  void number(const char*, double&, const char*, NumberRule) override;
  void flag(const char*, bool&, const char*) override;
  void text(const char*, std::string&, const char*, const std::vector<std::string>&) override;
  void size(const char*, Size2d&, const char*, IntegerRule) override;
  void size(const char*, Size3d&, const char*, IntegerRule) override;
  void integers(const char*, std::vector<int64_t>&, const char*, IntegerRule) override;
  void range(const char*, Size2d&, const char*) override;
  void number_range(const char*, NumberRange&, const char*, NumberRangeRule) override;
  void padding(const char*, Padding2d&, const char*) override;
  void padding(const char*, Padding1d&, const char*) override;
  void padding(const char*, Padding3d&, const char*) override;
  void integer_or(const char*, int64_t&, const char*, const char*) override;
  void numbers(const char*, std::vector<double>&, const char*, NumberRule) override;
  void texts(const char*, std::vector<std::string>&, const char*,
             const std::vector<std::string>&) override;

  void finish() const;

 private:
  const nlohmann::json* find(const char* name);
  [[noreturn]] void wrong(const char* name, const std::string& expected,
                          const nlohmann::json&) const;
  double evaluate(const char* name, const nlohmann::json& value, const char* expected) const;
  double real(const char* name, const nlohmann::json& value, const NumberRule& rule) const;
  std::string choice(const char* name, const nlohmann::json& value,
                     const std::vector<std::string>& choices) const;
  int64_t whole(const char* name, const nlohmann::json& value, const IntegerRule& rule) const;
  template <size_t axes>
  void read_padding(const char* name, PaddingAlong<axes>& value, const char* expected);

  const nlohmann::json& object_;
  std::string where_;
  Expression expression_;
  std::vector<std::string> known_;
};

// Writes every field to a JSON object, in the order of the visit.
class FieldWriter : public FieldVisitor {
 public:
  explicit FieldWriter(nlohmann::ordered_json& object) : object_(object) {}
  void integer(const char*, int64_t&, const char*, IntegerRule) override;
  void number(const char*, double&, const char*, NumberRule) override;
  void flag(const char*, bool&, const char*) override;
  void text(const char*, std::string&, const char*, const std::vector<std::string>&) override;
  void size(const char*, Size2d&, const char*, IntegerRule) override;
  void size(const char*, Size3d&, const char*, IntegerRule) override;
  void integers(const char*, std::vector<int64_t>&, const char*, IntegerRule) override;
  void range(const char*, Size2d&, const char*) override;
  void number_range(const char*, NumberRange&, const char*, NumberRangeRule) override;
  void padding(const char*, Padding2d&, const char*) override;
  void padding(const char*, Padding1d&, const char*) override;
  void padding(const char*, Padding3d&, const char*) override;
  void integer_or(const char*, int64_t&, const char*, const char*) override;
  void numbers(const char*, std::vector<double>&, const char*, NumberRule) override;
  void texts(const char*, std::vector<std::string>&, const char*,
             const std::vector<std::string>&) override;

 private:
  nlohmann::ordered_json& object_;
};

// The documentation of one field.
struct FieldInfo {
  std::string name, type, default_value, help;
  std::vector<std::string> choices = {};  // all valid words, if only words are
  FieldEffect effect = FieldEffect::result;
};

// Lists the fields with their current (default) values.
class FieldLister : public FieldVisitor {
 public:
  std::vector<FieldInfo> fields;
  void effect(FieldEffect effect) override { effect_ = effect; }
  void integer(const char*, int64_t&, const char*, IntegerRule) override;
  void number(const char*, double&, const char*, NumberRule) override;
  void flag(const char*, bool&, const char*) override;
  void text(const char*, std::string&, const char*, const std::vector<std::string>&) override;
  void size(const char*, Size2d&, const char*, IntegerRule) override;
  void size(const char*, Size3d&, const char*, IntegerRule) override;
  void integers(const char*, std::vector<int64_t>&, const char*, IntegerRule) override;
  void range(const char*, Size2d&, const char*) override;
  void number_range(const char*, NumberRange&, const char*, NumberRangeRule) override;
  void padding(const char*, Padding2d&, const char*) override;
  void padding(const char*, Padding1d&, const char*) override;
  void padding(const char*, Padding3d&, const char*) override;
  void integer_or(const char*, int64_t&, const char*, const char*) override;
  void numbers(const char*, std::vector<double>&, const char*, NumberRule) override;
  void texts(const char*, std::vector<std::string>&, const char*,
             const std::vector<std::string>&) override;

 private:
  void add(FieldInfo field);

  FieldEffect effect_ = FieldEffect::result;
};

}  // namespace lockstep
