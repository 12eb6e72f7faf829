// JsonLine: one object per line, written field by field, for listings of many millions of lines.
#pragma once

#include <string_view>

#include "cli/text/output.h"

namespace ptd::cli {

/// Opens the object at once; end() closes it and the line. Text that is no UTF-8 is replaced.
class JsonLine {
 public:
  explicit JsonLine(TextBuffer& out) : out_(out) { out_.ch('{'); }
  void text(std::string_view key, std::string_view value);
  void number(std::string_view key, uint64_t value);
  void signed_number(std::string_view key, int64_t value);
  /// "0x401000": more bits than a number of JavaScript has.
  void address(std::string_view key, uint64_t value);
  void boolean(std::string_view key, bool value);
  /// Digits that are a number already.
  void verbatim(std::string_view key, std::string_view json);
  /// Fields made before: "\"a\":1,\"b\":2".
  void fields(std::string_view made);
  void end();

 private:
  void key(std::string_view name);
  TextBuffer& out_;
  bool any_ = false;
};

/// Appends `value` in quotes.
void append_json_text(TextBuffer& out, std::string_view value);

}  // namespace ptd::cli
