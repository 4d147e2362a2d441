#include "lockstep/engine/nn/formulas/formula_parser.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "lockstep/base/text.h"

namespace lockstep {
namespace {

using NodeKind = FormulaNode::Kind;

// The tree of a text of this length is at most this deep, whatever its operations.
constexpr size_t longest_text = 2000;
constexpr int most_nested = 100;

// Of ASCII alone, whatever the locale.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool continues_name(char c) { return begins_name(c) || is_digit(c); }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

class FormulaParser {
 public:
  explicit FormulaParser(Formula& formula) : formula_(formula), text_(formula.text) {}

  FormulaNodePtr run() {
    if (text_.size() > longest_text) {
      refuse({longest_text, longest_text + 1},
             "the expression has more than " + std::to_string(longest_text) + " characters");
    }
    next();
    if (token_.empty()) refuse(at_, "the expression is empty");
    FormulaNodePtr root = comparison();
    if (!token_.empty()) refuse_token("an operator or the end of the expression");
    return root;
  }

 private:
  // Bounds the recursion.
  class Nested {
   public:
    explicit Nested(FormulaParser& parser) : parser_(parser) {
      if (++parser.depth_ > most_nested) {
        parser.refuse(parser.at_, "the expression is nested more than " +
                                      std::to_string(most_nested) + " times");
      }
    }
    ~Nested() { --parser_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    FormulaParser& parser_;
  };

  [[noreturn]] void refuse(TextRange at, const std::string& problem,
                           const std::string& hint = {}) const {
    refuse_formula(formula_, at, problem, hint);
  }
  [[noreturn]] void refuse_token(const std::string& expected, const std::string& hint = {}) const {
    refuse(at_,
           "expected " + expected + ", received " +
               (token_.empty() ? "the end" : "`" + printable(token_) + "`"),
           hint);
  }

  // Moves to the next token: a name, a number, a sign of one or two characters, or "" at the end.
  void next() {
    size_t begin = at_.end;
    while (begin < text_.size() && is_space(text_[begin])) ++begin;
    size_t end = begin;
    const auto here = [&](size_t ahead) {
      return begin + ahead < text_.size() ? text_[begin + ahead] : '\0';
    };
    if (begin == text_.size()) {
      at_ = {begin, begin};
      token_ = {};
      return;
    }
    if (begins_name(here(0))) {
      while (end < text_.size() && continues_name(text_[end])) ++end;
    } else if (is_digit(here(0)) || (here(0) == '.' && is_digit(here(1)))) {
      end = end_of_number(begin);
    } else {
      const std::string_view two = text_.substr(begin, 2);
      end =
          begin + (two == "**" || two == "<=" || two == ">=" || two == "==" || two == "!=" ? 2 : 1);
      // A character of several bytes is one token.
      while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xC0U) == 0x80U) ++end;
    }
    at_ = {begin, end};
    token_ = text_.substr(begin, end - begin);
  }

  size_t end_of_number(size_t at) const {
    const auto digits = [&] {
      while (at < text_.size() && is_digit(text_[at])) ++at;
    };
    digits();
    if (at < text_.size() && text_[at] == '.') {
      ++at;
      digits();
    }
    if (at < text_.size() && (text_[at] == 'e' || text_[at] == 'E')) {
      size_t exponent = at + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (exponent < text_.size() && is_digit(text_[exponent])) {
        at = exponent;
        digits();
      }
    }
    return at;
  }

  bool take(std::string_view token) {
    if (token_ != token) return false;
    next();
    return true;
  }

  FormulaNodePtr operation(std::string_view sign, TextRange at, FormulaNodePtr a,
                           FormulaNodePtr b = {}) const {
    std::vector<FormulaArgument> arguments{{{}, std::move(a)}};
    if (b) arguments.push_back({{}, std::move(b)});
    return std::make_shared<FormulaNode>(FormulaNode{
        .kind = NodeKind::operation, .name = std::string(sign), .arguments = arguments, .at = at});
  }

  bool at_comparison() const {
    return token_ == "<" || token_ == "<=" || token_ == ">" || token_ == ">=" || token_ == "==";
  }

  FormulaNodePtr comparison() {
    FormulaNodePtr left = sum();
    if (at_comparison()) {
      const std::string sign(token_);
      const TextRange at = at_;
      next();
      left = operation(sign, at, left, sum());
      if (at_comparison()) {
        refuse(at_, "comparisons cannot be chained", "multiply them: (a < b) * (b < c)");
      }
    }
    if (token_ == "!=") refuse(at_, "there is no `!=`", "write 1 - (a == b)");
    return left;
  }

  FormulaNodePtr sum() {
    FormulaNodePtr left = product();
    while (token_ == "+" || token_ == "-") {
      const std::string sign(token_);
      const TextRange at = at_;
      next();
      left = operation(sign, at, left, product());
    }
    return left;
  }

  FormulaNodePtr product() {
    FormulaNodePtr left = signed_power();
    while (token_ == "*" || token_ == "/") {
      const std::string sign(token_);
      const TextRange at = at_;
      next();
      left = operation(sign, at, left, signed_power());
    }
    return left;
  }

  FormulaNodePtr signed_power() {
    const Nested nested(*this);
    const TextRange at = at_;
    if (take("-")) return operation("-", at, signed_power());
    if (take("+")) return signed_power();
    FormulaNodePtr base = primary();
    const TextRange sign = at_;
    if (token_ == "^") refuse(at_, "there is no `^`", "a power is written a ** b");
    if (take("**")) return operation("**", sign, base, signed_power());
    return base;
  }

  FormulaNodePtr primary() {
    const TextRange at = at_;
    if (!token_.empty() && (is_digit(token_[0]) || (token_[0] == '.' && token_.size() > 1))) {
      const double value = number();
      next();
      return std::make_shared<FormulaNode>(
          FormulaNode{.kind = NodeKind::number, .number = value, .at = at});
    }
    if (!token_.empty() && begins_name(token_[0])) {
      const std::string name(token_);
      next();
      if (token_ == "(") return call(name, at);
      return std::make_shared<FormulaNode>(
          FormulaNode{.kind = NodeKind::name, .name = name, .at = at});
    }
    if (take("(")) {
      FormulaNodePtr inner = comparison();
      if (!take(")")) refuse_token("`)`");
      return inner;
    }
    refuse_token("a number, a name or `(`");
  }

  double number() const {
    double value = 0;
    const std::from_chars_result read =
        std::from_chars(token_.data(), token_.data() + token_.size(), value);
    if (read.ec != std::errc() || read.ptr != token_.data() + token_.size() ||
        value > static_cast<double>(std::numeric_limits<float>::max()) ||
        (value != 0 && static_cast<float>(value) == 0)) {
      refuse(at_, "the number is beyond the range of f32");
    }
    return value;
  }

  FormulaNodePtr call(const std::string& name, TextRange at) {
    FormulaNode node{.kind = NodeKind::call, .name = name};
    next();
    if (token_ != ")") {
      do {
        node.arguments.push_back(argument(node.arguments));
      } while (take(","));
    }
    if (token_ != ")") refuse_token("`,` or `)`");
    node.at = {at.begin, at_.end};
    next();
    return std::make_shared<FormulaNode>(std::move(node));
  }

  FormulaArgument argument(const std::vector<FormulaArgument>& before) {
    FormulaArgument made;
    const TextRange at = at_;
    if (!token_.empty() && begins_name(token_[0])) {
      // A name and "=" begin an argument by name, a name alone an expression.
      const std::string_view name = token_;
      next();
      if (token_ == "=") {
        made.name = name;
        next();
      } else {
        at_ = {at.begin, at.begin};
        next();
      }
    }
    if (made.name.empty() && !before.empty() && !before.back().name.empty()) {
      refuse(at, "an argument by position after one by name");
    }
    made.value = token_ == "[" ? list() : comparison();
    made.at = {at.begin, made.value->at.end};
    return made;
  }

  FormulaNodePtr list() {
    FormulaNode node{.kind = NodeKind::list};
    const size_t begin = at_.begin;
    next();
    do {
      node.arguments.push_back({{}, comparison()});
    } while (take(","));
    if (token_ != "]") refuse_token("`,` or `]`");
    node.at = {begin, at_.end};
    next();
    return std::make_shared<FormulaNode>(std::move(node));
  }

  const Formula& formula_;
  std::string_view text_;
  std::string_view token_;
  TextRange at_;  // of the token
  int depth_ = 0;
};

}  // namespace

Formula parse_formula(const std::string& text, const std::string& where) {
  Formula formula{text, where, {}};
  formula.root = FormulaParser(formula).run();
  return formula;
}

}  // namespace lockstep
