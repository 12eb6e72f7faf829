// The survey as JSON: see survey_json.h.
//
// Written without a JSON library: the destructor of nlohmann::json allocates, so a lack of memory there ends the process.
#include "recording/survey_json.h"

#include <array>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ptd {

namespace {

bool bounded(Interval time) { return time.first != kTimeMin && time.last != kTimeMax; }

constexpr uint32_t kReplacement = 0xfffd;  // U+FFFD, for bytes that are not UTF-8

/// Takes the first character of `text`, which is not empty. Source: RFC 3629, section 4.
uint32_t take_character(std::string_view& text) {
  const auto byte = [&text](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned lead = byte(0);
  const size_t more = lead < 0x80 ? 0 : lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  uint32_t character = more == 0 ? lead : lead & (0x3fU >> more);
  bool good = lead < 0x80 || (0xc2 <= lead && lead <= 0xf4);
  for (size_t i = 1; i <= more; ++i) {
    good = good && (byte(i) & 0xc0U) == 0x80;
    character = character << 6U | (byte(i) & 0x3fU);
  }
  const bool is_surrogate = 0xd800 <= character && character <= 0xdfff;
  const std::array<uint32_t, 4> least = {0, 0x80, 0x800, 0x10000};
  good = good && character >= least[more] && character <= 0x10ffff && !is_surrogate;
  text.remove_prefix(good ? more + 1 : 1);
  return good ? character : kReplacement;
}

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
  void add_unit(uint32_t unit) {
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += "0123456789abcdef"[unit >> shift & 15U];
  }
  void add_text(std::string_view text) {
    constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    out_ += '"';
    while (!text.empty()) {
      const uint32_t character = take_character(text);
      const size_t at = character < 0x7f ? kShort.find(static_cast<char>(character)) : std::string_view::npos;
      if (at != std::string_view::npos) {
        out_ += '\\';
        out_ += kLetters[at];
      } else if (character >= 0x20 && character < 0x7f) {
        out_ += static_cast<char>(character);
      } else if (character < 0x10000) {
        add_unit(character);
      } else {  // RFC 8259, section 7: a surrogate pair
        add_unit(0xd7c0 + (character >> 10U));
        add_unit(0xdc00 + (character & 0x3ffU));
      }
    }
    out_ += '"';
  }

  std::string out_;
  size_t depth_ = 0;
  bool is_first_ = true, has_key_ = false;
};

}  // namespace

std::string survey_json(const Survey& survey) {
  JsonText json;
  const auto times = [&json](std::string_view key, Interval time) {
    json.key(key).open('[');
    json.value(time.first.value);
    json.value(time.last.value);
    json.close(']');
  };
  json.open('{');  // the names are in alphabetical order
  json.pair("clock", survey.clock);
  json.pair("command", survey.command);
  json.pair("cpu", survey.cpu);
  json.pair("cpuid", survey.cpuid);
  json.pair("file_bytes", survey.file_bytes);
  json.pair("form", survey.form);
  json.pair("host", survey.hostname);
  json.list("images", survey.images, [&json](const SurveyImage& image) {
    json.pair("build_id", image.build_id);
    json.pair("by_id_alone", image.by_id_alone);
    json.pair("file", image.file);
    json.pair("found", image.found);
    json.pair("from", image.from);
    json.pair("path", image.path);
    json.pair("reason", image.reason);
  });
  json.pair("kernel", survey.kernel);
  json.pair("kernel_copy", survey.kernel_copy);
  json.key("other_events").open('{');
  for (const auto& [name, count] : survey.other_events) json.pair(name, count);
  json.close('}');
  json.pair("schema", "ptdecode-info-1");
  json.pair("snapshot", survey.snapshot);
  json.list("streams", survey.streams, [&json, &times](const SurveyStream& stream) {
    json.pair("bytes", stream.size_bytes);
    json.pair("cpu", stream.cpu);
    json.pair("source", stream.source);
    json.pair("tid", stream.tid);
    if (bounded(stream.time)) times("time_ns", stream.time);
  });
  json.pair("switches", survey.switches);
  json.pair("text_pokes", survey.text_pokes);
  json.list("threads", survey.threads, [&json](const ThreadInfo& thread) {
    json.pair("comm", thread.comm);
    json.pair("pid", thread.pid);
    json.pair("tid", thread.tid);
  });
  if (bounded(survey.time)) times("time_ns", survey.time);
  json.pair("timing", survey.timing);
  json.pair("trace", survey.trace);
  json.pair("trace_bytes", survey.trace_bytes);
  json.pair("traces_kernel", survey.traces_kernel);
  json.pair("traces_user", survey.traces_user);
  if (survey.has_wall_clock) json.pair("wall_offset_ns", survey.wall_offset_ns);
  json.pair("warnings", survey.warnings);
  json.close('}');
  return json.take();
}

}  // namespace ptd
