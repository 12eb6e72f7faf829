// The report as HTML: see page.h.
#include "cli/html/page.h"

#include <nlohmann/json.hpp>

#include "cli/html/page_files.h"
#include "cli/text/clean_text.h"

namespace ptd::cli {

namespace {

std::string html_text(std::string_view text) {
  std::string out;
  for (const char letter : shown(text)) {
    if (letter == '&')
      out += "&amp;";
    else if (letter == '<')
      out += "&lt;";
    else if (letter == '>')
      out += "&gt;";
    else if (letter == '"')
      out += "&quot;";
    else
      out += letter;
  }
  return out;
}

/// Cuts text at `most_bytes`, between two characters.
void cut(std::string& text, size_t most_bytes) {
  if (text.size() <= most_bytes) return;
  size_t end = most_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) --end;
  text.resize(end);
  text += "...";
}

std::string shown_lines(const std::string& text) {
  TextBuffer clean;
  put_harmless(clean, text);
  return std::string(clean.view());
}

}  // namespace

void make_shown(nlohmann::json& json, size_t most_bytes) {
  if (json.is_string()) {
    auto& text = json.get_ref<std::string&>();
    const bool lines = text.ends_with('\n');  // a disassembly
    text = lines ? shown_lines(text) : shown(text);
    cut(text, lines ? 8 * most_bytes : most_bytes);
    return;
  }
  if (!json.is_structured()) return;
  for (nlohmann::json& each : json) make_shown(each, most_bytes);
}

std::string script_json(const nlohmann::json& json) {
  const std::string text = json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  for (const char letter : text) {
    if (letter == '<')
      out += "\\u003c";
    else if (letter == '>')
      out += "\\u003e";
    else if (letter == '&')
      out += "\\u0026";
    else
      out += letter;
  }
  return out;
}

std::string page_text(std::string_view title, const nlohmann::json& data) {
  std::string out;
  std::string_view left = page_file("report.html");
  while (!left.empty()) {  // "@NAME@" on a line of its own is replaced; what replaces it is not looked at again
    const std::string_view line = left.substr(0, left.find('\n') + 1);
    left.remove_prefix(line.empty() ? left.size() : line.size());
    if (line == "@TITLE@\n") {
      out += "<title>" + html_text(title) + "</title>\n";
    } else if (line == "@STYLE@\n") {
      out += page_file("report.css");
    } else if (line == "@DATA@\n") {
      out += script_json(data);
    } else if (line == "@SCRIPT@\n") {
      for (const char* file : {"base.js", "summary.js", "timeline.js", "functions.js", "flame.js", "image.js", "main.js"})
        out += page_file(file);
    } else {
      out += line;
    }
  }
  return out;
}

}  // namespace ptd::cli
