// JsonValue: the objects, lists, texts and numbers of a JSON file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ptd {

/// A value, or null for what no reader here uses: booleans, null, fractions. Destroying it allocates nothing, unlike nlohmann::json, whose
/// destructor ends the program if memory is short.
class JsonValue {
 public:
  struct Member;

  /// Returns nothing if `text` is no JSON, or is nested more than 64 deep. Throws std::bad_alloc.
  [[nodiscard]] static std::optional<JsonValue> parse(std::string_view text);

  [[nodiscard]] bool is_object() const { return std::holds_alternative<Members>(value_); }
  // Of a member of an object.
  /// Null if there is none. The last one, if several have the name.
  [[nodiscard]] const JsonValue* member(std::string_view name) const;
  /// Empty if there is none.
  [[nodiscard]] const std::string& text(std::string_view name) const;
  /// A number, or a text with a number, decimal or hexadecimal with 0x.
  [[nodiscard]] std::optional<uint64_t> number(std::string_view name) const;
  /// Empty if there is none.
  [[nodiscard]] const std::vector<JsonValue>& list(std::string_view name) const;

 private:
  friend class JsonReader;
  using List = std::vector<JsonValue>;
  using Members = std::vector<Member>;
  std::variant<std::monostate, uint64_t, std::string, List, Members> value_;
};

struct JsonValue::Member {
  std::string name;
  JsonValue value;
};

}  // namespace ptd
