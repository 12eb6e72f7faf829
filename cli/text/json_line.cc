// JsonLine: see json_line.h.
#include "cli/text/json_line.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ptd::cli {

void append_json_text(TextBuffer& out, std::string_view value) {
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
  if (!plain) return out.text(nlohmann::json(value).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  out.ch('"');
  out.text(value);
  out.ch('"');
}

void JsonLine::key(std::string_view name) {
  if (any_) out_.ch(',');
  any_ = true;
  append_json_text(out_, name);
  out_.ch(':');
}

void JsonLine::text(std::string_view name, std::string_view value) {
  key(name);
  append_json_text(out_, value);
}

void JsonLine::number(std::string_view name, uint64_t value) {
  key(name);
  out_.dec(value);
}

void JsonLine::signed_number(std::string_view name, int64_t value) {
  key(name);
  out_.dec_signed(value);
}

void JsonLine::address(std::string_view name, uint64_t value) {
  key(name);
  out_.text("\"0x");
  out_.hex(value);
  out_.ch('"');
}

void JsonLine::boolean(std::string_view name, bool value) {
  key(name);
  out_.text(value ? "true" : "false");
}

void JsonLine::verbatim(std::string_view name, std::string_view json) {
  key(name);
  out_.text(json);
}

void JsonLine::fields(std::string_view made) {
  if (made.empty()) return;
  if (any_) out_.ch(',');
  any_ = true;
  out_.text(made);
}

void JsonLine::end() { out_.text("}\n"); }

}  // namespace ptd::cli
