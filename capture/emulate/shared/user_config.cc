// UserConfig: lines of names and numbers.
#include "capture/emulate/shared/user_config.h"

#include <charconv>
#include <functional>
#include <istream>
#include <sstream>

namespace ptd::emulate {
namespace {

/// Calls f(name, field) for every setting, so that writing and reading use the same list.
template <class Config, class F>
void each_field(Config& config, F&& f) {
  f("retcomp", config.pt.return_compression);
  f("long_tnt", config.pt.long_tnt);
  f("ip_compression", config.pt.ip_compression);
  f("tsc", config.pt.tsc);
  f("mtc", config.pt.mtc);
  f("cyc", config.pt.cyc);
  f("mtc_period", config.pt.mtc_period);
  f("cyc_threshold", config.pt.cyc_threshold);
  f("tsc_per_ctc", config.pt.tsc_per_ctc);
  f("bus_ratio", config.pt.bus_ratio);
  f("psb_period_bytes", config.pt.psb_period_bytes);
  f("pause_every_bytes", config.pt.pause_every_bytes);
  f("ete", config.ete);
  f("truth", config.truth);
  f("date_changes", config.date_changes);
  f("work_clock", config.work_clock);
  f("announce", config.announce);
  f("ran_code", config.ran_code);
  f("overflow_bytes", config.overflow_bytes);
  f("aux_sample_bytes", config.aux_sample_bytes);
  f("most_log_bytes", config.most_log_bytes);
  f("overflow_blocks", config.overflow_blocks);
}

}  // namespace

std::string hex_of(const std::string& text) {
  if (text.empty()) return "-";
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : text) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

std::string text_of_hex(const std::string& hex) {
  std::string text;
  if (hex == "-") return text;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
    text += static_cast<char>(value);
  }
  return text;
}

std::string to_text(const UserConfig& config) {
  std::ostringstream text;
  each_field(config, [&](const char* name, const auto& field) { text << name << ' ' << static_cast<uint64_t>(field) << '\n'; });
  return text.str();
}

std::map<std::string, uint64_t> read_values(std::istream& lines) {
  std::map<std::string, uint64_t> values;
  std::string name;
  uint64_t value = 0;
  while (lines >> name >> value) values[name] = value;
  return values;
}

UserConfig config_from_text(const std::string& text) {
  std::istringstream lines(text);
  const std::map<std::string, uint64_t> values = read_values(lines);
  UserConfig config;
  each_field(config, [&](const char* field_name, auto& field) {
    const auto known = values.find(field_name);
    if (known != values.end()) field = static_cast<std::remove_reference_t<decltype(field)>>(known->second);
  });
  return config;
}

}  // namespace ptd::emulate
