// JsonValue: see json_value.h.
#include "recording/json_value.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

namespace ptd {

/// Builds a value from the events of nlohmann's parser. Each function returns whether to go on.
class JsonReader {
 public:
  using Json = nlohmann::json;
  explicit JsonReader(JsonValue& root) : root_(root) {}

  bool null() { return add({}) != nullptr; }
  bool boolean(bool) { return null(); }
  bool number_float(double, const std::string&) { return null(); }
  bool number_integer(int64_t value) { return number_unsigned(static_cast<uint64_t>(value)); }
  bool number_unsigned(uint64_t value) {
    add({})->value_ = value;
    return true;
  }
  bool string(std::string& value) {
    add({})->value_ = std::move(value);
    return true;
  }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(size_t) { return open(JsonValue::Members()); }
  bool start_array(size_t) { return open(JsonValue::List()); }
  bool key(std::string& name) {
    name_ = std::move(name);
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  static bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

 private:
  static constexpr size_t kMostDepth = 64;

  /// Adds a value to the innermost list or object. The pointer is valid until the next one is added there.
  JsonValue* add(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (auto* list = std::get_if<JsonValue::List>(&open_.back()->value_)) return &list->emplace_back(std::move(value));
    auto& members = std::get<JsonValue::Members>(open_.back()->value_);
    return &members.emplace_back(JsonValue::Member{std::move(name_), std::move(value)}).value;
  }
  template <typename Contents>
  bool open(Contents contents) {
    if (open_.size() == kMostDepth) return false;
    JsonValue* const value = add({});
    value->value_ = std::move(contents);
    open_.push_back(value);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  JsonValue& root_;
  std::vector<JsonValue*> open_;  // from the root inwards
  std::string name_;
};

std::optional<JsonValue> JsonValue::parse(std::string_view text) {
  std::optional<JsonValue> root(std::in_place);
  JsonReader reader(*root);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) root.reset();
  return root;
}

const JsonValue* JsonValue::member(std::string_view name) const {
  const auto* members = std::get_if<Members>(&value_);
  if (members == nullptr) return nullptr;
  const auto found = std::find_if(members->rbegin(), members->rend(), [name](const Member& member) { return member.name == name; });
  return found == members->rend() ? nullptr : &found->value;
}

const std::string& JsonValue::text(std::string_view name) const {
  static const std::string kNone;
  const JsonValue* value = member(name);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(&value->value_);
  return text == nullptr ? kNone : *text;
}

std::optional<uint64_t> JsonValue::number(std::string_view name) const {
  const JsonValue* value = member(name);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<uint64_t>(&value->value_)) return *number;
  const auto* text = std::get_if<std::string>(&value->value_);
  if (text == nullptr) return std::nullopt;
  const bool hex = text->starts_with("0x") || text->starts_with("0X");
  const char* begin = text->data() + (hex ? 2 : 0);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(begin, text->data() + text->size(), number, hex ? 16 : 10);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return number;
}

const std::vector<JsonValue>& JsonValue::list(std::string_view name) const {
  static const List kNone;
  const JsonValue* value = member(name);
  const auto* list = value == nullptr ? nullptr : std::get_if<List>(&value->value_);
  return list == nullptr ? kNone : *list;
}

}  // namespace ptd
