// JsonText: writes a JSON document, without a JSON library: the destructor of nlohmann::json allocates, so a lack of memory there ends the
// process. Private to the project.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ptd {

/// Writes a document, two blanks deeper at each level, with ASCII alone.
class JsonText {
 public:
  /// The next value's name in its object.
  JsonText& key(std::string_view name) {
    begin_value();
    add_text(name);
    out_ += ": ";
    has_key_ = true;
    return *this;
  }
  void open(char bracket) {
    begin_value();
    out_ += bracket;
    ++depth_;
    is_first_ = true;
  }
  void close(char bracket) {
    --depth_;
    if (!is_first_) new_line();
    out_ += bracket;
    is_first_ = false;
  }
  void value(std::string_view text) {
    begin_value();
    add_text(text);
  }
  void value(bool is_true) {
    begin_value();
    out_ += is_true ? "true" : "false";
  }
  template <typename Number>
  requires std::is_integral_v<Number>
  void value(Number number) {
    begin_value();
    out_ += std::to_string(number);
  }
  /// null if it is not known.
  void value(const std::optional<uint64_t>& number) {
    if (number) return value(*number);
    begin_value();
    out_ += "null";
  }
  void value(const std::vector<std::string>& texts) {
    open('[');
    for (const std::string& text : texts) value(std::string_view(text));
    close(']');
  }
  template <typename Value>
  void pair(std::string_view name, const Value& its_value) {
    if constexpr (std::is_convertible_v<Value, std::string_view>) {
      key(name).value(std::string_view(its_value));
    } else {
      key(name).value(its_value);
    }
  }
  /// A list of objects; fill(element) adds an object's pairs.
  template <typename List, typename Fill>
  void list(std::string_view name, const List& elements, const Fill& fill) {
    key(name).open('[');
    for (const auto& element : elements) {
      open('{');
      fill(element);
      close('}');
    }
    close(']');
  }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  void new_line() {
    out_ += '\n';
    out_.append(2 * depth_, ' ');
  }
  void begin_value() {
    if (std::exchange(has_key_, false)) return;
    if (!std::exchange(is_first_, false)) out_ += ',';
    if (depth_ != 0) new_line();
  }
  void add_unit(uint32_t unit);
  void add_text(std::string_view text);

  std::string out_;
  size_t depth_ = 0;
  bool is_first_ = true, has_key_ = false;
};

/// Appends `text` to `out` as a JSON string. Bytes above ASCII are copied: the result is UTF-8 if the text is.
void add_json_text(std::string_view text, std::string& out);

}  // namespace ptd
